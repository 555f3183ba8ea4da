"""The demo's job: digits as image files, augmented in the background, train a classifier.

The files lie in a temporary folder that is removed at the end, however the job ends.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..accessors.image_files import ImageFiles
from ..data_source import AbstractDataSource, ArrayDataSource, split
from ..loader import Loader
from ..randomness import SampleRng
from ..validation import not_negative, positive_int
from .classifier import Classifier
from .digits import write_digits

WANTED_ACCURACY = 0.95
# BLAS shares products of larger matrices out to its own threads, which then compete with the pool's for CPUs.
_BATCH_SIZE = 32
_TEST_FRACTION = 0.25

Progress = Callable[..., Any]


def run_demo(
    pool: str = "auto",
    workers: int | None = None,
    epochs: int = 20,
    seed: int = 1,
    say: Callable[[str], object] = print,
    progress: Progress | None = None,
) -> float:
    """Run the job. Return the share of the test digits that the network classifies correctly at the end, 0 to 1.

    Args:
        pool: The pool that makes the training batches: ``auto``, ``serial``, ``threads`` or ``processes``.
        workers: Number of workers. Default: all CPUs available to this process.
        epochs: Passes over the training digits.
        seed: Seed of the split, the order, the shifts and the network's initial weights.
        say: Takes each line of the report.
        progress: A function like ``tqdm.tqdm`` that draws one bar per epoch; None draws none.
    """
    positive_int("epochs", epochs)
    not_negative("seed", seed)
    with tempfile.TemporaryDirectory(prefix="batchup_ng-demo-") as folder:
        train, test = digit_sources(Path(folder), seed)
        with Loader(train, _BATCH_SIZE, shuffle=seed, pool=pool, workers=workers) as loader:
            network = Classifier(64, 10, seed=seed)
            for number in range(1, epochs + 1):
                batches = iter(loader)
                if number == 1:
                    say(f"{test.num_samples()} digits to test on; to train on: {loader}")
                speed = train_epoch(network, batches, progress, f"epoch {number}")
                accuracy = measure_accuracy(network, test)
                say(f"epoch {number:2d}: {speed}, accuracy {accuracy:.3f}")
    return accuracy


def digit_sources(folder: Path, seed: int) -> tuple[AbstractDataSource, AbstractDataSource]:
    """Write the digits into `folder`. Return the sources `(train, test)`.

    Their batches are ``(n, 8, 8) float32``, 0 to 1, and ``(n,) int64``.
    """
    paths, labels = write_digits(folder)
    digits = ArrayDataSource([ImageFiles(paths, size=(8, 8), mode="L"), labels])
    train, test = split(digits, [1.0 - _TEST_FRACTION, _TEST_FRACTION], seed, stratify=labels)
    return train.map(random_shift, rng="sample").map(to_unit_range), test.map(to_unit_range)


def random_shift(images: np.ndarray, labels: np.ndarray, rng: SampleRng) -> tuple[np.ndarray, np.ndarray]:
    """Shift half of the images by up to a pixel each way, and fill with black: ``(n, 8, 8) uint8``."""
    n, height, width = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    step = rng.integers(-1, 2, size=2) * rng.bernoulli(0.5)[:, None]
    rows = 1 + step[:, :1] + np.arange(height)
    columns = 1 + step[:, 1:] + np.arange(width)
    return padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]], labels


def to_unit_range(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the grey values as ``float32``, 0 to 1."""
    return images.astype(np.float32) / np.float32(255.0), labels


def train_epoch(network: Classifier, batches: Any, progress: Progress | None, title: str) -> str:
    """Train on every batch of one epoch; return its speed and its share of waiting, in words."""
    rows, started = 0, time.perf_counter()
    shown = progress and progress(batches, total=len(batches), desc=title, leave=False, disable=None)
    with contextlib.closing(shown or batches) as shown:
        for x, y in shown:
            network.train_batch(x, y)
            rows += len(y)
    seconds = time.perf_counter() - started
    waited = min(batches.stats()["wait_seconds"] / seconds, 1.0)
    return f"{rows / seconds:6,.0f} samples/s, {waited:4.0%} of the time spent waiting for data"


def measure_accuracy(network: Classifier, source: AbstractDataSource) -> float:
    """Return the share of the samples of `source` that `network` classifies correctly, 0 to 1."""
    right = rows = 0
    for x, y in source.batch_iterator(_BATCH_SIZE):
        right += int((network.predict(x) == y).sum())
        rows += len(y)
    return right / rows
