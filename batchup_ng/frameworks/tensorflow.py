"""Hands batches over to TensorFlow: as a ``tf.data.Dataset``, or as eager tensors without a copy.

TensorFlow uses the memory of an array for a tensor if the array begins at a multiple of 64 bytes. Its kernels rely on
that. ``from_generator`` checks the address; DLPack takes any address, so this module checks it. In both cases the
tensor holds a reference to the array, and thus to the array's slot.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import validation
from ..batch import map_leaves, refuse_masked
from ..batch_layout import unkept
from ..data_source.epoch.iterator_views import results_given
from ..error_context import unless_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError
from ..loader import Loader
from .ahead import AheadIterator
from .handover import handed_over, is_batch

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        "batchup_ng.frameworks.tensorflow needs TensorFlow: pip install 'batchup_ng[tensorflow]'"
    ) from error

__all__ = ["to_tensorflow", "to_tf_dataset"]

TENSOR_ALIGNMENT_BYTES = 64
"""Alignment of the memory of a tensor, in bytes."""

DLPACK_DTYPES = frozenset(map(np.dtype, "?bBhHiIqQefdFD"))
"""The dtypes that NumPy exports and TensorFlow imports by DLPack, in the byte order of the machine."""


def to_tensorflow(batches: Any) -> Any:
    """Return `batches` with eager tensors on the CPU in place of arrays.

    A tensor is the array's own memory. No later batch is written to that memory as long as the tensor lives. Arrays
    that are not aligned for TensorFlow (usually small ones), read-only arrays, text, and arrays that a function after
    the pool or your iterator keeps, are copied. Tuples, lists and dicts keep their form, and what cannot be a tensor
    stays as it is. A thread makes the tensors of the next batch while you use this one. States count the batches handed
    out.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; a source that a pool works for; an iterator; or
            one batch, which gives a batch.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader((np.zeros((5, 3)), np.arange(5)), 4) as loader:
    ...     for x, y in to_tensorflow(loader):
    ...         print(x.shape, x.dtype.name, y.numpy())
    (4, 3) float64 [0 1 2 3]
    (1, 3) float64 [4]
    """
    if is_batch(batches):
        return _tensors(batches)
    return handed_over(batches, lambda iterator: AheadIterator(iterator, _tensors, depth=2))


def _tensors(batch: Any) -> Any:
    return map_leaves(_tensor, batch, classes=True)


def _tensor(leaf: Any) -> Any:
    if isinstance(leaf, list):
        return [_tensors(part) for part in leaf]
    refuse_masked("an array of this batch", leaf)
    if not isinstance(leaf, np.ndarray) or leaf.dtype not in DLPACK_DTYPES:
        try:
            return tf.convert_to_tensor(leaf)
        except (TypeError, ValueError):  # None, or an object that is no array
            return leaf
    if not (leaf.flags.c_contiguous and leaf.flags.writeable and leaf.ctypes.data % TENSOR_ALIGNMENT_BYTES == 0):
        leaf = _aligned_copy(leaf)
    return tf.experimental.dlpack.from_dlpack(leaf.__dlpack__())


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy that DLPack may hand over. It costs less than a tensor that TensorFlow makes itself."""
    room = np.empty(array.nbytes + TENSOR_ALIGNMENT_BYTES, np.uint8)
    start = -room.ctypes.data % TENSOR_ALIGNMENT_BYTES
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@validation.known_names({})
def to_tf_dataset(batches: Any, signature: Any = None, prefetch: int = 1) -> Any:
    """Return a ``tf.data.Dataset`` whose elements are the batches. Each iteration over it is the next epoch.

    Iterate over it once at a time: an iteration ends the one before. An exception becomes a TensorFlow error whose text
    names the row and the file. The dataset's cardinality is the number of batches, if that is known. It stays unset
    while the loader is in the middle of an epoch, which has fewer batches, and if the loader may leave out batches
    (``on_error="skip"``).

    Args:
        batches: A :class:`~batchup_ng.Loader`, or anything else to iterate over, once or for each epoch. A loader from
            ``loader.map`` or :func:`~batchup_ng.watch` keeps their effect.
        signature: The ``tf.TensorSpec`` of a batch, nested like the batch. The default fits the first two batches, or
            the first alone if batches come in their order only. Sizes that differ become None, and those that are None
            in ``columns`` of a loader's source, such as the lengths of padded rows. The batch size becomes None too,
            unless a loader has ``drop_last=True`` and leaves out no bad samples.
        prefetch: How many batches ``tf.data`` holds ready in addition to the loader. States of the loader count these
            as handed out; with 0, states count the batches that you received.

    Raises:
        ArgumentError: `prefetch` is negative, or the batches of the signature cannot be elements of one dataset. In the
            dataset: a later batch has another dtype, or with `signature` one of another kind.

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
    begun: list[Iterator[Any]] = []  # the first iterator, if a look at a batch had to begin it
    casting = "no" if signature is None else "same_kind"  # as tf.data casts to the signature without a word
    if signature is None:
        signature = _with_open_axes(_signature(_looked_at(batches, begun), _all_whole(batches)), _columns(batches))

    def element(batch: Any) -> Any:
        return _checked(_structure(batch), signature, casting)

    def generate() -> Iterator[Any]:
        return map(element, begun.pop() if begun else _to_read_ahead(batches))

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    n_batches = _n_batches(batches)
    if n_batches is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(n_batches))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # it would hold two more batches, uncounted
    return (dataset.prefetch(prefetch) if prefetch else dataset).with_options(options)


def _to_read_ahead(batches: Any) -> Iterator[Any]:
    """Return an iterator of `batches` for ``tf.data``, which reads ahead of the loop and may use the arrays' memory."""
    iterator = results_given(iter(batches))
    return iterator if hasattr(iterator, "results_by") else _unkept(iterator)


