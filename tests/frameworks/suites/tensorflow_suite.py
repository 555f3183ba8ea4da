"""The tests of ``frameworks/tensorflow.py``, which ``test_tensorflow.py`` runs in a process of their own."""

from __future__ import annotations

import doctest
import itertools
import json
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import batchup_ng as bu
from batchup_ng.data_source.epoch.iterator_views import MappedIterator
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.frameworks import tensorflow as of_tensorflow
from batchup_ng.frameworks.tensorflow import to_tensorflow, to_tf_dataset
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.frameworks.framework_contract import NUMBERS, SIZE, VECTORS, FrameworkContract, N, expected
from tests.frameworks.poison import BATCH_SIZE, kept_late, numbered_rows, poisoned_leases
from tests.messages import raises


class OfTensors(FrameworkContract):
    def arrays(self, batch: Any) -> Any:
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), batch)


class TestDataset(OfTensors):
    saves_state = False  # what is prefetched is ahead of it, see below

    def handed_over(self, loader: bu.Loader) -> Any:
        return to_tf_dataset(loader)


class TestEagerTensors(OfTensors):
    def handed_over(self, loader: bu.Loader) -> Any:
        return to_tensorflow(loader)


def address(tensor: Any) -> int:
    """Return where the memory of a tensor begins, as it says itself."""

    class OnceMore:
        def __dlpack__(self, **options: Any) -> Any:
            return tf.experimental.dlpack.to_dlpack(tensor)

        def __dlpack_device__(self) -> Any:
            return 1, 0

    return int(np.from_dlpack(OnceMore()).ctypes.data)


def test_the_examples_in_docstrings() -> None:
    assert doctest.testmod(of_tensorflow) == (0, 4)


# -- what the dataset says of itself -------------------------------------------------------------------------------


def spec_of(loader: bu.Loader) -> Any:
    return tf.nest.map_structure(lambda spec: (tuple(spec.shape), spec.dtype), to_tf_dataset(loader).element_spec)


def test_the_signature(pools: list[AbstractWorkerPool]) -> None:
    def nested(numbers: np.ndarray, vectors: np.ndarray) -> Any:
        width = int(numbers[0]) + 3
        names = np.array([f"naïve {number}" for number in numbers])
        return {"v": vectors, "names": names, "more": (np.zeros((len(numbers), width), bool), [*numbers])}

    source = bu.ArrayDataSource([NUMBERS, VECTORS])
    with bu.Loader(source, SIZE, pool=pools[0]) as loader:
        assert spec_of(loader) == (((None,), tf.int32), ((None, 5), tf.float32))
    with bu.Loader(source, SIZE, drop_last=True, pool=pools[0]) as loader:
        assert spec_of(loader) == (((SIZE,), tf.int32), ((SIZE, 5), tf.float32))
    with bu.Loader(source, SIZE, drop_last=True, on_error="skip", pool=pools[0]) as loader:
        assert spec_of(loader)[0] == ((None,), tf.int32)
    with bu.Loader(source.map(nested), SIZE, pool=pools[0]) as loader:
        more = (((None, None), tf.bool), ((None,), tf.int32))
        assert spec_of(loader) == {"v": ((None, 5), tf.float32), "names": ((None,), tf.string), "more": more}
        assert spec_of(loader.map(lambda v, names, more: [names, v])) == (((None,), tf.string), ((None, 5), tf.float32))
        batches = list(to_tf_dataset(loader))
        assert batches[1]["names"][0].numpy().decode() == "naïve 8"
        assert [batch["more"][0].shape for batch in batches[:2]] == [(SIZE, 3), (SIZE, 11)]


