"""Hands batches over to JAX: pytrees of ``jax.Array``, on one device or over several."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..loader import MappedIterator
from .handover import AheadIterator, handed_over

try:
    import jax
except ImportError as error:
    raise ImportError("batchup_ng.frameworks.jax needs JAX: pip install 'batchup_ng[jax]'") from error

NOT_NUMBERS = "OSUTMm"
"""Kinds of dtypes that JAX has not: objects, bytes, strings, dates."""


def to_jax(batches: Any, device: jax.Device | jax.sharding.Sharding | None = None) -> Any:
    """Return what iterates as `batches` does, and hands out each array of a batch as a ``jax.Array``.

    Shapes stay; so do dtypes, but unless ``jax_enable_x64`` is set JAX makes 32-bit numbers of 64-bit ones. Tuples,
    lists and dicts are pytrees: JAX sorts a dict by its names. What JAX has no arrays of is handed out as it is:
    strings, objects, dates, arrays with fields, and numbers of Python's.

    On the CPU JAX reads the memory of the batch itself, if that begins at a multiple of 64 bytes: arrays of 64 KiB or
    more do, others are copied. It is not used again until no ``jax.Array``, no view and no computation that is still
    pending needs it; JAX, which is told to write into it (``donate_argnums``), writes elsewhere. On other devices a
    thread transfers one batch ahead of the loop. What JAX is told for your thread alone, as ``with
    jax.default_device(...)`` does, does not reach that thread; ``jax.config.update`` does.

    Args:
        batches: A :class:`~batchup_ng.Loader`, a source that a pool works for, or an iterator of batches.
        device: Where to; None for JAX's default device. A sharding makes global arrays: each process hands in its part
            of a batch, which ``Loader(..., shard="auto", drop_last=True)`` gives it once ``jax.distributed`` is
            initialized.

    Raises:
        ArgumentTypeError: `device` or `batches` is none of these.
        ArgumentError: in ``next``: an array cannot be laid out as the sharding asks.

    >>> import numpy as np, batchup_ng as bu
    >>> with to_jax(bu.Loader({"x": np.arange(4.0), "name": np.array(["a", "b", "c", "d"])}, 2)) as loader:
    ...     next(iter(loader))
    {'name': array(['a', 'b'], dtype='<U1'), 'x': Array([0., 1.], dtype=float32)}
    """
    if device is not None and not isinstance(device, (jax.Device, jax.sharding.Sharding)):
        raise ArgumentTypeError(
            f"device must be a jax.Device, a jax.sharding.Sharding or None, not {device!r}; jax.devices()[0] is one"
        )
    return handed_over(batches, functools.partial(_put_each, device=device))


def _put_each(iterator: Iterator[Any], device: Any) -> Any:
    put = functools.partial(_put, device=device)
    if _is_cpu(device):
        return MappedIterator(iterator, functools.partial(jax.tree.map, put), "to_jax")
    return AheadIterator(iterator, functools.partial(jax.tree.map, put), depth=1)


def _is_cpu(device: Any) -> bool:
    """Return whether arrays go to the CPU, where nothing is to be gained by being ahead."""
    if device is None:
        device = jax.device_put(0).sharding
    (first, *_) = device.device_set if isinstance(device, jax.sharding.Sharding) else [device]
    return bool(first.platform == "cpu")


def _put(leaf: Any, device: Any) -> Any:
    """Return an array of numbers as a ``jax.Array``, anything else as it is."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind in NOT_NUMBERS or leaf.dtype.names:
        return leaf
    if not isinstance(device, jax.sharding.Sharding):
        return jax.device_put(leaf, device)
    global_array: Any = jax.make_array_from_process_local_data  # which has no annotations
    try:
        return global_array(device, leaf)
    except (AssertionError, ValueError) as error:
        raise ArgumentError(
            f"an array of shape {leaf.shape} cannot be laid out as {device}; pass drop_last=True, so that the last "
            f"batch is as long as the others, and a batch_size that its devices divide"
        ) from error
