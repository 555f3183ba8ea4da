"""Options of decoding that are set after a source was split and composed: the method ``with_images``."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors import ImageArrayUInt8ToFloat32
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

CLASSES = {"cat": 5, "dog": 9}
N = sum(CLASSES.values())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two classes."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(1)
    for name, n in CLASSES.items():
        (folder / name).mkdir()
        for i in range(n):
            pixels = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((16, 12)).save(folder / name / f"{i}.png")
    return folder


def read(root: Path, **options: Any) -> Any:
    return bu.from_folder(root, images=functools.partial(bu.ImageFiles, **options))


def epochs(source: Any) -> list[Any]:
    return [batch for epoch in (0, 1) for batch in source.batch_iterator(4, shuffle=7, epoch=epoch)]


def test_one_folder_is_trained_on_with_one_crop_and_validated_with_another(
    root: Path, pools: list[AbstractWorkerPool]
) -> None:
    train, val = bu.from_folder(root, 8).split([0.7, 0.3], seed=1, stratify="label")
    random, center = train.with_images(crop="random"), val.with_images(crop="center")
    # The folder read twice, and split twice in the same way.
    labels = bu.from_folder(root).data[1]
    expected, _ = read(root, size=8, crop="random").split([0.7, 0.3], 1, stratify=labels)
    _, expected_center = read(root, size=8, crop="center").split([0.7, 0.3], 1, stratify=labels)
    assert_same_batches(epochs(random), epochs(expected))
    assert_same_batches(epochs(center), epochs(expected_center))
    for pool in pools:
        assert_same_batches(epochs(pool.parallel_data_source(random)), epochs(expected))
    assert sorted([*random.rows, *center.rows]) == list(range(N))
    assert random.fingerprint() == train.fingerprint()
    whole = [train[i][0] for i in range(len(train))]
    assert not np.array_equal(whole, [random[i][0] for i in range(len(train))])
    assert_same_batches(epochs(random.with_images(crop=None)), epochs(train))
    assert len({tuple(batch[0].ravel()) for batch in epochs(random)}) > len(epochs(random)) // 2  # each epoch anew


def test_a_state_goes_on_with_other_options(root: Path) -> None:
    train, _ = bu.from_folder(root, 8).split([0.7, 0.3], 1)
    iterator = train.batch_iterator(3, shuffle=1)
    next(iterator)
    state, sharp = iterator.state_dict(), train.with_images(size=4)
    rest = list(sharp.batch_iterator(3, shuffle=1))[1:]
    assert_same_batches(list(sharp.batch_iterator(3, shuffle=1, state=state)), rest)


def lighter(x: Any, y: Any, rng: Any) -> Any:
    return x // 2 + rng.integers(0, 9).reshape(-1, *[1] * (x.ndim - 1)), y


STEPS: dict[str, Any] = {
    "split": lambda s: s.split([0.6, 0.4], 3)[0],
    "subset": lambda s: s.subset(range(len(s) - 1)),
    "concat": lambda s: s.concat(s.subset([0])),
    "zip": lambda s: s.zip(bu.ArrayDataSource([np.arange(len(s))])).drop(-1),
    "map": lambda s: s.map(lighter, rng="sample"),
    "samples": lambda s: s.map_samples(lambda x: x, on=0),
    "take": lambda s: s.take(len(s) - 1),
    "rounds": lambda s: bu.subset(s, None, exclude=[0]).take(5).repeat(2).take(7),
    "collate": lambda s: s.collate(lambda samples: tuple(map(np.stack, zip(*samples, strict=True)))),
    "index": lambda s: s.with_index().map(lambda i, x, y: (x, y + i)),
    "sample": lambda s: s.sample(bu.WeightedSampler(np.arange(len(s)), num_samples=9)),
    "names": lambda s: s.rename({0: "a", 1: "b"}).map(lambda b, a: (a, b)),
    "composite": lambda s: bu.CompositeDataSource([s, s.take(3)]).map(lambda x, y, v, w: (x, v)),
    "lazy": lambda s: s.filter(lambda x, y: y == 1, lazy=True),
    "choice": lambda s: bu.ChoiceDataSource([s, s.take(3)], stratified=True),
}
LAST = {"rounds", "sample", "choice", "collate", "composite", "lazy"}  # their samples have no numbers, or no parts


steps = st.lists(st.sampled_from(sorted(set(STEPS) - LAST)), max_size=3)


@given(chain=steps, last=st.sampled_from(sorted(LAST)), twice=st.booleans())
def test_what_is_above_the_images_stays(root: Path, chain: list[str], last: str, twice: bool) -> None:
    def made(source: Any) -> Any:
        return functools.reduce(lambda source, step: STEPS[step](source), [*chain, last], source)

    options = {"size": 6, "crop": "random", "mode": "L"}
    before = made(bu.from_folder(root, 9))
    batches, given_form = epochs(before), repr(before)
    changed = before.with_images(**options)
    if twice:
        changed = before.with_images(size=7, mode="L").with_images(size=6, crop="random")
    assert_same_batches(epochs(changed), epochs(made(read(root, **options))))
    assert_same_batches(epochs(cloudpickle.loads(cloudpickle.dumps(changed))), epochs(changed))
    assert_same_batches(epochs(before), batches)  # it is as it was
    assert repr(before) == given_form
    assert type(changed) is type(before)
    assert changed.fingerprint() == before.fingerprint()


OPTIONS = {
    "size": (5, 7), "mode": "RGBA", "dtype": np.float32, "resize": "nearest", "crop": bu.CenterCrop(0.5),
    "decoder": "pillow", "max_pixels": 300, "truncated": "fill",
}  # fmt: skip


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_each_option_is_that_of_the_constructor(root: Path, option: str) -> None:
    start = {name: value for name, value in OPTIONS.items() if name != option}
    start |= {"crop": None} if option == "size" else {}
    files = read(root, **start)
    changed = files.with_images(**{option: OPTIONS[option]})
    expected = read(root, **{**start, option: OPTIONS[option]})
    assert repr(changed.data[0]) == repr(expected.data[0])
    assert changed.data[0].fingerprint() == expected.data[0].fingerprint()
    assert_same_batches(epochs(changed), epochs(expected))
    assert changed.data[0].__dict__["_paths"] is files.data[0].__dict__["_paths"]  # shared, not listed again
    assert (changed.report, changed.class_names) == (files.report, files.class_names)


def test_an_option_is_checked_as_by_the_constructor(root: Path) -> None:
    source = bu.from_folder(root, 8)
    for bad in ({"mode": "CMYK"}, {"size": 0}, {"crop": "middle"}, {"size": None, "crop": "center"}, {"dtype": "i1"},
                {"resize": "soft"}, {"decoder": "mine"}, {"max_pixels": 0}, {"truncated": "skip"}):  # fmt: skip
        with raises(ArgumentError):
            source.with_images(**bad)
    for wrong in ({}, {"crop": 3}, {"size": "8"}, {"dtype": None}, {"transform": 1}, {"croop": "center"}):
        with raises(ArgumentTypeError):
            source.with_images(**wrong)
    tiny = source.with_images(max_pixels=2)
    with raises(SampleReadError):
        next(tiny.batch_iterator(2))


def encoded(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(root.glob("*/*.png"))]


class Marked(bu.ImageFiles):
    """A user's accessor with an attribute of its own."""

    def __init__(self, paths: Any, mark: str) -> None:
        super().__init__(paths, 8)
        self.mark = mark


