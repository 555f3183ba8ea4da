"""What a peer must deliver: the description of a workload, with the work that one sample of it takes.

The parent makes the data once (``data.py``); peers get a :class:`Workload`, a small JSON-able description, over
their pipe. Every description carries sums that a complete epoch must reach, whatever its order: a peer that drops,
repeats or mixes up samples, or decodes to other pixels, is a failed peer and not a fast one.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MULTIPLIER, MODULUS = 48271, 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a peer must deliver, and where its data lie.

    Attributes:
        kind: One of ``data.KINDS``.
        folder: Where the parent put the data.
        samples: Samples of one epoch.
        batch_size: Samples of a batch; the last one may be smaller.
        size: Height and width of a delivered picture; ``(0, 0)`` where there is none.
        loops: Steps of pure-Python work a sample; 0 where there is none.
        y_sum: What the last array of all batches sums up to.
        x_sum: What :func:`probe` of the first array of all batches sums up to.
        nbytes: Bytes that a peer holds in memory to begin with.
        mapped: Whether the arrays stay in their file, as a ``numpy.memmap``, instead of being loaded into memory.
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
    mapped: bool = False

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Workload:
        """The inverse of :meth:`to_json`."""
        height, width = fields["size"]
        return Workload(**{**fields, "size": (height, width)})


def probe(x: Any) -> Any:
    """One value a sample of a batch's first array, to sum: the middle pixel's red, or the sample itself.

    Args:
        x: ``(batch, height, width, 3)`` or ``(batch,)``, of NumPy or anything that indexes alike.
    """
    return x[:, x.shape[1] // 2, x.shape[2] // 2, 0] if x.ndim == 4 else x


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


def nothing(x: Any) -> Any:
    """The empty map: the same array, in the tuple that a map returns."""
    return (x,)


def calibrate_loops(seconds: float) -> int:
    """The loop count with which :func:`burn` takes about so long here, by the quickest of some trials."""
    trial = 5_000
    quickest = min(_time_burn(trial) for _ in range(20))
    return max(1, round(trial * seconds / quickest))


def _time_burn(loops: int) -> float:
    begin = time.perf_counter()
    burn(1, loops)
    return time.perf_counter() - begin
