"""The source of ``test_matrix.py``, an epoch of 96 batches with every kind of randomness; shared with a program.

Run as a program it goes on from saved states in a process of its own: see :func:`main`.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.testing.comparison import digest_of, layout_of

BATCHES = 96
SIZE = 4
ROWS = BATCHES * SIZE
SEED = 11
EPOCH = 2
KINDS = ("serial", "threads", "processes")
WORKERS = (1, 2, 4)
BUFFERS = (1, 7)
WORLDS = (1, 2, 3)
LOOKED_AT = 4
"""Batches that are compared after a resume; all if thorough."""
BAD = 41
"""Every so many rows one cannot be made, in a source with bad samples."""


def by_sample(x: np.ndarray, rng: bu.SampleRng) -> Any:
    return x, x + rng.normal()


def by_batch(x: np.ndarray, rng: np.random.Generator) -> Any:
    return (x * 0.5, rng.normal(size=(3, len(x))).T)


def accompanied(x: np.ndarray, drawn: np.ndarray, others: list[Any], rng: bu.SampleRng) -> Any:
    return (np.stack([x, drawn, *[part for other in others for part in other]], axis=1) + rng.random((1,)),)


def one_by_one(x: float, rng: np.random.Generator) -> Any:
    return x, rng.integers(1 << 40)


def by_globals(*batch: Any) -> Any:
    return (*batch, np.random.normal(size=len(batch[0])) + random.random())


def refuse(x: np.ndarray) -> Any:
    if (x % BAD == 7).any():
        raise ValueError(f"rows {x} have a bad one")
    return (x,)


def augmented(old: bool = False, bad: bool = False) -> Any:
    """Return the source; with `old` its last map draws from global generators, with `bad` some samples fail."""
    rows = np.arange(ROWS, dtype=np.float64)
    halves: list[Any] = [bu.ArrayDataSource([part]) for part in (rows[:250], rows[250:])]
    if bad:
        halves = [half.map(refuse) for half in halves]
    whole = bu.concat(halves[0], bu.subset(halves[1], np.arange(ROWS - 250)))
    parts = [whole.map(by_sample, rng="sample"), whole.map(by_batch, rng="batch")]
    if not bad:  # one bad sample would be another in each part
        parts.append(halves[0].map(lambda x: (x,)).map_samples(one_by_one, rng="sample"))
        parts[2] = bu.subset(parts[2], np.arange(ROWS) % 250)
        parts.append(whole.map(by_sample, rng="sample").map(accompanied, rng="sample", companions=2))
    made = bu.zip(*parts)
    return made.map(by_globals) if old else made


IMAGES = 96
SIZES = (5, 20, 24, 48)
"""Images of 15, 61, 74 and 147 kB: on both sides of the 64 KiB from which on memory is lent, and well above."""
FLIP = augment.flip()


def seen_twice(x: np.ndarray, y: np.ndarray, rng: bu.SampleRng) -> Any:
    """Two views of each image, as for contrastive learning."""
    return FLIP(x, rng=rng)[0], FLIP(x, y, rng=rng)[0], y


def beside_its_change(x: np.ndarray, y: np.ndarray, rng: bu.SampleRng) -> Any:
    return x, augment.compose(augment.cutout(), FLIP)(x, rng=rng)[0], y


def changed_again(*batch: np.ndarray, rng: bu.SampleRng) -> Any:
    cut = augment.random_crop(30)(batch[0], rng=rng)[0]
    return (cut, FLIP(cut, rng=rng)[0], FLIP(cut[:, ::-1], rng=rng)[0], *batch)


def written_to(x: np.ndarray, *others: np.ndarray) -> Any:
    np.invert(x, out=x)
    return x, x[:, ::-1], *others


KEPT = np.full((max(SIZES), 32, 32, 3), 7, np.uint8)


def beside_what_stays(x: np.ndarray, y: np.ndarray) -> Any:
    return KEPT[: len(x)], x, y


def views() -> dict[str, Any]:
    """Return sources of images whose maps show the same memory twice."""
    x = np.random.default_rng(5).integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    source, flip = bu.ArrayDataSource([x, np.arange(IMAGES)]), augment.flip(p=1.0)
    twice = source.map(seen_twice, rng="sample")
    return {
        "twice": twice,
        "beside": source.map(beside_its_change, rng="sample"),
        "of views": source.views(2, augment.compose(FLIP, augment.cutout())).map(changed_again, rng="sample"),
        "in a chain": source.map(FLIP, rng="sample").map(seen_twice, rng="sample").map(changed_again, rng="sample"),
        "in place": twice.map(written_to).map(augment.compose(flip, augment.cutout()), rng="sample"),
        "of a constant": source.map(beside_what_stays).map(flip, rng="sample").map(changed_again, rng="sample"),
        "with companions": source.map(augment.cutmix(num_classes=IMAGES), companions=1),
        "mosaics": source.map(augment.mosaic(40), on=0, companions=3).map(changed_again, rng="sample"),
        "joined": bu.zip(source, source.map(written_to)).map(changed_again, rng="sample"),
    }


def open_pool(kind: str, workers: int) -> Any:
    """Return a pool whose workers run."""
    if kind == "serial":
        return bu.SerialPool()
    if kind == "threads":
        return bu.WorkerThreadPool(workers)
    pool = bu.WorkerProcessPool(workers)
    pool.shared_constant("the first use starts the workers")
    return pool


@contextlib.contextmanager
def opened(settings: Any) -> Iterator[dict[tuple[str, int], Any]]:
    """Give a pool for each kind and number of workers."""
    with contextlib.ExitStack() as stack:
        yield {setting: stack.enter_context(open_pool(*setting)) for setting in settings}


def main(inbox: str, outbox: str) -> None:
    """Go on from each state in a file, each with another pool; write digests of all the batches that are left."""
    told = json.loads(Path(inbox).read_text())
    source, tails = augmented(told["old"], told["bad"]), []
    with opened([tuple(setting) for setting in told["settings"]]) as pools:
        made = [
            pool.parallel_data_source(source, buffer, on_error=told["on_error"])
            for pool in pools.values()
            for buffer in BUFFERS
        ]
        for number, state in enumerate(told["states"]):
            with made[number % len(made)].batch_iterator(SIZE, SEED, state=state) as iterator:
                tails.append([digest_of([batch, layout_of(batch)]) for batch in iterator])
    Path(outbox).write_text(json.dumps(tails))


if __name__ == "__main__":
    main(*sys.argv[1:])
