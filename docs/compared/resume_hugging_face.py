import os

import numpy as np
from datasets import Dataset
from model import load, save, train_step
from torch.utils.data import DataLoader

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
data = Dataset.from_dict(dict(np.load("train.npz"))).with_format("torch")
first, done = load() or (0, 0)
for epoch in range(first, 2):
    rows = np.random.default_rng(epoch).permutation(len(data))[done:]
    rows = np.append(rows, rows[: -len(rows) % world])[rank::world]
    for batch in DataLoader(data.select(rows), 4, num_workers=2):
        train_step(batch)
        done += 4 * world
        save((epoch, done))
    done = 0
