"""The demo's network learns, and does so the same way each time."""

from __future__ import annotations

import numpy as np
import pytest

from batchup_ng.demo.classifier import Classifier


def two_blobs(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2, 3)).astype(np.float32) + 4 * y[:, None, None], y


def test_it_learns() -> None:
    x, y = two_blobs()
    network = Classifier(6, 2, seed=0)
    losses = [network.train_batch(x, y) for _ in range(100)]
    assert losses[-1] < 0.1 * losses[0]
    assert (network.predict(x) == y).mean() > 0.98


def test_the_seed_settles_the_weights() -> None:
    x, y = two_blobs()
    networks = [Classifier(6, 2, seed=seed) for seed in (1, 1, 2)]
    for network in networks:
        for _ in range(3):
            network.train_batch(x, y)
    first, same, other = (network.probabilities(x).tobytes() for network in networks)
    assert first == same
    assert first != other


def test_probabilities_sum_to_one_even_for_huge_inputs() -> None:
    network = Classifier(3, 4)
    probabilities = network.probabilities(np.array([[1e6, -1e6, 1e6], [0, 0, 0]]))
    assert (probabilities.shape, probabilities.dtype) == ((2, 4), np.float32)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)


def test_the_slope_is_that_of_the_loss() -> None:
    """A step of Adam from rest moves every weight by the learning rate, against the slope of the loss."""
    x, y = two_blobs(20)
    network = Classifier(6, 2, hidden=5, seed=3)
    before = [w.copy() for w in network.weights]
    network.train_batch(x, y)
    moved = [new - old for new, old in zip(network.weights, before, strict=True)]
    for number, weight in enumerate(before):
        for place in np.ndindex(weight.shape):
            slope = (loss_at(before, number, place, 1e-2, x, y) - loss_at(before, number, place, -1e-2, x, y)) / 2e-2
            if abs(slope) > 1e-2:
                assert moved[number][place] == pytest.approx(-3e-3 * np.sign(slope), rel=0.01)


def loss_at(weights, number, place, step, x, y) -> float:
    network = Classifier(6, 2, hidden=5)
    network.weights = [w.astype(np.float64) for w in weights]
    network.weights[number][place] += step
    return -float(np.log(network.probabilities(x)[np.arange(len(y)), y]).mean())
