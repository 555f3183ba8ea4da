"""The page about a folder or a table of images.

The page reads the headers of some files, spread evenly over all files. With ``--decode`` it decodes all files, as a
training would.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from ..accessors.image_decoding import IMAGE_FORMATS
from ..accessors.storage.open_file import regular
from ..csv_file import csv_rows
from ..data_source.error_list import write_errors
from ..datasets.files import FilesDataSource
from ..datasets.from_csv import from_csv
from ..datasets.from_folder import from_folder
from ..display import printable
from ..error_context import shortened
from ..errors import ArgumentError, SampleWarning, TooManyErrors
from ..faults.policy import ErrorPolicy
from ..validation import not_negative
from ..work_pool import WorkerThreadPool

SHOWN_BROKEN = 20
"""The most broken files that the page names."""

DECODED_PIXELS = 8
"""Pixels per side of decoded images. ``resize="bilinear"`` decodes the whole image, then makes it small."""

BATCH_SIZE = 16

ONLY_HEADERS = "(--decode finds files that break off behind them)"

SKIP_ALL = ErrorPolicy("skip", max_rate=1.0)
"""The policy for files that cannot be decoded: list each, even if the first hundreds are broken."""


def pictures_page(
    path: str, *, image: str = "path", label: str | None = None, separator: str | None = None, sample: int = 1000,
    decode: bool = False, write: str | None = None, progress: Callable[..., Any] | None = None,
) -> tuple[str, bool]:  # fmt: skip
    """Return the page about a path, and whether nothing is missing or broken, as far as files were read.

    Args:
        path: A folder or file. Arguments that are not listed here are the options of the command.
        progress: A function like ``tqdm.tqdm`` that draws a bar of the decoding; None draws none.

    Raises:
        ArgumentError: `path` does not exist, is of no known kind, or an option does not suit it.
        OSError: `write` cannot be written.
    """
    not_negative("--sample", sample)
    if write and not decode:
        raise ArgumentError("--write needs --decode, which finds what to write")
    if write and not os.path.isdir(os.path.dirname(write) or "."):
        raise ArgumentError(f"--write must be a file in a folder that exists, not {write!r}; make the folder first")
    source = source_at(path, DECODED_PIXELS, image, label, separator)
    page, broken = _decoded(source, write, progress) if decode else _headers(source, sample)
    return f"{source.report}\n{page}", not (broken or len(source.report.missing))


def source_at(
    path: str, size: int | None, image: str = "path", label: str | None = None, separator: str | None = None
) -> FilesDataSource:
    """Return a source of the images of a path, resized to `size`. The other arguments are options of the command.

    Raises:
        ArgumentError: `path` does not exist, or is of no known kind.
    """
    if not os.path.exists(path):
        raise ArgumentError(f"{path!r} does not exist; pass a folder or a file that does")
    if os.path.isdir(path):
        return from_folder(path, size)
    if not path.lower().endswith((".csv", ".tsv")):
        raise ArgumentError(
            f"{path!r} must be a folder or a CSV file (.csv, .tsv), or end as the files that from_file reads; rename "
            f"it if it is one"
        )
    delimiter = "\t" if path.lower().endswith(".tsv") else ","
    source = from_csv(path, image, label, size, separator=separator, missing="skip", delimiter=delimiter)
    if label is None:
        with contextlib.closing(csv_rows(path, delimiter)) as rows:
            columns = ", ".join(map(printable, next(rows)))
        source.report = dataclasses.replace(source.report, hint=f"columns: {columns} (--label COLUMN)")
    return source


def _headers(source: FilesDataSource, sample: int) -> tuple[str, int]:
    """Return a text about the headers of `sample` files, and how many are broken."""
    files = source.data[0]
    rows = np.unique(np.linspace(0, len(files) - 1, min(sample, len(files)), dtype=np.int64))
    kinds: collections.Counter[str] = collections.Counter()
    sizes, broken = [], []
    for path in map(files.sample_name, rows.tolist()):
        try:
            regular(path)
            with warnings.catch_warnings(), Image.open(path, formats=IMAGE_FORMATS) as picture:
                warnings.simplefilter("ignore")  # about many pixels, or about odd metadata
                kinds[f"{picture.format} {picture.mode}"] += 1
                sizes.append(picture.size)
        except Exception as error:  # Pillow may raise anything for a broken file
            empty = os.path.isfile(path) and os.path.getsize(path) == 0
            why = "the file is empty" if empty else str(error).removesuffix(f" {path!r}")  # Pillow repeats the path
            broken.append(f"  {path!r}: {why}")
    lines = [f"headers read: {len(rows):,} of {len(files):,} {ONLY_HEADERS}"]
    if sizes:
        (width, height), (widest, highest) = np.min(sizes, 0), np.max(sizes, 0)
        lines.append(", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()))
        lines.append(f"width {width} to {widest}, height {height} to {highest}")
    return "\n".join([*lines, *_listed("broken", broken)]), len(broken)


def _decoded(source: FilesDataSource, write: str | None, progress: Callable[..., Any] | None) -> tuple[str, int]:
    """Decode all files. Return a text about them, and how many are broken. Write these to `write`, if given."""
    with WorkerThreadPool() as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleWarning)
        batches = pool.parallel_data_source(source).batch_iterator(BATCH_SIZE, on_error=SKIP_ALL)
        shown = progress and progress(batches, total=len(batches), desc="decoding", leave=False, disable=None)
        with contextlib.suppress(TooManyErrors), contextlib.closing(shown or batches) as shown:
            for _ in shown:  # only the failures matter
                pass
    errors = sorted((error for error in batches.errors if error.row is not None), key=lambda error: error.row)
    if write:
        write_errors(errors, write)
    broken = [f"  {shortened(str(error.error), 1000)}" for error in errors]
    n = len(source.data[0])
    return "\n".join([f"decoded: {n - len(errors):,} of {n:,}", *_listed("broken", broken)]), len(errors)


def _listed(what: str, lines: list[str]) -> list[str]:
    """Return a heading with the number of lines, and the first of them."""
    return [f"{what}: {len(lines):,}", *lines[:SHOWN_BROKEN]] if lines else []
