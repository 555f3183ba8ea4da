"""Hands batches over to TensorFlow: as a ``tf.data.Dataset``, or as eager tensors without a copy.

TensorFlow takes the memory of an array as a tensor's if the array begins at a multiple of 64 bytes, which its kernels
rely on: ``from_generator`` by itself, DLPack whatever the address is, so that it is checked here. In either case the
tensor holds a reference to the array, hence to the slot that the array lies in.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .. import validation
from ..batch import map_leaves
from ..errors import ArgumentError, ArgumentTypeError
from ..loader import Loader
from .handover import AheadIterator, handed_over

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        "batchup_ng.frameworks.tensorflow needs TensorFlow: pip install 'batchup_ng[tensorflow]'"
    ) from error

__all__ = ["to_tensorflow", "to_tf_dataset"]

ALIGNED = 64
"""Bytes: where the memory of a tensor begins."""

BY_DLPACK = frozenset(map(np.dtype, "?bBhHiIqQefdFD"))
"""The dtypes that NumPy hands out and TensorFlow takes by DLPack, in the byte order of the machine."""


def to_tensorflow(batches: Any) -> Any:
    """Return what iterates as `batches` does, with eager tensors on the CPU in the place of arrays.

    A tensor is the array's own memory, which no later batch is written to as long as the tensor lives. Arrays that are
    not aligned for TensorFlow, small ones as a rule, are copied, as are read-only ones and text. A thread makes the
    tensors of the next batch while you use this one; states count what was handed out.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; a source that a pool works for; or an iterator.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader((np.zeros((5, 3)), np.arange(5)), 4) as loader:
    ...     for x, y in to_tensorflow(loader):
    ...         print(x.shape, x.dtype.name, y.numpy())
    (4, 3) float64 [0 1 2 3]
    (1, 3) float64 [4]
    """
    return handed_over(batches, lambda iterator: AheadIterator(iterator, _tensors, depth=2))


def _tensors(batch: Any) -> Any:
    return map_leaves(_tensor, batch)


def _tensor(leaf: Any) -> Any:
    if isinstance(leaf, list):
        return [_tensor(part) for part in leaf]
    if not isinstance(leaf, np.ndarray) or leaf.dtype not in BY_DLPACK:
        return tf.convert_to_tensor(leaf)
    if not (leaf.flags.c_contiguous and leaf.flags.writeable and leaf.ctypes.data % ALIGNED == 0):
        leaf = _aligned_copy(leaf)
    return tf.experimental.dlpack.from_dlpack(leaf.__dlpack__())


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy that DLPack may hand over, which costs less than a tensor that TensorFlow makes itself."""
    room = np.empty(array.nbytes + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def to_tf_dataset(batches: Any, signature: Any = None, prefetch: int = 1) -> Any:
    """Return a ``tf.data.Dataset`` whose elements are the batches, each iteration over it being the next epoch.

    Iterate over it once at a time: an iteration ends the one before. An exception becomes an error of TensorFlow, whose
    text names the row and the file. The number of batches is the dataset's cardinality where it is known, unless the
    loader is in the middle of an epoch, which has fewer, or may leave out batches (``on_error="skip"``).

    Args:
        batches: A :class:`~batchup_ng.Loader`, or what else can be iterated over, once or for each epoch. What
            ``loader.map`` or :func:`~batchup_ng.watch` made is applied.
        signature: Of a batch, nested as a batch is: ``tf.TensorSpec``. By default that of the first two batches,
            or of the first where batches come in their order only; sizes that differ become None, as does that of the
            batch itself unless a loader has ``drop_last=True``.
        prefetch: How many batches ``tf.data`` holds ready beside those that the loader does. States of the loader count
            them as handed out; with 0 they count what you were given.

    Raises:
        ArgumentError: `prefetch` is negative, or the batches looked at cannot be elements of one dataset.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader({"x": np.zeros((5, 3), np.float32), "y": np.arange(5)}, 2) as loader:
    ...     dataset = to_tf_dataset(loader)
    ...     print(dataset.element_spec["x"], len(dataset))
    ...     print([batch["y"].numpy().tolist() for batch in dataset])
    TensorSpec(shape=(None, 3), dtype=tf.float32, name=None) 3
    [[0, 1], [2, 3], [4]]
    """
    validation.not_negative("prefetch", prefetch)
    if not isinstance(batches, Iterable) or isinstance(batches, (np.ndarray, list, tuple, dict, str)):
        raise ArgumentTypeError(
            f"batches must be a Loader or what is iterated over for batches, not a {type(batches).__name__}; make a "
            f"loader of data: Loader(data, batch_size)"
        )
    begun: list[Iterator[Any]] = []  # that of the first iteration, where it had to begin to look at a batch
    if signature is None:
        signature = _signature(_looked_at(batches, begun), _all_whole(batches))

    def generate() -> Iterator[Any]:
        return map(_structure, begun.pop() if begun else iter(batches))

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    n_batches = _n_batches(batches)
    if n_batches is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(n_batches))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # which has two more ahead, of which nobody would know
    return (dataset.prefetch(prefetch) if prefetch else dataset).with_options(options)


