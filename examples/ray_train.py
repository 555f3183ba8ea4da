"""Train with Ray Train (`ray[train]`) on two trainers, each fed by actors on nodes without a trainer."""

import os
import tempfile

os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"})  # for a cluster of this program alone

import numpy as np
import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
from torch import distributed
from torch.nn.functional import cross_entropy

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits
from batchup_ng.frameworks.torch import to_torch

TRAINERS, ACTORS, EPOCHS, BATCH_SIZE, SEED = 2, 2, 8, 16, 1


def to_unit_range(rows, images, labels):
    return rows, images.reshape(len(rows), 64) / np.float32(16), labels.astype(np.int64)


def train():
    """Train in one of the processes that Ray Train starts; 16 samples in each make a batch of 32."""
    torch.manual_seed(SEED)
    network = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)

    images, labels = load_digits()
    digits = bu.ArrayDataSource([images, labels], include_indices=True).map(to_unit_range)
    times_seen, right = torch.zeros(EPOCHS, len(labels)), torch.zeros(())
    # A pool belongs to one process: each trainer has actors of its own, which Ray starts where there is some "data".
    # shard="auto" asks torch.distributed, which Ray Train has initialized. All ranks get equally many samples: if the
    # last ones cannot be shared evenly, some ranks get a sample twice, with `real` False.
    options = {"shuffle": SEED, "shard": "auto", "pad_mask": True}
    pool = bu.WorkerRayPool(actors=ACTORS, resources={"data": 1})
    with pool, bu.Loader(digits, BATCH_SIZE, pool=pool, **options) as loader:
        for epoch in range(EPOCHS):
            for rows, x, y, real in to_torch(loader):
                guesses = network(x)
                optimiser.zero_grad()
                (cross_entropy(guesses, y, reduction="none") * real).mean().backward()
                optimiser.step()
                times_seen[epoch, rows[real]] += 1
                right += (epoch == EPOCHS - 1) * (guesses.argmax(1) == y)[real].sum()
        actors = torch.tensor(len(pool.stats()))
        saved = {"network": network.module.state_dict(), "data": loader.state_dict()}  # the same in each trainer
    for counted in (times_seen, right, actors):
        distributed.all_reduce(counted)  # the sum of all trainers
    told = {"once": bool((times_seen == 1).all()), "accuracy": right.item() / len(labels), "actors": actors.item()}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(saved, f"{folder}/checkpoint.pt")
        first = distributed.get_rank() == 0
        ray.train.report(told, checkpoint=ray.train.Checkpoint.from_directory(folder) if first else None)


# Here one machine simulates the nodes. On a cluster, start GPU nodes by `ray start --resources='{"trainer": 8}'` and
# CPU nodes by `ray start --resources='{"data": 64}'`, call `ray.init()`, and set use_gpu=True and a storage_path that
# all nodes share.
room = {"trainer": TRAINERS, "data": TRAINERS * ACTORS}
ray.init("local", num_cpus=sum(room.values()), resources=room, log_to_driver=False)
with tempfile.TemporaryDirectory() as folder:
    result = TorchTrainer(
        train,
        scaling_config=ray.train.ScalingConfig(num_workers=TRAINERS, resources_per_worker={"CPU": 1, "trainer": 1}),
        run_config=ray.train.RunConfig(storage_path=folder),
    ).fit()
ray.shutdown()

told = result.metrics
print(f"{TRAINERS} trainers, fed by {told['actors']} actors; accuracy {told['accuracy']:.3f} in the last epoch")
print(f"{EPOCHS} epochs, each sample seen exactly once in each: {told['once']}")
