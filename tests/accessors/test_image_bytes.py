"""Encoded pictures in memory or in another accessor."""

from pathlib import Path

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError, SampleReadError
from batchup_ng.testing.accessors import AccessorContract
from tests.messages import raises

from .image_helpers import by_pillow, files_of_all_kinds, paths_of_all_kinds


class InLists(AccessorContract):
    def of(self, encoded):
        return encoded

    def make(self, tmp_path):
        expected = [by_pillow(path, (6, 8)) for path in paths_of_all_kinds(tmp_path)]
        return bu.ImageBytes(self.of(list(files_of_all_kinds().values())), (6, 8)), expected


class TestInAList(InLists):
    pass


class TestInAnArrayOfObjects(InLists):
    def of(self, encoded):
        objects = np.empty(len(encoded), object)
        objects[:] = encoded
        return objects


class TestInAnArrayOfArrays(InLists):
    def of(self, encoded):
        objects = np.empty(len(encoded), object)
        objects[:] = [np.frombuffer(each, np.uint8) for each in encoded]
        return objects


class TestInDicts(InLists):
    def of(self, encoded):
        return [{"bytes": each, "path": None} for each in encoded]


class Numbered:
    """An accessor that notes what it is asked for."""

    def __init__(self, encoded):
        self.encoded = encoded
        self.asked = []

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, rows):
        self.asked.append(rows)
        return [self.encoded[row] for row in rows]

    def sample_name(self, row):
        return f"key {row}"


def test_the_rows_of_a_batch_are_asked_for_at_once():
    inside = Numbered(list(files_of_all_kinds().values()))
    assert bu.ImageBytes(inside, 8)[[2, 0, 1]].shape == (3, 8, 8, 3)
    (rows,) = inside.asked
    assert rows.tolist() == [2, 0, 1]


def test_a_broken_picture_is_named_as_the_accessor_names_it():
    encoded = list(files_of_all_kinds().values())
    encoded[1] = encoded[1][:40]
    with raises(SampleReadError) as caught:
        bu.ImageBytes(Numbered(encoded), 8)[:]
    assert caught.value.source == "key 1"
    with raises(SampleReadError):
        bu.ImageBytes(encoded, 8)[:]


@pytest.mark.parametrize("row", [None, "text", 3.5, [1, 2, 300]])
def test_a_row_that_is_no_bytes_is_an_error_of_that_row(row):
    with raises(SampleReadError):
        bu.ImageBytes([files_of_all_kinds()["a.jpg"], row], 8)[1]


@pytest.mark.parametrize("encoded", [b"\xff\xd8\xff", "picture.jpg", 5, Path("folder")])
def test_what_is_no_list_of_bytes_is_refused(encoded):
    with raises(ArgumentTypeError):
        bu.ImageBytes(encoded)


def test_a_column_of_pandas_is_refused_whose_labels_would_give_other_pictures():
    pandas = pytest.importorskip("pandas")
    shuffled = pandas.Series(list(files_of_all_kinds().values()))[::-1]
    with raises(ArgumentTypeError):
        bu.ImageBytes(shuffled, 8)
    np.testing.assert_array_equal(bu.ImageBytes(shuffled.to_numpy(), 8)[0], bu.ImageBytes([shuffled.iloc[0]], 8)[0])


def test_a_column_of_pyarrow_is_refused_and_its_list_taken():
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.chunked_array([list(files_of_all_kinds().values())])
    with raises(ArgumentTypeError):
        bu.ImageBytes(column, 8)
    assert bu.ImageBytes(column.to_pylist(), 8)[[1, 0]].shape == (2, 8, 8, 3)


def test_its_repr_says_what_it_gives():
    pictures = bu.ImageBytes([b"", b""], 8, crop="center")
    options = "size=(8, 8), mode='RGB', dtype=uint8, crop=CenterCrop(fraction=1.0)"
    assert repr(pictures) == f"ImageBytes(2 pictures, {options})"


def test_dicts_are_the_same_pictures_as_their_bytes():
    encoded = list(files_of_all_kinds().values())
    dicts = [{"bytes": each, "path": "x.png"} for each in encoded]
    assert bu.ImageBytes(dicts, 8).fingerprint() == bu.ImageBytes(encoded, 8).fingerprint()
    with raises(SampleReadError):
        bu.ImageBytes([{"path": "x.png"}], 8)[0]
