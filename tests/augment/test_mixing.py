"""mixup and cutmix: images and labels against plain formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.augment.helpers import images, rng
from tests.messages import raises

N = 40
LABELS = np.arange(N) % 5


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixup_blends_each_image_with_the_one_before(dtype: Any, alpha: float) -> None:
    x = images(N, dtype=dtype)
    operation = augment.mixup(alpha, num_classes=5)
    made, soft = operation(x, LABELS, rng=rng(N))
    weights = operation.draw(rng(N))[:, 0] / 256
    assert weights.min() >= 0
    assert weights.max() <= 1
    w, before = weights[:, None, None, None], np.roll(x, 1, axis=0).astype(float)
    wanted = w * x + (1 - w) * before
    np.testing.assert_allclose(made, wanted if dtype == np.float32 else np.floor(wanted + 0.5), atol=1e-6)
    own, other = np.eye(5)[LABELS], np.eye(5)[np.roll(LABELS, 1)]
    assert soft.dtype == np.float32
    np.testing.assert_allclose(soft, weights[:, None] * own + (1 - weights[:, None]) * other, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_cutmix_takes_a_box_of_the_image_before_and_weighs_labels_by_its_area(dtype: Any) -> None:
    x = images(N, dtype=dtype)
    made, soft = augment.cutmix(num_classes=N)(x, np.arange(N), rng=rng(N))
    shares = []
    for i in range(N):
        own, other = (made[i] == x[i]).all(axis=2), (made[i] == x[i - 1]).all(axis=2)
        assert (own | other).all()
        rows, columns = np.flatnonzero((~own).any(axis=1)), np.flatnonzero((~own).any(axis=0))
        assert (~own).sum() == len(rows) * len(columns)
        shares.append(1 - own.mean())
        np.testing.assert_allclose(soft[i, [i, i - 1]], [own.mean(), 1 - own.mean()], atol=1e-6)
    assert min(shares) < 0.1
    assert max(shares) > 0.5
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-6)


def test_weights_are_as_beta_has_them() -> None:
    for alpha in (0.2, 1.0, 3.0):
        weights = augment.mixup(alpha).draw(rng(4000))[:, 0] / 256
        assert abs(weights.mean() - 0.5) < 0.03
        assert abs(weights.var() * 4 * (2 * alpha + 1) - 1) < 0.1  # the variance of Beta(a, a) is 1 / (4 (2 a + 1))


@pytest.mark.parametrize("kind", [augment.mixup, augment.cutmix])
@pytest.mark.parametrize(("n", "p"), [(N, 0.0), (0, 1.0), (1, 1.0)])
def test_p_0_and_a_sample_alone_give_labels_their_form_and_leave_all_as_it_is(kind: Any, n: int, p: float) -> None:
    x = images(N)[:n]
    made, soft = kind(num_classes=5, p=p)(x, LABELS[:n], rng=rng(n))
    np.testing.assert_array_equal(made, x)
    np.testing.assert_array_equal(soft, np.eye(5, dtype=np.float32)[LABELS[:n]], strict=True)


@pytest.mark.parametrize("kind", [augment.mixup, augment.cutmix])
def test_what_is_not_mixed_takes_nothing_of_an_infinite_partner(kind: Any) -> None:
    x, y = images(4, dtype=np.float32), np.ones((4, 2), np.float32)
    x[1, 0, 0], y[1, 0], y[3, 1] = np.inf, np.inf, np.nan
    made, soft = kind(p=0.0)(x.copy(), y, rng=rng(4))
    np.testing.assert_array_equal(made, x)
    np.testing.assert_array_equal(soft, y)


def test_many_classes_take_a_row_for_each_sample() -> None:
    _, soft = augment.mixup(num_classes=1_000_000)(images(), np.arange(6), rng=rng(6))
    assert soft.shape == (6, 1_000_000)
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-6)


def test_floats_as_labels_are_mixed_as_they_are() -> None:
    for labels in (np.linspace(0, 1, N), np.random.default_rng(0).random((N, 3)).astype(np.float32)):
        kept = labels.copy()
        _, soft = augment.mixup()(images(N), labels, rng=rng(N))
        w = (augment.mixup().draw(rng(N))[:, 0] / 256).reshape(-1, *[1] * (labels.ndim - 1))
        np.testing.assert_allclose(soft, w * labels + (1 - w) * np.roll(labels, 1, axis=0), atol=1e-6)
        assert soft.dtype == labels.dtype
        np.testing.assert_array_equal(labels, kept)


@pytest.mark.parametrize(
    ("batch", "options", "error"),
    [
        ((images(),), {}, ArgumentTypeError),
        ((images(), list("abcdef")), {}, ArgumentTypeError),
        ((images(), np.arange(6)), {}, ArgumentError),
        ((images(), np.arange(6)), {"num_classes": 5}, ArgumentError),
        ((images(), np.arange(6) - 1), {"num_classes": 9}, ArgumentError),
    ],
)
def test_labels_are_checked(batch: Any, options: Any, error: Any) -> None:
    with raises(error):
        augment.mixup(**options)(*batch, rng=rng(6))


@pytest.mark.parametrize("options", [{"alpha": 0}, {"num_classes": 0}, {"p": 2}])
def test_options_are_checked_when_made(options: Any) -> None:
    with raises(ArgumentError):
        augment.cutmix(**options)
