"""Batches in JAX: the contract of a framework, whose memory an array shows and for how long, devices, shardings."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.memory.leases import BufferPool
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.frameworks.framework_contract import FrameworkContract
from tests.frameworks.handover_helpers import port_for_later
from tests.frameworks.poison import BATCH_SIZE, ROWS, kept_late, numbered_rows, poisoned_leases
from tests.messages import raises

jax = pytest.importorskip("jax", reason="JAX is not installed")

from batchup_ng.frameworks.jax import X64, to_jax  # noqa: E402  # it needs JAX

KINDS = ["serial", "threads", "processes"]
WIDE = np.arange(64 * 20_000, dtype=np.float32).reshape(64, 20_000)
"""Eight rows of it are a batch of 640 kB, which is lent."""


def pool_of(kind: str, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    return bu.SerialPool() if kind == "serial" else pools[KINDS.index(kind) - 1]


class TestJax(FrameworkContract):
    def handed_over(self, loader: bu.Loader) -> Any:
        return to_jax(loader)

    def arrays(self, batch: Any) -> Any:
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
        return jax.tree.map(np.asarray, batch)


# -- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_on_the_cpu_show_the_memory_of_the_batch(kind: str, pools: list[AbstractWorkerPool]) -> None:
    addresses = []

    def noted(x: np.ndarray, y: np.ndarray) -> Any:
        addresses.append(x.ctypes.data)
        return x, y

    with bu.Loader([WIDE, np.arange(64)], 8, pool=pool_of(kind, pools)) as loader:
        shown = [x.unsafe_buffer_pointer() for x, _ in to_jax(loader.map(noted))]
    assert shown == addresses
    assert len(shown) == 8


def test_a_computation_that_may_write_into_an_array_writes_elsewhere() -> None:
    x = BufferPool().empty((8, 20_000), np.dtype(np.float32))
    x[:] = WIDE[:8]
    (given,) = to_jax((x,))
    assert given.unsafe_buffer_pointer() == x.ctypes.data
    result = donated(given)
    assert given.is_deleted()
    assert result.unsafe_buffer_pointer() != x.ctypes.data
    np.testing.assert_array_equal(x, WIDE[:8])
    again = donated(result)  # memory of JAX's own is used again, so that this looks at what it is to look at
    assert result.is_deleted()
    np.testing.assert_array_equal(again, WIDE[:8] + 2)


donated = jax.jit(lambda x: x + 1, donate_argnums=0)


def a_view(x: Any, y: Any) -> Any:
    """Return rows that NumPy sees in the memory of x."""
    return np.asarray(x)[1:], y[1:]


@jax.jit
def mean_later(x: Any) -> Any:
    """Return the mean of each row, after some time."""
    return jax.lax.fori_loop(0, 30, lambda _, y: (y + x) / 2, x).mean(1, keepdims=True)


def being_computed(x: Any, y: Any) -> Any:
    """Return what is computed from x, to which nothing else refers, while the loop goes on."""
    return mean_later(x), y


def donated_one_less(x: Any, y: Any) -> Any:
    """Return what a computation makes of x that may write into it."""
    return donated(x), y + 1


USES = [lambda x, y: (x, y), a_view, being_computed, donated_one_less]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_not_used_again_while_jax_needs_it(kind: str, pools: list[AbstractWorkerPool], in_full: bool) -> None:
    data, rounds = numbered_rows(), 10 if in_full else 1
    with poisoned_leases() as sizes, bu.Loader(data, BATCH_SIZE, shuffle=1, pool=pool_of(kind, pools)) as loader:
        for use in USES * rounds:
            assert kept_late(to_jax(loader).map(use), np.asarray) == (ROWS // BATCH_SIZE, 0), use
        assert len(sizes) > rounds * ROWS // BATCH_SIZE


# -- leaves --------------------------------------------------------------------------------------------------------


def test_what_jax_has_no_arrays_of_stays() -> None:
    objects, dates = np.array([None, {}]), np.array(["2024-02-29"], "M8[D]")
    fields = np.zeros(1, [("a", np.float32)])
    strings = [np.array(["a"]), np.array([b"a"]), ["a", "b"]]
    batch = (1.5, None, "name", objects, dates, fields, *strings)
    given = to_jax(batch)
    assert all(new is old for new, old in zip(given[:6], batch[:6], strict=True))
    assert given[6:8] == batch[6:8]
    assert given[8] == ["a", "b"]


def test_batches_are_pytrees_of_any_depth() -> None:
    batch = ({"b": np.ones(2), "a": (np.zeros((2, 0)), [np.ones(1), np.ones(2)])}, np.array(7))
    (given,) = to_jax(iter([batch]))
    assert jax.tree.structure(given) == jax.tree.structure(batch)
    assert [leaf.shape for leaf in jax.tree.leaves(given)] == [(2, 0), (1,), (2,), (2,), ()]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(given))
    (given,) = to_jax(iter([UserDict(a=(np.ones(1), "text"), b=UserDict(c=np.ones(2)))]))
    assert jax.tree.structure(given) == jax.tree.structure({"a": (0, 0), "b": {"c": 0}})
    assert isinstance(given["a"][0], jax.Array)
    assert isinstance(given["b"]["c"], jax.Array)


DTYPES = ["bool", "uint8", "int8", "uint16", "int32", "uint32", "float16", "float32", "complex64"]


def test_dtypes_stay_but_for_those_of_64_bits() -> None:
    (given,) = to_jax(iter([tuple(np.ones(3, dtype) for dtype in DTYPES)]))
    assert [str(x.dtype) for x in given] == DTYPES
    wide = tuple(np.array([1, 2], dtype) for dtype in ("int64", "uint64", "float64", "complex128"))
    (given,) = to_jax(iter([wide]))
    assert [str(x.dtype) for x in given] == ["int32", "uint32", "float32", "complex64"]
    with X64.enable_x64(True):
        (given,) = to_jax(iter([wide]))
    assert [x.dtype for x in given] == [x.dtype for x in wide]
    (given,) = to_jax(iter([(jax.numpy.ones(3, "bfloat16").__array__(),)]))
    assert given[0].dtype == "bfloat16"


def test_ranks_of_torchrun_are_refused_all_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with bu.Loader([np.arange(4)], 2, pool="serial") as loader, raises(ArgumentError):
        iter(to_jax(loader))


def test_a_device_that_is_none_is_told_at_once() -> None:
    with raises(bu.ArgumentTypeError):
        to_jax(bu.Loader([np.arange(3)], 1), "gpu")


# -- more than one device, more than one process -------------------------------------------------------------------

EIGHT_DEVICES = """
    import jax, numpy as np, batchup_ng as bu
    from jax.sharding import NamedSharding, PartitionSpec
    from batchup_ng.frameworks.jax import X64, to_jax

    devices = jax.devices()
    assert len(devices) == 8
    shared = NamedSharding(jax.make_mesh((8,), ("data",)), PartitionSpec("data"))
    x, y = np.arange(64 * 16384, dtype=np.float32).reshape(64, 16384), np.arange(64, dtype=np.int32)
    addresses = []

    def noted(x, y):
        addresses.append(x.ctypes.data)
        return x, y

    with bu.Loader([x, y], 16, pool="threads", drop_last=True) as loader:
        for number, (a, b) in enumerate(to_jax(loader.map(noted), shared)):
            assert a.sharding == b.sharding == shared and a.shape == (16, 16384)
            for i, shard in enumerate(a.addressable_shards):
                assert shard.device == devices[i]
                assert shard.data.unsafe_buffer_pointer() == addresses[number] + i * 2 * 16384 * 4
            assert np.array_equal(b, np.arange(16) + 16 * number) and np.array_equal(a, x[16 * number:][:16])
        for one in (devices[5], jax.sharding.SingleDeviceSharding(devices[5])):
            assert all(leaf.devices() == {devices[5]} for leaf in jax.tree.leaves(next(iter(to_jax(loader, one)))))
        with jax.default_device(devices[3]), X64.enable_x64(True):
            a, b = next(iter(to_jax(loader.map(lambda x, y: (x, y.astype(np.int64))))))
            assert a.devices() == {devices[3]} and b.dtype == np.int64
        try:
            print(*[a.shape for a, _ in to_jax(bu.Loader([x[:20], y[:20]], 8), shared)])
        except bu.ArgumentError as error:
            print(error)