def test_images_of_any_kind_are_changed(root: Path) -> None:
    data = encoded(root)
    small = bu.ArrayDataSource([bu.ImageBytes(data, 8)]).with_images(size=4)
    assert_same_batches(epochs(small), epochs(bu.ArrayDataSource([bu.ImageBytes(data, 4)])))
    scaled = bu.ArrayDataSource({"x": ImageArrayUInt8ToFloat32(bu.ImageBytes(data, 8), -1.0)}).with_images(size=4)
    expected = {"x": ImageArrayUInt8ToFloat32(bu.ImageBytes(data, 4), -1.0)}
    assert_same_batches(epochs(scaled), epochs(bu.ArrayDataSource(expected)))
    paths = [str(path) for path in sorted(root.glob("*/*.png"))]
    marked = bu.ArrayDataSource([Marked(paths, "mine")]).with_images(crop="center")
    assert (type(marked.data[0]), marked.data[0].mark) == (Marked, "mine")
    assert_same_batches(epochs(marked), epochs(bu.ArrayDataSource([bu.ImageFiles(paths, 8, crop="center")])))
    table = bu.from_table({"image": data, "kind": ["a"] * N}, "image", "kind", 8).split([0.5], 1, stratify="kind")[0]
    assert table.with_images(size=4)[0][0].shape == (4, 4, 3)
    assert table.with_images(on="image", size=4)[0][0].shape == (4, 4, 3)


