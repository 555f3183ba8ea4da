"""`source.columns` of every kind of column tells the dtype and the shape that batches have."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, SampleReadError
from tests.messages import raises

N = 4
TEXTS = ["a", "three", "", "of any length"]
BOXES = [np.ones((1, 4), "f4"), np.zeros((0, 4), "f4"), np.ones((2, 4), "f4"), np.ones((1, 4), "f4")]


class Plain:
    """An accessor of the user without dtype and shape."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Any:
        return self.rows[rows]


class Own(bu.ArrayDataSource):
    """A source of the user whose batches are not the rows of its arrays."""

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return tuple([part.astype("f4") for part in super().samples_by_indices_nomapping(indices)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("columns")
    for row in range(N):
        Image.new("RGB", (8 + row, 6)).save(root / f"{row}.png")
    (root / "x.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (root / "x.jsonl").write_text("".join(json.dumps({"y": row}) + "\n" for row in range(N)))
    (root / "lists.jsonl").write_text("[1, 2]\n[3]\n[4]\n[]\n")
    np.save(root / "x.npy", np.zeros((N, 3), ">i2"))
    with tarfile.open(root / "x.tar", "w") as tar:
        for row in range(N):
            for name in (f"{row}.png", "x.npy"):
                tar.add(root / name, f"{row}.{name[-3:]}")
    (root / "x.csv").write_text("path,text,n,some\n" + "".join(f"{row}.png,t{row},{row}.5,\n" for row in range(N)))
    return root


def paths(folder: Path) -> list[str]:
    return [str(folder / f"{row}.png") for row in range(N)]


# Each source, with dtype and shape of its columns
KINDS: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "texts": (lambda folder: bu.ArrayDataSource({"x": TEXTS}), {"x": (str, (N,))}),
    "bytes": (lambda folder: bu.ArrayDataSource([[b"a", b"", b"b", b"c"]]), [(bytes, (N,))]),
    "array of texts": (lambda folder: bu.ArrayDataSource([np.array(TEXTS)]), [("<U13", (N,))]),
    "lists": (lambda folder: bu.ArrayDataSource([[[1, 2], [3], [], [4]]]), [("i8", (N, None))]),
    "boxes": (lambda folder: bu.ArrayDataSource({"boxes": BOXES}), {"boxes": ("f4", (N, None, None))}),
    "with_index": (
        lambda folder: bu.ArrayDataSource({"x": TEXTS}, include_indices=True), {"index": ("i8", (N,)), "x": (str, (N,))}
    ),
    "images": (
        lambda folder: bu.ArrayDataSource([bu.ImageFiles(paths(folder)), np.arange(N)]),
        [("u1", (N, None, None, None)), ("i8", (N,))],
    ),
    "images of a size": (
        lambda folder: bu.ArrayDataSource([bu.ImageFiles(paths(folder), 5, dtype="float32")]), [("f4", (N, 5, 5, 3))]
    ),
    "encoded": (
        lambda folder: bu.ArrayDataSource([bu.ImageBytes(bu.FileBytes(paths(folder)), 4), bu.FileBytes(paths(folder))]),
        [("u1", (N, 4, 4, 3)), (bytes, (N,))],
    ),
    "floats": (
        lambda folder: bu.ArrayDataSource([bu.ImageArrayUInt8ToFloat32(bu.ImageFiles(paths(folder), 5))]),
        [("f4", (N, 5, 5, 3))],
    ),
    "csv": (
        lambda folder: bu.from_csv(folder / "x.csv", size=4, columns=["text", "n", "some"], as_dict=True),
        {"image": ("u1", (N, 4, 4, 3)), "text": (str, (N,)), "n": ("f8", (N,)), "some": (str, (N,))},
    ),
    "table": (
        lambda folder: bu.from_table({"path": paths(folder), "ids": [[1], [2, 3], [], [4]]}, columns=["ids"]),
        [("u1", (N, None, None, None)), ("i8", (N, None))],
    ),
    "lines": (lambda folder: bu.from_file(str(folder / "x.txt")), {"x": (str, (N,))}),
    "json": (lambda folder: bu.from_file(str(folder / "x.jsonl")), {"x": (object, (N,))}),
    "json lists": (lambda folder: bu.from_file(str(folder / "lists.jsonl")), {"x": ("i8", (N, None))}),
    "npy": (lambda folder: bu.from_file(str(folder / "x.npy")), {"x": ("i2", (N, 3))}),
    "byte order": (lambda folder: bu.ArrayDataSource([np.zeros((N, 3), ">f8")]), [("f8", (N, 3))]),
    "tar": (
        lambda folder: bu.ArrayDataSource([bu.TarShards(str(folder / "x.tar"), "png")]), [(bytes, (N,))]
    ),
    "pairs": (
        lambda folder: bu.ArrayDataSource([bu.MapStyle([(row, "t" * row) for row in range(N)]), np.ones((N, 2))]),
        [("i8", (N,)), (str, (N,)), ("f8", (N, 2))],
    ),
    "dicts": (
        lambda folder: bu.ArrayDataSource([bu.MapStyle([{"x": np.ones(3, "f4"), "y": None} for _ in range(N)])]),
        {"x": ("f4", (N, 3)), "y": (object, (N,))},
    ),
    "uneven": (
        lambda folder: bu.ArrayDataSource([bu.MapStyle([[[1], [2, 3]]] * N)]), [(object, (N,))]
    ),
    "accessor": (lambda folder: bu.ArrayDataSource({"x": Plain(np.ones((N, 2), "f4"))}), {"x": ("f4", (N, 2))}),
    "own": (lambda folder: Own([np.arange(N)]), [("f4", (N,))]),
}  # fmt: skip


def told(columns: Any) -> Any:
    parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
    return {name: (np.dtype(column.dtype), tuple(column.shape)) for name, column in parts}


def check(column: Any, batch: Any) -> None:
    """Check what is told of a column against all of its rows."""
    dtype, shape = column
    if isinstance(batch, np.ndarray):
        assert (batch.dtype, batch.shape) == (dtype, shape)
        return
    assert isinstance(batch, list)
    assert len(batch) == shape[0]
    for row in batch:
        if dtype.kind in "US":
            assert (type(row), shape[1:], dtype.itemsize) == (dtype.type.__mro__[1], (), 0)
        elif dtype.kind != "O":
            assert np.ndim(row) == len(shape) - 1
            assert not np.size(row) or np.asarray(row).dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_column_has_the_dtype_and_the_shape_of_its_batches(kind: str, folder: Path) -> None:
    made, expected = KINDS[kind]
    source = made(folder)
    names = expected if isinstance(expected, dict) else dict(enumerate(expected))
    wanted = {name: (np.dtype(dtype), shape) for name, (dtype, shape) in names.items()}
    batch = source[:]
    parts = batch if isinstance(batch, dict) else dict(enumerate(batch))
    for over in (source, source.subset(np.arange(N)), source.map(lambda *batch, **parts: parts or batch)):
        found = over.columns
        assert isinstance(found, dict) == isinstance(batch, dict)
        assert told(found) == wanted
    for name, column in wanted.items():
        check(column, parts[name])


def test_arrays_and_accessors_of_one_shape_stand_for_themselves(folder: Path) -> None:
    array, images = np.arange(N), bu.ImageFiles(["none.png"] * N, 5)
    source = bu.ArrayDataSource([array, images, TEXTS])
    assert source.columns[0] is array
    assert source.columns[1] is images  # and no file is read
    assert source.data[2][:] == TEXTS


def test_tensors_keep_their_dtype() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = bu.ArrayDataSource([torch.ones((N, 2), dtype=torch.bfloat16), TEXTS])
    assert source.columns[0].dtype == source[:][0].dtype == torch.bfloat16


def test_what_cannot_be_read_says_so() -> None:
    with raises(ArgumentError):
        bu.ArrayDataSource([bu.MapStyle([]), np.zeros(0)]).columns  # noqa: B018
    with raises(SampleReadError):
        bu.ArrayDataSource([bu.FileBytes(["none.png"])]).columns  # noqa: B018
    assert bu.ArrayDataSource([np.zeros((0, 3))]).columns[0].shape == (0, 3)


X, Y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
DICT = bu.ArrayDataSource({"x": X, "label": Y})
OTHER = bu.ArrayDataSource({"z": np.arange(4, dtype="i2")})
X_AND_LABEL = {"x": ("f8", (2,)), "label": ("i8", ())}


@pytest.mark.parametrize(
    ("make", "n", "expected"),
    [
        (lambda: bu.CompositeDataSource([DICT, OTHER]), 4, {**X_AND_LABEL, "z": ("i2", ())}),
        (lambda: bu.CompositeDataSource([DICT, OTHER], trim=False), None, {**X_AND_LABEL, "z": ("i2", ())}),
        (lambda: bu.CompositeDataSource([DICT, OTHER.repeat(-1)]), 6, {**X_AND_LABEL, "z": ("i2", ())}),
        (lambda: bu.ChoiceDataSource([DICT, DICT]), None, X_AND_LABEL),
        (lambda: DICT.sample(balanced=True, num_samples=9), 9, X_AND_LABEL),
        (lambda: DICT.sample(balanced=True, per_class=2), 8, X_AND_LABEL),
        (lambda: DICT.sample(weights=Y, num_samples=-1), None, X_AND_LABEL),
        (lambda: DICT.repeat(-1), None, X_AND_LABEL),
        (lambda: DICT.filter(lambda x, label: x[0] > 6, lazy=True), None, X_AND_LABEL),
        (lambda: DICT.map(lambda x, label: {"x": x[:1]}, resizes=True), None, {"x": ("f8", (2,))}),
        (lambda: DICT.subset([]), 0, X_AND_LABEL),
        (lambda: DICT.subset([]).map(lambda x: x[:, :1], on="x"), 0, {**X_AND_LABEL, "x": ("f8", (1,))}),
    ],
)
def test_columns_are_known_though_samples_have_no_numbers(make: Callable[[], Any], n: Any, expected: Any) -> None:
    source = make()
    wanted = {name: (np.dtype(dtype), (n, *shape)) for name, (dtype, shape) in expected.items()}
    assert told(source.columns) == wanted
    with bu.SerialPool() as pool:
        behind = pool.parallel_data_source(source)
        assert told(behind.columns) == wanted
        renamed = behind.rename({"x": "y"}).columns
        assert renamed["y"].dtype == wanted["x"][0]


def test_a_composite_of_groups_has_as_many_of_each_part_as_it_says() -> None:
    parts = bu.CompositeDataSource([DICT, OTHER], batch_size=[1, 2]).columns
    assert (parts["x"].shape, parts["z"].shape) == ((2, 2), (None,))


WORDS = bu.ArrayDataSource({"ids": [[1, 2]] * 20 + [[1] * 5], "n": np.arange(21)})


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (lambda: WORDS.pad("ids"), {"ids": (21, None)}),
        (lambda: WORDS.pad("ids", mask=True, lengths=True), {"ids": (21, None), "ids_mask": (21, None)}),
        (lambda: WORDS.pad("ids", to_multiple=8), {"ids": (21, None)}),
        (lambda: WORDS.pad("ids", length=8), {"ids": (21, 8)}),
        (lambda: WORDS.map(bu.PadColumns("ids", max_length=5)), {"ids": (21, None)}),
        (lambda: WORDS.pad("ids").map(lambda ids: ids[:, :, None] * np.ones(3), on="ids"), {"ids": (21, None, 3)}),
        (lambda: WORDS.pad("ids").map(lambda ids: ids[:, :2], on="ids"), {"ids": (21, 2)}),
        (lambda: WORDS.pad("ids").rename({"ids": "words"}), {"words": (21, None)}),
        (lambda: WORDS.subset([]).pad("ids"), {"ids": (0, None)}),
        (lambda: bu.SerialPool().parallel_data_source(WORDS).map(bu.PadColumns("ids")), {"ids": (None, None)}),
    ],
)
def test_axes_that_padding_makes_are_not_those_of_the_first_sample(make: Callable[[], Any], shapes: Any) -> None:
    columns = make().columns
    assert {name: columns[name].shape for name in shapes} == shapes
    assert columns["n"].dtype == np.int64


