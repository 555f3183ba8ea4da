"""The samples of a batch one after the other: every array against plain loops, and a network that cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N = 60
LENGTHS = np.arange(N) * 7 % 12
ALL = {"segments": True, "positions": True, "cu_seqlens": True, "labels": True}
TEXTS = [[5, 6, 7], [8, 9]]


def plain(rows: list[list[int]], most: int | None, padded: bool) -> dict[str, list[int]]:
    """Return the arrays of `rows`, each cut to `most`, as lists."""
    made: dict[str, list[int]] = {"ids": [], "segments": [], "positions": [], "cu_seqlens": [0], "labels": []}
    for number, row in enumerate(rows):
        for place, token in enumerate(row[:most]):
            made["ids"].append(token)
            made["segments"].append(number + 1)
            made["positions"].append(place)
            made["labels"].append(token if place else -100)
        made["cu_seqlens"].append(len(made["ids"]))
    while padded and most is not None and len(made["ids"]) < most:
        for name, value in {"ids": 77, "segments": 0, "positions": 0, "labels": -100}.items():
            made[name].append(value)
    return made


@given(
    rows=st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=7).filter(any),
    spare=st.integers(0, 3),
    form=st.sampled_from(["flat", "padded", "bounded"]),
    asked=st.sets(st.sampled_from(sorted(ALL))),
    as_dict=st.booleans(),
)
def test_the_arrays_are_those_of_plain_loops(
    rows: list[list[int]], spare: int, form: str, asked: set[str], as_dict: bool
) -> None:
    most = None if form == "flat" else sum(map(len, rows)) + spare
    expected = plain(rows, most, form == "padded")
    fn: Any = bu.pack(
        "ids" if as_dict else 1, max_tokens=most, padded=form == "padded", padding_value=77,
        **dict.fromkeys(asked, True),
    )  # fmt: skip
    number = np.arange(len(rows))
    batch = fn(number=number, ids=rows) if as_dict else fn(number, rows)
    names = ["number", "ids", *[name for name in ALL if name in asked]]
    assert not as_dict or list(batch) == names
    by_name = batch if as_dict else dict(zip(names, batch, strict=True))
    assert by_name.pop("number") is number
    for name, array in by_name.items():
        wide = form == "padded" and name != "cu_seqlens"
        assert array.tolist() == ([expected[name]] if wide else expected[name])
        assert array.dtype == (np.int32 if name in ("segments", "cu_seqlens") else np.int64)


@pytest.mark.parametrize("padded", [False, True])
def test_several_columns_have_the_same_segments_and_their_own_padding(padded: bool) -> None:
    vectors = [np.full((len(text), 2), i, np.float32) for i, text in enumerate(TEXTS)]
    fn = bu.pack("ids", "v", max_tokens=6, padded=padded, padding_value=[1, -2.0], labels=True)
    batch = fn(ids=TEXTS, v=vectors)
    flat = {name: column[0] if padded else column for name, column in batch.items()}
    assert flat["ids"].tolist() == [5, 6, 7, 8, 9] + [1] * padded
    assert flat["v"].tolist() == [[0, 0]] * 3 + [[1, 1]] * 2 + [[-2, -2]] * padded
    assert flat["v"].dtype == np.float32
    assert flat["labels"].tolist() == [-100, 6, 7, -100, 9] + [-100] * padded


def test_long_samples_are_cut_in_all_columns() -> None:
    fn = bu.pack(0, 1, max_tokens=2, longer="cut", positions=True, cu_seqlens=True)
    made = fn([[1, 2, 3]], [[4, 5, 6]])
    assert [array.tolist() for array in made] == [[1, 2], [4, 5], [0, 1], [0, 2]]
    assert bu.pack(0, dtype="int16")(TEXTS)[0].dtype == np.int16


def source(as_dict: bool) -> bu.ArrayDataSource:
    texts = bu.Ragged(np.arange(LENGTHS.sum()), np.cumsum([0, *LENGTHS]))
    return bu.ArrayDataSource({"ids": texts, "n": np.arange(N)} if as_dict else [texts, np.arange(N)])


@pytest.mark.parametrize("as_dict", [False, True])
def test_batches_are_packed_in_every_pool(pools: list[AbstractWorkerPool], as_dict: bool) -> None:
    column = "ids" if as_dict else 0
    bins = source(as_dict).sample(bu.PackSampler(LENGTHS, 24, window=20))
    packed = bins.map(bu.pack(column, max_tokens=24, padded=True, **ALL))
    expected = []
    for batch in bins.batch_iterator(24, 3):
        ids, n = batch.values() if as_dict else batch
        made = plain([row.tolist() for row in ids], 24, True)
        made["ids"] = [0 if token == 77 and not segment else token
                       for token, segment in zip(made["ids"], made["segments"], strict=True)]  # fmt: skip
        wide = {name: np.array([made[name]], np.int32 if name == "segments" else np.int64) for name in ("ids", *ALL)}
        arrays = {"ids": wide.pop("ids"), "n": n, **wide, "cu_seqlens": np.array(made["cu_seqlens"], np.int32)}
        expected.append(arrays if as_dict else tuple(arrays.values()))
    assert_same_batches(list(packed.batch_iterator(24, 3)), expected)
    for pool in pools:
        with pool.parallel_data_source(packed).batch_iterator(24, 3) as iterator:
            assert_same_batches(list(iterator), expected)
            state = iterator.state_dict()
        assert list(packed.batch_iterator(24, 3, state=state)) == []


def test_maps_and_views_may_follow_and_columns_are_known_before() -> None:
    bins = source(True).sample(bu.PackSampler(LENGTHS, 24))
    packed = bins.map(bu.pack("ids", segments=True, cu_seqlens=True))
    chosen = packed.select("cu_seqlens", "ids")
    chosen = chosen.map(lambda cu_seqlens, ids: {"ids": ids, "ends": cu_seqlens[1:]}, resizes=True)
    for batch, given_batch in zip(chosen.batch_iterator(24, 3), bins.batch_iterator(24, 3), strict=True):
        assert batch["ends"].tolist() == np.cumsum([len(row) for row in given_batch["ids"]]).tolist()
    assert {name: column.shape for name, column in packed.columns.items()} == {
        "ids": (None,), "n": (None,), "segments": (None,), "cu_seqlens": (None,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: bu.pack(), bu.ArgumentError),
        (lambda: bu.pack(0, padded=True), bu.ArgumentError),
        (lambda: bu.pack(0, longer="cut"), bu.ArgumentError),
        (lambda: bu.pack(0, longer="split", max_tokens=3), bu.ArgumentError),
        (lambda: bu.pack(0, max_tokens=0), bu.ArgumentError),
        (lambda: bu.pack(0, segments=1), bu.ArgumentTypeError),  # type: ignore[arg-type]
        (lambda: bu.pack(0, padding_value=[1, 2]), bu.ArgumentError),
        (lambda: bu.pack(0, padding_value=np.ones(2)), bu.ArgumentTypeError),
        (lambda: bu.pack(0, max_tokens=4)(TEXTS), bu.ArgumentError),
        (lambda: bu.pack(0, 1)(TEXTS, [[1, 2, 3], [4]]), bu.ArgumentError),
        (lambda: bu.pack(0, 1)(TEXTS, [[1, 2, 3]]), bu.ArgumentError),
        (lambda: bu.pack(0)([1, 2]), bu.ArgumentError),
        (lambda: bu.pack(0, labels=True)([[1.5]]), bu.ArgumentTypeError),
        (lambda: bu.pack("ids", segments=True)(ids=TEXTS, segments=[1, 2]), bu.MapResultError),
        (lambda: source(True).map(bu.pack("idz")), bu.ArgumentError),
        (lambda: source(True).map(bu.pack("ids"), on="ids"), bu.ArgumentError),
    ],
)
def test_what_cannot_be_packed_is_refused(call: Any, kind: type[Exception]) -> None:
    with raises(kind):
        call()


def test_a_network_has_equal_losses_and_gradients_with_and_without_packing() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    lengths = np.random.default_rng(0).integers(2, 20, 25)
    texts = bu.Ragged(np.random.default_rng(1).integers(0, 30, lengths.sum()), np.cumsum([0, *lengths]))
    data = bu.ArrayDataSource({"ids": texts})
    parts = torch.nn.ModuleDict({
        "token": torch.nn.Embedding(30, 8), "place": torch.nn.Embedding(20, 8), "out": torch.nn.Linear(8, 30),
        "layer": torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    }).double()  # fmt: skip

    def gradients(batches: Any) -> tuple[float, list[Any]]:
        parts.zero_grad()
        total = 0.0
        for batch in batches:
            ids, places, segments, labels = (torch.as_tensor(batch[name]).long().reshape(1, -1)
                                             for name in ("ids", "positions", "segments", "labels"))  # fmt: skip
            n = ids.shape[1]
            seen = (segments[0][:, None] == segments[0]) & torch.ones(n, n, dtype=torch.bool).tril()
            states = parts["layer"](parts["token"](ids) + parts["place"](places), src_mask=~seen)
            scores = parts["out"](states)[0, :-1]
            loss = torch.nn.functional.cross_entropy(scores, labels[0, 1:], ignore_index=-100, reduction="sum")
            loss.backward()
            total += loss.item()
        return total, [parameter.grad.clone() for parameter in parts.parameters()]

    alone, expected = gradients(data.map(bu.pack("ids", **ALL)).batch_iterator(1))
    for padded in (False, True):
        bins = data.sample(bu.PackSampler(lengths, 64)).map(bu.pack("ids", max_tokens=64, padded=padded, **ALL))
        batches = list(bins.batch_iterator(64, shuffle=1))
        assert len(batches) < 7
        total, found = gradients(batches)
        assert total == pytest.approx(alone, rel=1e-12)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
