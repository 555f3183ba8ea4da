"""Digests and comparisons of batches tell what differs and nothing else, whatever a batch holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.comparison import digest_of, first_difference
from batchup_ng.testing.sources import assert_same_batch

RECORD = np.dtype([("name", object), ("n", np.int64)])


def record(name: Any) -> np.ndarray:
    """An array of one sample, with a field that holds any object."""
    return np.array([(name, 1)], dtype=RECORD)


def place(expected: Any, got: Any) -> tuple[str, int | None, str]:
    """Return where two batches differ, and in what."""
    found = first_difference([expected], [got])
    assert found is not None
    assert found.batch == 0
    return found.leaf, found.row, found.words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32(1), np.float64(1)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(1), np.zeros(1, dtype=np.int64)),
        (0.0, -0.0),
        (1, True),
        (1, 1.0),
        ([1, 2], (1, 2)),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        (record("x"), record("y")),
        (record("x")[0], record("y")[0]),
        (np.array(None, dtype=object), np.array(1, dtype=object)),
        (np.array([None, 1], dtype=object), np.array([1, None], dtype=object)),
    ],
)
def test_things_that_differ_have_other_digests(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) == digest_of(one)
    assert first_difference([(one,)], [(other,)]) is not None
    assert first_difference([(one,)], [(one,)]) is None
    assert_same_batch((one,), (one,))
    with pytest.raises(AssertionError):
        assert_same_batch((one,), (other,))


def test_what_is_not_a_number_equals_itself() -> None:
    assert_same_batch((np.array([np.nan]),), (np.array([np.nan]),))


def test_the_first_difference_is_that_of_the_first_sample_but_for_one_of_form() -> None:
    expected = {"x": np.zeros(5), "y": np.zeros(5), "z": np.zeros(5)}
    x, y = np.array([0, 0, 0, 1.0, 0]), np.array([0, 1.0, 0, 0, 0])
    found = place(expected, {**expected, "x": x, "y": y})
    assert found == ("['y']", 1, "row 1 of array ['y'] is 0.0, and here 1.0")
    leaf, row, words = place(expected, {"x": x, "y": y, "z": np.zeros(5, dtype=np.float32)})
    assert (leaf, row) == ("['z']", None)
    assert "ndarray float64 (5,)" in words
    assert "and here 'ndarray float32 (5,)" in words
    assert place(expected, {**expected, "z": np.zeros(4)})[:2] == ("['z']", None)
    assert place((np.zeros((2, 3)),), (np.array([[0, 0, 0], [0, 0, 7.0]]),)) == (
        "[0]", 1, "row 1 of array [0] is 0.0, and here 7.0 at [2] of the sample"
    )  # fmt: skip


def test_a_batch_that_lies_otherwise_in_memory_or_in_another_container_is_not_the_same() -> None:
    one = (np.zeros((2, 3)),)
    leaf, row, words = place(one, (np.zeros((3, 2)).T,))
    assert (leaf, row) == ("[0]", None)
    assert "strides (24, 8)" in words
    assert place((one, one), (one, list(one)))[1] is None
    assert place(({"a": one}, one), ({"a": one}, {"0": one[0]}))[:2] == ("", None)


def test_samples_are_compared_however_they_are_cut_as_far_as_both_go() -> None:
    x = np.arange(6)
    halves, thirds = [(x[:3], "left"), (x[3:], "right")], [(x[:2], "a"), (x[2:4], "b"), (x[4:] + 1, "c")]
    assert first_difference(halves, thirds[:2], cut=True) is None
    assert first_difference(halves, thirds, cut=True) == (1, 1, "[0]", "row 1 of array [0] is 4, and here 5")
    assert first_difference(halves, halves[:1]) == (None, None, "", "it has 2 batches, and here 1")
    y = x + 10
    assert first_difference([(x, y)], [(y, x)], cut=True) is not None


@pytest.mark.parametrize("array", [record("x").repeat(20), np.array([None, "x"] * 10, dtype=object)])
def test_arrays_that_hold_objects_are_checked(array: np.ndarray) -> None:
    assert_reproducible(bu.ArrayDataSource([array]), pools=("threads",))


def test_tensors_that_numpy_cannot_hold_are_checked() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    one = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    other = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)
    assert_same_batch((one,), (one.clone(),))
    assert place((one,), (other,))[:2] == ("[0]", 2)
    assert_same_batch(*((torch.tensor([1.0, 2.0], requires_grad=True),) for _ in range(2)))

    def to_tensor(x: np.ndarray) -> Any:
        return (torch.from_numpy(x).to(torch.bfloat16),)

    assert_reproducible(bu.ArrayDataSource([np.arange(20.0)]).map(to_tensor), pools=("threads",))
