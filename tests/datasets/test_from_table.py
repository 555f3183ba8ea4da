"""`from_table`: labels of every kind, files that are missing, errors that name rows."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from tests.datasets.table_helpers import KINDS, PATHS, TABLE, each_kind, unchecked, write_pictures
from tests.extent import quick
from tests.messages import raises

# -- what a table gives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [["x", "y"], [1, 2], [0.5, 2.0], [False, True]])
def test_scalars_of_numpy_are_what_they_are_in_python(labels: list[Any]) -> None:
    scalars = list(np.array(labels))
    given, plain = (unchecked({"path": PATHS[:2], "label": each}, label="label") for each in (scalars, labels))
    np.testing.assert_array_equal(given.data[1], plain.data[1], strict=True)
    assert given.class_names == plain.class_names


@each_kind
def test_every_kind_of_table_gives_the_same(kind: str, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    source = bu.from_table(KINDS[kind](TABLE), "path", "kind", 2, columns=["id", "score", "tags"], root=tmp_path)
    x, y, number, score, tags = next(source.batch_iterator(9))
    assert (x.shape, x[:, 0, 0, 0].tolist()) == ((4, 2, 2, 3), [0, 1, 2, 3])
    assert (y.dtype, y.tolist(), source.class_names) == (np.int64, [2, 1, 2, 0], ("ant", "cat", "dog"))
    assert (number.tolist(), score.tolist(), tags) == (TABLE["id"], TABLE["score"], TABLE["tags"])
    assert source.report.class_counts == {"ant": 1, "cat": 1, "dog": 2}
    assert str(source.report) == "table of 4 rows: 4 files in 3 classes\n  ant  1\n  cat  1\n  dog  2"
    assert not source.node.traits.runs_user_code


@each_kind
def test_labels_of_every_kind(kind: str) -> None:
    table = KINDS[kind](TABLE)
    numbers = unchecked(table, label="id")
    assert (numbers.data[1].tolist(), numbers.class_names) == ([3, 1, 2, 0], ("1", "3", "5", "7"))
    assert (unchecked(table, label="flag").class_names) == ("False", "True")
    target = unchecked(table, label="score")
    assert (target.data[1].dtype, target.data[1].tolist(), target.class_names) == (np.float32, TABLE["score"], ())
    several = unchecked(table, label="tags", separator="|")
    assert several.class_names == ("x", "y", "z")
    assert several.data[1].dtype == np.float32
    assert several.data[1].tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0]]
    assert several.report.class_counts == {"x": 2, "y": 2, "z": 1}
    assert len(unchecked(table).data) == 1


@each_kind
def test_a_label_that_is_missing_is_an_error_that_names_rows(kind: str) -> None:
    for values in (["cat", None, "dog", None], [1.0, None, 2.0, None]):
        table = KINDS[kind]({"path": PATHS, "label": values})
        with raises(bu.ArgumentError):
            unchecked(table, label="label")
    with raises(bu.ArgumentError):
        unchecked(KINDS[kind]({"path": PATHS, "label": [None, "a", "a b", ""]}), label="label", separator=" ")


def test_missing_values_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    for dtype, value in {"Int64": 1, "string": "a", "category": "a", "float": 0.5}.items():
        table = pandas.DataFrame({"path": PATHS[:2], "label": pandas.array([value, None], dtype=dtype)})
        with raises(bu.ArgumentError):
            unchecked(table, label="label")
        kept = unchecked(table.dropna(), label="label")
        assert len(kept.data[0]) == 1
    odd = pandas.DataFrame({"path": PATHS, "label": list("abab")}, index=[9, 9, 2, 0])
    assert unchecked(odd, label="label").data[1].tolist() == [0, 1, 0, 1]


@each_kind
def test_lists_of_text_are_several_classes_as_with_a_separator(kind: str) -> None:
    tags = [["x", "y"], [], ["y", "z", "y"], ["x"]]
    table = KINDS[kind]({"path": PATHS, "tags": tags, "text": list(map("|".join, tags)), "ids": [[1], [], [2], [1]]})
    given = unchecked(table, label="tags", class_names=["z", "y", "x"])
    same = unchecked(table, label="text", class_names=["z", "y", "x"], separator="|")
    np.testing.assert_array_equal(given.data[1], same.data[1], strict=True)
    assert given.report.class_counts == same.report.class_counts == {"z": 1, "y": 2, "x": 2}
    with raises((bu.ArgumentError, bu.ArgumentTypeError)):
        unchecked(table, label="tags", separator="|")
    with raises(bu.ArgumentTypeError):
        unchecked(table, label="ids")
    for wrong in ([["a"], None, [], []], [["a"], "b", [], []], [["a"], [None], [], []]):
        with raises((bu.ArgumentError, bu.ArgumentTypeError)):
            unchecked({"path": PATHS, "tags": wrong}, label="tags")


def test_arrays_and_sets_of_text_are_several_classes() -> None:
    for make in (np.array, set, tuple, lambda each: np.array(each, object)):
        given = unchecked({"path": PATHS[:2], "tags": [make(["b", "a"]), make(["b"])]}, label="tags")
        assert (given.data[1].tolist(), given.class_names) == ([[1, 1], [0, 1]], ("a", "b"))


@each_kind
def test_a_missing_value_among_floats_is_nan(kind: str) -> None:
    for values in ([0.5, None, 2.0, float("nan")], [None, 1.5, None, 3.0]):
        (score,) = unchecked(KINDS[kind]({"path": PATHS, "score": values}), columns=["score"]).data[1:]
        expected = np.array([np.nan if value is None else value for value in values])
        np.testing.assert_array_equal(score, expected, strict=True)


@pytest.mark.parametrize("library", quick(["pandas"], ["pandas", "polars"]))
def test_what_to_do_with_missing_whole_numbers_and_texts_works(library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    if library == "pandas":
        remedies_work(library)
    else:  # its first change of a frame opens descriptors, which stay
        program = f"from tests.datasets.test_from_table import remedies_work; remedies_work({library!r})"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


def remedies_work(library: str) -> None:
    """Check what the errors of missing values say for a library of tables."""
    tables = importlib.import_module(library)
    values: dict[str, Any] = {"age": [1, None, 3, 4], "name": ["a", None, "c", "d"]}
    table = tables.DataFrame({"path": PATHS, **values})
    if library == "pandas":
        table = table.assign(age=tables.array(values["age"], dtype="Int64"))
    for column, expected in {"age": [1, np.nan, 3, 4], "name": ["a", "", "c", "d"]}.items():
        with raises(bu.ArgumentTypeError) as caught:
            unchecked(table, columns=[column])
        remedies = dict(re.findall(r"(table\.\S.*?) in (pandas|polars)", str(caught.value)))
        (remedy,) = [code for code, name in remedies.items() if name == library]
        mended = unchecked(eval(remedy, {"table": table}), columns=[column]).data[1]
        np.testing.assert_array_equal(mended[:], expected)


@each_kind
@pytest.mark.parametrize("in_dicts", [False, True])
def test_a_column_of_encoded_pictures(kind: str, in_dicts: bool, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    encoded: list[Any] = [(tmp_path / path).read_bytes() for path in PATHS]
    if in_dicts:
        encoded = [{"bytes": each, "path": path} for each, path in zip(encoded, PATHS, strict=True)]
    source = bu.from_table(KINDS[kind]({**TABLE, "path": encoded}), label="kind", size=2, root=tmp_path)
    x, y = next(source.batch_iterator(9))
    assert (x.shape, x[:, 0, 0, 0].tolist(), y.tolist()) == ((4, 2, 2, 3), [0, 1, 2, 3], [2, 1, 2, 0])
    assert isinstance(source.data[0], bu.ImageBytes)
    assert str(source.report).startswith("table of 4 rows: 4 images in 3 classes")


@pytest.mark.parametrize(
    ("cells", "mark"),
    [(["a|b", "b|c", "a", "a,c|b"], "|"), (["a, b", "c", "b,c", "a,b"], ","), (["a|b", "b|c", "a", "b"], None),
     (["a", "b", "c", "d"], None), ([1, 2, 3, 4], None)],
)  # fmt: skip
def test_labels_that_look_like_several_classes_are_told_by_the_report(cells: list[Any], mark: str | None) -> None:
    report = unchecked({"path": PATHS, "label": cells}, label="label").report
    told = f"3 of 4 labels hold {mark!r}; separator={mark!r} makes each several classes"
    assert report.hint == (told if mark else "")
    assert (report.hint == str(report).splitlines()[-1]) is (mark is not None)
    assert unchecked({"path": PATHS, "label": list(map(str, cells))}, label="label", separator="|").report.hint == ""


def test_the_labels_are_at_hand() -> None:
    source = unchecked(TABLE, label="kind", columns=["id"])
    np.testing.assert_array_equal(source.labels, [2, 1, 2, 0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(source)).labels, source.data[1])
    assert unchecked(TABLE, columns=["id"]).labels is None


def test_arrays_in_a_dict() -> None:
    table = {"path": np.array(PATHS), "label": np.array([2, 0, 2, 5], np.uint8), "more": np.eye(4, dtype=np.float32)}
    source = unchecked(table, label="label", columns=["more"])
    assert (source.data[1].tolist(), source.class_names) == ([1, 0, 1, 2], ("0", "2", "5"))
    assert source.data[2].shape == (4, 4)


texts = st.text(max_size=4).filter(str.strip)  # an empty text is no label
labels = st.lists(st.one_of(st.integers(-3, 12), st.integers()), min_size=1) | st.lists(texts, min_size=1)


@pytest.mark.in_turn
@given(labels)
def test_numbers_of_classes_lead_back_to_the_labels(values: list[Any]) -> None:
    source = unchecked({"path": [f"{row}.png" for row in range(len(values))], "label": values}, label="label")
    assert [source.class_names[number] for number in source.data[1]] == list(map(str, values))
    assert list(source.class_names) == list(map(str, sorted(set(values))))
    assert list(source.report.class_counts.values()) == [values.count(value) for value in sorted(set(values))]
    again = unchecked({"path": ["x"], "label": values[-1:]}, label="label", class_names=source.class_names)
    assert again.data[1].tolist() == source.data[1].tolist()[-1:]


words = st.text(st.characters(exclude_characters="|", exclude_categories=("Z", "C")), min_size=1, max_size=4)


@given(st.lists(st.sets(words, max_size=4), min_size=1))
def test_several_labels_lead_back_to_the_text(values: list[set[str]]) -> None:
    table = {"path": [f"{row}.png" for row in range(len(values))], "label": ["|".join(each) for each in values]}
    source = unchecked(table, label="label", separator="|")
    rows = [{source.class_names[number] for number in np.flatnonzero(row)} for row in source.data[1]]
    assert rows == values


# -- columns of text -----------------------------------------------------------------------------------------------


@each_kind
def test_a_text_takes_its_own_length_whatever_the_longest(kind: str) -> None:
    texts = ["x" * 20_000, *map(str, range(4000))]
    table = KINDS[kind]({"path": [f"{row}.png" for row in range(len(texts))], "text": texts})
    tracemalloc.start()
    source = unchecked(table, columns=["text"])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20_000_000  # an array of text would take 320 MB
    assert len(pickle.dumps(source)) < 500_000
    assert source.data[1][:] == texts


odd_text = st.text(st.characters(exclude_categories=()), max_size=5)


@given(st.lists(odd_text, min_size=1) | st.lists(st.binary(max_size=5), min_size=1), st.data())
def test_texts_come_back_as_they_were(texts: list[Any], data: Any) -> None:
    column = unchecked({"path": [f"{row}.png" for row in range(len(texts))], "more": texts}, columns=["more"]).data[1]
    rows = data.draw(st.lists(st.integers(-len(texts), len(texts) - 1)))
    assert column[np.array(rows, int)] == [texts[row] for row in rows]
    assert [column[row] for row in rows] == [texts[row] for row in rows]
    assert column[::-1] == texts[::-1]
    assert pickle.loads(pickle.dumps(column))[:] == texts
    for beyond in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            column[beyond]


@pytest.mark.parametrize("width", [3, 3000])
def test_texts_are_lists_on_every_path(width: int, pools: list[Any], tmp_path: Path) -> None:
    names = [f"{row}.png" for row in range(40)]
    write_pictures(tmp_path, names)
    texts = [f"{row} é\0" + "x" * (row % width) for row in range(40)]
    plain = bu.from_table({"path": names, "text": texts}, size=2, root=tmp_path, columns=["text"])
    assert "40 texts" in repr(plain)
    paths = {
        "plain": plain, "cached": plain.cache(), "map": plain.map(lambda x, t: (x, t)),
        "samples": plain.map_samples(lambda x, t: (x, t)), "concat": bu.concat(plain, plain),
        "subset": plain.subset([3, 19, 4]), "filter": plain.filter(lambda x, t: True),
        "collate": plain.collate(lambda samples: tuple(map(list, zip(*samples, strict=True)))),
    }  # fmt: skip
    for name, source in paths.items():
        expected = list(source.batch_iterator(8, shuffle=1))
        for pictures, column in expected:
            assert type(column) is list, name
            assert column == [texts[np.asarray(picture)[0, 0, 0]] for picture in pictures]
        resumed = source.batch_iterator(8, shuffle=1)
        next(resumed)
        again = source.batch_iterator(8, shuffle=1)
        again.load_state_dict(resumed.state_dict())
        assert [column for _, column in again] == [column for _, column in expected[1:]]
        for pool in pools:
            made = pool.parallel_data_source(source).batch_iterator(8, shuffle=1)
            assert [column for _, column in made] == [column for _, column in expected], name


def test_f21_workers_share_the_texts(in_full: bool) -> None:
    def private() -> tuple[int, int]:
        return os.getpid(), int(psutil.Process().memory_full_info().uss)

    def epoch(pool: bu.WorkerProcessPool, n: int) -> dict[int, int]:
        texts = [f"{row:0200}" for row in range(n)]
        source = pool.parallel_data_source(unchecked({"path": texts, "text": texts}, columns=["text"], images=Pids))
        made: set[int] = set()
        told: dict[int, int] = {}
        while len(made) < 2:  # one worker may make all batches while the other gets no CPU
            rows = 0
            for pids, column in source.batch_iterator(min(1000, n // 20)):
                made.update(pids.tolist())
                rows += len(column)
            assert rows == n
        while len(told) < 2:
            told |= dict(pool.work_stream((private, ()) for _ in range(16)).retrieve_iter())
        return told

    n = 1_000_000 if in_full else 50_000
    with bu.WorkerProcessPool(2) as pool:
        before, after = epoch(pool, 2000), epoch(pool, n)
    assert max(after[pid] - before[pid] for pid in before.keys() & after.keys()) < 100 * n


class Pids:
    """An accessor that reads nothing: of each row the process that was to read it."""

    def __init__(self, paths: Any) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> Any:
        return np.full_like(np.arange(len(self))[rows], os.getpid())


# -- what is wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ({"label": list("abcd")}, {"separator": ""}),
        ({"label": list("abca")}, {"class_names": ["b", "c"]}),
        ({"label": ["a", 1, "b", "c"]}, {}),
        ({"label": [1, 2, "b", 3]}, {}),
        ({"label": [[1], [2], [3], [4]]}, {}),
        ({"label": [1, 2, 3, 4]}, {"separator": "|"}),
        ({"label": ["a"]}, {}),
        ({"label": [0.5, 1e39, -float("inf"), 2]}, {}),
        ({"label": [1, 2], "path": ["a", None]}, {}),
        *(({"label": [1, 2], "path": wrong}, {})
          for wrong in ({"a", "b"}, "ab", {"a": 1, "b": 2}, iter(["a", "b"]))),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_refused(table: dict[str, Any], options: dict[str, Any]) -> None:
    with raises((bu.ArgumentError, bu.ArgumentTypeError)):
        unchecked({"path": PATHS, **table}, label="label", **options)


def test_one_column_is_named_by_a_string(tmp_path: Path) -> None:
    table = {"path": ["x.png"], "age": [3], "a": [1], "g": [2], "e": [4]}
    (tmp_path / "x.csv").write_text("path,age\nx.png,3\n")
    np.savez(tmp_path / "x.npz", age=np.array([3]))
    for source in (
        bu.from_table(table, columns="age", as_dict=True, missing="ignore"),
        bu.from_csv(tmp_path / "x.csv", columns="age", as_dict=True, missing="ignore"),
        bu.from_file(tmp_path / "x.npz", columns="age"),
    ):
        assert source.select("age")[:] == {"age": [3]}
        assert "g" not in source.node.names


@each_kind
def test_a_column_that_is_not_there(kind: str) -> None:
    table = KINDS[kind](TABLE)
    with raises(bu.ArgumentError):
        unchecked(table, image="paths")
    with raises(bu.ArgumentError):
        unchecked(table, label="labels")
    with raises(bu.ArgumentError):
        unchecked(table, columns=["x"])


def test_columns_that_are_no_arrays() -> None:
    for values in (
        [1, None, 2, 3], [[1], None, [3], [4]], [{}] * 4, [[1], [0.5], [], []], [[[1], [2, 3]], [], [], []],
        ["a", 1, 2, 3], [0.5, 1, "a", 3], ["a", b"b", "c", "d"],
        ["a", None, "c", "d"], [["a"], [1], ["c"], ["d"]], [1, 1 << 63, -1, 2],
    ):  # fmt: skip
        with raises(bu.ArgumentTypeError):
            unchecked({"path": PATHS, "more": values}, columns=["more"])


@pytest.mark.parametrize("names", [{"x", "y"}, {"x": 1, "y": 0}, "xy"])
def test_names_of_classes_without_an_order(names: Any, tmp_path: Path) -> None:
    with raises(bu.ArgumentTypeError):
        unchecked({"path": PATHS, "label": list("xyxy")}, label="label", class_names=names)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "1.jpg").touch()
    with raises(bu.ArgumentTypeError):
        bu.from_folder(tmp_path, class_names=names)


def test_infinite_targets_stay() -> None:
    infinite = unchecked({"path": PATHS, "label": [0.5, float("inf"), 1, 2]}, label="label")
    assert infinite.data[1].tolist() == [0.5, float("inf"), 1, 2]


@each_kind
def test_numbers_of_64_bits_are_not_rounded(kind: str) -> None:
    numbers = [2**64 - 1, 1, 2**53 + 1, 0]
    table = KINDS[kind]({"path": PATHS, "more": np.array(numbers, np.uint64) if kind == "pyarrow" else numbers})
    assert unchecked(table, columns=["more"]).data[1].tolist() == numbers


def test_an_array_keeps_its_dtype_and_is_copied() -> None:
    for more in (np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((4, 2, 2), np.uint8), np.zeros(4, "M8[ns]")):
        source = unchecked({"path": PATHS, "more": more}, columns=["more"])
        before = more.copy()
        more[...] = 9 if more.dtype.kind != "M" else "2000"
        np.testing.assert_array_equal(source.data[1], before, strict=True)


def test_what_becomes_of_a_table_later_changes_nothing() -> None:
    table: dict[str, Any] = {"path": list(PATHS), "kind": list("abab"), "text": list("wxyz"), "number": [1, 2, 3, 4]}
    source = unchecked(table, label="kind", columns=["text", "number"])
    for values in table.values():
        values[:] = values[::-1]
    assert [source.data[0].sample_name(row) for row in range(4)] == PATHS
    assert (source.data[1].tolist(), source.data[2][:], source.data[3].tolist()) == (
        [0, 1, 0, 1], list("wxyz"), [1, 2, 3, 4]
    )  # fmt: skip


def test_what_is_no_table() -> None:
    with raises(bu.ArgumentTypeError):
        bu.from_table("train.csv")
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    for wrong in (3, [["a.png", 1]], np.zeros(3)):
        with raises(bu.ArgumentTypeError):
            bu.from_table(wrong)
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with raises(bu.ArgumentTypeError):
        bu.from_table(polars.LazyFrame(TABLE))


def test_without_narwhals_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)  # as Python itself marks what cannot be imported
    with raises(ModuleNotFoundError):
        bu.from_table(object())
    assert len(unchecked(TABLE).data[0]) == 4


# -- files -------------------------------------------------------------------------------------------------------


def test_files_that_are_missing(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["a.png", "c.png"])
    with raises(bu.ArgumentError):
        bu.from_table(TABLE, label="kind", root=tmp_path)
    source = bu.from_table(TABLE, label="kind", root=tmp_path, missing="skip", columns=["id"])
    assert list(source.report.missing) == [str(tmp_path / "b.png"), str(tmp_path / "d.png")]
    assert (source.data[1].tolist(), source.data[2].tolist()) == ([2, 2], [7, 5])
    assert source.report.class_counts == {"ant": 0, "cat": 0, "dog": 2}
    assert f"missing: 2 ('{tmp_path}/b.png', '{tmp_path}/d.png')" in str(source.report)
    assert len(unchecked(TABLE, root=tmp_path).data[0]) == 4
    with raises(bu.ArgumentError):
        bu.from_table(TABLE, root=tmp_path / "absent", missing="skip")


def test_many_files_of_one_folder(tmp_path: Path) -> None:
    for number in range(0, 300, 2):
        (tmp_path / f"{number}.png").touch()
    paths = [f"{number}.png" for number in range(300)]
    source = bu.from_table({"path": paths}, root=tmp_path, missing="skip")
    assert list(source.report.missing) == [str(tmp_path / path) for path in paths[1::2]]
    assert len(source.data[0]) == 150


def test_files_by_paths_of_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    write_pictures(tmp_path, ["a.png", "sub/b.png"])
    forms = ["a.png", "./a.png", "sub/b.png", "sub/../a.png", tmp_path / "a.png", str(tmp_path / "absent.png"), "sub/x"]
    for many in (1, 200):  # folders are looked at, or listed
        source = bu.from_table({"path": forms * many}, missing="skip")
        assert list(source.report.missing) == [str(tmp_path / "absent.png"), "sub/x"] * many


def test_a_path_that_is_there_twice(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    source = bu.from_table({"path": [*PATHS, "b.png", "b.png"], "label": list("abcabc")}, label="label", root=tmp_path)
    assert list(source.report.duplicates) == [str(tmp_path / "b.png")] * 2
    assert f"named again: 2 ('{tmp_path}/b.png')" in str(source.report)
    assert len(source.data[0]) == 6


def test_the_exclusion_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path)
    monkeypatch.chdir(tmp_path)
    for exclude, unmatched in (([tmp_path / "b.png"], []), (["b.png", "x.png", "sub/a.png"], ["sub/a.png", "x.png"])):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            source = bu.from_table(TABLE, label="kind", exclude=exclude)
        assert [each.category for each in told] == [bu.SampleWarning] * bool(unmatched)
        assert list(source.report.unmatched) == [str(tmp_path / name) for name in unmatched]
        assert [source.data[0].sample_name(row) for row in range(3)] == ["a.png", "c.png", "d.png"]
        assert source.data[1].tolist() == [2, 2, 0]
        assert list(source.report.skipped["excluded"]) == ["b.png"]
    os.unlink("b.png")
    assert bu.from_table(TABLE, exclude=["b.png"]).num_samples() == 3


def test_texts_that_would_write_to_the_terminal_are_shown_escaped() -> None:
    table = {"path": PATHS, "l\x1b[31m": ["a\x1b[32m", "b\n", "b\u202e", "x" * 10_000]}
    source = unchecked(table, label="l\x1b[31m", columns=["l\x1b[31m"])
    assert source.class_names[0] == "a\x1b[32m"
    for text in (str(source.report), repr(source), repr(bu.ArrayDataSource({"a\x1b[31m": np.arange(3)}))):
        assert text.replace("\n", "").isprintable()
        assert len(text) < 1000


def test_the_report_travels(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["a.png"])
    source = pickle.loads(pickle.dumps(bu.from_table(TABLE, root=tmp_path, missing="skip")))
    assert [os.path.basename(path) for path in source.report.missing] == ["b.png", "c.png", "d.png"]
