"""Train a PyTorch network on image files; the tensors share the memory that the worker wrote."""

import tempfile

import numpy as np
import torch

import batchup_ng as bu
from batchup_ng.demo.digits import write_digits
from batchup_ng.frameworks.torch import to_torch

EPOCHS, SEED = 10, 1
torch.manual_seed(SEED)
torch.set_num_threads(1)


def to_unit_range(images, labels):
    """Return one grey channel per image, from 0 to 1: (n, 8, 8, 1) float32."""
    return images[..., None].astype(np.float32) / 255, labels


network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 4 * 4, 10),
)
optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
loss_function = torch.nn.CrossEntropyLoss()

with tempfile.TemporaryDirectory() as folder:
    paths, labels = write_digits(folder)
    digits = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L"), labels]).map(to_unit_range)
    train, test = bu.split(digits, [0.75, 0.25], SEED, stratify=labels)

    with bu.Loader(train, 32, shuffle=SEED) as loader:
        batches = bu.watch(to_torch(loader, channels_first=True))  # device="cuda" would copy ahead
        for _ in range(EPOCHS):
            for x, y in batches:
                optimiser.zero_grad()
                loss = loss_function(network(x), y)
                loss.backward()
                optimiser.step()

    right = 0
    with torch.no_grad():
        for x, y in to_torch(test.batch_iterator(128), channels_first=True):
            right += int((network(x).argmax(1) == y).sum())
    print(f"test accuracy {right / test.num_samples():.3f} after {EPOCHS} epochs in torch {torch.__version__}")
