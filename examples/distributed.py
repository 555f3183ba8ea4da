"""Train on 4 processes, stop in mid-epoch, go on with 2: all of the epoch is seen, each sample once."""

import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import distributed

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

BATCH_SIZE, SEED = 32, 1


def to_unit_range(rows, images, labels):
    return rows, images.reshape(len(rows), 64) / np.float32(16), labels.astype(np.int64)


def train(folder, n_batches):
    """Be one of the processes that torchrun starts: train for so many batches, or to the end of the epoch."""
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(SEED)  # the same first weights everywhere
    network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    checkpoint, state, seen = folder / "checkpoint", None, []
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        optimiser.load_state_dict(saved["optimiser"])
        state = saved["data"]  # that of one process is as good as that of any other

    images, labels = load_digits()
    digits = bu.ArrayDataSource([images, labels], include_indices=True).map(to_unit_range)
    with bu.WorkerThreadPool(1) as pool:
        # Rank and world size are those of torchrun. At the end some ranks get a sample again that another had, so that
        # all have as many; `real` is False for these.
        batches = pool.parallel_data_source(digits).batch_iterator(
            BATCH_SIZE, shuffle=SEED, shard="auto", pad_mask=True, state=state
        )
        for number, (rows, x, y, real) in enumerate(batches, start=1):
            losses = torch.nn.functional.cross_entropy(network(torch.from_numpy(x)), torch.from_numpy(y), reduction="none")
            optimiser.zero_grad()
            (losses * torch.from_numpy(real)).mean().backward()  # the mean of the gradients of all processes
            optimiser.step()
            seen.extend(rows[real].tolist())
            if number == n_batches:
                break
        if rank == 0:
            state = {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "data": batches.state_dict()}
            torch.save(state, checkpoint)
    np.save(folder / f"seen_by_{rank}_of_{world}.npy", seen)
    distributed.destroy_process_group()


def launch(processes, *arguments):
    """Run this script in several processes, as `torchrun --nproc_per_node=4 distributed.py` does."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    subprocess.run([*torchrun, __file__, *arguments], check=True, timeout=100)


if "RANK" in os.environ:  # torchrun sets it
    train(Path(sys.argv[1]), int(sys.argv[2]))
    sys.exit()

with tempfile.TemporaryDirectory() as folder:
    launch(4, folder, "8")
    launch(2, folder, "-1")
    seen = {path.stem: np.load(path) for path in sorted(Path(folder).glob("seen_*"))}

for name, rows in seen.items():
    print(f"{name}: {len(rows)} samples")
counts = np.bincount(np.concatenate(list(seen.values())), minlength=1797)
print(f"{len(counts)} samples of the epoch, each seen exactly once: {bool((counts == 1).all())}")
