"""A network of one hidden layer in plain NumPy. In the demo it stands in for the reader's own model.

Adam: Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015, with its step sizes; initial weights: He et
al., "Delving deep into rectifiers", ICCV 2015.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..randomness import generator

_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8
_LEARNING_RATE = 0.003


class Classifier:
    """Classifies flat inputs: linear, ReLU, linear, softmax. The same seed and batches give the same result.

    Args:
        n_inputs: Numbers in one sample.
        n_classes: Number of classes; labels are 0 to `n_classes` - 1.
        hidden: Units of the hidden layer. Up to 128, products of 32 samples stay below the size at which common BLAS
            libraries use their own threads. These would compete with the pool's.
        seed: Seed of the initial weights.
    """

    def __init__(self, n_inputs: int, n_classes: int, *, hidden: int = 128, seed: int = 0) -> None:
        rng = generator("classifier", seed)
        self.weights: list[np.ndarray] = []
        for n_in, n_out in itertools.pairwise([n_inputs, hidden, n_classes]):
            scale = np.float32(np.sqrt(2.0 / n_in))
            self.weights += [rng.standard_normal((n_in, n_out), dtype=np.float32) * scale, np.zeros(n_out, np.float32)]
        self._means = [np.zeros_like(w) for w in self.weights]
        self._squares = [np.zeros_like(w) for w in self.weights]
        self._steps = 0

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Return the probability of each class, ``(n, n_classes) float32``, of samples ``(n, ...)``."""
        return self._forward(_flat(x))[1]

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the likeliest class of each sample: ``(n,) int64``."""
        return np.asarray(self.probabilities(x).argmax(axis=1))

    def train_batch(self, x: np.ndarray, y: np.ndarray) -> float:
        """Take one step of Adam on a batch with `n_inputs` numbers per sample.

        Return its mean cross-entropy before the step, in nats.
        """
        x = _flat(x)
        rows = np.arange(len(y))
        hidden, probabilities = self._forward(x)
        loss = -float(np.log(probabilities[rows, y] + _TINY).mean())
        slope = probabilities  # in place from here on
        slope[rows, y] -= 1.0
        slope /= len(y)
        hidden_slope = slope @ self.weights[2].T * (hidden > 0.0)
        self._step([x.T @ hidden_slope, hidden_slope.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)])
        return loss

    def _forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer's output and the probabilities."""
        w1, b1, w2, b2 = self.weights
        hidden = np.maximum(x @ w1 + b1, 0.0)
        scores = hidden @ w2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return hidden, scores

    def _step(self, slopes: list[np.ndarray]) -> None:
        self._steps += 1
        rate = _LEARNING_RATE * np.sqrt(1.0 - _BETA2**self._steps) / (1.0 - _BETA1**self._steps)
        for weight, mean, square, slope in zip(self.weights, self._means, self._squares, slopes, strict=True):
            mean += (1.0 - _BETA1) * (slope - mean)
            square += (1.0 - _BETA2) * (slope * slope - square)
            weight -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(_TINY))


def _flat(x: np.ndarray) -> np.ndarray:
    """Return `x` with one row per sample: ``(n, n_inputs) float32``."""
    return np.asarray(x, dtype=np.float32).reshape(len(x), -1)
