"""Kill a training again and again, resume it from its checkpoints, and get the same weights, bit for bit."""

import argparse
import os
import pickle
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import batchup_ng as bu
from batchup_ng.demo.classifier import Classifier
from batchup_ng.demo.digits import load_digits

EPOCHS, BATCH_SIZE, SEED = 5, 32, 1


def augment(images, labels, rng):
    """Shift each image sideways and add noise; each sample has its own random numbers, the same in every run."""
    columns = np.arange(8) + rng.integers(-1, 2)[:, None]
    shifted = np.take_along_axis(images, columns.clip(0, 7)[:, None, :], axis=2)
    return shifted / np.float32(16) + rng.normal(size=(8, 8)).astype(np.float32) / 10, labels.astype(np.int64)


def train(checkpoint):
    """Train, resuming from the checkpoint if there is one; print a line for each batch."""
    network, state = pickle.loads(checkpoint.read_bytes()) if checkpoint.exists() else (Classifier(64, 10), None)
    with bu.WorkerProcessPool(2) as pool:
        digits = pool.parallel_data_source(bu.ArrayDataSource(list(load_digits())).map(augment, rng="sample"))
        for batches in digits.epochs(EPOCHS, BATCH_SIZE, shuffle=SEED, state=state):
            for number, (x, y) in enumerate(batches):
                network.train_batch(x, y)
                if number % 5 == 0:
                    save(checkpoint, (network, batches.state_dict()))
                print("batch", flush=True)
    save(checkpoint, (network, batches.state_dict()))


def save(path, what):
    """Write the weights, the optimiser and the iterator's state to one file, which is never incomplete."""
    unfinished = path.with_suffix(".unfinished")
    with open(unfinished, "wb") as file:
        pickle.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def run(checkpoint, kill_after):
    """Train in a new process and kill it after `kill_after` batches; return whether it finished."""
    with subprocess.Popen([sys.executable, __file__, "--train", checkpoint], stdout=subprocess.PIPE) as process:
        for number, _ in enumerate(process.stdout, start=1):
            if number == kill_after:
                process.kill()
    return process.returncode == 0


parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=random.randrange(1000), help="of the batches at which it is killed")
parser.add_argument("--train", type=Path, metavar="CHECKPOINT", help="only train, in this process")
options = parser.parse_args()
if options.train:
    train(options.train)
    sys.exit()

kills, draws = 0, random.Random(options.seed)
with tempfile.TemporaryDirectory() as folder:
    broken, unbroken = Path(folder, "broken"), Path(folder, "unbroken")
    while not run(broken, kill_after=draws.randint(20, 120)):
        kills += 1
    run(unbroken, kill_after=None)
    (one, _), (other, _) = (pickle.loads(path.read_bytes()) for path in (broken, unbroken))

same = all(a.tobytes() == b.tobytes() for a, b in zip(one.weights, other.weights, strict=True))
print(f"killed {kills} times (--seed {options.seed}); weights equal, bit for bit, to those of an unbroken run: {same}")