def test_what_cannot_be_elements_of_one_dataset(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([NUMBERS])
    flat_once = source.map(lambda numbers: (numbers if numbers[0] else numbers[:, None],))
    dates = source.map(lambda numbers: (numbers.astype("M8[s]"),))
    ragged = source.map(lambda numbers: ([np.zeros(number % 3) for number in numbers],))
    for of_source in (flat_once, dates, ragged):
        with bu.Loader(of_source, SIZE, pool=pools[0]) as loader, raises(ArgumentError):
            to_tf_dataset(loader)
    with raises(ArgumentError):
        to_tf_dataset(iter([]))


@pytest.mark.parametrize("mapped", [False, True])
def test_axes_that_are_known_to_differ_are_none_though_the_first_batches_are_alike(mapped: bool) -> None:
    data = {"ids": [[1] * (1 + (row >= 2 * SIZE)) for row in range(4 * SIZE)], "x": np.zeros((4 * SIZE, 3, 2))}
    source: Any = bu.ArrayDataSource(data).pad("ids")
    if mapped:
        source = source.map(lambda ids, x: {"x": {"in": (ids, x)}})
    with bu.Loader(source, SIZE, pool="serial", drop_last=True) as loader:
        dataset = to_tf_dataset(loader)
        ids, x = dataset.element_spec["x"]["in"] if mapped else dataset.element_spec.values()
        assert (tuple(ids.shape), tuple(x.shape)) == ((SIZE, None), (SIZE, 3, 2))
        found = [batch["x"]["in"][0] if mapped else batch["ids"] for batch in dataset]
        assert [each.shape[1] for each in found] == [1, 1, 2, 2]
        changed = to_tf_dataset(loader.map(lambda **batch: np.zeros((SIZE, 5)))).element_spec
        assert tuple(changed.shape) == (SIZE, 5)


def test_a_signature_of_ones_own(pools: list[AbstractWorkerPool]) -> None:
    with bu.Loader([VECTORS], SIZE, pool=pools[0]) as loader:
        dataset = to_tf_dataset(loader, signature=(tf.TensorSpec([None, 5], tf.float64),))
        assert next(iter(dataset))[0].dtype == tf.float64
        with raises(tf.errors.OpError):
            list(to_tf_dataset(loader, signature=(tf.TensorSpec([SIZE, 5], tf.float32),)))


def after_two(change: Any) -> Any:
    """Return batches of an array of int32, changed from the third on."""
    return iter([(change(np.arange(3, dtype=np.int32)) if k > 1 else np.arange(3, dtype=np.int32),) for k in range(4)])


@pytest.mark.parametrize("dtype", ["int64", "float64", "int8", "uint32", "bool"])
def test_a_later_batch_of_another_dtype_is_an_error(dtype: str) -> None:
    dataset = to_tf_dataset(after_two(lambda x: x.astype(dtype)))
    found = []
    with raises(tf.errors.OpError):
        found.extend(dataset)
    assert [each[0].numpy().tolist() for each in found] == [[0, 1, 2]] * len(found)
    with bu.Loader([np.arange(8)], 4, pool="serial") as loader, raises(ArgumentError):
        to_tf_dataset(loader.map(lambda x: (x if x[0] else x / 2,)))


def test_with_a_signature_of_ones_own_a_batch_may_have_another_dtype_of_the_kind() -> None:
    spec = (tf.TensorSpec([None], tf.int64),)
    same = list(to_tf_dataset(after_two(lambda x: x.astype(">i8")), signature=spec))
    assert [each[0].numpy().tolist() for each in same] == [[0, 1, 2]] * 4
    for change in (lambda x: x / 2, lambda x: x.astype("f4")):
        with raises(tf.errors.OpError):
            list(to_tf_dataset(after_two(change), signature=spec))


def test_a_named_tuple_stays_one() -> None:
    class Pair(NamedTuple):
        x: Any
        y: Any

    with bu.Loader([np.arange(4)], 2, pool="serial") as loader:
        for batch in to_tensorflow(loader.map(lambda x: Pair(x, {"z": -x}))):
            assert (batch.x.numpy() == -batch.y["z"].numpy()).all()


def test_a_mask_is_not_dropped() -> None:
    masked = np.ma.masked_array([1.0, 2, 3], mask=[0, 1, 0])
    with raises(ArgumentTypeError):
        to_tensorflow((masked,))
    with raises(ArgumentError):
        to_tf_dataset(iter([(masked,)]))


def test_the_cardinality(pools: list[AbstractWorkerPool]) -> None:
    with bu.Loader([NUMBERS], SIZE, pool=pools[0]) as loader:
        assert len(to_tf_dataset(loader)) == len(loader) == 11
        next(iter(loader))
        assert to_tf_dataset(loader).cardinality() == tf.data.UNKNOWN_CARDINALITY
    with bu.Loader([NUMBERS], SIZE, on_error="skip", pool=pools[0]) as loader:
        assert to_tf_dataset(loader).cardinality() == tf.data.UNKNOWN_CARDINALITY


# -- how it is iterated over ---------------------------------------------------------------------------------------


def test_repeat_and_map_of_tf_go_on_with_the_next_epoch(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([NUMBERS])
    with bu.Loader(source, SIZE, shuffle=7, pool=pools[0]) as loader:
        doubled = tf.autograph.experimental.do_not_convert(lambda numbers: 2 * numbers)  # which would write files
        found = [batch.numpy().tolist() for batch in to_tf_dataset(loader).map(doubled).repeat(2)]
    both = [part for epoch in range(2) for ((_, _, _, part),) in expected(source, epoch)]
    assert found == [[2 * number for number in part] for part in both]


def test_a_stream_and_an_order_that_is_drawn(pools: list[AbstractWorkerPool]) -> None:
    def batches(batch_size: int, **_: Any) -> Any:
        return ((NUMBERS[start : start + batch_size],) for start in range(0, N, batch_size))

    with bu.Loader(bu.CallableDataSource(batches), SIZE, pool=pools[0]) as loader:
        dataset = to_tf_dataset(loader)
        for _ in range(2):
            assert np.concatenate([numbers for (numbers,) in dataset]).tolist() == list(range(N))
    with bu.Loader([NUMBERS], SIZE, shuffle=np.random.RandomState(1), pool=pools[0]) as loader:
        dataset = to_tf_dataset(loader)
        orders = [np.concatenate([numbers for (numbers,) in dataset]).tolist() for _ in range(2)]
    assert orders[0] != orders[1]
    assert [sorted(order) for order in orders] == [list(range(N))] * 2
    assert len(list(to_tf_dataset(iter([(NUMBERS,), (NUMBERS,)])))) == 2


def test_states_without_prefetching_are_those_of_what_was_given(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([NUMBERS])
    with bu.Loader(source, SIZE, shuffle=7, pool=pools[0]) as loader:
        iterator = iter(to_tf_dataset(loader, prefetch=0))
        seen = [next(iterator)[0].numpy().tolist() for _ in range(4)]
        time.sleep(0.05)  # in which TensorFlow would fetch more, if it did
        state = json.loads(json.dumps(loader.state_dict()))
    with bu.Loader(source, SIZE, shuffle=7, pool=pools[1]) as loader:
        loader.load_state_dict(state)
        dataset = to_tf_dataset(loader)
        rest = [[numbers.numpy().tolist() for (numbers,) in dataset] for _ in range(2)]
    orders = [[part for ((_, _, _, part),) in expected(source, epoch)] for epoch in range(2)]
    assert [seen + rest[0], rest[1]] == orders


def test_states_count_at_most_what_is_prefetched_as_given(pools: list[AbstractWorkerPool]) -> None:
    with bu.Loader([NUMBERS], 1, pool=pools[0]) as loader:
        iterator = iter(to_tf_dataset(loader, prefetch=2))
        for given in range(1, 30):
            next(iterator)
            assert given <= loader.state_dict()["batches"]["batches"] <= given + 3  # one is on its way
        del iterator


def test_a_dataset_that_is_watched(pools: list[AbstractWorkerPool]) -> None:
    waits: list[bu.EpochWait] = []
    with bu.Loader([NUMBERS], SIZE, pool=pools[0]) as loader:
        for _ in bu.watch(to_tf_dataset(loader), waits.append):
            pass
        for _ in to_tf_dataset(bu.watch(loader, waits.append)):
            pass
    assert [wait.batches for wait in waits] == [11, 11]


# -- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
@pytest.mark.parametrize("adapter", [to_tensorflow, to_tf_dataset])
def test_tensors_have_the_memory_of_the_arrays(kind: str, adapter: Any) -> None:
    addresses: list[int] = []

    def note(batch: Any) -> Any:  # no map: a thread of a pool may still hold a column, which costs a copy after a map
        addresses.append(batch[0].ctypes.data)
        return batch

    with bu.Loader(numbered_rows(40), BATCH_SIZE, pool=kind) as loader:
        batches = adapter(loader.view(lambda iterator: MappedIterator(iterator, note)))
        addresses.clear()  # those of the batches that were looked at
        assert [address(x) for x, _ in batches] == addresses
    assert len(addresses) == 10


def test_arrays_that_tensorflow_cannot_take_are_copied() -> None:
    aligned = numbered_rows(4)[0]
    aligned = aligned.reshape(-1)[(-aligned.ctypes.data) % 64 // 4 :][:8000].reshape(80, 100)
    assert aligned.ctypes.data % 64 == 0
    read_only = aligned.view()
    read_only.flags.writeable = False
    for array in (aligned.reshape(-1)[1:], aligned.T, read_only, aligned.astype(">f4"), np.zeros(0), np.arange(3)[::2]):
        (tensor,) = to_tensorflow(iter([array]))
        np.testing.assert_array_equal(tensor, array)
        assert not array.size or address(tensor) != array.ctypes.data
    (tensor,) = to_tensorflow((aligned,))
    assert address(tensor) == aligned.ctypes.data


def test_lists_of_dicts_and_tuples_keep_their_form_and_what_is_no_tensor_stays() -> None:
    boxes, thing = np.arange(8.0).reshape(2, 4), object()
    batch = {"b": ("t", boxes[0]), "l": [{"boxes": boxes, "name": "x"}, {"boxes": boxes[:0], "name": None}], "o": thing}
    for found in (to_tensorflow(batch), next(to_tensorflow(iter([batch])))):
        assert (found["b"][0].numpy(), found["b"][1].numpy().tolist()) == (b"t", boxes[0].tolist())
        first, second = found["l"]
        np.testing.assert_array_equal(first["boxes"], boxes)
        assert (first["name"].numpy(), second["boxes"].shape, second["name"]) == (b"x", (0, 4), None)
        assert found["o"] is thing
    ((row, name),) = to_tensorflow([(boxes, "t")])
    np.testing.assert_array_equal(row, boxes)
    assert name.numpy() == b"t"


@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("adapter", [to_tensorflow, to_tf_dataset])
def test_tensors_never_change(kind: str, adapter: Any, in_full: bool) -> None:
    n_epochs = 40 if in_full else 2
    with poisoned_leases() as poisoned, bu.Loader(numbered_rows(), BATCH_SIZE, shuffle=1, pool=kind) as loader:
        epochs = itertools.chain.from_iterable(adapter(loader) for _ in range(n_epochs))
        n_batches, n_changed = kept_late(epochs, lambda tensor: tensor.numpy())
    assert (n_batches, n_changed) == (250 * n_epochs, 0)
    assert len(poisoned) > 100 * n_epochs


def test_a_training_in_tf_functions_is_the_same_when_what_is_let_go_of_is_poisoned(in_full: bool) -> None:
    def weights(adapter: Any) -> Any:
        total = tf.Variable(tf.zeros(4096))

        @tf.function(autograph=False)  # which would write files
        def step(x: Any) -> None:
            total.assign(0.9 * total + tf.reduce_mean(x, axis=0))

        with bu.Loader(numbered_rows(), BATCH_SIZE, shuffle=1, pool="processes") as loader:
            for _ in range(20 if in_full else 1):
                for x, _ in adapter(loader):
                    step(x)
        return total.numpy()

    expected_weights = weights(lambda loader: loader)
    with poisoned_leases() as poisoned:
        for adapter in (to_tensorflow, to_tf_dataset):
            np.testing.assert_array_equal(weights(adapter), expected_weights)
    assert len(poisoned) > 200


# -- tensors as data -----------------------------------------------------------------------------------------------


def test_tensors_as_data_become_plain(pools: list[AbstractWorkerPool]) -> None:
    numbers = np.arange(40.0).reshape(20, 2)
    wanted = list(bu.ArrayDataSource([numbers]).batch_iterator(8, shuffle=1))
    for given in (tf.constant(numbers), tf.Variable(numbers)):
        source = bu.ArrayDataSource([given])
        for made in (source, *[pool.parallel_data_source(source) for pool in pools]):
            assert_same_batches(list(made.batch_iterator(8, shuffle=1)), wanted)
    assert bu.ArrayDataSource([tf.constant(["a", "bc"])]).data[0].tolist() == [b"a", b"bc"]


def test_what_has_no_rows_of_one_shape_is_refused_with_the_way_to_pass_it() -> None:
    for refused in (tf.ragged.constant([[1], [2, 3]]), tf.data.Dataset.range(3)):
        with raises(ArgumentTypeError):
            bu.ArrayDataSource([refused])
    with raises(ArgumentTypeError):
        bu.ImageBytes(tf.constant(["a", "b"]))
