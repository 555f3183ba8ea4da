"""InstanceMasks: polygons and run lengths become the pixels that pycocotools makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.accessors.instance_masks import InstanceMasks, of_polygons, of_runs, uncompressed
from batchup_ng.testing.accessors import AccessorContract, Made
from tests.messages import raises

# Height and width, polygons, and the counts of pycocotools 2.0: mask.merge(mask.frPyObjects(polygons, height, width)).
BY_PYCOCOTOOLS: list[tuple[tuple[int, int], list[list[float]], str]] = [
    ((10, 12), [[2.3, 1.1, 9.7, 2.2, 6.5, 8.9]], "o0282O1N2NN2N2Nd0"),
    ((10, 12), [[0, 0, 5, 0, 5, 5, 0, 5], [7.5, 3, 11.2, 3.5, 9, 9.9]], "0550000000Q1OPO1ON9"),
    ((10, 12), [[-3, -3, 14.0, 5, 4, 20]], "082f0O[O00001O001O001NM"),
    ((10, 12), [[3, 3, 3, 3, 3, 3]], "h3"),
    ((1, 1), [[0, 0, 1, 0, 1, 1, 0, 1]], "01"),
    ((21, 25), [[12.98, 5.86, -1.33, 8.88, 9.66, -1.6]], "71c01O1O1O1O001O100000O4M2Ng7"),
    ((25, 5), [[27.97, 17.22, 4.27, 10.48, 27.2, 24.83]], "^31>"),
    ((24, 26), [[12.78, 18.65, -1.05, 14.78, 5.69, 25.15]], "?2f0101N2N100O00O1O2O0O1O1OW9"),
    ((14, 9), [[10.58, 14.4, 1.55, 14.91, 14.44, -2.63]], "f12;1O1N2O1O1"),
]


def runs_of(mask: np.ndarray) -> list[int]:
    """Return the lengths of the runs of 0 and 1, column by column, one after the other in plain Python."""
    counts, value = [0], 0
    for pixel in mask.T.reshape(-1).tolist():
        if pixel != value:
            counts.append(0)
            value = pixel
        counts[-1] += 1
    return counts


def compressed(counts: list[int]) -> str:
    """Return COCO's text of run lengths: rleToString of pycocotools, in plain Python."""
    text = ""
    for place, count in enumerate(counts):
        number = count - (counts[place - 2] if place > 2 else 0)
        more = True
        while more:
            code = number & 31
            number >>= 5
            more = number != -1 if code & 16 else number != 0
            text += chr(48 + (code | 32 * more))
    return text


def one(parts: list[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Return the mask of one object."""
    masks = InstanceMasks([parts], np.array([1]), np.array([size]))[0]
    assert masks.shape == (1, *size)
    assert masks.dtype == np.uint8
    return np.asarray(masks[0])


@pytest.mark.parametrize(("size", "polygons", "text"), BY_PYCOCOTOOLS)
def test_the_pixels_of_polygons_are_those_of_pycocotools(size: Any, polygons: Any, text: str) -> None:
    mask = one(of_polygons(polygons), size)
    assert compressed(runs_of(mask)) == text
    np.testing.assert_array_equal(one(of_runs({"size": list(size), "counts": text}, size), size), mask)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools
def test_random_polygons_are_those_of_pycocotools_where_it_is_installed() -> None:
    theirs = pytest.importorskip("pycocotools.mask", reason="the library to compare with is not installed")
    rng = np.random.default_rng(0)
    for number in range(500):
        height, width = rng.integers(1, 80, 2).tolist()
        polygons = [rng.uniform(-5, 90, 2 * n).round(number % 3).tolist() for n in rng.integers(3, 12, 2)]
        expected = theirs.decode(theirs.merge(theirs.frPyObjects(polygons, height, width)))
        np.testing.assert_array_equal(one(of_polygons(polygons), (height, width)), expected)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32), st.booleans())
def test_run_lengths_give_the_mask_again(height: int, width: int, seed: int, as_bytes: bool) -> None:
    mask = (np.random.default_rng(seed).random((height, width)) < 0.5).astype(np.uint8)
    counts = runs_of(mask)
    text = compressed(counts)
    for given_counts in (counts, text.encode() if as_bytes else text):
        made = one(of_runs({"size": [height, width], "counts": given_counts}, (height, width)), (height, width))
        np.testing.assert_array_equal(made, mask)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=30))
def test_a_compressed_text_has_any_numbers(counts: list[int]) -> None:
    assert uncompressed(compressed(counts).encode()).tolist() == counts


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_a_rectangle_on_the_edges_of_pixels_covers_them(height: int, width: int, data: Any) -> None:
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    right, bottom = data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))
    mask = one(of_polygons([[left, top, right, top, right, bottom, left, bottom]]), (height, width))
    expected = np.zeros((height, width), np.uint8)
    expected[top:bottom, left:right] = 1
    np.testing.assert_array_equal(mask, expected)


def test_what_is_no_mask_is_a_value_error() -> None:
    for polygon in ([1, 2, 3], [[1, 2], [3, 4]], [1, float("nan")], ["a", "b"]):
        with raises(ValueError):
            of_polygons([polygon])
    for runs in (
        {}, {"size": [2, 3], "counts": [5]}, {"size": [3, 2], "counts": [6]}, {"size": [2, 3], "counts": [7, -1]},
        {"size": [2, 3], "counts": [1.5, 4.5]}, {"size": [2, 3], "counts": ""}, {"size": [2, 3], "counts": "\x10"},
        {"size": [2, 3], "counts": "o"}, {"size": [2, 3], "counts": "o" * 14 + "0"}, {"counts": [6]},
    ):  # fmt: skip
        with raises(ValueError):
            of_runs(runs, (2, 3))


class TestMasksOfBothKinds(AccessorContract):
    def make(self, tmp_path: Path) -> Made:
        rng, sizes = np.random.default_rng(1), np.array([(4, 6), (5, 3), (4, 6), (1, 2), (9, 9)])
        counts, objects, expected = np.array([2, 1, 0, 3, 1]), [], []
        for count, (height, width) in zip(counts, sizes.tolist(), strict=True):
            masks = []
            for _ in range(count):
                mask = (rng.random((height, width)) < 0.5).astype(np.uint8)
                objects.append(of_runs({"size": [height, width], "counts": runs_of(mask)}, (height, width)))
                masks.append(mask)
            expected.append(np.array(masks, np.uint8).reshape(count, height, width))
        objects[0] = of_polygons([[1, 1, 3, 1, 3, 3, 1, 3], [4, 0, 6, 0, 6, 4, 4, 4]])
        expected[0][0] = 0
        expected[0][0][1:3, 1:3] = expected[0][0][:, 4:] = 1
        return InstanceMasks(objects, counts, sizes), expected
