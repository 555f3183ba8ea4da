"""Weights of classes in a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validation
from ..batch import refuse_masked
from ..errors import ArgumentError, ArgumentTypeError


@validation.known_names({})
def class_weights(labels: Any, n_classes: int | None = None) -> np.ndarray:
    """Return a weight for each class that makes classes count alike in a loss: rare classes have large weights.

    The weight is ``n / (k * count)`` for `n` labels and `k` classes that occur, as scikit-learn's
    ``class_weight="balanced"``. A class that does not occur has weight 0.

    PyTorch takes it as ``CrossEntropyLoss(weight=torch.tensor(weights, dtype=torch.float32))``, Keras as
    ``fit(class_weight=dict(enumerate(weights)))``.

    Args:
        labels: The class of each sample, ``(n,)``: numbers from 0, or strings, whose classes are in sorted order.
        n_classes: Number of classes; for numbers only. Default: the greatest number plus 1.

    Returns:
        ``(n_classes,) float64``.

    Raises:
        ArgumentError: there are no labels, a label is negative or not below `n_classes`, or `labels` is not ``(n,)``.
        ArgumentTypeError: labels are neither whole numbers nor strings.

    >>> class_weights([0, 0, 0, 2], 3).round(3).tolist()
    [0.667, 0.0, 2.0]
    """
    refuse_masked("labels", labels)
    classes = np.asarray(labels)
    if classes.ndim != 1 or not len(classes):
        raise ArgumentError(f"labels must be the class of each sample, (n,), not of shape {classes.shape}; pass some")
    if classes.dtype.kind in "UT" or (classes.dtype == object and all(isinstance(each, str) for each in classes)):
        if n_classes is not None:
            raise ArgumentError("n_classes must be left out for labels that are strings; their classes are counted")
        classes = np.unique(classes.astype(str), return_inverse=True)[1].reshape(-1)
    elif classes.dtype.kind not in "iub":
        raise ArgumentTypeError(f"labels must be whole numbers or strings, not {classes.dtype}; pass class numbers")
    least, most = int(classes.min()), int(classes.max())
    wanted = most + 1 if n_classes is None else validation.positive_int("n_classes", n_classes)
    if least < 0 or most >= wanted:
        wrong = least if least < 0 else most
        raise ArgumentError(f"labels must be from 0 to {wanted - 1}, below n_classes, and one is {wrong}; leave it out")
    counts = np.bincount(classes.astype(np.int64), minlength=wanted)
    weights = np.zeros(wanted)
    occurs = counts > 0
    weights[occurs] = len(classes) / (np.count_nonzero(occurs) * counts[occurs])
    return weights