def masked(root: Path) -> Any:
    data = encoded(root)
    masks = bu.ImageBytes(data, 8, "L")
    return bu.ArrayDataSource({"image": bu.ImageBytes(data, 8), "mask": masks, "label": np.arange(N)})


def test_one_of_several_columns_of_images_is_chosen(root: Path) -> None:
    both = masked(root)
    split = both.split([0.5], 1)[0]
    sources = [both, split, split.concat(both), split.zip(bu.ArrayDataSource({"n": np.arange(7)}))]
    sources += [split.rename({"mask": "m"}).rename({"m": "mask"}), split.map(lambda y: y, on="label")]
    for source in [*sources, split.map(lambda image: image, on="image")]:
        changed = source.with_images(on="mask", size=4)[2]
        assert (changed["image"].shape, changed["mask"].shape) == ((8, 8, 3), (4, 4))
    assert {np.shape(both.with_images(size=3)[0][name])[:2] for name in ("image", "mask")} == {(3, 3)}
    named = both.with_images(on=["image", "mask"], crop="random")  # a user who says so has his reason
    assert named[0]["mask"].shape == (8, 8)
    placed = bu.ArrayDataSource([bu.ImageBytes(encoded(root), 8), bu.ImageBytes(encoded(root), 8)])
    assert [part.shape for part in placed.with_images(on=-1, size=4)[0]] == [(8, 8, 3), (4, 4, 3)]


class OwnReader(bu.ArrayDataSource):
    """A user's source that reads its rows itself."""

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return tuple([column[indices] for column in self.data])


class OwnOrder(bu.ArrayDataSource):
    """A user's source with an order of its own."""

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
        return iter(np.split(np.arange(N)[::-1], range(batch_size, N, batch_size)))


class Reading(bu.data_source.AbstractDataSource):
    """A user's source that reads from another one."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def children(self) -> tuple[Any, ...]:
        return (self.source,)


def test_images_that_cannot_be_changed_say_so(root: Path, pools: list[AbstractWorkerPool]) -> None:
    source = bu.from_folder(root, 8)
    cached = source.cache()
    two = masked(root)
    for refused in (
        lambda: bu.ArrayDataSource([np.zeros(3), np.arange(3)]).with_images(size=4),
        lambda: bu.CallableDataSource(lambda batch_size: iter(())).with_images(size=4),
        lambda: cached.split([0.5], 1)[0].with_images(size=4),
        lambda: two.with_images(crop="random"),
        lambda: two.with_images(on="label", size=4),
        lambda: two.with_images(on="picture", size=4),
        lambda: two.map(lambda **batch: batch).with_images(on="mask", size=4),
        lambda: source.map(lambda x: x, on=0).with_images(on="image", size=4),
    ):
        with raises(ArgumentError):
            refused()  # type: ignore[no-untyped-call]
    files = bu.ImageBytes(encoded(root), 8)
    for wrong in (
        lambda: OwnReader([files]).with_images(size=4),
        lambda: bu.coerce_data_source(Reading(source)).with_images(size=4),
        lambda: pools[0].parallel_data_source(source).with_images(size=4),
        lambda: two.with_images(on=2.0, size=4),
    ):
        with raises(ArgumentTypeError):
            wrong()  # type: ignore[no-untyped-call]
    ordered = OwnOrder([files]).with_images(size=4)
    got = np.concatenate([x for (x,) in ordered.batch_iterator(5)])
    np.testing.assert_array_equal(got, bu.ImageBytes(encoded(root), 4)[:][::-1])
    assert cached.with_column(2, np.arange(N)).labels.tolist() == source.labels.tolist()


def test_a_cache_follows_the_options(root: Path) -> None:
    files = bu.from_folder(root, 8)
    assert_same_batches(epochs(files.with_images(size=4).cache()), epochs(bu.from_folder(root, 4)))


def test_sources_of_files_can_be_read_from_memory(root: Path) -> None:
    """What a fresh encoding gives is decoded with the options of the accessor, not of the one before."""
    file = io.BytesIO()
    Image.new("L", (3, 3), 77).save(file, "PNG")
    grey = bu.ArrayDataSource([bu.ImageBytes([file.getvalue()], 2)]).with_images(mode="L", dtype=np.float64)
    assert grey[0][0].tolist() == [[77.0] * 2] * 2
