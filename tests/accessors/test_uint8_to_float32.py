"""ImageArrayUInt8ToFloat32 keeps the accessor contract, with the bits of BatchUp."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batchup_ng.accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.accessors import AccessorContract
from tests.messages import raises

PICTURES = np.random.default_rng(5).integers(0, 256, (6, 3, 2), dtype=np.uint8)
LIMITS = st.floats(-1e6, 1e6, allow_nan=False)


class Ragged:
    """An accessor whose pictures have sizes of their own."""

    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, rows):
        if isinstance(rows, (slice, np.ndarray)):
            return [self.pictures[i] for i in np.arange(len(self.pictures))[rows]]
        return self.pictures[rows]


def by_the_formula(stored, low, high):
    return stored.astype(np.float32) * np.float32((high - low) / 255.0) + np.float32(low)


class TestOverAnArray(AccessorContract):
    def make(self, tmp_path):
        return ImageArrayUInt8ToFloat32(PICTURES), list(by_the_formula(PICTURES, 0.0, 1.0))


@pytest.mark.thorough
class TestOverAMemmapWithOtherLimits(AccessorContract):
    def make(self, tmp_path):
        np.save(tmp_path / "pictures.npy", PICTURES)
        stored = np.load(tmp_path / "pictures.npy", mmap_mode="r")
        return ImageArrayUInt8ToFloat32(stored, -1.0, 1.0), list(by_the_formula(PICTURES, -1.0, 1.0))


class TestOverSingleValues(AccessorContract):
    def make(self, tmp_path):
        values = np.array([0, 3, 128, 255], dtype=np.uint8)
        return ImageArrayUInt8ToFloat32(values), list(by_the_formula(values, 0.0, 1.0))


class TestOverAnAccessorThatGivesLists(AccessorContract):
    def make(self, tmp_path):
        pictures = [np.full((side, 2), 40 * side, np.uint8) for side in range(1, 6)]
        return ImageArrayUInt8ToFloat32(Ragged(pictures)), [by_the_formula(p, 0.0, 1.0) for p in pictures]


@given(stored=hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4)), low=LIMITS, high=LIMITS)
def test_results_are_the_bits_of_the_formula(stored, low, high):
    array = ImageArrayUInt8ToFloat32(stored, low, high)
    out = np.empty(array.shape, array.dtype)
    array.read_into(np.arange(len(stored)), out)
    expected = by_the_formula(stored, low, high)
    np.testing.assert_array_equal(array[:].view(np.uint32), expected.view(np.uint32), strict=True)
    np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32), strict=True)


@given(low=LIMITS, high=LIMITS)
def test_results_are_the_bits_of_batchup(low, high):
    utils = pytest.importorskip("batchup.image.utils", reason="BatchUp itself is what we compare with")
    stored = np.arange(256, dtype=np.uint8)
    theirs, ours = utils.ImageArrayUInt8ToFloat32(stored, low, high), ImageArrayUInt8ToFloat32(stored, low, high)
    np.testing.assert_array_equal(ours[:].view(np.uint32), theirs[:].view(np.uint32), strict=True)
    assert type(ours[7]) is type(theirs[7])
    for name in ("offset", "scale", "dtype", "shape"):
        assert getattr(ours, name) == getattr(theirs, name)
        assert type(getattr(ours, name)) is type(getattr(theirs, name))


def test_the_array_inside_is_kept_and_not_written_to():
    stored = PICTURES.copy()
    array = ImageArrayUInt8ToFloat32(stored, -1.0, 1.0)
    array.read_into(np.arange(6), np.empty(array.shape, np.float32))
    assert array.arr_u8 is stored
    np.testing.assert_array_equal(stored, PICTURES)


def test_an_inner_array_without_a_shape_leaves_it_without_one():
    array = ImageArrayUInt8ToFloat32(Ragged([np.zeros((1, 1), np.uint8)]))
    assert not hasattr(array, "shape")
    with raises(AttributeError):
        array.shape  # noqa: B018 - the attribute itself is what is tested


def test_several_axes_may_be_indexed_at_once():
    np.testing.assert_array_equal(
        ImageArrayUInt8ToFloat32(PICTURES)[1:3, 0], by_the_formula(PICTURES[1:3, 0], 0.0, 1.0), strict=True
    )


@pytest.mark.parametrize(("shape", "dtype"), [((3, 3, 2), np.float32), ((2, 3, 2), np.float64), ((2, 3), np.float32)])
def test_an_output_of_another_shape_or_dtype_is_refused(shape, dtype):
    with raises(ArgumentError):
        ImageArrayUInt8ToFloat32(PICTURES).read_into(np.array([0, 1]), np.empty(shape, dtype))


def test_what_is_no_accessor_and_limits_that_are_no_numbers_are_refused():
    with raises(ArgumentTypeError):
        ImageArrayUInt8ToFloat32(3)
    with raises(ArgumentTypeError):
        ImageArrayUInt8ToFloat32(PICTURES, 0.0, "one")


def test_its_repr_says_what_it_does():
    array = ImageArrayUInt8ToFloat32(PICTURES, -1.0, 1.0)
    assert repr(array) == f"ImageArrayUInt8ToFloat32(6 rows, scale={array.scale}, offset=-1.0)"


def test_batchups_import_path_gives_the_same_class():
    from batchup_ng.image import utils

    assert utils.ImageArrayUInt8ToFloat32 is ImageArrayUInt8ToFloat32
    assert utils.__all__ == ["ImageArrayUInt8ToFloat32"]
