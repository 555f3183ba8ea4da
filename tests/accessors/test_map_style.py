"""MapStyle keeps the accessor contract; samples are stacked by their structure."""

import collections
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from batchup_ng.accessors.base import chosen_rows
from batchup_ng.accessors.map_style import MapStyle
from batchup_ng.errors import ArgumentTypeError, SampleReadError
from batchup_ng.testing.accessors import AccessorContract, assert_same_rows
from batchup_ng.testing.sources import assert_same_batch
from tests.messages import raises

VECTORS = np.random.default_rng(3).normal(size=(5, 2, 3)).astype(np.float32)


class Listed:
    """A data set of given samples, that only takes Python ints, and none that are negative."""

    def __init__(self, samples):
        self.samples = list(samples)
        self.asked = []

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, row):
        assert type(row) is int
        assert row >= 0
        self.asked.append(row)
        return self.samples[row]


class AtOnce(Listed):
    """The same, which can be asked for several rows."""

    def __getitems__(self, rows):
        assert type(rows) is list
        self.asked.append(rows)
        return [self.samples[row] for row in rows]


def stacked(*samples):
    return MapStyle(Listed(samples))[:]


class TestOfArrays(AccessorContract):
    def make(self, tmp_path):
        return MapStyle(Listed(VECTORS)), list(VECTORS)


class TestOfArraysAskedForAtOnce(AccessorContract):
    def make(self, tmp_path):
        return MapStyle(AtOnce(VECTORS)), list(VECTORS)


class TestOfArraysOfSeveralSizes(AccessorContract):
    def make(self, tmp_path):
        arrays = [np.full(n, n) for n in range(1, 6)]
        return MapStyle(Listed(arrays)), arrays


class TestOfATorchDataset(AccessorContract):
    def make(self, tmp_path):
        torch = pytest.importorskip("torch", reason="its data sets are what is read")
        whole = torch.utils.data.TensorDataset(torch.from_numpy(VECTORS))
        # A Subset offers __getitems__; its samples are tuples of one tensor, of which the column is taken.
        return OnlyColumn(MapStyle(torch.utils.data.Subset(whole, [4, 3, 2, 1, 0]))), list(VECTORS[::-1])


class OnlyColumn:
    """The only column of samples that are tuples of one."""

    def __init__(self, accessor):
        self.accessor = accessor

    def __len__(self):
        return len(self.accessor)

    def __getitem__(self, rows):
        (column,) = self.accessor[rows]
        return np.asarray(column)


def test_one_row_is_the_sample_itself():
    samples = [object(), (1, "a"), None]
    accessor = MapStyle(Listed(samples))
    assert all(accessor[i] is samples[i] for i in range(3))


pair = collections.namedtuple("pair", "x y")


@pytest.mark.parametrize(
    ("samples", "columns"),
    [
        ((1, 2, 3), np.array([1, 2, 3])),
        ((1, 2.5), np.array([1.0, 2.5])),
        ((True, False), np.array([True, False])),
        ((np.uint8(4), np.uint8(5)), np.array([4, 5], np.uint8)),
        ((np.array(1.5), 2.0), np.array([1.5, 2.0])),
        ((np.zeros(2), np.zeros(3)), [np.zeros(2), np.zeros(3)]),
        ((pair(1, 2), pair(3, 4)), (np.array([1, 3]), np.array([2, 4]))),
        (({"b": 1, "a": "p"}, {"a": "q", "b": 2}), {"b": np.array([1, 2]), "a": ["p", "q"]}),
        ((collections.UserDict(a="p"), {"a": "q"}), {"a": ["p", "q"]}),
        (
            ((({"x": 1}, "p"), 0.5), (({"x": 2}, "q"), 1.5)),
            (({"x": np.array([1, 2])}, ["p", "q"]), np.array([0.5, 1.5])),
        ),
        *[(rows, list(rows)) for rows in (("a", "bc"), (b"a", b"bc"), (None, "a"), ([1, 2], [3, 4]), ({1}, {2}))],
    ],
    ids=repr,
)
def test_samples_become_columns_by_their_structure(samples, columns):
    assert_same_batch(stacked(*samples), columns)


def test_torch_tensors_become_arrays():
    torch = pytest.importorskip("torch", reason="tensors are what is read")
    columns = stacked((torch.ones(2), torch.tensor(1)), (torch.zeros(2), torch.tensor(2)))
    assert_same_batch(columns, (np.array([[1, 1], [0, 0]], np.float32), np.array([1, 2])))


def test_pictures_stay_pictures():
    pictures = [Image.new("L", (2, 2), value) for value in (1, 2)]
    column = stacked(*pictures)
    assert column == pictures
    column[0].putpixel((0, 0), 9)
    assert pictures[0].getpixel((0, 0)) == 1


