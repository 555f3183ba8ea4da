"""A bar moves with each batch, and changes none."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from tests.messages import raises


class Bar:
    """Stands for tqdm, and keeps what it is called with."""

    made: list[Bar]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.n = options["initial"]
        self.closed = False
        self.said: list[str] = []
        Bar.made.append(self)

    def update(self, n: int) -> None:
        assert not self.closed
        self.n += n

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.said.append(text)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def bars() -> list[Bar]:
    Bar.made = []
    return Bar.made


def test_each_epoch_has_a_bar(bars: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["batchup_ng.observe.progress"], "SHOWN_EVERY", 0.0)
    with bu.Loader([np.arange(10)], 3, shuffle=1, pool="serial", start_epoch=4) as loader:
        expected = [x.tolist() for _ in range(2) for (x,) in loader]
    with bu.Loader([np.arange(10)], 3, shuffle=1, pool="serial", start_epoch=4) as loader:
        shown = bu.progress(loader, Bar)
        assert isinstance(shown, bu.Loader)
        assert [x.tolist() for _ in range(2) for (x,) in shown] == expected
    assert [bar.options["desc"] for bar in bars] == ["epoch 4", "epoch 5"]
    assert all((bar.n, bar.options["total"], bar.options["initial"], bar.closed) == (4, 4, 0, True) for bar in bars)
    assert all(len(bar.said) >= 4 and bar.said[0].startswith("waited ") for bar in bars)


def test_a_bar_begins_where_the_epoch_goes_on(bars: list[Bar]) -> None:
    with bu.Loader([np.arange(10)], 3, shuffle=1, pool="serial") as loader:
        batches = iter(bu.progress(loader, Bar))
        next(batches)
        next(batches)
        state = loader.state_dict()
    assert bars[0].closed
    assert bars[0].n == 2
    with bu.Loader([np.arange(10)], 3, shuffle=1, pool="serial") as loader:
        loader.load_state_dict(state)
        assert len(list(bu.progress(loader, Bar))) == 2
    assert (bars[1].options["total"], bars[1].options["initial"], bars[1].n) == (4, 2, 4)


def test_streams_and_iterators_have_a_bar_too(bars: list[Bar]) -> None:
    with bu.Loader(bu.IteratorDataSource(iter([(np.arange(3),)] * 2)), 3, pool="serial") as loader:
        assert len(list(bu.progress(loader, Bar))) == 2
    assert len(list(bu.progress(bu.ArrayDataSource([np.arange(10)]).batch_iterator(3), Bar))) == 4
    assert list(bu.progress(iter([1, 2]), Bar)) == [1, 2]
    found = [(bar.options["total"], bar.n, bar.closed) for bar in bars]
    assert found == [(None, 2, True), (4, 4, True), (None, 2, True)]


def test_an_error_closes_the_bar(bars: list[Bar]) -> None:
    def fails(x: np.ndarray) -> Any:
        raise OSError("a bad sample")

    source = bu.ArrayDataSource([np.arange(4)]).map(fails)
    with bu.Loader(source, 2, pool="serial") as loader, pytest.raises(bu.BatchError):
        next(iter(bu.progress(loader, Bar)))
    assert bars[0].closed


def test_what_has_no_bar_is_refused() -> None:
    with raises(bu.ArgumentTypeError):
        bu.progress([1, 2], Bar)
    with raises(bu.ArgumentTypeError):
        bu.progress(iter([1]), 3)
