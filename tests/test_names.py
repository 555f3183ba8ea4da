"""Names at top level."""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError
from tests.messages import raises


def test_a_star_import_hides_nothing_of_python() -> None:
    names: dict[str, Any] = {}
    exec("from batchup_ng import *\nfrom batchup_ng.data_source import *", names)
    assert not {name for name in names if hasattr(builtins, name)} - {"__builtins__", "__doc__", "__name__"}
    assert bu.zip is bu.data_source.zip is not zip  # type: ignore[comparison-overlap]


def test_what_users_catch_and_write_is_there() -> None:
    assert {"Accessor", "NotReproducible", "StateError"} < set(bu.__all__)
    assert isinstance(bu.ImageFiles(["a.png"]), bu.Accessor)


def test_a_name_that_needs_a_library_which_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.delitem(sys.modules, "batchup_ng.frameworks.keras", raising=False)
    assert "KeepState" not in bu.__all__
    with raises(ImportError):
        _ = bu.KeepState
    with raises(AttributeError):
        _ = bu.KeepStates  # type: ignore[attr-defined]


RESULTS = {
    "AbstractDataSource", "AbstractSampler", "Accessor", "BatchIterator", "ColumnStatistics", "Converted", "EpochWait",
    "Explanation", "FilesDataSource", "FilesReport", "SampleRng", "Statistics",
}  # fmt: skip
"""Classes that programs do not call."""


def options_of(function: Any) -> list[str]:
    """Return the names of the parameters that have defaults; none if the function takes any name."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return []
    return [each.name for each in parameters if each.default is not each.empty]


def public_calls() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes, and methods of sources."""
    for name in sorted({*bu.__all__, "zip"} - RESULTS):
        own = getattr(bu, name)
        if callable(own) and not (isinstance(own, type) and issubclass(own, BaseException)):
            yield name, own
    for source in (bu.ArrayDataSource([np.arange(3)]), bu.IteratorDataSource(iter([])).take(3)):
        methods = inspect.getmembers(type(source), inspect.isfunction)
        yield from ((name, functools.partial(method, source)) for name, method in methods if name[0] != "_")


def test_a_misspelt_option_of_any_public_function_is_refused_by_name() -> None:
    seen = set()
    for name, function in public_calls():
        for option in options_of(function):
            with raises(ArgumentTypeError) as caught:
                function(**{f"{option}_": None})
            assert str(caught.value).startswith(f"{name} got an unexpected option '{option}_'; did you mean '")
            seen.add(name)
    assert {"split", "ParquetRows", "ErrorPolicy", "filter", "statistics", "StandardSampler", "Loader"} < seen
    assert {"folds", "windows"} < seen
    assert len(seen) > 60


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda **wrong: bu.ArrayDataSource([np.arange(3)]).pad(0, **wrong), "lengths"),
        (lambda **wrong: bu.ArrayDataSource([np.arange(3)]).batch_map_mean(len, 2, **wrong), "n_batches"),
        (lambda **wrong: bu.ArrayDataSource([np.arange(3)]).batch_map_concat(len, 2, **wrong), "prepend_args"),
        (lambda **wrong: bu.ArrayDataSource([np.arange(3)]).batch_map_concat(len, 2, **wrong), "shuffle"),
        (lambda **wrong: bu.from_table({"path": []}, **wrong), "label"),
    ],
)
def test_an_option_with_two_letters_exchanged_is_recognised(call: Any, option: str) -> None:
    for i in range(len(option) - 1):
        misspelt = option[:i] + option[i + 1] + option[i] + option[i + 2 :]
        if misspelt != option:
            with raises(ArgumentTypeError) as caught:
                call(**{misspelt: 1})
            assert str(caught.value).endswith(f"got an unexpected option {misspelt!r}; did you mean {option!r}?")


def test_options_of_scikit_learns_split_have_names_here() -> None:
    source: Any = bu.ArrayDataSource([np.arange(9)])
    for option in ("random_state", "test_size", "train_size"):
        for split in (source.split, functools.partial(bu.split, source)):
            with raises(ArgumentTypeError):
                split([0.5, 0.5], seed=1, **{option: 1})
    for option in ("random_state", "n_splits", "shuffle"):
        with raises(ArgumentTypeError):
            bu.folds(source, 2, seed=1, **{option: 1})


def test_options_of_windows_elsewhere_have_names_here() -> None:
    for option in ("sequence_length", "sequence_stride", "targets", "sampling_rate", "window_size", "shift"):
        with raises(ArgumentTypeError):
            bu.windows(np.arange(9), 3, **{option: 1})


@pytest.mark.parametrize(
    "call",
    [
        lambda: bu.ArrayDataSource([np.arange(3)]).pad(0, padding_value=1),
        lambda: bu.PadColumns(0, value=1),
        lambda: bu.pad_batch([[1]], value=1),
        lambda: bu.statistics([np.arange(3)], on=0),
        lambda: bu.from_file("x.txt", index="folder"),
    ],
)
def test_an_option_that_has_another_name_elsewhere_is_refused_with_the_right_one(call: Any) -> None:
    with raises(ArgumentTypeError):
        call()


def test_a_misspelt_option_of_a_method_of_a_pool_or_loader_is_refused_by_name() -> None:
    with bu.SerialPool() as pool, bu.Loader([np.arange(3)], 2, pool="serial") as loader:
        made: Any = loader
        for call in (
            lambda: pool.work_stream(iter([]), task_bufer_size=2),  # type: ignore[call-arg]
            lambda: made.batch(0, epohc=1),
            lambda: made.batches([0], epohc=1),
        ):
            with raises(ArgumentTypeError):
                call()
        assert made.batch(0, epoch=1)[0].tolist() == next(made.batches(numbers=[0], epoch=0))[0].tolist() == [0, 1]
