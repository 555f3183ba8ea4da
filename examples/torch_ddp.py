"""Train with DistributedDataParallel on two processes; each gets its share of every epoch."""

import tempfile

import numpy as np
import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits
from batchup_ng.frameworks.torch import to_torch

WORLD, EPOCHS, BATCH_SIZE, SEED = 2, 8, 16, 1


def to_unit_range(images, labels):
    return images.reshape(len(labels), 64) / np.float32(16), labels.astype(np.int64)


def train_on(rank, folder):
    """Train in process `rank`; 16 samples in each process make a batch of 32."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=WORLD)
    torch.manual_seed(SEED + rank)  # DistributedDataParallel starts with the weights of rank 0
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    network = DistributedDataParallel(network)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)

    images, labels = load_digits()
    digits = bu.ArrayDataSource([images, labels]).map(to_unit_range)
    train, test = bu.split(digits, [0.75, 0.25], SEED, stratify=labels)
    # "auto" asks torch.distributed for the rank. The other options, and the seed, are the same in all processes.
    with bu.Loader(train, BATCH_SIZE, shuffle=SEED, shard="auto", workers=1) as loader:
        batches = bu.watch(to_torch(loader), print if rank == 0 else lambda waited: None)
        for _ in range(EPOCHS):
            for x, y in batches:
                optimiser.zero_grad()
                cross_entropy(network(x), y).backward()  # averages the gradients of the processes
                optimiser.step()

    x, y = to_torch(next(test.batch_iterator(len(labels))))
    with torch.no_grad():
        guesses = network.module(x)
    losses = [torch.zeros(()) for _ in range(WORLD)]
    distributed.all_gather(losses, cross_entropy(guesses, y))
    if rank == 0:
        accuracy = (guesses.argmax(1) == y).float().mean()
        print(f"test loss of each process: {', '.join(f'{loss:.6f}' for loss in losses)}; accuracy {accuracy:.3f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train_on, (folder,), nprocs=WORLD)
