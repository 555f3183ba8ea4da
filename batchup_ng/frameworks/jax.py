"""Hands batches over to JAX: pytrees of ``jax.Array``, on one device or over several."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .. import validation
from ..data_source.distributed import rank_from_jax
from ..errors import ArgumentError, ArgumentTypeError
from .ahead import AheadIterator
from .handover import handed_over, is_batch
from .ranks import RankCheck

try:
    import jax
except ImportError as error:
    raise ImportError("batchup_ng.frameworks.jax needs JAX: pip install 'batchup_ng[jax]'") from error

__all__ = ["to_jax"]

CONFIG: Any = jax.config
X64: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
"""The module with ``enable_x64``; in older releases of JAX it is ``jax.experimental``."""

NOT_NUMBERS = "OSUTMm"
"""Kinds of dtypes that JAX lacks: objects, bytes, strings, dates."""


JAX_RANKS = RankCheck("jax.distributed", rank_from_jax)


@validation.known_names({})
def to_jax(batches: Any, device: jax.Device | jax.sharding.Sharding | None = None) -> Any:
    """Return `batches` with a ``jax.Array`` in place of each array, made one batch ahead.

    Shapes and dtypes stay. Unless ``jax_enable_x64`` is set, however, JAX turns 64-bit numbers into 32-bit ones.
    Tuples, lists and dicts are pytrees: JAX sorts a dict by its names. Strings, objects, dates, arrays with fields and
    Python numbers stay unchanged.

    On the CPU, if an array begins at a multiple of 64 bytes, JAX reads its memory directly; otherwise JAX copies it.
    Arrays of 64 KiB or more are aligned if a source or a worker process made them. Arrays that maps made in threads
    are aligned only by chance. No later batch is written to that memory as long as a ``jax.Array``, a view of it or a
    pending computation needs it. A computation that may write into the array (``donate_argnums``) writes elsewhere.

    Args:
        batches: A :class:`~batchup_ng.Loader`; a source that a pool works for; an iterator of batches; or one batch
            whose arrays do not change any more, which gives a batch.
        device: The target; None for JAX's default device. A sharding makes global arrays: each process supplies its
            part of a batch. ``Loader(..., shard="auto", drop_last=True)`` gives it that part once ``jax.distributed``
            is initialized.

    Raises:
        ArgumentTypeError: `device` or `batches` is none of these.
        ArgumentError: in ``next``: the sharding does not fit the shape of an array. When an epoch of a loader begins:
            ``shard="auto"`` would find several processes, and the loader has no ``shard=``. With ``shard=None``, or an
            iterator of a source that has no ``shard=``, a warning says once that each process gets all of the data.

    >>> import numpy as np, batchup_ng as bu
    >>> with to_jax(bu.Loader({"x": np.arange(4.0), "name": np.array(["a", "b", "c", "d"])}, 2)) as loader:
    ...     next(iter(loader))
    {'name': array(['a', 'b'], dtype='<U1'), 'x': Array([0., 1.], dtype=float32)}
    """
    if device is not None and not isinstance(device, (jax.Device, jax.sharding.Sharding)):
        raise ArgumentTypeError(
            f"device must be a jax.Device, a jax.sharding.Sharding or None, not {device!r}; jax.devices()[0] is one"
        )
    if is_batch(batches):
        return jax.tree.map(functools.partial(_put, device=device), batches)
    return handed_over(batches, functools.partial(_ahead, device=device), JAX_RANKS)


def _ahead(iterator: Iterator[Any], device: Any) -> AheadIterator:
    """Return an iterator that is one batch ahead. Even on the CPU, a JAX call takes longer than a memory copy."""
    x64, default = CONFIG.jax_enable_x64, CONFIG.jax_default_device  # ``with`` sets them for one thread only

    def put(batch: Any) -> Any:
        with X64.enable_x64(x64), jax.default_device(default):
            return jax.tree.map(functools.partial(_put, device=device), batch)

    return AheadIterator(iterator, put, depth=2)


def _put(leaf: Any, device: Any) -> Any:
    """Return an array of numbers as a ``jax.Array``; return anything else unchanged."""
    if isinstance(leaf, Mapping):  # not a dict, so not a pytree
        return jax.tree.map(functools.partial(_put, device=device), dict(leaf))
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind in NOT_NUMBERS or leaf.dtype.names:
        return leaf
    if not isinstance(device, jax.sharding.Sharding):
        return jax.device_put(leaf, device)
    global_array: Any = jax.make_array_from_process_local_data  # it has no annotations
    try:
        return global_array(device, leaf)
    except (AssertionError, ValueError) as error:
        raise ArgumentError(
            f"an array of shape {leaf.shape} cannot be laid out as {device}; pass drop_last=True, so that the last "
            f"batch is as long as the others, and a batch_size that its devices divide"
        ) from error
