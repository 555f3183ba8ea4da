"""Save weights, optimiser and iterator state with torch.distributed.checkpoint, and resume from them."""

import tempfile
import warnings

import numpy as np
import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

EPOCHS, SEED, SAVE_AFTER = 3, 1, 100
torch.set_num_threads(1)
warnings.filterwarnings("ignore", "torch.distributed is disabled")  # this is a single process on purpose


def augment(images, labels, rng):
    """Add noise; each sample has its own row of random numbers."""
    return images / np.float32(16) + rng.normal(size=(8, 8)).astype(np.float32) / 10, labels.astype(np.int64)


class Training:
    """A network and its optimiser; torch saves objects that have `state_dict` and `load_state_dict`."""

    def __init__(self):
        torch.manual_seed(SEED)
        self.network = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=0.003)

    def train_batch(self, x, y):
        self.optimiser.zero_grad()
        torch.nn.functional.cross_entropy(self.network(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        self.optimiser.step()

    def state_dict(self):
        return dict(zip(("network", "optimiser"), get_state_dict(self.network, self.optimiser), strict=True))

    def load_state_dict(self, state):
        set_state_dict(
            self.network,
            self.optimiser,
            model_state_dict=state["network"],
            optim_state_dict=state["optimiser"],
        )


# One stream of all epochs, each in an order of its own, so that there is one iterator to save.
digits = bu.repeat(bu.ArrayDataSource(list(load_digits())).map(augment, rng="sample"), EPOCHS)
with tempfile.TemporaryDirectory() as folder:
    with bu.WorkerThreadPool(2) as pool, pool.parallel_data_source(digits).batch_iterator(32, shuffle=SEED) as batches:
        unbroken = Training()
        for step, (x, y) in enumerate(batches, start=1):
            unbroken.train_batch(x, y)
            if step == SAVE_AFTER:
                checkpoint.save({"training": unbroken, "data": batches}, checkpoint_id=folder)

    # This may run in another process, on another machine, with other workers or none.
    resumed, batches = Training(), digits.batch_iterator(32, shuffle=SEED)
    checkpoint.load({"training": resumed, "data": batches}, checkpoint_id=folder)
    print(f"{len(batches)} of {step} batches are left after step {SAVE_AFTER}")
    for x, y in batches:
        resumed.train_batch(x, y)

pairs = zip(unbroken.network.parameters(), resumed.network.parameters(), strict=True)
print(f"weights equal to those of the unbroken run: {all(torch.equal(a, b) for a, b in pairs)}")
