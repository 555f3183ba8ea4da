"""The data of the three workloads.

The parent makes the data once, in a temporary folder that it wipes at the end; peers get a :class:`Workload`, a
small JSON-able description, over their pipe. Every description carries sums that a complete epoch must reach,
whatever its order: a peer that drops, repeats or mixes up samples, or decodes to other pixels, is a failed
peer and not a fast one.

- ``arrays``: 20,000 x 128x128x3 uint8 in RAM with int64 labels, 983 MB. Stored as one ``.npy`` file that *each
  peer loads into its own memory*. Mapping one shared file would be cheaper to set up but not fair: a
  ``numpy.memmap`` is not a plain array to everybody (joblib, for one, sends it to workers by its file name), so
  peers would be measured on data that their users do not have. Random labels below 2**40 make the sum of the labels
  a checksum.
- ``images``: 2,000 JPEG files, 400-560 x 300-420 at quality 92, cut from two real photographs (synthetic pictures
  compress, hence decode, unlike real ones), wanted as 224x224x3 RGB uint8.
- ``python``: about 0.5 ms of pure-Python arithmetic a sample. The loop count is calibrated once by the parent, so
  that all peers do the same work; a Lehmer generator is used since its n-th state has a closed form, from which
  the expected sum is had without doing the work.
"""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

KINDS = ("arrays", "images", "python")
BATCH_SIZE = 64
MULTIPLIER, MODULUS = 48271, 2**31 - 1
SAMPLE_SECONDS = 0.0005
LABEL_LIMIT = 2**40


class MissingPhotographs(RuntimeError):
    """The package that the photographs are taken from is not installed."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a peer must deliver, and where its data lie.

    Attributes:
        kind: ``arrays``, ``images`` or ``python``.
        folder: Where the parent put the data.
        samples: Samples of one epoch.
        batch_size: Samples of a batch; the last one may be smaller.
        size: Height and width of a delivered picture; ``(0, 0)`` where there is none.
        loops: Steps of pure-Python work a sample; 0 where there is none.
        y_sum: What the second array of all batches sums up to.
        x_sum: What :func:`probe` of the first array of all batches sums up to.
        nbytes: Bytes that a peer holds in memory to begin with.
    """

    kind: str
    folder: str
    samples: int
    batch_size: int
    size: tuple[int, int] = (0, 0)
    loops: int = 0
    y_sum: int = 0
    x_sum: int = 0
    nbytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Workload:
        """The inverse of :meth:`to_json`."""
        height, width = fields["size"]
        return Workload(**{**fields, "size": (height, width)})


def make(kind: str, folder: Path, *, quick: bool = False) -> Workload:
    """Write the data of one workload.

    Args:
        kind: One of :data:`KINDS`.
        folder: An empty folder to write to.
        quick: Tiny sizes, to try the harness itself; figures mean nothing then.

    Raises:
        MissingPhotographs: ``images`` was asked for without scikit-learn.
    """
    return {"arrays": _make_arrays, "images": _make_images, "python": _make_python}[kind](folder, quick)


def probe(x: Any) -> Any:
    """One value a sample of a batch's first array, to sum: the middle pixel's red, or the sample itself.

    Args:
        x: ``(batch, height, width, 3)`` or ``(batch,)``, of NumPy or anything that indexes alike.
    """
    return x[:, x.shape[1] // 2, x.shape[2] // 2, 0] if x.ndim == 4 else x


def _make_arrays(folder: Path, quick: bool) -> Workload:
    samples, side = (200, 16) if quick else (20_000, 128)
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
    samples, loops = (200, 20) if quick else (4_000, calibrate_loops())
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


def _save_labels(folder: Path, samples: int) -> NDArray[np.int64]:
    labels = np.random.default_rng(1).integers(0, LABEL_LIMIT, samples, dtype=np.int64)
    np.save(folder / "labels.npy", labels)
    return labels


def image_path(folder: Path, row: int) -> Path:
    """Where the picture of a row lies."""
    return folder / f"{row:05d}.jpg"


def decode(source: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A JPEG file as ``(height, width, 3) uint8``: what every peer does with a picture.

    Args:
        source: A path or a binary file.
        size: Height and width to scale to, by Pillow's bilinear filter.
    """
    with Image.open(source) as picture:
        # Only where it is needed: Pillow's convert copies a picture that is in that mode already.
        colour = picture if picture.mode == "RGB" else picture.convert("RGB")
        scaled = colour.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(scaled)


def burn(row: int, loops: int) -> int:
    """Keep the interpreter busy for ``loops`` steps, with a result that depends on the row alone.

    >>> burn(5, 1000) == 6 * pow(MULTIPLIER, 1000, MODULUS) % MODULUS
    True
    """
    state = row + 1
    for _ in range(loops):
        state = state * MULTIPLIER % MODULUS
    return state


def calibrate_loops(seconds: float = SAMPLE_SECONDS) -> int:
    """The loop count with which :func:`burn` takes about so long here, by the quickest of some trials."""
    trial = 5_000
    quickest = min(_time_burn(trial) for _ in range(20))
    return max(1, round(trial * seconds / quickest))


def _time_burn(loops: int) -> float:
    begin = time.perf_counter()
    burn(1, loops)
    return time.perf_counter() - begin


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
