import os

import grain
import numpy as np
from model import load, save, train_step

ranks = grain.sharding.ShardOptions(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
data = [*zip(*np.load("train.npz").values(), strict=True)]
data = grain.MapDataset.source(data).seed(1).shuffle().repeat(2)
batches = iter(grain.experimental.ElasticIterator(data, 4 * ranks.shard_count, ranks))
if state := load():
    batches.set_state(state)
for batch in batches:
    train_step(batch)
    save(batches.get_state())
