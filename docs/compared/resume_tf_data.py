import os

import numpy as np
import tensorflow as tf
from model import load, save, train_step

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
data = tf.data.Dataset.from_tensor_slices(dict(np.load("train.npz")))
first, done = load() or (0, 0)
for epoch in range(first, 2):
    rows = data.shuffle(len(data), seed=epoch).skip(done)
    rows = rows.concatenate(rows.take(-len(rows) % world)).shard(world, rank)
    for batch in rows.batch(4).prefetch(2):
        train_step(batch)
        done += 4 * world
        save((epoch, done))
    done = 0
