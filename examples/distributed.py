"""Train on 4 processes, stop in mid-epoch, and resume with 2. Each sample of the epoch is seen once."""

import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import distributed
from torch.nn.functional import cross_entropy

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

BATCH_SIZE, SEED, RATE = 32, 1, 0.1


def to_unit_range(rows, images, labels):
    return rows, images.reshape(len(rows), 64) / np.float32(16), labels.astype(np.int64)


def train(folder, n_batches):
    """Train for `n_batches` batches, or to the end of the epoch, in each process that torchrun starts."""
    distributed.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(SEED)  # the same first weights everywhere
    network, checkpoint, state, seen = torch.nn.Linear(64, 10), folder / "checkpoint.pt", None, []
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        state = saved["data"]  # rank 0 saved it; the states of all ranks are the same

    images, labels = load_digits()
    digits = bu.ArrayDataSource([images, labels], include_indices=True).map(to_unit_range)
    with bu.WorkerThreadPool(1) as pool:
        # "auto" reads the rank and the world size that torchrun sets. All ranks get equally many samples: if the last
        # ones cannot be shared evenly, some ranks get a sample twice, with `real` False.
        options = {"shuffle": SEED, "shard": "auto", "pad_mask": True, "state": state}
        with pool.parallel_data_source(digits).batch_iterator(BATCH_SIZE, **options) as batches:
            for number, (rows, x, y, real) in enumerate(batches, start=1):
                losses = cross_entropy(network(torch.from_numpy(x)), torch.from_numpy(y), reduction="none")
                (losses * torch.from_numpy(real)).mean().backward()
                with torch.no_grad():  # plain gradient descent; DistributedDataParallel does the first line for you
                    for weights in network.parameters():
                        distributed.all_reduce(weights.grad)
                        weights -= RATE * weights.grad / world
                        weights.grad = None
                seen.extend(rows[real].tolist())
                if number == n_batches:
                    break
            if rank == 0:
                torch.save({"network": network.state_dict(), "data": batches.state_dict()}, checkpoint)
    np.save(folder / f"process_{rank}_of_{world}.npy", seen)
    distributed.destroy_process_group()


if "RANK" in os.environ:  # torchrun sets it, in each of the processes that it starts
    train(Path(sys.argv[1]), int(sys.argv[2]))
    sys.exit()

with tempfile.TemporaryDirectory() as folder:
    for processes, n_batches in [(4, 8), (2, -1)]:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--log-dir={folder}"]
        command = [*torchrun, f"--nproc_per_node={processes}", __file__, folder, str(n_batches)]
        subprocess.run(command, check=True)
    seen = {path.stem: np.load(path) for path in sorted(Path(folder).glob("process_*"))}

for name, rows in seen.items():
    print(f"{name} saw {len(rows)} samples")
counts = np.bincount(np.concatenate(list(seen.values())), minlength=1797)
print(f"{len(counts)} samples in the epoch, each seen exactly once: {bool((counts == 1).all())}")
