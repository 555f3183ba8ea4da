"""Digests of batches tell what differs and nothing else, whatever a batch holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.culprits import first_unlike
from batchup_ng.testing.differences import first_difference
from batchup_ng.testing.digests import digest_of, form_digest, sample_digests
from batchup_ng.testing.tracing import Event

RECORD = np.dtype([("name", object), ("n", np.int64)])


def record(name: Any) -> np.ndarray:
    """An array of one sample, with a field that holds any object."""
    return np.array([(name, 1)], dtype=RECORD)


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
    assert first_difference((one,), (other,)) is not None
    assert first_difference((one,), (one,)) is None


def test_what_is_not_a_number_equals_itself() -> None:
    assert first_difference((np.array([np.nan]),), (np.array([np.nan]),)) is None


def test_the_first_difference_is_that_of_the_first_sample_but_for_one_of_form() -> None:
    expected = {"x": np.zeros(5), "y": np.zeros(5), "z": np.zeros(5)}
    x, y = np.array([0, 0, 0, 1.0, 0]), np.array([0, 1.0, 0, 0, 0])
    found = first_difference(expected, {**expected, "x": x, "y": y})
    assert found == ("['y']", 1, "0.0, and here 1.0")
    found = first_difference(expected, {"x": x, "y": y, "z": np.zeros(5, dtype=np.float32)})
    assert found == ("['z']", None, "float64 of shape (5,), and here float32 of shape (5,)")
    found = first_difference(expected, {**expected, "z": np.zeros(4)})
    assert found == ("['z']", None, "float64 of shape (5,), and here float64 of shape (4,)")


def test_samples_that_change_places_between_arrays_are_not_the_same() -> None:
    x, y = np.arange(3), np.arange(3) + 10
    assert (sample_digests((x, y)) != sample_digests((y, x))).all()
    np.testing.assert_array_equal(sample_digests((x, y))[1:], sample_digests((x[1:], y[1:])))


def test_a_batch_of_another_form_is_not_the_same_even_with_the_same_samples() -> None:
    one, other = (
        Event(0, (), form_digest(batch), sample_digests(batch), "")
        for batch in ((np.arange(3), "left"), (np.arange(3), "right"))
    )
    np.testing.assert_array_equal(one.samples, other.samples)
    assert first_unlike([one], [other]) is one
    assert first_unlike([one], [one]) is None


@pytest.mark.parametrize("array", [record("x").repeat(20), np.array([None, "x"] * 10, dtype=object)])
def test_arrays_that_hold_objects_are_checked(array: np.ndarray) -> None:
    assert_reproducible(bu.ArrayDataSource([array]), pools=("threads",))


def test_tensors_that_numpy_cannot_hold_are_checked() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    one = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    other = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)
    assert first_difference((one,), (one.clone(),)) is None
    difference = first_difference((one,), (other,))
    assert difference is not None
    assert (difference.leaf, difference.row) == ("[0]", 2)
    tracked, same = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    assert first_difference((tracked,), (same,)) is None

    def to_tensor(x: np.ndarray) -> Any:
        return (torch.from_numpy(x).to(torch.bfloat16),)

    assert_reproducible(bu.ArrayDataSource([np.arange(20.0)]).map(to_tensor), pools=("threads",))
