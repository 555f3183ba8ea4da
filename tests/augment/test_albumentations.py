"""An Albumentations pipeline draws from what belongs to each sample, in every pool."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.augment.base import copied
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.augment.helpers import images, rng
from tests.messages import raises

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library's own


@pytest.fixture(scope="module")
def A() -> Iterator[Any]:  # the name by which its users import it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # it would look for a newer version
        yield pytest.importorskip("albumentations", reason="Albumentations is not installed")


@pytest.fixture
def changing(A: Any) -> Any:
    """Return an operation that makes something else of each image, nested, and of both generators of the library."""
    some = A.SomeOf([A.GaussNoise(p=1), A.ColorJitter(p=1), A.CoarseDropout(p=1)], n=2)
    return augment.albumentations(A.Compose([A.RandomResizedCrop(size=(24, 24)), A.HorizontalFlip(), some]))


def source(operation: Any) -> Any:
    return bu.ArrayDataSource([images(20, (32, 32)), np.arange(20)]).map(operation, rng="sample")


def test_what_becomes_of_a_sample_depends_on_its_position_alone(changing: Any) -> None:
    x = images(9, (32, 32))
    parts = [changing(x[rows], rng=bu.SampleRng(3, rows))[0] for rows in (np.arange(4), np.arange(4, 9))]
    np.testing.assert_array_equal(np.concatenate(parts), changing(x, rng=rng(9, 3))[0], strict=True)
    assert changing(x[:0], rng=rng(0))[0].size == 0


def test_transforms_draw_apart_from_each_other(A: Any) -> None:
    both = augment.albumentations(A.Compose([A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)]))
    x = np.broadcast_to(np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1), (100, 2, 2, 1))
    _, counts = np.unique(both(x, rng=rng(100))[0].reshape(100, 4), axis=0, return_counts=True)
    assert len(counts) == 4
    assert counts.min() > 10


def test_the_pipeline_of_the_user_and_global_generators_are_left_alone(A: Any) -> None:
    pipeline = A.Compose([A.HorizontalFlip()], seed=5)
    state, globally = pipeline.py_random.getstate(), random.getstate()
    augment.albumentations(pipeline)(images(), rng=rng(6))
    assert pipeline.py_random.getstate() == state
    assert random.getstate() == globally


def test_it_stands_in_a_chain_and_can_be_pickled(A: Any) -> None:
    crop = augment.albumentations(A.RandomCrop(16, 16))  # a single transform
    chain = augment.compose(augment.flip(), crop, augment.mixup(num_classes=6), augment.normalize(0.5, 0.5))
    x, y = chain(images(), np.arange(6), rng=rng(6))
    assert (x.shape, x.dtype, y.shape) == ((6, 16, 16, 3), np.float32, (6, 6))
    again, _ = pickle.loads(pickle.dumps(chain))(images(), np.arange(6), rng=rng(6))
    np.testing.assert_array_equal(again, x)
    assert "albumentations(RandomCrop)" in repr(chain)


def test_pictures_of_several_sizes_become_an_array_where_the_pipeline_gives_them_one(A: Any) -> None:
    pictures = [images(1, (h, 30))[0] for h in (20, 25)]
    cropping = augment.compose(augment.albumentations(A.RandomCrop(16, 16)), augment.flip(p=1))
    assert cropping(pictures, rng=rng(2))[0].shape == (2, 16, 16, 3)
    noisy = augment.albumentations(A.GaussNoise(p=1))
    assert [one.shape for one in noisy(pictures, rng=rng(2))[0]] == [(20, 30, 3), (25, 30, 3)]
    with raises(ArgumentTypeError):
        augment.compose(noisy, augment.flip())(pictures, rng=rng(2))


def test_results_in_another_layout_come_last(A: Any) -> None:
    to_chw = augment.albumentations(A.Compose([A.Normalize(), A.Lambda(image=channels_first)]))
    (x,) = to_chw(images(), rng=rng(6))
    assert (x.shape, x.dtype) == ((6, 3, 20, 30), np.float32)
    with raises(ArgumentError):
        augment.compose(to_chw, augment.flip())(images(), rng=rng(6))


def channels_first(image: np.ndarray, **_: Any) -> np.ndarray:
    return image.transpose(2, 0, 1)


def test_what_is_no_pipeline_is_refused() -> None:
    for wrong in (None, len, "flip"):
        with raises(ArgumentTypeError):
            augment.albumentations(wrong)
    with raises(ArgumentTypeError):
        augment.compose(len)  # type: ignore[arg-type]


def test_a_transform_that_writes_to_its_image_changes_nothing_that_is_given(A: Any) -> None:
    def inverted(image: np.ndarray, **_: Any) -> np.ndarray:
        return np.invert(image, out=image)

    operation = augment.albumentations(A.Compose([A.Lambda(image=inverted, p=1)]))
    for n in (3, 40):  # of 5 kB, of 72 kB
        x = images(n)
        for given in (x.copy(), copied(x), [*x.copy()], [x[0].copy(), x[1, :9].copy(), *x[2:].copy()]):
            wanted = [np.invert(image) for image in given]
            for _ in range(2):
                (made,) = operation(given, rng=rng(n))
                for image, other in zip(made, wanted, strict=True):
                    np.testing.assert_array_equal(image, other)
    kept = images(40)
    twice = bu.ArrayDataSource([kept]).map(lambda x, rng: (x, operation(x, rng=rng)[0]), rng="sample")
    for x, y in twice.batch_iterator(30):
        np.testing.assert_array_equal(np.invert(x), y)
    np.testing.assert_array_equal(kept, images(40))
