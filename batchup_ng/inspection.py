"""What a path holds, in words: the page of ``python -m batchup_ng inspect PATH``.

A kind of path is a line of `KINDS`. Of pictures, the headers of a sample are read, spread evenly over all; whether the
rest of such a file can be decoded too is not tried.
"""

from __future__ import annotations

import collections
import os
import warnings
from collections.abc import Callable

import numpy as np
from PIL import Image

from .accessors.image_decoding import FORMATS
from .data_source.files import FilesDataSource
from .data_source.from_folder import from_folder
from .data_source.from_table import from_csv
from .errors import ArgumentError
from .validation import not_negative

SHOWN_BROKEN = 20
"""Broken files that are named."""


def inspected(path: str, *, image: str, label: str | None, separator: str | None, sample: int) -> tuple[str, bool]:
    """Return the page about a path, and whether nothing is missing or broken, as far as headers were read.

    Raises:
        ArgumentError: it is not there, is of no kind that is known, or an option does not suit it.
    """
    not_negative("--sample", sample)
    if not os.path.exists(path):
        raise ArgumentError(f"{path!r} does not exist; pass a folder or a file that does")
    for is_kind, opened in KINDS:
        if is_kind(path):
            source = opened(path, image, label, separator)
            headers, broken = _headers(source, sample)
            return f"{source.report}\n{headers}", not (broken or len(source.report.missing))
    raise ArgumentError(f"{path!r} must be a folder or a CSV file (.csv, .tsv); rename it if it is one")


def _folder(path: str, image: str, label: str | None, separator: str | None) -> FilesDataSource:
    return from_folder(path)


def _csv(path: str, image: str, label: str | None, separator: str | None) -> FilesDataSource:
    delimiter = "\t" if path.lower().endswith(".tsv") else ","
    return from_csv(path, image, label, separator=separator, missing="skip", delimiter=delimiter)


ONLY_HEADERS = "(on_error='skip' and write_errors find files that break off behind them)"

KINDS: tuple[tuple[Callable[[str], bool], Callable[..., FilesDataSource]], ...] = (
    (os.path.isdir, _folder),
    (lambda path: path.lower().endswith((".csv", ".tsv")), _csv),
)
"""Each kind of path, with what makes a source of one; the first that is true is taken."""


def _headers(source: FilesDataSource, sample: int) -> tuple[str, int]:
    """Return what the headers of so many files say, and how many are broken."""
    files = source.data[0]
    rows = np.unique(np.linspace(0, len(files) - 1, min(sample, len(files)), dtype=np.int64))
    kinds: collections.Counter[str] = collections.Counter()
    sizes, broken = [], []
    for path in map(files.sample_name, rows.tolist()):
        try:
            with warnings.catch_warnings(), Image.open(path, formats=FORMATS) as picture:
                warnings.simplefilter("ignore")  # of many pixels, or of odd notes beside them
                kinds[f"{picture.format} {picture.mode}"] += 1
                sizes.append(picture.size)
        except Exception as error:  # whatever Pillow makes of what the file holds
            empty = os.path.exists(path) and os.path.getsize(path) == 0
            broken.append(f"  {path!r}: {'the file is empty' if empty else error}")
    lines = [f"headers read: {len(rows):,} of {len(files):,} {ONLY_HEADERS}"]
    if sizes:
        (width, height), (widest, highest) = np.min(sizes, 0), np.max(sizes, 0)
        lines.append(", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()))
        lines.append(f"width {width} to {widest}, height {height} to {highest}")
    lines += [f"broken: {len(broken):,}", *broken[:SHOWN_BROKEN]] if broken else []
    return "\n".join(lines), len(broken)
