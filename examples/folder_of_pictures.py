"""Train PyTorch on photographs, a folder for each class: decode once, leave out broken files, augment."""

import os
import tempfile
import warnings

import numpy as np
import torch
from PIL import Image
from skimage import data

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.frameworks.torch import to_torch

EPOCHS, SEED, SIDE = 8, 1, 64
CLASSES = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "retina", "rocket")
torch.manual_seed(SEED)
torch.set_num_threads(1)


def write_crops(folder, each=120):
    """Write crops of scikit-image's photographs as JPEG, a folder for each photograph; two files are broken."""
    rng = np.random.default_rng(SEED)
    for name in CLASSES:
        photograph = getattr(data, name)()
        os.makedirs(os.path.join(folder, name))
        for number in range(each):
            side = rng.integers(120, 260)
            top, left = rng.integers(0, np.array(photograph.shape[:2]) - side)
            crop = Image.fromarray(photograph[top : top + side, left : left + side])
            crop.save(os.path.join(folder, name, f"{number:03}.jpg"), quality=90)
    for name in CLASSES[:2]:
        os.truncate(os.path.join(folder, name, "007.jpg"), 300)


# Operations on whole batches, with random numbers for each sample. The last returns (n, 3, h, w) float32.
normalize = augment.normalize(mean=0.5, std=0.5, layout="NCHW")
training = augment.compose(
    augment.flip(), augment.random_crop(SIDE, padding=6), augment.color_jitter(brightness=0.2, contrast=0.2), normalize
)

network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, stride=4),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(32, len(CLASSES)),
)
optimiser = torch.optim.Adam(network.parameters(), lr=0.005)
loss_function = torch.nn.CrossEntropyLoss()

with tempfile.TemporaryDirectory() as folder:
    root, bad = os.path.join(folder, "pictures"), os.path.join(folder, "bad.csv")
    write_crops(root)
    with warnings.catch_warnings():  # decoding every image warns of the first broken one
        warnings.simplefilter("ignore", bu.SampleWarning)
        with bu.Loader(bu.from_folder(root, SIDE), 64, on_error="skip") as loader:
            for _ in loader:
                pass
            print(bu.write_errors(loader, bad), "broken files")

    pictures = bu.from_folder(root, SIDE, exclude=bad)
    print(pictures.report)
    train, test = bu.split(pictures.cache(), [0.75, 0.25], SEED, stratify="label")
    with bu.Loader(train.map(training), 32, shuffle=SEED) as loader:
        batches = bu.watch(to_torch(loader))
        for _ in range(EPOCHS):
            for x, y in batches:
                optimiser.zero_grad()
                loss_function(network(x), y).backward()
                optimiser.step()
    right = 0
    with torch.no_grad():
        for x, y in to_torch(test.map(normalize).batch_iterator(128)):
            right += int((network(x).argmax(1) == y).sum())
    accuracy = right / test.num_samples()
    print(f"test accuracy {accuracy:.3f} after {EPOCHS} epochs in torch")