def _structure(batch: Any) -> Any:
    """Return a batch as a structure of ``tf.data``; a list within it has an entry for each sample, and is stacked."""
    return tuple(map(_part, batch)) if isinstance(batch, list) else _part(batch)


def _part(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _part(below) for name, below in part.items()}
    if isinstance(part, tuple):
        return tuple(map(_part, part))
    return np.array(part) if isinstance(part, list) else part


def _looked_at(batches: Any, begun: list[Iterator[Any]]) -> list[Any]:
    """Return one or two batches; if an iteration had to begin for it, `begun` gets its iterator, with the batch."""
    if isinstance(batches, Loader):
        with contextlib.suppress(ArgumentTypeError):
            numbers = range(min(2, batches.batches_per_epoch))
            by_number = batches.batches(numbers)
            return [next(by_number) for _ in numbers]  # not to its end, where it would report if it is watched
    iterator = iter(batches)
    looked_at = list(itertools.islice(iterator, 1))
    begun.append(itertools.chain(looked_at, iterator))
    return looked_at


def _signature(batches: list[Any], all_whole: bool) -> Any:
    """Return the specs of what is common to some batches, nested as they are."""
    if not batches:
        raise ArgumentError("there is no batch to look at; pass signature=")
    try:
        return tf.nest.map_structure(lambda *leaves: _spec(leaves, all_whole), *map(_structure, batches))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"these batches cannot be elements of one dataset: {error}; let a map of the source return arrays of "
            f"numbers or text that have one shape, padded if need be, or pass signature="
        ) from error


def _spec(leaves: Any, all_whole: bool) -> Any:
    """Return the ``TensorSpec`` of a part of the batches, of which there are one or two."""
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = [array.shape for array in arrays]
    if len(set(map(len, shapes))) > 1:
        raise ValueError(f"arrays of shapes {shapes[0]} and {shapes[1]} have different numbers of axes")
    shape = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]
    if shape and not all_whole:
        shape[0] = None
    dtype = arrays[0].dtype
    return tf.TensorSpec(shape, tf.string if dtype.kind in "SUO" else tf.as_dtype(dtype))


def _all_whole(batches: Any) -> bool:
    """Return whether all batches have the same number of samples."""
    return _hands_out_all(batches) and bool(batches._progress.options["drop_last"])


def _hands_out_all(batches: Any) -> bool:
    return isinstance(batches, Loader) and batches._on_error.action != "skip"


def _n_batches(batches: Any) -> int | None:
    """Return how many batches each iteration has, None where that is not known."""
    with contextlib.suppress(ArgumentTypeError):
        if _hands_out_all(batches) and not batches.in_mid_epoch:
            return len(batches)
    return None