def test_an_image_is_padded_in_two_axes() -> None:
    images = bu.ArrayDataSource([bu.MapStyle([np.ones((3 + row, 2, 3), "u1") for row in range(4)])])
    column = images.pad(0, axes=2).columns[0]
    assert (column.dtype, column.shape) == (np.uint8, (4, None, None, 3))


TOKENS = bu.ArrayDataSource({"ids": [[*range(k % 5)] for k in range(1, 21)], "n": np.arange(20)})


def padded(samples: list[Any]) -> dict[str, Any]:
    return {"ids": bu.pad_batch([sample["ids"] for sample in samples]), "n": np.array([each["n"] for each in samples])}


def own_rows(ids: np.ndarray, n: Any) -> dict[str, Any]:
    return {"ids": np.ones((len(ids), 3)), "n": n}


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: TOKENS.map_samples(lambda ids: ids * 2, on="ids"), (20, None)),
        (lambda: TOKENS.map_samples(own_rows), (20, None, 3)),
        (lambda: TOKENS.map(bu.pad_batch, on="ids"), (20, None)),
        (lambda: TOKENS.collate(padded), (20, None)),
        (lambda: TOKENS.map(bu.pad_batch, on="ids").sample(weights=np.ones(20), num_samples=9), (9, None)),
        (lambda: TOKENS.map(bu.pad_batch, on="ids").repeat(-1), (None, None)),
        (lambda: TOKENS.map(bu.pad_batch, on="ids").filter(lambda ids, n: True, lazy=True), (None, None)),
        (lambda: TOKENS.subset([0, 1]).map(bu.pad_batch, on="ids"), (2, None)),
        (lambda: TOKENS.subset([0]).map(bu.pad_batch, on="ids"), (1, 1)),
        (lambda: TOKENS.subset([0, 5]).map(bu.pad_batch, on="ids"), (2, 1)),  # samples of one length
        (lambda: TOKENS.map_samples(lambda ids: np.ones((2, 3)), on="ids"), (20, 2, 3)),
    ],
)
def test_axes_that_differ_in_what_a_function_makes_are_none(make: Callable[[], Any], shape: Any) -> None:
    source = make()
    assert source.columns["ids"].shape == shape
    with bu.SerialPool() as pool:
        assert pool.parallel_data_source(source).columns["ids"].shape == shape