"""

TWO_PROCESSES = """
    import sys, warnings, jax, numpy as np, batchup_ng as bu
    from jax.sharding import NamedSharding, PartitionSpec
    from batchup_ng.frameworks.jax import to_jax

    rank, port = map(int, sys.argv[1:])
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    shared = NamedSharding(jax.make_mesh((2,), ("data",)), PartitionSpec("data"))
    rows = np.arange(44, dtype=np.float32)
    with bu.Loader([rows], 4, shuffle=3, shard="auto", drop_last=True, pool="threads", workers=1) as loader:
        for epoch in range(2):
            planned = [x for (x,) in bu.ArrayDataSource([rows]).batch_iterator(8, shuffle=3, epoch=epoch)]
            means = [float(jax.jit(jax.numpy.mean)(x)) for (x,) in to_jax(loader, shared)]
            assert means == [x.mean() for x in planned[:5]], (means, planned)
    for data in ([rows], {"x": rows}):
        for make in (lambda loader: iter(to_jax(loader)), lambda loader: to_jax(loader).epochs(1)):
            with bu.Loader(data, 4, pool="serial") as loader:
                try:
                    make(loader)
                except bu.ArgumentError as error:
                    assert "each of the 2 processes of jax.distributed" in str(error) and "shard='auto'" in str(error)
                else:
                    raise AssertionError("each process would train on all of the data")
        with bu.Loader(data, 4, pool="serial", shard=None) as loader, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [len(list(to_jax(loader))) for _ in range(2)] == [11, 11]
            assert [str(each.message) for each in caught] == [
                "each of the 2 processes of jax.distributed trains on all of the data"
            ]
