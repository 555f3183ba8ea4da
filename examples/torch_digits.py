"""Train a PyTorch network on image files; batches are NumPy arrays that torch takes without a copy."""

import tempfile

import numpy as np
import torch

import batchup_ng as bu
from batchup_ng.demo.digits import write_digits

EPOCHS, SEED = 10, 1
torch.manual_seed(SEED)
torch.set_num_threads(1)


def to_planes(images, labels):
    """Return one grey plane an image, 0 to 1: (n, 1, 8, 8) float32."""
    return images[:, None].astype(np.float32) / 255, labels


def to_tensors(images, labels):
    return torch.from_numpy(images), torch.from_numpy(labels)


network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(32 * 4 * 4, 10),
)
optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
loss_function = torch.nn.CrossEntropyLoss()

with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    paths, labels = write_digits(folder)
    digits = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L"), labels]).map(to_planes)
    parts = bu.split(digits, [0.75, 0.25], SEED, stratify=labels)
    # A map behind the pool runs in this process: convert arrays to tensors there.
    train, test = (pool.parallel_data_source(part).map(to_tensors) for part in parts)

    for batches in train.epochs(EPOCHS, 32, shuffle=SEED):
        for x, y in batches:
            optimiser.zero_grad()
            loss = loss_function(network(x), y)
            loss.backward()
            optimiser.step()

    right = 0
    with torch.no_grad():
        for x, y in test.batch_iterator(128):
            right += int((network(x).argmax(1) == y).sum())
    print(f"test accuracy {right / test.num_samples():.3f} after {EPOCHS} epochs in torch {torch.__version__}")
