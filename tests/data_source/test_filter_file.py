"""Filters that remember their answer in a file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import display
from batchup_ng.data_source import filtering
from batchup_ng.data_source.contents import contents_digest
from batchup_ng.data_source.filter_file import FilterFile
from tests.data_source.source_helpers import flat, ids, stream_of
from tests.messages import raises, warns


class Watched:
    """An accessor that knows how often it was read, and says what its rows depend on."""

    def __init__(self, n: int = 20, version: int = 1) -> None:
        self.n, self.version, self.reads = n, version, 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        self.reads += 1
        return np.arange(self.n)[rows]

    def fingerprint(self) -> list[int]:
        return [self.version]


def is_odd(x: Any) -> bool:
    return bool(x % 2)


def kept(source: Any, path: Any, predicate: Any = is_odd, **options: Any) -> list[int]:
    return flat(ids(source.filter(predicate, cache=path, **options)))


def odd(n: int = 20) -> list[int]:
    return list(range(1, n, 2))


def test_the_answer_is_remembered(tmp_path: Path) -> None:
    path, accessor = tmp_path / "kept.json", Watched()
    for again in range(3):
        assert kept(bu.ArrayDataSource([Watched() if again else accessor]), path) == odd()
    source = bu.ArrayDataSource([accessor])
    before = accessor.reads
    assert len(source.filter(is_odd, cache=str(path))) == 10
    assert accessor.reads == before == 4, "once for the filter, and for three batches"
    told = json.loads(path.read_text())
    assert (told["batchup_ng filter"], told["samples"]) == (1, 20)
    assert os.listdir(tmp_path) == ["kept.json"]


@given(st.lists(st.booleans(), max_size=40))
def test_any_answer_comes_back(tmp_path: Path, keep: list[bool]) -> None:
    file = FilterFile(tmp_path / "kept.json")
    file.write("digest", np.array(keep, bool))
    found = file.read("digest", len(keep))
    assert found is not None
    assert found.dtype == bool
    assert found.tolist() == keep
    assert file.read("other", len(keep)) is None


CHANGES: dict[str, Any] = {
    "the predicate": lambda path: kept(bu.ArrayDataSource([Watched()]), path, lambda x: bool(x % 3)),
    "the rows": lambda path: kept(bu.ArrayDataSource([Watched(version=2)]), path),
    "their number": lambda path: kept(bu.ArrayDataSource([Watched(30)]), path),
    "a map": lambda path: kept(bu.ArrayDataSource([Watched()]).map(lambda x: (x + 1,)), path),
    "random numbers": lambda path: kept(bu.ArrayDataSource([Watched()]).map(lambda x, rng: (x,), rng="sample"), path),
    "a subset": lambda path: kept(bu.ArrayDataSource([Watched()]).subset(np.arange(19, -1, -1)), path),
    "columns": lambda path: kept(bu.ArrayDataSource([Watched(), np.arange(20)]), path, on=1),
    "names": lambda path: len(bu.ArrayDataSource({"x": Watched()}).filter(is_odd, cache=path)),
    "chosen columns": lambda path: kept(bu.ArrayDataSource([Watched()]).map(lambda x: x, on=0), path),
    "the library": None,
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    path, source = tmp_path / "kept.json", bu.ArrayDataSource([Watched()])
    assert kept(source, path) == odd()
    before = path.read_text()
    if CHANGES[what] is None:
        monkeypatch.setattr("batchup_ng.data_source.contents.__version__", "0.0")
        assert kept(source, path) == odd()
    else:
        CHANGES[what](path)
    assert path.read_text() != before
    assert kept(bu.ArrayDataSource([Watched()]), path) == odd()


def test_columns_that_are_not_named_do_not_count(tmp_path: Path) -> None:
    class Silent(Watched):
        fingerprint = None  # type: ignore[assignment]

    silent = Silent()
    source = bu.ArrayDataSource({"image": silent, "label": np.arange(20) % 4})
    for _ in range(2):
        assert len(source.filter(lambda label: label == 3, "label", cache=tmp_path / "kept.json")) == 5
    assert silent.reads == 0
    with raises(bu.ArgumentTypeError):
        source.filter(lambda image, label: True, cache=tmp_path / "kept.json")


class Own(bu.RandomAccessDataSource):
    """A source of the user."""

    def __init__(self) -> None:
        super().__init__(length=6)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (np.arange(6)[indices],)


class OwnTold(Own):
    def fingerprint(self) -> list[Any]:
        return ["version 1"]


def test_a_source_of_the_user_says_what_its_samples_depend_on(tmp_path: Path) -> None:
    assert kept(OwnTold(), tmp_path / "kept.json") == kept(OwnTold(), tmp_path / "kept.json") == odd(6)
    with raises(bu.ArgumentTypeError):
        kept(Own(), tmp_path / "kept.json")


def digest_of(source: Any) -> str:
    return contents_digest(source.node)


def test_whatever_changes_the_batches_changes_the_digest() -> None:
    def data(n: int = 0) -> Any:
        return bu.ArrayDataSource({"a": np.arange(6) + n, "b": np.arange(6)})

    def pair(flatten: bool = True, **options: Any) -> Any:
        return bu.CompositeDataSource([data(), data(1).rename({"a": "c", "b": "d"})], flatten=flatten, **options)

    def called(n: int) -> Any:
        return bu.CallableDataSource(lambda batch_size, **options: iter([(np.arange(n),)]), 6)

    class Rows(bu.StandardSampler):
        step = 1

    class Others(bu.StandardSampler):
        step = 2

    Others.__name__ = "Rows"
    one, other = data(), data(1)
    made = [
        data(), data(1), data().map(abs, on="a"), data().map(abs, on="b"), data().map(abs, on="a", out="b"),
        data().map(abs, on="a", out="c"), data().select("a"), data().select("b"),
        data().rename({"a": "x"}), data().rename({"a": "y"}), data().filter(is_odd, "a", lazy=True),
        data().filter(is_odd, "b", lazy=True), pair(), pair(False), pair(batch_size=[1, 2]), pair(False, trim=False),
        bu.ChoiceDataSource([one, one, other]), bu.ChoiceDataSource([one, other, other]), data().take(3),
        data().take(4), called(3), called(4), bu.ArrayDataSource([np.arange(6)], sampler=Rows(6)),
        bu.ArrayDataSource([np.arange(6)], sampler=Others(6)), bu.ArrayDataSource([np.arange(6)], include_indices=True),
        bu.ArrayDataSource([np.arange(6)]), bu.ArrayDataSource([np.arange(6)], repeats=2),
    ]  # fmt: skip
    assert len(set(map(digest_of, made))) == len(made)
    assert digest_of(data().map(abs, on="a")) == digest_of(data().map(abs, on="a"))
    assert digest_of(called(3)) == digest_of(called(3))


def test_an_iterator_does_not_say_what_its_samples_depend_on() -> None:
    with raises(bu.ArgumentTypeError):
        digest_of(bu.IteratorDataSource(iter([(np.arange(3),)])))


DAMAGES: dict[str, Any] = {
    "cut": lambda raw: raw[:-9], "a bit": lambda raw: raw.replace(b'"kept": "V', b'"kept": "A'),
    "no more than the head": lambda raw: FilterFile.head.encode(),
    "of other samples": lambda raw: raw.replace(b": 20,", b": 21,"),
    "no JSON": lambda raw: FilterFile.head.encode() + b"[" * 9,
    "the first bytes": lambda raw: bytes(8) + raw[8:],
    "a letter of the head, as JSON": lambda raw: raw.replace(b"filter", b"filler", 1),
    "the version": lambda raw: raw.replace(b": 1,", b": 7,", 1),
    "behind the head": lambda raw: raw.replace(b"digest", b"djgest", 1),
    "a number": lambda raw: raw.replace(b'"kept": "', b'"kept": 3, "k": "'),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_computed_anew(tmp_path: Path, damage: str) -> None:
    path, source = tmp_path / "kept.json", bu.ArrayDataSource([Watched()])
    kept(source, path)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    assert path.read_bytes() != whole
    with warns(bu.CacheWarning):
        assert kept(source, path) == odd()
    assert path.read_bytes() == whole


def test_an_empty_file_and_that_of_a_longer_source_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    for before in (b"", FilterFile.head[:9].encode()):
        path.write_bytes(before)
        if before:
            with warns(bu.CacheWarning):
                assert kept(bu.ArrayDataSource([Watched()]), path) == odd()
        else:
            assert kept(bu.ArrayDataSource([Watched()]), path) == odd()
    FilterFile(path).write("of another", np.ones(100_000, bool))
    assert kept(bu.ArrayDataSource([Watched()]), path) == odd()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere.json")
    assert kept(bu.ArrayDataSource([Watched()]), tmp_path / "link") == odd()
    assert (tmp_path / "elsewhere.json").read_bytes() == path.read_bytes()


def test_a_full_disk_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, source = tmp_path / "kept.json", bu.ArrayDataSource([Watched()])
    kept(source, path, lambda x: True)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, warns(bu.CacheWarning):
        patch.setattr("os.fsync", full)
        assert kept(source, path) == odd()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["kept.json"]


def test_two_programs_may_write_one_file_at_once(tmp_path: Path) -> None:
    path, both, found = tmp_path / "kept.json", threading.Barrier(2), []

    def late(x: Any) -> bool:
        if x == 19:
            both.wait(60)
        return bool(x % 2)

    def program(predicate: Any) -> None:
        found.append(kept(bu.ArrayDataSource([np.arange(20)]), path, predicate))

    threads = [threading.Thread(target=program, args=(each,)) for each in (late, lambda x: late(x) or x == 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "contents_digest", lambda node, predicate, names: predicate.__name__)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(len, found)) == [10, 11]
    told = json.loads(path.read_text())
    assert told["digest"] in ("late", "<lambda>")
    assert FilterFile(path).read(told["digest"], 20) is not None


def test_what_is_no_file_for_an_answer_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    mine = tmp_path / "labels.csv"
    mine.write_text("1,2,3")
    os.mkfifo(tmp_path / "pipe")
    accessor = Watched()
    for path, error in (
        (mine, ValueError), (tmp_path, ValueError), (tmp_path / "pipe", ValueError),
        (tmp_path / "no" / "x", ValueError), ("s3://bucket/x", ValueError), (3, TypeError),
    ):  # fmt: skip
        with raises(error):
            bu.ArrayDataSource([accessor]).filter(is_odd, cache=path)  # type: ignore[arg-type]
    assert accessor.reads == 0
    assert mine.read_text() == "1,2,3"
    with raises(bu.ArgumentTypeError):
        stream_of(5).filter(bool, cache=tmp_path / "x")


# -- progress --------------------------------------------------------------------------------------------------------


def test_progress_counts_the_samples() -> None:
    shown: list[Any] = []

    def bar(iterator: Iterator[Any], **options: Any) -> Iterator[Any]:
        shown.append(options)
        for item in iterator:
            shown.append(item)
            yield item

    source = bu.ArrayDataSource([np.arange(600)])
    assert len(source.filter(is_odd, progress=bar)) == 300
    assert shown == [{"total": 600, "leave": False}, *[False, True] * 300]
    for progress in (True, False, np.bool_(False)):
        assert len(source.filter(is_odd, progress=progress)) == 300  # type: ignore[arg-type]
    with raises(bu.ArgumentTypeError):
        source.filter(is_odd, progress="bar")  # type: ignore[arg-type]


@pytest.mark.parametrize("in_terminal", [True, False])
def test_progress_is_drawn_only_in_a_terminal(monkeypatch: pytest.MonkeyPatch, in_terminal: bool) -> None:
    shown: list[Any] = []

    def bar(iterator: Any, **options: Any) -> Any:
        shown.append(options)
        return iterator

    monkeypatch.setattr(display, "progress_bar", lambda: bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: in_terminal, raising=False)
    assert len(bu.ArrayDataSource([np.arange(6)]).filter(is_odd)) == 3
    assert shown == [{"desc": "filter", "unit": " samples", "total": 6, "leave": False}] * in_terminal


def test_an_error_in_a_predicate_leaves_no_file(tmp_path: Path) -> None:
    def fails(x: Any) -> bool:
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        bu.ArrayDataSource([np.arange(3)]).filter(fails, cache=tmp_path / "kept.json")
    assert list(tmp_path.iterdir()) == []