"""


def program(text: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1]), **environment}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_over_several_devices() -> None:
    process = program(EIGHT_DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=8")
    told, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    assert "array of shape (4, 16384)" in told
    assert "pass drop_last=True" in told


def test_over_several_processes() -> None:
    port = port_for_later()
    processes = [program(TWO_PROCESSES, rank, port) for rank in range(2)]
    told = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told


IMPORTS = """
    import sys
    import batchup_ng.frameworks.jax
    assert not {"torch", "keras", "tensorflow"} & set(sys.modules)
    del sys.modules["batchup_ng.frameworks.jax"]
    sys.modules["jax"] = None  # as if it were not installed
    import batchup_ng.frameworks.jax
"""


def test_the_module_imports_no_other_framework_and_tells_how_to_install_its_own() -> None:
    process = program(IMPORTS)
    _, errors = process.communicate(timeout=400)
    assert errors.endswith("ImportError: batchup_ng.frameworks.jax needs JAX: pip install 'batchup_ng[jax]'\n"), errors


def test_arrays_as_data_become_plain_and_keep_their_dtype_in_every_pool(pools: list[AbstractWorkerPool]) -> None:
    numbers, before = np.arange(2**40, 2**40 + 20), jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        given = jax.numpy.asarray(numbers)
    finally:
        jax.config.update("jax_enable_x64", before)
    expected = list(bu.ArrayDataSource([numbers]).batch_iterator(8, shuffle=1))
    for kind in KINDS:  # a worker process has 32 bits
        source = pool_of(kind, pools).parallel_data_source(bu.ArrayDataSource([given]))
        assert_same_batches(list(source.batch_iterator(8, shuffle=1)), expected)
    with raises(ArgumentTypeError):
        bu.ArrayDataSource([jax.random.split(jax.random.key(0), 3)])


def test_a_misspelt_option_is_refused_by_name() -> None:
    for call in (to_jax,):
        with raises(ArgumentTypeError):
            call(bu.Loader([np.arange(3)], 2), devise="cpu")
