"""A contact sheet shows what an epoch hands out, at each stage, and changes nothing: loaders, generators, maps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from tests.messages import raises
from tests.observe.reading import image_of, panel, squares, words

pytest.importorskip("matplotlib", reason="show draws with matplotlib, which is not installed")


def noisy(image: np.ndarray, rng: Any) -> np.ndarray:
    return np.asarray(image ^ rng.integers(0, 256, image.shape[1:]).astype(np.uint8))


def inverted(image: np.ndarray) -> np.ndarray:
    image[:] = 255 - image  # a map may write to its argument
    return image


def source(rng: str = "sample", n: int = 12) -> Any:
    return bu.ArrayDataSource({"image": squares(n)}).map(noisy, on="image", rng=rng).map(inverted, on="image")


def rows_of(sheet: bu.ContactSheet) -> list[int]:
    return [int(name.removeprefix("row ")) for name in sheet.names]


def shown(sheet: bu.ContactSheet, n: int, place: int = 0) -> np.ndarray:
    """Return the images of a stage of a sheet, one line a sample."""
    return np.stack([image_of(panel(sheet, place, line), 16) for line in range(n)])


@pytest.mark.parametrize(
    ("rng", "options"), [("sample", {}), ("batch", {"shuffle": 3}), ("sample", {"shuffle": 3, "epoch": 2})]
)
def test_stages_are_those_of_the_epoch(rng: str, options: dict[str, Any]) -> None:
    sheet = bu.show(source(rng), 3, stages=True, batch_size=2, **options)
    epoch = source(rng).batch_iterator(2, **options)
    last = np.concatenate([next(epoch)["image"], next(epoch)["image"]])[:3]
    assert words(sheet)[:3] == ["before", "noisy", "inverted"]
    np.testing.assert_array_equal(shown(sheet, 3), squares(12)[rows_of(sheet)])
    np.testing.assert_array_equal(shown(sheet, 3, 1), 255 - last)
    np.testing.assert_array_equal(shown(sheet, 3, 2), last)


def test_stages_below_a_split_a_selection_and_a_filter() -> None:
    made = source().rename({"image": "x"}).filter(lambda x: x[0, 0, 0] < 200, lazy=True).select("x").take(9)
    sheet = bu.show(made, 2, stages=True, shuffle=5, batch_size=9)
    expected = next(made.batch_iterator(9, shuffle=5))["x"]
    assert 2 <= len(expected) < 9
    assert words(sheet)[:3] == ["before", "noisy", "inverted"]
    np.testing.assert_array_equal(shown(sheet, 2, 2), expected[:2])
    np.testing.assert_array_equal(shown(sheet, 2), squares(12)[rows_of(sheet)])
    part, _ = source().split([0.5, 0.5], seed=1)
    indexed = part.with_index().drop("index")
    sheet = bu.show(indexed, 2, stages=True)
    np.testing.assert_array_equal(shown(sheet, 2, 2), indexed[:2]["image"])
    np.testing.assert_array_equal(shown(sheet, 2), squares(12)[part.rows[:2]])


def test_an_error_stands_at_its_stage() -> None:
    def checked(image: np.ndarray) -> np.ndarray:
        if (image == squares(12)[4]).all():
            raise ValueError("a bad image")
        return image

    made = bu.ArrayDataSource({"image": squares(12)}).map_samples(checked, on="image").map(inverted, on="image")
    sheet = bu.show(made, stages=True, rows=slice(3, 6))
    np.testing.assert_array_equal(shown(sheet, 3), squares(12)[3:6])
    np.testing.assert_array_equal(shown(sheet, 3, 2)[[0, 2]], 255 - squares(12)[[3, 5]])
    assert words(sheet).count("ValueError:") == 2, "after the map, and after the next one"


def test_rows_are_those_of_the_unshuffled_epoch() -> None:
    chosen = ((7, [7]), (-1, [11]), ([3, 1], [3, 1]), (slice(2, 9, 3), [2, 5, 8]), (np.arange(12) > 10, [11]))
    for rows, expected in chosen:
        sheet = bu.show(source(), rows=rows)
        assert rows_of(sheet) == expected
        np.testing.assert_array_equal(image_of(panel(sheet), 16), source()[expected[0]]["image"])


def test_a_loader_goes_on_as_if_nothing_had_been_shown() -> None:
    def batches(loader: bu.Loader, look: bool) -> Iterator[Any]:
        for _ in range(2):
            for number, batch in enumerate(loader):
                if look and number == 1:
                    state = loader.state_dict()
                    bu.show(loader, 3, stages=True)
                    assert loader.state_dict() == state
                yield batch["image"]

    def loader() -> bu.Loader:
        return bu.Loader(source("batch"), 5, shuffle=7, pool="serial")

    with loader() as looked_at, loader() as left_alone:
        state, text = looked_at.state_dict(), repr(looked_at)
        first = bu.show(looked_at, 7)
        assert (looked_at.state_dict(), repr(looked_at)) == (state, text)
        found, expected = list(batches(looked_at, True)), list(batches(left_alone, False))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        again = np.concatenate(expected)
        sheet = bu.show(looked_at, 7, epoch=0)
        for one in (first, sheet):
            grid = [image_of(panel(one, i % 3, i // 3), 16) for i in range(7)]
            np.testing.assert_array_equal(grid, again[:7])
        assert looked_at.epoch == 2
        third = bu.show(looked_at, 2)
        np.testing.assert_array_equal(image_of(panel(third), 16), next(iter(looked_at))["image"][0])


def test_a_loader_shows_what_its_state_goes_on_with() -> None:
    with bu.Loader(source(), 4, shuffle=7, pool="serial") as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        second = next(iterator)["image"]
        loader.load_state_dict(state)
        np.testing.assert_array_equal(image_of(panel(bu.show(loader, 1)), 16), second[0])


def test_loaders_refuse_what_they_have_themselves() -> None:
    with bu.Loader(source(), 4, shuffle=np.random.RandomState(0), pool="serial") as loader:
        for wrong in ({"rows": [0]}, {"shuffle": 1}, {"batch_size": 2}, {}):
            with raises(bu.ArgumentTypeError):
                bu.show(loader, 2, **wrong)  # type: ignore[arg-type]
    with bu.WorkerThreadPool(1) as pool, raises(bu.ArgumentTypeError):
        bu.show(pool.parallel_data_source(source()), 2)


@pytest.mark.parametrize("make", [lambda: True, lambda: np.random.default_rng(1), lambda: np.random.RandomState(1),
                                  lambda: "blocks", lambda: ("blocks", 4), lambda: np.random])  # fmt: skip
def test_orders_are_those_to_come_and_nothing_is_drawn(make: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(50))
    data = bu.ArrayDataSource([bu.NpyRows(tmp_path / "rows.npy")])
    np.random.seed(5)
    shuffle = make()
    before = np.random.get_state()[1].tolist(), np.random.get_state()[2]
    sheet = bu.show(data.map(lambda x: (x + np.random.randint(9),)), 8, shuffle=shuffle)
    assert (np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before
    with contextlib.closing(data.batch_iterator(8, shuffle=shuffle)) as epoch:
        expected = next(epoch)[0].tolist()
    assert [int(name.split()[-1]) for name in sheet.names] == expected


def test_maps_keep_their_own_state() -> None:
    rng, calls, counts = np.random.default_rng(3), [], np.zeros(100_000)

    def drawn(x: np.ndarray) -> tuple[np.ndarray]:
        calls.append(len(x))
        counts[x] += 1
        return (x + rng.random(len(x)),)

    state = rng.bit_generator.state
    bu.show(bu.ArrayDataSource([np.arange(9)]).map(drawn).subset([4, 5]), 2, stages=True)
    mapped = bu.ArrayDataSource([np.arange(9)]).map(drawn)
    viewed = mapped.views(2, lambda x, rng: drawn(x)[0], on=0)
    for data in (mapped.concat(mapped), mapped.zip(mapped), viewed, bu.CompositeDataSource([mapped])):
        assert len(bu.show(data, 2).names) == 2
    assert (calls, counts.sum(), rng.bit_generator.state) == ([], 0, state)
    lock = threading.Lock()  # which cannot be pickled, nor the function
    assert len(bu.show(bu.ArrayDataSource([np.arange(9)]).map(lambda x: (x + lock.locked(),)), 3).names) == 3


def test_streams_that_can_be_read_again() -> None:
    def batches(batch_size: int, **options: Any) -> Iterator[Any]:
        for start in range(0, 6, 2):
            yield (squares()[start : start + 2],)

    stream = bu.CallableDataSource(batches)
    sheet = bu.show(stream, 3)
    np.testing.assert_array_equal(image_of(panel(sheet, 0, 1), 16), squares()[2])
    assert sheet.names == ["sample 0", "sample 1", "sample 2"]
    with bu.Loader(stream, 2, pool="serial") as loader:
        bu.show(loader, 3)
        assert len(list(loader)) == 3
    once = bu.IteratorDataSource(iter([(squares(),)]))
    for data, options in ((stream, {"stages": True}), (once, {}), (once.map(lambda x: x), {})):
        with raises(bu.ArgumentTypeError):
            bu.show(data, 2, **options)  # type: ignore[arg-type]
    assert len(list(once.batch_iterator(2))) == 1, "no batch was taken"


def test_other_sources() -> None:
    twice = bu.ArrayDataSource({"image": squares()}).map(lambda image: {"image": np.repeat(image, 2, 0)}, resizes=True)
    sheet = bu.show(twice, 2, batch_size=2)
    assert sheet.names == ["sample 0", "sample 1"]
    np.testing.assert_array_equal(image_of(panel(sheet, 1), 16), squares()[0])
    with raises(bu.ArgumentError):
        bu.show(twice, 2, stages=True)
    with raises(bu.ArgumentError):
        bu.show(source().repeat(-1).filter(lambda image: False, lazy=True), 2)
    assert len(bu.show([np.arange(300)], 250, batch_size=1, side=20).names) == 250
    labelled = bu.ArrayDataSource({"image": squares(12), "label": np.arange(12) % 2})
    balanced = labelled.sample(balanced=True, per_class=2).map(inverted, on="image")
    sheet = bu.show(balanced, 6, shuffle=1)
    expected = [batch["label"].tolist() for batch in balanced.batch_iterator(4, shuffle=1)]
    assert [row % 2 for row in rows_of(sheet)] == [label for batch in expected for label in batch][:6]
    pair = bu.CompositeDataSource([bu.ArrayDataSource([squares()]), bu.ArrayDataSource([np.arange(6)])])
    assert len(bu.show(pair, 2, shuffle=1).names) == 2
    weighted = bu.ArrayDataSource([squares(), np.arange(6)]).sample(weights=np.ones(6))
    assert len(bu.show(weighted, 4, shuffle=1).names) == 4
    joined = bu.concat([source(), source().map(inverted, on="image")])
    np.testing.assert_array_equal(image_of(panel(bu.show(joined, rows=13)), 16), joined[13]["image"])