SAMPLES: dict[str, tuple[Any, Any]] = {
    "arrays": ([np.arange(k) for k in (2, 3, 1, 2)], ("i8", (None,))),
    "arrays of one shape": ([np.zeros(2, "f4")] * 4, ("f4", (2,))),
    "images": ([np.zeros((k, 5, 3), "u1") for k in (4, 6, 6, 4)], ("u1", (None, 5, 3))),
    "numbers": ([1, 2.5, 3, 4], ("f8", ())),
    "narrow and wide": ([np.int16(1), np.int16(2), np.uint8(3), np.int32(4)], ("i4", ())),
    "texts": (TEXTS, (str, ())),
    "other numbers of axes": ([np.zeros((2,) * k) for k in (1, 2, 1, 2)], ("O", ())),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_samples_of_a_data_set_are_compared(kind: str) -> None:
    samples, (dtype, shape) = SAMPLES[kind]
    expected = (np.dtype(dtype), (N, *shape))
    forms: list[tuple[Any, Callable[[Any], Any]]] = [
        ({"x": bu.MapStyle(samples)}, lambda columns: columns["x"]),
        ([bu.MapStyle(samples), np.arange(N)], lambda columns: columns[0]),
        ([bu.MapStyle([(row, one) for row, one in enumerate(samples)])], lambda columns: columns[1]),
        ([bu.MapStyle([{"x": one} for one in samples])], lambda columns: columns["x"]),
        ({"y": bu.MapStyle([{"x": one} for one in samples])}, lambda columns: columns["y"]["x"]),
    ]
    for data, column in forms:
        source = bu.ArrayDataSource(data)
        nested = isinstance(data, dict) and "y" in data  # a map of samples would list the dicts
        mapped = source if nested else source.map_samples(lambda *parts, **named: named or parts)
        for over in (source, source.subset(range(N)), mapped):
            assert tuple(column(over.columns)) == expected
            batch = column(over[:])
            assert isinstance(batch, list) or (batch.dtype, batch.shape) == expected
    with bu.WorkerThreadPool(2) as pool:
        behind = pool.parallel_data_source(bu.ArrayDataSource({"x": bu.MapStyle(samples)}))
        assert tuple(behind.columns["x"]) == expected


def test_tensors_of_a_data_set_are_compared() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = bu.ArrayDataSource([bu.MapStyle([torch.zeros(2), torch.zeros(3)])])
    assert tuple(source.columns[0]) == (np.dtype("f4"), (2, None))


def test_samples_of_a_data_set_that_cannot_be_read_do_not_count() -> None:
    class FirstOnly(list[Any]):
        def __getitem__(self, row: Any) -> Any:
            if row:
                raise OSError("unreadable")
            np.random.random()
            return super().__getitem__(row)

    state = np.random.get_state()[2]
    for source in (bu.ArrayDataSource({"x": bu.MapStyle(FirstOnly([np.zeros(2)] * 5))}),
                   bu.ArrayDataSource([bu.MapStyle(FirstOnly([np.zeros(2)]))])):  # fmt: skip
        columns = source.columns
        assert (columns["x"] if isinstance(columns, dict) else columns[0]).shape in ((5, 2), (1, 2))
    assert np.random.get_state()[2] == state


def test_no_sample_but_the_first_must_be_readable() -> None:
    read = []

    def first_only(x: np.ndarray) -> np.ndarray:
        read.append(len(x))
        if x[0]:
            raise OSError("unreadable")
        return np.zeros((len(x), 3))

    numbers = bu.ArrayDataSource([np.arange(9)])
    assert numbers.map(first_only, on=0).columns[0].shape == (9, 3)
    assert read == [1] * 4
    read.clear()
    assert numbers.map(lambda x: read.append(len(x)) or x, on=0).columns[0].shape == (9,)
    assert read == [1]  # no further axis


def test_a_map_that_takes_one_length_only_keeps_what_it_made() -> None:
    def pairs(ids: np.ndarray) -> np.ndarray:
        return ids.reshape(len(ids), 1, 2)

    assert WORDS.pad("ids").map(pairs, on="ids").columns["ids"].shape == (21, 1, 2)


def test_an_empty_list_says_no_dtype(tmp_path: Path) -> None:
    path = tmp_path / "boxes.jsonl"
    path.write_text("[]\n[]\n[[1.5, 2, 3, 4]]\n")
    assert bu.from_file(path).columns["x"] == (None, (3, None))
    assert bu.ArrayDataSource([bu.MapStyle([[], [[1.5]]])]).map(lambda x: (x,)).columns[0] == (None, (2, None))


def test_a_stream_and_a_filter_that_keeps_nothing_have_no_columns_to_read() -> None:
    for source in (bu.IteratorDataSource(iter([(X,)])), bu.CallableDataSource(lambda batch_size: iter([(X,)]))):
        with raises(bu.ArgumentTypeError):
            source.columns  # noqa: B018
    never = DICT.filter(lambda x, label: False, lazy=True)
    for nothing in (never, DICT.repeat(-1).filter(lambda x, label: False, lazy=True), never.map(lambda x: x, on="x")):
        with raises(ArgumentError):
            nothing.columns  # noqa: B018
