"""A signal handler that raises while files are read or written: its exception comes out, or what was made is right.

``TimeoutError`` is an ``OSError``, which readers of files catch.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.error_context import of_signal_handler

from ..faults.scenes.strikes import in_finalizer


def ring(number: int, frame: Any) -> None:
    raise TimeoutError("the alarm of the program")


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    gc.disable()  # Python swallows what is raised in a callback of the collector
    yield
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def struck_at_each_call(read: Callable[[], Any], make: Callable[[], object] = lambda: None) -> list[Any]:
    """Return what `read`, after `make`, gave where a signal came at one of its calls and no exception came out."""
    given = []
    for n in range(100_000):
        make()
        left = n

        def profile(frame: Any, event: str, _: Any) -> None:
            nonlocal left
            left -= event in ("call", "c_return")
            if left < 0 and not in_finalizer(frame):
                sys.setprofile(None)
                signal.raise_signal(signal.SIGALRM)

        sys.setprofile(profile)
        try:
            value = read()
        except Exception as error:
            sys.setprofile(None)
            if of_signal_handler(error) is None:
                raise
        else:
            sys.setprofile(None)
            if left >= 0:
                return given
            given.append(value)
    raise AssertionError("it does not end")


def picture(**options: Any) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[274] = 6  # turned
    pixels = np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8)
    Image.fromarray(pixels).save(file, exif=exif, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("decoder", ["auto", "pillow"])
@pytest.mark.parametrize("truncated", ["error", "fill"])
def test_no_picture_is_another_for_a_strike(kind: str, decoder: str, truncated: str) -> None:
    pictures = bu.ImageBytes([picture(format=kind)], decoder=decoder, truncated=truncated)
    expected = pictures[0]
    for given in struck_at_each_call(lambda: pictures[0]):
        np.testing.assert_array_equal(given, expected)


class Numbers:
    shape, dtype = (5, 2), np.dtype(np.int64)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(10).reshape(5, 2)[rows]

    def fingerprint(self) -> str:
        return "numbers"


def test_a_cache_is_not_full_for_a_strike(tmp_path: Path) -> None:
    made: list[bu.Cached] = []

    def make() -> None:
        for file in tmp_path.iterdir():
            file.unlink()
        made.append(bu.Cached(Numbers(), tmp_path))  # all are held: a strike in a finalizer goes to nobody

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        given = struck_at_each_call(lambda: made[-1][[3, 1]], make)
    assert not [each for each in told if each.category is bu.CacheWarning]
    assert all(rows.tolist() == [[6, 7], [2, 3]] for rows in given)
    assert made[-1][:].tolist() == np.arange(10).reshape(5, 2).tolist()


def test_a_conversion_is_not_blamed_on_the_disk_for_a_strike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, left = tmp_path / "x.npy", [0]
    synchronise = os.fsync

    def struck(handle: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGALRM)
        synchronise(handle)

    monkeypatch.setattr(os, "fsync", struck)
    for n in range(1, 100):
        left[0] = n
        try:
            bu.convert([np.arange(5)], target, pool="serial", progress=False, overwrite=True)
        except TimeoutError:  # not a WriteError, which says to make room
            continue
        break
    assert left[0] > 0
    assert n > 3
    assert np.load(target).tolist() == [0, 1, 2, 3, 4]
