"""Class names of a reader of files: kept by the sources that are made of it, compared when sources are joined."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.data_source import AbstractDataSource
from batchup_ng.errors import ArgumentError, SampleReadError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

CLASSES = {"one": ["cat", "dog", "eel"], "other": ["cat", "eel", "fox"], "fewer": ["cat", "dog"]}
ALL = ["cat", "dog", "eel", "fox"]


def blank(paths: Any) -> np.ndarray:
    """Stand for images that no test looks at."""
    return np.zeros((len(paths), 4, 4, 3), np.uint8)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of folders with two files in each class, and a COCO file for each."""
    made = tmp_path_factory.mktemp("classes")
    for folder, classes in CLASSES.items():
        for name in classes:
            (made / folder / name).mkdir(parents=True)
            for number in range(2):
                (made / folder / name / f"{number}.png").touch()
        Image.new("RGB", (8, 8)).save(made / f"{folder}.png")
        coco = {
            "images": [{"id": 1, "file_name": f"{folder}.png", "height": 8, "width": 8}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": len(classes), "bbox": [1, 1, 4, 4]}],
            "categories": [{"id": i + 1, "name": name} for i, name in enumerate(classes)],
        }
        (made / f"{folder}.json").write_text(json.dumps(coco))
    return made


def read(root: Path, folder: str, **options: Any) -> Any:
    return bu.from_folder(root / folder, images=blank, **options)


def table(root: Path, folder: str, **options: Any) -> Any:
    names = {"path": ["a"] * 2 * len(CLASSES[folder]), "animal": CLASSES[folder] * 2}
    return bu.from_table(names, label="animal", images=blank, missing="ignore", as_dict=True, **options)


def coco(root: Path, folder: str, **options: Any) -> Any:
    return bu.from_coco(root, root / f"{folder}.json", **options)


def increased(labels: Any) -> Any:
    return labels + 10


def brighter(image: Any, label: Any) -> Any:
    return image + 1, label


@pytest.mark.parametrize("reader", [read, table, coco])
def test_classes_of_other_numbers_are_refused_when_sources_are_joined(
    root: Path, reader: Callable[..., Any], pools: list[AbstractWorkerPool]
) -> None:
    one, other, fewer = [reader(root, folder) for folder in CLASSES]
    for parts in ((one, other), (one, fewer), (fewer, one), (one.take(1), other.subset([0]))):
        for join in (bu.concat, bu.mix, lambda a, b: a.concat(b)):
            with raises(ArgumentError):
                join(*parts)
    parts = tuple(reader(root, folder, class_names=ALL) for folder in CLASSES)
    both = bu.concat(*parts)
    assert both.class_names == tuple(ALL)
    if reader is read:
        expected = np.concatenate([np.repeat([ALL.index(name) for name in names], 2) for names in CLASSES.values()])
        assert both.labels.tolist() == expected.tolist()
        for made in (both, *[pool.parallel_data_source(both) for pool in pools]):
            batches = [labels for _, labels in made.batch_iterator(5)]
            assert np.concatenate(batches).tolist() == expected.tolist()


def test_equal_class_names_and_parts_without_class_names_are_joined(root: Path) -> None:
    one = read(root, "one")
    assert one.concat(read(root, "one")).class_names == tuple(CLASSES["one"])
    images = np.zeros((2, 4, 4, 3), np.uint8)
    for plain in (bu.ArrayDataSource([images, np.arange(2)]), bu.ArrayDataSource([images, np.arange(2)]).take(2)):
        assert one.concat(plain).class_names == plain.concat(one).class_names == tuple(CLASSES["one"])
    assert bu.concat(plain, plain).class_names == ()


@pytest.mark.parametrize("reader", [read, table, coco])
def test_labels_that_a_map_numbers_anew_have_no_class_names(root: Path, reader: Callable[..., Any]) -> None:
    one, other = reader(root, "one"), reader(root, "other")
    on: Any = {read: 1, table: "label", coco: "labels"}[reader]
    renumber: Any = (lambda labels: [increased(each) for each in labels]) if reader is coco else increased
    mapped = [part.map(renumber, on=on) for part in (one, other)]
    assert [part.class_names for part in mapped] == [(), ()]
    joined = bu.concat(*mapped)
    assert joined.class_names == ()
    assert len(joined) == len(one) + len(other)
    if reader is read:
        assert one.map(increased, on="label").class_names == ()
        opaque = [part.map(brighter) for part in (one, other)]
        assert opaque[0].class_names == tuple(CLASSES["one"])
        with raises(ArgumentError):
            bu.concat(*opaque)
        assert len(bu.concat(*[part.map(increased, on=1) for part in opaque])) == len(joined)
    if reader is table:
        assert one.map(increased, on="label", out="more").class_names == tuple(CLASSES["one"])


def one_of(**batch: Any) -> Any:
    return {name: column[:1] for name, column in batch.items()}


def first(*sample: Any, **parts: Any) -> Any:
    return parts or sample


def always(*sample: Any, **parts: Any) -> bool:
    return True


DERIVED: dict[str, Callable[[Any], AbstractDataSource]] = {
    "split": lambda source: source.split([0.5, 0.5], seed=1)[0],
    "subset": lambda source: source.subset([1, 0]),
    "take": lambda source: source.take(2),
    "repeat": lambda source: source.repeat(2),
    "repeat a choice": lambda source: source.take(3).repeat(),
    "map": lambda source: source.map(first),
    "map of a column": lambda source: source.map(increased, on=0 if type(source[0]) is tuple else "image"),
    "map_samples": lambda source: source.map_samples(first),
    "collate": lambda source: source.collate(list),
    "filter": lambda source: source.filter(always),
    "lazy filter": lambda source: source.filter(always, lazy=True),
    "with_index": lambda source: source.with_index(),
    "views": lambda source: source.views(2, augment.flip()),
    "sample": lambda source: source.sample(weights=np.ones(len(source))),
    "balanced": lambda source: source.sample(balanced=True),
    "concat": lambda source: source.take(2).concat(source.subset([3])),
    "composed": lambda source: source.map(first).split([0.5, 0.5], seed=1)[1].take(2).map(first),
    "of a pool": lambda source: bu.SerialPool().parallel_data_source(source),
    "mapped after a pool": lambda source: bu.SerialPool().parallel_data_source(source).map(first),
    "another column": lambda source: source.with_column(2 if type(source[0]) is tuple else "more", np.arange(6)),
    "select": lambda source: source.select("image", "label"),
    "drop": lambda source: source.drop("image"),
    "cached": lambda source: source.select("label").cache(),
    "composite": lambda source: bu.CompositeDataSource([source, source.subset([0]).select("image")], flatten=False),
    "choice": lambda source: bu.ChoiceDataSource([source.take(2), source.subset([3])]),
}


@pytest.mark.parametrize("how", DERIVED)
@pytest.mark.parametrize("reader", [read, table])
def test_sources_keep_the_class_names_and_the_report_of_their_reader(
    root: Path, how: str, reader: Callable[..., Any]
) -> None:
    source = reader(root, "one")
    made: Any = DERIVED[how](source)
    assert made.class_names == tuple(CLASSES["one"])
    assert made.report is source.report
    made.class_names, made.report = ("mine",), "mine"  # as programs did that kept them on their own
    assert (made.class_names, made.report) == (("mine",), "mine")


def test_class_names_go_with_the_labels(root: Path) -> None:
    names = tuple(CLASSES["one"])
    pairs, dicts = read(root, "one"), table(root, "one")
    assert pairs.select("image").class_names == pairs.select("image").take(1).class_names == ()
    assert dicts.drop("label").class_names == ()
    assert dicts.drop("label").report is dicts.report
    assert pairs.drop(0).take(1).class_names == pairs.select(1, 0).take(1).class_names == names
    assert pairs.select(1, 0).map(increased, on=0).class_names == ()
    assert pairs.select(1, 0).map(increased, on=1).class_names == names
    renamed = dicts.rename({"label": "y"})
    assert renamed.class_names == pairs.rename({0: "x", 1: "y"}).class_names == names
    assert renamed.map(increased, on="y").class_names == renamed.drop("y").take(1).class_names == ()
    assert dicts.views(2, augment.flip()).map(increased, on="label").class_names == ()
    assert pairs.views(3, augment.flip()).map(increased, on=3).class_names == ()
    assert pairs.views(3, augment.flip()).map(increased, on=2).class_names == names
    assert dicts.with_index().map(increased, on="label").class_names == ()
    scores = bu.ArrayDataSource([np.arange(6), np.arange(6)])
    assert scores.zip(pairs).map(increased, on=1).class_names == names
    assert scores.zip(pairs).map(increased, on=3).class_names == ()
    assert pairs.zip(scores).map(increased, on=1).class_names == ()
    both = pairs.concat(pairs.take(1))
    assert both.take(1).select("label").class_names == names
    assert both.select("image").take(1).class_names == both.map(increased, on="label").class_names == ()
    numbers = np.zeros(len(pairs), int)
    for old in (pairs.rename({0: "image", 1: "old"}), dicts.rename({"label": "old"})):
        assert old.class_names == old.with_column("more", numbers).class_names == names
        for values in (numbers, lambda old: old + 10):  # it has labels of another kind
            assert old.with_column("label", values).class_names == ()
            assert old.with_column("label", values).drop("label").class_names == names
    other = read(root, "other")
    assert bu.CompositeDataSource([pairs, other]).class_names == ()
    assert pairs.zip(other).class_names == ()  # of two kinds
    assert len(pairs.select("image").concat(other.select("image"))) == 12  # without labels


def test_sources_of_several_readers_have_no_report_and_their_common_class_names(root: Path) -> None:
    one, again = read(root, "one"), read(root, "one")
    assert one.concat(again).report is None
    assert one.concat(again).class_names == tuple(CLASSES["one"])
    assert one.zip(again).report is bu.CompositeDataSource([one, again]).report is None
    assert bu.ArrayDataSource([np.arange(3)]).take(1).report is None
    assert bu.ArrayDataSource([np.arange(3)]).take(1).class_names == ()
    assert not hasattr(bu.ArrayDataSource([np.arange(3)]), "class_names")  # it has as many names as are allowed


def test_class_names_in_files_of_hugging_face_count_too(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, classes in (("a", ["cat", "dog"]), ("b", ["dog", "cat"])):
        features = {"y": {"names": classes, "_type": "ClassLabel"}, "x": {"dtype": "int64", "_type": "Value"}}
        kept = pa.table({"x": [5, 6], "y": [1, 0]})
        schema = kept.schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        parquet.write_table(kept.cast(schema), tmp_path / f"{name}.parquet")
    a, b = (bu.from_file(tmp_path / f"{name}.parquet") for name in "ab")
    assert a.take(1).class_names == a.concat(a).class_names == ("cat", "dog")
    with raises(ArgumentError):
        a.concat(b)
    kept = pa.table({"x": [7, 8], "y": [1, 0]})
    parquet.write_table(kept, tmp_path / "none.parquet")
    for names in ("ab", "ba"):
        with raises(SampleReadError):
            bu.from_file([tmp_path / f"{name}.parquet" for name in names])
    for files in (["a", "none"], ["none", "a", "a"]):  # a file without names has those of the others
        joined = bu.from_file([tmp_path / f"{name}.parquet" for name in files])
        assert joined.take(1).class_names == ("cat", "dog")
        assert len(joined) == 2 * len(files)
    same = b.map(functools.partial(np.subtract, 1), on="y")
    assert [x["y"].tolist() for x in a.map(first, on="y").concat(same).batch_iterator(4)] == [[1, 0, 0, 1]]