def _unkept(iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches of an iterator of the user's, which may keep their arrays and fill them again."""
    made = [None]
    for made[0] in iterator:  # no variable holds the batch: it would count as a reference
        yield unkept(made)
        made.append(None)


def _structure(batch: Any) -> Any:
    """Return a batch as a structure of ``tf.data``. A list inside it has one entry per sample, and is stacked."""
    return tuple(map(_part, batch)) if isinstance(batch, list) else _part(batch)


def _part(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _part(below) for name, below in part.items()}
    if isinstance(part, tuple):
        return tuple(map(_part, part))
    refuse_masked("an array of this batch", part)
    return np.array(part) if isinstance(part, list) else part


def _checked(structure: Any, signature: Any, casting: Any) -> Any:
    """Return a batch whose dtypes may become those of the signature."""
    for leaf, spec in zip(tf.nest.flatten(structure), tf.nest.flatten(signature), strict=False):
        if isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string:
            dtype, wanted = np.asarray(leaf).dtype, spec.dtype.as_numpy_dtype
            if not np.can_cast(dtype.newbyteorder("="), wanted, casting):
                raise ArgumentError(
                    f"a batch has an array of {dtype}, and the signature of the dataset {spec.dtype.name}, which would "
                    f"change its values; let a map return one dtype in all batches, or pass signature="
                )
    return structure


def _looked_at(batches: Any, begun: list[Iterator[Any]]) -> list[Any]:
    """Return one or two batches. If that begins an iteration, append its iterator, with the batch, to `begun`."""
    if isinstance(batches, Loader):
        with contextlib.suppress(ArgumentTypeError):
            numbers = range(min(2, batches.batches_per_epoch))
            by_number = batches.batches(numbers)
            return [next(by_number) for _ in numbers]  # stop before the end, where a watched loader reports
    iterator = _to_read_ahead(batches)
    looked_at = list(itertools.islice(iterator, 1))
    begun.append(itertools.chain(looked_at, iterator))
    return looked_at


def _signature(batches: list[Any], all_whole: bool) -> Any:
    """Return the specs that fit all of `batches`, nested like them."""
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
    """Return the ``TensorSpec`` of one part of one or two batches."""
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = [array.shape for array in arrays]
    if len(set(map(len, shapes))) > 1:
        raise ValueError(f"arrays of shapes {shapes[0]} and {shapes[1]} have different numbers of axes")
    shape = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]
    if shape and not all_whole:
        shape[0] = None
    dtypes = {tf.string if array.dtype.kind in "SUO" else tf.as_dtype(array.dtype) for array in arrays}
    if len(dtypes) > 1:
        raise ValueError(f"one array has dtypes {' and '.join(sorted(dtype.name for dtype in dtypes))}")
    return tf.TensorSpec(shape, dtypes.pop())


def _columns(batches: Any) -> Any:
    """Return the columns of the source of a loader whose batches no view changes; None if they are not known."""
    if isinstance(batches, Loader) and not batches._views:
        with unless_of_signal_handler():
            return batches._shared.source.columns
    return None


def _with_open_axes(spec: Any, column: Any) -> Any:
    """Return specs like `spec` with None for each axis, but for the first, whose size `column` leaves open."""
    if isinstance(spec, dict):
        return {name: _with_open_axes(part, _part_of(column, name)) for name, part in spec.items()}
    if isinstance(spec, tuple):
        return tuple([_with_open_axes(part, _part_of(column, place)) for place, part in enumerate(spec)])
    known = getattr(column, "shape", None)
    if known is None or len(known) != spec.shape.rank:
        return spec
    further = [None if size is None else own for own, size in zip(spec.shape[1:], known[1:], strict=True)]
    return tf.TensorSpec([*spec.shape[:1], *further], spec.dtype)


def _part_of(columns: Any, key: Any) -> Any:
    """Return a part of the structure of columns, or None."""
    if isinstance(columns, Mapping):
        return columns.get(key)
    return columns[key] if type(columns) is tuple and key in range(len(columns)) else None


def _all_whole(batches: Any) -> bool:
    """Return whether all batches have the same number of samples."""
    return _hands_out_all(batches) and bool(batches._shared.options["drop_last"])


def _hands_out_all(batches: Any) -> bool:
    if not isinstance(batches, Loader) or batches._pool_options.on_error.action == "skip":
        return False
    return not batches._shared.source.node.traits.filters


def _n_batches(batches: Any) -> int | None:
    """Return the number of batches in each iteration, or None if it is unknown."""
    with contextlib.suppress(ArgumentTypeError):
        if _hands_out_all(batches) and not batches.in_mid_epoch:
            return len(batches)
    return None