def test_a_tensor_that_numpy_cannot_take_is_an_error_with_its_row():
    torch = pytest.importorskip("torch", reason="tensors are what is read")
    dataset = Listed([torch.ones(2), torch.ones(2, requires_grad=True)])
    with raises(SampleReadError) as caught:
        MapStyle(dataset)[[0, 1]]
    assert caught.value.source == 1
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("of_one_shape", [True, False])
def test_a_masked_array_is_an_error_with_its_row(of_one_shape):
    dataset = Listed([np.ones(2), np.ma.masked_array([1.0, 2.0, 3.0][of_one_shape:], mask=True)])
    with raises(SampleReadError) as caught:
        MapStyle(dataset)[[0, 1]]
    assert caught.value.source == 1


@pytest.mark.parametrize("odd", [(1, 2, 3), {"x": 1}, 5, "text", None, [1, 2]])
def test_a_sample_of_another_structure_is_an_error_with_its_row(odd):
    accessor = MapStyle(Listed([(1, 2), (3, 4), odd, (5, 6)]))
    with raises(SampleReadError) as caught:
        accessor[np.array([3, 0, 2])]
    assert caught.value.source == 2


def test_a_structure_that_differs_deep_inside_is_an_error_with_its_row():
    with raises(SampleReadError):
        stacked((1, {"a": 1}), (2, {"b": 1}))
    with raises(SampleReadError):
        stacked(1, None)


def test_no_rows_have_the_structure_of_row_0():
    x, rest = MapStyle(Listed([(VECTORS[0], {"n": 1, "s": "p"})]))[[]]
    assert (x.shape, x.dtype) == ((0, 2, 3), np.float32)
    assert rest["n"].shape == (0,)
    assert rest["s"] == []


def test_an_empty_data_set_has_no_rows():
    assert len(MapStyle(Listed([]))[:]) == 0
    assert len(MapStyle(AtOnce([]))[:]) == 0


def test_a_data_set_that_can_is_asked_once():
    dataset = AtOnce(VECTORS)
    MapStyle(dataset)[np.array([4, -5, 2])]
    assert dataset.asked == [[4, 0, 2]]


@pytest.mark.parametrize("answer", [[1], {"x": [1, 2]}, None])
def test_a_wrong_answer_from_getitems_is_refused(answer):
    dataset = AtOnce([1, 2])
    dataset.__getitems__ = lambda rows: answer
    with raises(ArgumentTypeError):
        MapStyle(dataset)[:]


def test_an_error_of_the_data_set_arrives_as_it_is():
    class Broken(Listed):
        def __getitem__(self, row):
            raise KeyError("mine")

    with raises(KeyError):
        MapStyle(Broken([1, 2]))[:]


@pytest.mark.parametrize("dataset", [iter([1]), {1, 2}, 7])
def test_a_data_set_without_one_of_the_methods_is_refused(dataset):
    with raises(ArgumentTypeError):
        MapStyle(dataset)


def test_a_mapping_of_splits_is_refused_with_its_keys():
    with raises(ArgumentTypeError):
        MapStyle({"train": [1], "test": [2]})


def test_its_repr_names_the_data_set():
    assert repr(MapStyle(Listed([1, 2]))) == "MapStyle(Listed of 2 samples)"


def test_a_lock_inside_the_data_set_is_not_copied():
    dataset = Listed([1])
    dataset.lock = threading.Lock()
    assert MapStyle(dataset).dataset is dataset


@given(n=st.integers(1, 20), data=st.data())
def test_row_numbers_are_those_of_numpy(n, data):
    positions = np.arange(n)
    key = data.draw(
        st.one_of(
            st.integers(-n, n - 1),
            st.slices(n),
            st.lists(st.integers(-n, n - 1)),
            st.lists(st.integers(-n, n - 1)).map(lambda rows: np.array(rows, np.int32)),
            st.lists(st.booleans(), min_size=n, max_size=n),
            st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
        )
    )
    expected = positions[np.array(key, np.int64) if isinstance(key, list) and not key else key]
    np.testing.assert_array_equal(chosen_rows(key, n), expected)


@pytest.mark.parametrize(
    "key", ["0", 1.0, None, True, (0, 1), [0.5], [[0, 1]], np.zeros((1, 1), int), np.array(1.0), [None]]
)
def test_another_kind_of_index_is_refused(key):
    with raises(ArgumentTypeError):
        MapStyle(Listed([1, 2]))[key]


@pytest.mark.parametrize("key", [5, -6, 2**70, [0, 5], np.array([-6]), np.array([2**63], np.uint64)])
def test_a_row_out_of_range_names_the_number_of_rows(key):
    with raises(IndexError):
        MapStyle(Listed(range(5)))[key]


def test_a_mask_of_another_length_names_both():
    with raises(IndexError):
        MapStyle(Listed(range(5)))[np.array([True, False])]


def test_a_list_and_a_tensor_are_index_arrays():
    torch = pytest.importorskip("torch", reason="tensors are what is read")
    accessor = MapStyle(Listed(VECTORS))
    assert_same_rows(accessor[[1, 0]], VECTORS[[1, 0]])
    assert_same_rows(accessor[torch.tensor([1])], VECTORS[[1]])


def test_views_of_memory_are_not_copied() -> None:
    memory = bytearray(b"abc")
    batch = MapStyle([memoryview(memory), memory])[:2]
    batch[1][0] = ord("x")
    assert memory == b"abc"
    batch[0][0] = ord("z")
    assert memory == b"zbc"
