"""What Parquet and Arrow files share: what the types of columns are read as."""

from __future__ import annotations

import datetime
import decimal
import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors.storage import arrow_column, chunks
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.testing.accessors import assert_same_rows
from tests.messages import raises

from .damaged import damaged

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

N = 10
ORDER = np.array([7, 1, 1, 9, 0, -2])


def parquet(path: Path, table: Any) -> Any:
    try:
        pq.write_table(table, path, row_group_size=4)
    except pa.ArrowNotImplementedError as error:  # of pyarrow 14: float16, lists of fixed size with nulls
        pytest.skip(f"this pyarrow cannot write it: {error}")
    return bu.ParquetRows


def arrow(path: Path, table: Any, compression: str | None = None, stream: bool = False) -> Any:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=4)
    return bu.ArrowRows


def compressed(path: Path, table: Any) -> Any:
    return arrow(path, table, "lz4")


def stream(path: Path, table: Any) -> Any:
    return arrow(path, table, stream=True)


@pytest.fixture(params=[parquet, arrow, compressed, stream], ids=lambda write: write.__name__)
def column(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that writes values as the column ``x`` of a file, and returns the accessor to it."""

    def made(values: Any, kind: Any = None, column: str = "x", **options: Any) -> Any:
        values = values if isinstance(values, pa.Array) else pa.array(values, kind)
        reader = request.param(tmp_path / "file", pa.table({"x": values, "other": range(len(values))}))
        return reader(tmp_path / "file", column, **options)

    return made


NUMBERS = np.arange(N * 6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (NUMBERS[:N].astype(np.int8), NUMBERS[:N].astype(np.int8)),
        (NUMBERS[:N].astype(np.float16), NUMBERS[:N].astype(np.float16)),
        (NUMBERS[:N] % 3 == 0, NUMBERS[:N] % 3 == 0),
        (NUMBERS[:N].astype("M8[us]"), NUMBERS[:N].astype("M8[us]")),
        (NUMBERS[:N].astype("M8[D]"), NUMBERS[:N].astype("M8[D]")),
        (NUMBERS[:N].astype("m8[ms]"), NUMBERS[:N].astype("m8[ms]")),
        (pa.array([k / 2 if k % 4 else None for k in range(N)]),
         np.array([k / 2 if k % 4 else np.nan for k in range(N)])),
        (pa.FixedSizeListArray.from_arrays(pa.array(NUMBERS), 6), NUMBERS.reshape(N, 6)),
        (pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(NUMBERS), 2), 3),
         NUMBERS.reshape(N, 3, 2)),
        (pa.array(NUMBERS[:N] % 2).dictionary_encode(), NUMBERS[:N] % 2),
        (pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), [2, 3]),
         pa.FixedSizeListArray.from_arrays(pa.array(NUMBERS), 6)), NUMBERS.reshape(N, 6)),
    ],
    ids=lambda value: str(getattr(value, "type", value.dtype if hasattr(value, "dtype") else ""))[:30],
)  # fmt: skip
def test_numbers_are_an_array(column: Any, values: Any, expected: np.ndarray) -> None:
    rows = column(values)
    assert rows.shape == expected.shape
    assert_same_rows(rows[ORDER], expected[ORDER])
    assert_same_rows(rows[:], expected)
    assert_same_rows(rows[2:3], expected[2:3])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "", None, "ä"] * 3, pa.string()),
        (["a", "", None, "ä"] * 3, pa.large_string()),
        (["a", "b", "a", None] * 3, pa.dictionary(pa.int8(), pa.string())),
        ([b"a", b"", None, b"\0"] * 3, pa.binary()),
        ([b"ab", b"cd", None, b"\0e"] * 3, pa.binary(2)),
        ([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None] * 4, None),
        ([["a", "b"], [], None] * 4, None),
        ([[{"a": 1}], [{"a": 2}] * 2, None] * 4, None),
    ],
    ids=str,
)
def test_values_are_those_of_python(column: Any, values: list[Any], kind: Any) -> None:
    rows = column(values, kind)
    assert not hasattr(rows, "shape")
    assert not hasattr(rows, "dtype")
    assert rows[ORDER] == [values[row] for row in ORDER]
    assert rows[3] == values[3]
    assert list(rows) == values


def test_lists_of_any_length_are_arrays(column: Any) -> None:
    rows = column([list(range(k % 4)) if k != 5 else None for k in range(N)])
    assert rows[5] is None
    assert_same_rows(rows[[9, 0, 3]], [np.array([0]), np.array([], np.int64), np.array([0, 1, 2])])
    rows = column([[[1.5, None], []], None, [[2.5]]])
    assert rows[1] is None
    assert_same_rows(rows[0], [np.array([1.5, np.nan]), np.array([])])
    with raises(SampleReadError):
        column([[1], [2], [3, None]])[:]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[[k, k + 1, 0], [0, 1, k]] for k in range(N)], pa.list_(pa.large_list(pa.uint8()))),
        ([[k, k + 1, 0, 0, 1, k] for k in range(N)], pa.list_(pa.uint8(), 6)),
        ([bytes([k, k + 1, 0, 0, 1, k]) for k in range(N)], pa.binary()),
        ([bytes([k, k + 1, 0, 0, 1, k]) for k in range(N)], pa.binary(6)),
    ],
    ids=["lists", "a fixed list", "bytes", "fixed bytes"],
)
def test_a_shape_makes_rows_arrays(column: Any, values: Any, kind: Any) -> None:
    expected = np.array([[[k, k + 1, 0], [0, 1, k]] for k in range(N)], np.uint8)
    rows = column(values, kind, shape=(2, 3))
    assert rows.shape == expected.shape
    assert_same_rows(rows[ORDER], expected[ORDER])
    with raises((ArgumentError, SampleReadError)):
        column(values, kind, shape=[2, 2])[:]


@pytest.mark.parametrize("of", [None, 4], ids=["any length", "fixed length"])
def test_boxes_are_arrays_with_four_columns(column: Any, of: int | None) -> None:
    boxes = [np.arange(4 * (k % 3), dtype=np.float32).reshape(-1, 4) + k for k in range(N)]
    rows = column([each.tolist() for each in boxes], pa.list_(pa.list_(pa.float32(), of or -1)), shape=(None, 4))
    assert_same_rows(rows[ORDER], [boxes[row] for row in ORDER])
    assert_same_rows(rows[3], boxes[3])
    padded = next(bu.ArrayDataSource({"boxes": rows}).pad("boxes").batch_iterator(N))["boxes"]
    assert (padded.shape, padded.dtype) == ((N, 2, 4), np.float32)
    assert not hasattr(rows, "shape")


def test_entries_of_lists_that_do_not_fit_are_named(column: Any) -> None:
    assert column([[1, None], []], shape=(None,), fill=-1)[0].tolist() == [1, -1]
    assert column([None, [[1]]], shape=(None, 1))[0] is None
    wrong = column([[[1, 2]], [[1, 2], [3]], [[1, 2, 3]], [[None, 1]]], shape=(None, 2))
    assert wrong[0].tolist() == [[1, 2]]
    for row in (1, 2, 3):
        with raises(SampleReadError):
            wrong[row]
    for values, shape in (([1, 2], (None, 2)), ([["a"]], (None,)), ([b"ab"], (None,))):
        with raises(ArgumentError):
            column(values, shape=shape)
    with raises(ArgumentTypeError):
        column([[1]], shape=(None,), fill="a")


def test_rows_that_have_not_the_shape_are_named(column: Any) -> None:
    for values in ([[1, 2]] * 5 + [[1], [2, 3, 4]], [b"ab"] * 5 + [b"c", b"def"]):
        rows = column(values, shape=[2])
        assert rows[:3].shape == (3, 2)
        with raises(SampleReadError):
            rows[4:7]
    with raises(ArgumentError):
        column(["ab"], shape=(2,))


def test_a_chunk_with_unfit_rows_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"x": [None, *range(1, N)]}), tmp_path / "x")
    rows, decoded, calls = bu.ParquetRows(tmp_path / "x", "x"), bu.ParquetRows._decoded, []
    monkeypatch.setattr(bu.ParquetRows, "_decoded", lambda *args: calls.append(args) or decoded(*args))
    for _ in range(5):
        assert rows[[3, 1]].tolist() == [3, 1]
    assert len(calls) <= 2


def test_a_null_that_no_number_stands_for_is_named_or_filled(column: Any) -> None:
    values = [None if k == 6 else k for k in range(N)]
    rows = column(values)
    assert rows[:4].tolist() == values[:4]
    with raises(SampleReadError):
        rows[[0, 6]]
    assert column(values, fill=-1)[:].tolist() == [-1 if k == 6 else k for k in range(N)]
    with raises(ArgumentTypeError):
        column(values, fill=1.5)
    with raises(ArgumentError):
        column(["a"] * N, fill="b")
    lists = [None if k == 6 else [k] for k in range(N)]
    with raises(SampleReadError):
        column(lists, pa.list_(pa.float32(), 1), fill=0)[[6]]
    with raises(ArgumentTypeError):
        column(values, fill="none")


def test_a_field_of_structs_is_a_column(column: Any) -> None:
    structs = [None if k == 5 else {"bytes": bytes([k]) * k, "at": {"row": k / 2}} for k in range(N)]
    assert column(structs, column="x.bytes")[[9, 5]] == [bytes([9]) * 9, None]
    np.testing.assert_array_equal(column(structs, column="x.at.row")[[9, 5]], [4.5, np.nan])
    with raises(ArgumentError):
        column(structs, column="x.no")


def test_pictures_are_decoded_out_of_a_column(column: Any, pools: list[Any]) -> None:
    pictures = []
    for k in range(N):
        encoded = io.BytesIO()
        Image.new("RGB", (9, 9), (k, 0, 0)).save(encoded, "PNG")
        pictures.append({"bytes": encoded.getvalue(), "path": f"{k}.png"})
    for name in ("x", "x.bytes"):
        images = bu.ImageBytes(column(pictures, column=name), 4)
        for pool in pools:
            source = pool.parallel_data_source(bu.ArrayDataSource([images], include_indices=True))
            for numbers, batch in source.batch_iterator(4, shuffle=3):
                assert batch[:, 0, 0, 0].tolist() == numbers.tolist()


def test_what_has_no_plain_value_is_refused_with_what_to_do(column: Any) -> None:
    for values in ([decimal.Decimal("1.5")], [datetime.time(1)], [None]):
        with raises(ArgumentError):
            column(values)


def test_no_rows_are_read(column: Any) -> None:
    rows = column([], pa.float32())
    assert rows.shape == rows[:].shape == (0,)
    assert column([], pa.string())[:] == []


def test_columns_are_those_of_batches(column: Any) -> None:
    accessor = column([str(k) for k in range(N)])
    columns = type(accessor).columns(accessor.paths)
    assert list(columns) == ["x", "other"]
    (batch,) = bu.ArrayDataSource(columns).batch_iterator(N)
    assert batch["other"].tolist() == list(range(N))
    assert list(batch["x"]) == [str(k) for k in range(N)]
    (other,) = type(accessor).columns(accessor.paths, ["other"], cache="2kB").values()
    assert (other.column, other._cache.limit) == ("other", 2000)
    for names in (["y"], ["x", ""]):
        with raises(ArgumentError):
            type(accessor).columns(accessor.paths, names)


@pytest.mark.parametrize("write", [parquet, arrow, compressed, stream])
def test_several_files_are_one(write: Any, tmp_path: Path) -> None:
    for name, values in (("2", [5, 6]), ("1", [0, 1, 2, 3, 4]), ("3", [])):
        reader = write(tmp_path / name, pa.table({"x": pa.array(values, pa.int16())}))
    rows = reader(f"{tmp_path}/*", "x")
    assert rows[[6, 0, 4, 5]].tolist() == [6, 0, 4, 5]
    assert [rows.sample_name(row) for row in (4, 5, -1)] == [f"{tmp_path}/1", f"{tmp_path}/2", f"{tmp_path}/2"]
    assert rows.file_paths([6, 5]) == [f"{tmp_path}/2"]
    assert reader([tmp_path / "2", tmp_path / "1"], "x")[:].tolist() == [5, 6, 0, 1, 2, 3, 4]
    write(tmp_path / "4", pa.table({"x": pa.array([1.5])}))
    with raises(SampleReadError):
        reader(f"{tmp_path}/*", "x")
    with raises(SampleReadError):
        reader(f"{tmp_path}/none-*", "x")
    with raises(ArgumentError):
        reader([], "x")


@pytest.mark.parametrize("values", [list(range(N)), [str(k) for k in range(N)]], ids=["numbers", "values"])
@pytest.mark.parametrize("write", [parquet, compressed])
def test_a_block_shuffle_decodes_each_chunk_once(
    write: Any, values: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write(tmp_path / "x", pa.table({"x": values}))(tmp_path / "x", "x")
    read: list[int] = []
    decodes = rows._decoded
    monkeypatch.setattr(
        rows, "_decoded", lambda handle, *parts: (read.extend(range(*parts)), decodes(handle, *parts))[1]
    )
    sampler = bu.BlockShuffleSampler(N, rows.natural_block, rows.natural_window)
    list(bu.ArrayDataSource([rows], sampler=sampler).batch_iterator(3, shuffle=1))
    assert sorted(read) == [0, 1, 2]


@pytest.mark.parametrize("write", [parquet, compressed])
def test_short_parts_are_decoded_together(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_column, "RUN_BYTES", 8 * 8)
    for name in ("1", "2"):
        reader = write(tmp_path / name, pa.table({"x": range(N)}))
    rows = reader(f"{tmp_path}/*", "x", cache=0)
    read: list[tuple[int, int]] = []
    decodes = rows._decoded
    monkeypatch.setattr(rows, "_decoded", lambda handle, *parts: (read.append(parts), decodes(handle, *parts))[1])
    assert rows[:].tolist() == [*range(N), *range(N)]
    assert read == [(0, 2), (2, 3)] * 2
    assert (rows.natural_block, rows.chunk_rows) == (8, 8)
    monkeypatch.undo()
    alone = reader(tmp_path / "1", "x")
    assert (alone.natural_block, alone.chunk_rows) == (4, 10)
    assert alone.natural_window > 2


POLARS = """
import sys
import numpy as np
import polars as pl

table = pl.DataFrame({
    "array": pl.Series(np.arange(24, dtype=np.uint8).reshape(4, 2, 3)), "list": [[1], [2, 3], [], None],
    "name": ["a", "b", None, "long enough not to be inlined"], "data": [b"a", b"b", b"", None],
    "kind": pl.Series(["u", "v", "u", "v"], dtype=pl.Categorical),
})
table.write_parquet(sys.argv[1] + "/x.parquet", row_group_size=2)
for compression in ("uncompressed", "lz4", "zstd"):
    table.write_ipc(f"{sys.argv[1]}/{compression}.arrow", compression=compression)
"""


def test_what_polars_writes_is_read(tmp_path: Path) -> None:
    if importlib.util.find_spec("polars") is None:
        pytest.skip("needs polars")
    subprocess.run([sys.executable, "-c", POLARS, tmp_path], timeout=600, check=True)  # which keeps things open
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 4
    for path in paths:
        columns = (bu.ParquetRows if path.suffix == ".parquet" else bu.ArrowRows).columns(path)
        np.testing.assert_array_equal(columns["array"][:], np.arange(24).reshape(4, 2, 3))
        assert [None if row is None else row.tolist() for row in columns["list"]] == [[1], [2, 3], [], None]
        assert columns["name"][:] == ["a", "b", None, "long enough not to be inlined"]
        assert columns["data"][:] == [b"a", b"b", b"", None]
        assert columns["kind"][:] == ["u", "v", "u", "v"]


def test_what_hugging_face_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="needs Hugging Face datasets")
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else a thread of its bars stays
    grids, tokens = np.arange(42, dtype=np.float32).reshape(7, 2, 3), [list(range(k)) for k in range(7)]
    made = datasets.Dataset.from_dict(
        {"image": [np.full((6, 6, 3), k, np.uint8) for k in range(7)], "label": [k % 2 for k in range(7)],
         "grid": grids, "tokens": tokens, "embedding": grids[:, 0]},
        datasets.Features({
            "image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"]),
            "grid": datasets.Array2D((2, 3), "float32"), "tokens": datasets.Sequence(datasets.Value("int64")),
            "embedding": datasets.Sequence(datasets.Value("float32"), 3),
        }),
    )  # fmt: skip
    made.save_to_disk(tmp_path / "saved", num_shards=2)
    made.to_parquet(tmp_path / "x.parquet", batch_size=3)
    for reader, paths in ((bu.ArrowRows, f"{tmp_path}/saved/*.arrow"), (bu.ParquetRows, tmp_path / "x.parquet")):
        columns = reader.columns(paths, ["image", "image.bytes", "label", "tokens"])
        for name in ("image", "image.bytes"):
            assert bu.ImageBytes(columns[name])[[6, 1]][0].tolist() == np.full((6, 6, 3), 6).tolist()
        assert columns["label"][:].tolist() == [0, 1, 0, 1, 0, 1, 0]
        assert [row.tolist() for row in columns["tokens"]] == tokens
        np.testing.assert_array_equal(reader(paths, "grid", shape=(2, 3))[[6, 0]], grids[[6, 0]])
        np.testing.assert_array_equal(reader(paths, "embedding", shape=(3,))[[6, 0]], grids[[6, 0], 0])


@pytest.mark.parametrize("write", [parquet, compressed])
def test_s4_a_chunk_that_would_take_much_memory_is_refused(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = write(tmp_path / "x", pa.table({"x": [0] * 100, "caption": ["0"] * 100}))
    monkeypatch.setattr(chunks, "LARGEST_CHUNK_BYTES", 16)
    with raises(SampleReadError):
        reader(tmp_path / "x", "x", cache=16)
    assert len(reader(tmp_path / "x", "x", cache="1kB")[:]) == 100
    assert reader(tmp_path / "x", "caption", cache=16)[0] == "0", "it may be a small column beside a large one"


READ = """
kind = bu.ParquetRows if path.endswith("parquet") else bu.ArrowRows
for column, options in (("n", {}), ("l", {}), ("f", {}), ("b", {"shape": (3,)}), ("s", {}), ("d", {})):
    tried(lambda: some_rows(kind(path, column, **options)))
"""


def test_s10_whatever_a_file_holds_is_rows_or_our_error(tmp_path: Path, in_full: bool) -> None:
    (tmp_path / "whole").mkdir()
    table = pa.table({
        "n": range(N), "l": [[k] * (k % 3) for k in range(N)], "b": [b"abc"] * N, "s": [str(k) for k in range(N)],
        "f": pa.FixedSizeListArray.from_arrays(pa.array(NUMBERS), 6), "d": pa.array(["a", "b"] * 5).dictionary_encode(),
    })  # fmt: skip
    for write in (parquet, arrow, compressed, stream):
        write(tmp_path / "whole" / write.__name__, table)
    tries = 2400 if in_full else 48
    assert damaged(tmp_path, tries, "pyarrow.parquet pandas", READ) == (tries, [])
