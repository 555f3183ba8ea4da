"""The data of the workloads, which the parent makes once in a temporary folder that it wipes at the end.

- ``arrays``: 20,000 x 128x128x3 uint8 in RAM with int64 labels, 983 MB. Stored as one ``.npy`` file that *each
  peer loads into its own memory*. Mapping one shared file would be cheaper to set up but not fair: a
  ``numpy.memmap`` is not a plain array to everybody (joblib, for one, sends it to workers by its file name), so
  peers would be measured on data that their users do not have. Random labels below 2**40 make the sum of the labels
  a checksum. ``few-arrays`` is the same with 2,000 of them, 98 MB.
- ``images``: 2,000 JPEG files, 400-560 x 300-420 at quality 92, cut from two real photographs (synthetic pictures
  compress, hence decode, unlike real ones), wanted as 224x224x3 RGB uint8.
- ``python``: about 0.5 ms of pure-Python arithmetic a sample. The loop count is calibrated once by the parent, so
  that all peers do the same work; a Lehmer generator is used since its n-th state has a closed form, from which
  the expected sum is had without doing the work.
- ``tiny``: 320,000 samples of one int32 each, with a map that does nothing. Its batches have one array only.
- ``order``: 10**8 rows that are their own numbers, of which only the order costs anything; ``long-order`` has 10**12.
- ``weights``: a weight for each of 10**8 rows, which each peer makes itself; one in ten is 0.
- ``none``: no data, for what is measured without any.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.workloads import MODULUS, MULTIPLIER, Workload, calibrate_loops, decode, image_path, probe

BATCH_SIZE = 64
ORDER_BATCH_SIZE = 1024
DRAWS_BATCH_SIZE = 256
SAMPLE_SECONDS = 0.0005
LABEL_LIMIT = 2**40


class MissingPhotographs(RuntimeError):
    """The package that the photographs are taken from is not installed."""


def make(kind: str, folder: Path, *, quick: bool = False) -> Workload:
    """Write the data of one workload.

    Args:
        kind: One of :data:`KINDS`.
        folder: An empty folder to write to.
        quick: Tiny sizes, to try the harness itself; figures mean nothing then.

    Raises:
        MissingPhotographs: ``images`` was asked for without scikit-learn.
    """
    return KINDS[kind](folder, quick)


def _make_arrays(folder: Path, quick: bool, *, full: int) -> Workload:
    samples, side = (200, 16) if quick else (full, 128)
    rng = np.random.default_rng(0)
    labels = _save_labels(folder, samples)
    images = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=(samples, side, side, 3))
    for start in range(0, samples, 1000):
        part = images[start : start + 1000]
        part[...] = np.frombuffer(rng.bytes(part.size), np.uint8).reshape(part.shape)
    images.flush()
    return Workload(
        kind="arrays",
        folder=str(folder),
        samples=samples,
        batch_size=BATCH_SIZE,
        size=(side, side),
        y_sum=int(labels.sum()),
        x_sum=int(probe(images).sum()),
        nbytes=images.nbytes,
    )


def _make_images(folder: Path, quick: bool) -> Workload:
    samples, size = (80, (224, 224)) if quick else (2_000, (224, 224))
    photographs = _photographs()
    labels = _save_labels(folder, samples)
    with ThreadPoolExecutor() as executor:
        reds = executor.map(lambda row: _write_crop(photographs, folder, row, size), range(samples))
        x_sum = sum(reds)
    return Workload(
        kind="images",
        folder=str(folder),
        samples=samples,
        batch_size=BATCH_SIZE,
        size=size,
        y_sum=int(labels.sum()),
        x_sum=x_sum,
    )


def _make_python(folder: Path, quick: bool) -> Workload:
    samples, loops = (200, 20) if quick else (4_000, calibrate_loops(SAMPLE_SECONDS))
    rows = range(samples)
    return Workload(
        kind="python",
        folder=str(folder),
        samples=samples,
        batch_size=BATCH_SIZE,
        loops=loops,
        y_sum=sum((row + 1) * pow(MULTIPLIER, loops, MODULUS) % MODULUS for row in rows),
        x_sum=sum(rows),
    )


def _make_tiny(folder: Path, quick: bool) -> Workload:
    samples = 640 if quick else 320_000
    total = samples * (samples - 1) // 2
    return Workload(
        kind="tiny", folder=str(folder), samples=samples, batch_size=BATCH_SIZE, x_sum=total, y_sum=total
    )


def _make_none(folder: Path, quick: bool) -> Workload:
    return Workload(kind="none", folder=str(folder), samples=0, batch_size=BATCH_SIZE)


def _make_order(folder: Path, quick: bool, *, full: int, tiny: int) -> Workload:
    samples = tiny if quick else full
    total = samples * (samples - 1) // 2
    return Workload(
        kind="order", folder=str(folder), samples=samples, batch_size=ORDER_BATCH_SIZE, x_sum=total, y_sum=total
    )


def _make_weights(folder: Path, quick: bool) -> Workload:
    samples = 100_000 if quick else 10**8
    return Workload(kind="weights", folder=str(folder), samples=samples, batch_size=DRAWS_BATCH_SIZE)


KINDS: dict[str, Callable[[Path, bool], Workload]] = {
    "arrays": partial(_make_arrays, full=20_000),
    "few-arrays": partial(_make_arrays, full=2_000),
    "images": _make_images,
    "python": _make_python,
    "tiny": _make_tiny,
    "order": partial(_make_order, full=10**8, tiny=10**5),
    "long-order": partial(_make_order, full=10**12, tiny=10**12),
    "weights": _make_weights,
    "none": _make_none,
}


def _save_labels(folder: Path, samples: int) -> NDArray[np.int64]:
    labels = np.random.default_rng(1).integers(0, LABEL_LIMIT, samples, dtype=np.int64)
    np.save(folder / "labels.npy", labels)
    return labels


def _photographs() -> list[Image.Image]:
    try:
        from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]  # ships no types
    except ImportError as error:
        raise MissingPhotographs(
            "the images workload cuts its pictures from the two photographs of scikit-learn, which is not installed; "
            "install it with: pip install 'batchup_ng[benchmarks]' (or: pip install scikit-learn)"
        ) from error
    return [Image.fromarray(photograph) for photograph in load_sample_images().images]


def _write_crop(photographs: list[Image.Image], folder: Path, row: int, size: tuple[int, int]) -> int:
    """Cut, scale, perhaps flip and save one picture; returns its probe after decoding."""
    rng = np.random.default_rng((2, row))
    photograph = photographs[row % len(photographs)]
    width, height = int(rng.integers(400, 561)), int(rng.integers(300, 421))
    part = rng.uniform(0.75, 1.0)
    cut_width, cut_height = round(width * part), round(height * part)
    left = int(rng.integers(0, photograph.width - cut_width + 1))
    top = int(rng.integers(0, photograph.height - cut_height + 1))
    crop = photograph.crop((left, top, left + cut_width, top + cut_height)).resize((width, height))
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    encoded = io.BytesIO()
    crop.save(encoded, "JPEG", quality=92)
    image_path(folder, row).write_bytes(encoded.getbuffer())
    return int(probe(decode(encoded, size)[None]).sum())
