"""Picture files that cannot be read: how many, which, and that nothing is lost in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from tests.messages import raises, warns

from ..extent import quick

KINDS = ("truncated", "empty", "text", "missing", "directory", "dangling", "header")


def spoil(path: Path, kind: str) -> None:
    """Make a picture file one that cannot be read."""
    whole = path.read_bytes()
    path.unlink()
    if kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("this is no picture")
    elif kind == "directory":
        path.mkdir()  # root may read any file, so this stands for one that may not be opened
    elif kind == "dangling":
        path.symlink_to(path.with_suffix(".gone"))
    elif kind == "header":
        path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(200))


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("one") / "one.jpg"
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, quality=95)
    return path.read_bytes()


def pictures(picture: bytes, folder: Path, n: int) -> list[str]:
    """Write so many picture files; return their paths."""
    made = [folder / f"{k:04}.jpg" for k in range(n)]
    for path in made:
        path.write_bytes(picture)
    return [str(path) for path in made]


def source(paths: list[str]) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([bu.ImageFiles(paths, size=8), np.arange(len(paths))])


def test_the_file_is_named(pool: Any, picture: bytes, tmp_path: Path) -> None:
    paths = pictures(picture, tmp_path, 30)
    for kind in KINDS:
        bad = tmp_path / f"{kind}.jpg"
        bad.write_bytes(picture)
        spoil(bad, kind)
        paths[13] = str(bad)
        with raises(bu.SampleReadError) as caught:
            list(pool.parallel_data_source(source(paths)).batch_iterator(7))
        assert isinstance(caught.value, bu.BatchError)
        assert (caught.value.source, caught.value.row, caught.value.op) == (paths[13], 13, None)


@pytest.mark.parametrize(("n", "n_bad"), quick([(100, 10)], [(100, 1), (1000, 1), (1000, 10), (1000, 500)]))
def test_each_bad_file_is_listed_once(pool: Any, picture: bytes, tmp_path: Path, n: int, n_bad: int) -> None:
    paths = pictures(picture, tmp_path, n)
    bad = np.random.default_rng(n_bad).permutation(n)[:n_bad]
    for k, row in enumerate(bad):
        spoil(Path(paths[row]), KINDS[k % len(KINDS)])
    policy = bu.ErrorPolicy("skip", max_errors=n_bad, max_rate=n_bad / n)
    iterator = pool.parallel_data_source(source(paths), on_error=policy).batch_iterator(64, shuffle=5)
    with warns(bu.SampleWarning):
        rows = np.concatenate([rows for _, rows in iterator])
    assert sorted(rows.tolist()) == sorted(set(range(n)) - set(bad.tolist()))
    assert sorted(error.source for error in iterator.errors) == sorted(paths[row] for row in bad)
    assert iterator.stats()["failed"] == n_bad
    if n_bad > 1:
        less = bu.ErrorPolicy("skip", max_errors=n_bad - 1)
        again = pool.parallel_data_source(source(paths), on_error=less).batch_iterator(64, shuffle=5)
        with pytest.warns(bu.SampleWarning), raises(bu.TooManyErrors) as caught:
            list(again)
        assert f"{n_bad} samples" in str(caught.value)
        assert len(caught.value.errors) == n_bad


def test_a_name_that_would_write_to_the_terminal_is_shown_escaped(pool: Any, picture: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\n.jpg"
    path.write_bytes(picture[:100])
    with pytest.raises(bu.BatchError) as caught:
        list(pool.parallel_data_source(source([str(path)])).batch_iterator(7))
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.source == str(path)
