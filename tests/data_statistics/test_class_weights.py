"""Weights of classes."""

from __future__ import annotations

import numpy as np

import batchup_ng as bu
from tests.messages import raises


def test_weights_are_the_balanced_ones() -> None:
    labels = np.random.default_rng(3).integers(0, 5, 200).astype(np.uint8)
    weights = bu.class_weights(labels)
    np.testing.assert_array_equal(weights, 200 / (5 * np.bincount(labels)))
    assert weights[labels].sum() == 200
    assert bu.class_weights(labels, 7)[5:].tolist() == [0, 0]
    assert bu.class_weights(["b", "a", "b"]).tolist() == [1.5, 0.75]
    assert bu.class_weights([True, False]).tolist() == [1, 1]


def test_what_are_no_labels_is_refused() -> None:
    with raises(bu.ArgumentError):
        bu.class_weights([])
    with raises(bu.ArgumentError):
        bu.class_weights(np.zeros((2, 2), int))
    with raises(bu.ArgumentError):
        bu.class_weights([0, -1])
    with raises(bu.ArgumentError):
        bu.class_weights([0, 3], 3)
    with raises(bu.ArgumentError):
        bu.class_weights(["a"], 3)
    with raises(bu.ArgumentTypeError):
        bu.class_weights([0.5])
