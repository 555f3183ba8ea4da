"""Functions that make sources of sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import randomness, validation
from ..errors import ArgumentError, ArgumentTypeError
from ..sampling.base import AbstractSampler
from ..sampling.mixture import MixtureSampler
from ..sampling.standard import row_numbers
from .array import ArrayDataSource
from .base import AbstractDataSource, PlannedDataSource
from .composite import checked_source, checked_sources
from .exclusion import excluded_positions
from .filtering import filter_samples
from .indexed import IndexedDataSource
from .iterable import CallableDataSource, IteratorDataSource
from .looking import numbered_length
from .map import CollateDataSource, MapDataSource, SampleMapDataSource
from .take_repeat import RoundsDataSource, TakeDataSource
from .views import ConcatDataSource, SubsetDataSource, ZipDataSource


def concat(*sources: AbstractDataSource, sampler: AbstractSampler | None = None) -> ConcatDataSource:
    """Return a source with the samples of all `sources`, one source after the other; shuffling mixes them all.

    Args:
        sampler: The order in which they are handed out; rows are numbered through all sources.

    Raises:
        ArgumentError: there are no sources, one has an epoch that never ends, or the sampler is for another number of
            rows.
        ArgumentTypeError: one is no source, or has samples without numbers of their own (a choice, a stream).
    """
    return ConcatDataSource(_one_list(sources), sampler)


def mix(*sources: AbstractDataSource, weights: Any = None, length: int | None = None) -> ConcatDataSource:
    """Return a source with the samples of all `sources` in given proportions, those of one batch mixed.

    It is :func:`concat` with an :class:`~batchup_ng.MixtureSampler`, which says how the proportions are kept. For
    batches each of which is of one source, use a :class:`~batchup_ng.ChoiceDataSource`.

    Args:
        weights: How much of each source to hand out, not negative, in any unit; equal where it is None.
        length: Samples of an epoch. None: as many as it takes to hand out each sample of each source, those of small
            sources several times. -1: no end.

    Raises:
        ArgumentError: as for :func:`concat`, or the weights are not what they should be.
        ArgumentTypeError: one is no source, or has samples without numbers of their own (a choice, a stream).

    >>> pair = mix(ArrayDataSource([np.arange(4)]), ArrayDataSource([np.arange(10, 12)]), weights=[2, 1])
    >>> [x.tolist() for (x,) in pair.batch_iterator(3)]
    [[0, 10, 1], [2, 11, 3]]
    """
    listed = checked_sources("sources", _one_list(sources))
    lengths = [numbered_length(f"sources[{i}]", source) for i, source in enumerate(listed)]
    return ConcatDataSource(listed, MixtureSampler(lengths, weights, length))


def subset(source: AbstractDataSource, rows: Any = None, *, exclude: Any = None) -> SubsetDataSource:
    """Return a source with the samples of `source` at the positions `rows` of its epoch in order.

    The errors are those of :func:`concat`, and of `exclude`.

    Args:
        rows: ``(n,) int``, of which negative ones count from the end; all where it is None.
        exclude: Positions that are left out, ``(k,) int``; or the CSV file in which :func:`~batchup_ng.write_errors`
            wrote the samples of `source` that failed. A file that has another name for one of them is an error.
    """
    if exclude is None:
        if rows is None:
            raise ArgumentTypeError("rows must be positions of samples, not None; pass them, or exclude=")
        return SubsetDataSource(source, rows)
    n = numbered_length("source", checked_source("source", source))
    left_out = excluded_positions(exclude, source, n)
    kept = np.arange(n) if rows is None else row_numbers("rows", rows)
    return SubsetDataSource(source, kept[~np.isin(np.where(kept < 0, kept + n, kept), left_out)])


def split(
    source: AbstractDataSource, fractions: Sequence[float], seed: int, stratify: Any = None
) -> list[SubsetDataSource]:
    """Return sources that share out the samples of `source` at random: a function of the seed.

    The samples of each part keep their order.

    Args:
        fractions: The share of each part, above 0, together at most 1; what is left over is in no part.
        seed: Seed of the draw.
        stratify: Class of each sample, ``(n,) int`` or strings: each class is then shared out by itself.

    Raises:
        ArgumentError: a fraction is not above 0, they add up to more than 1, a part stays empty, or `stratify` has
            another length than `source`.

    >>> parts = split(ArrayDataSource([np.arange(10)]), (0.8, 0.2), seed=1)
    >>> [part.num_samples() for part in parts]
    [8, 2]
    """
    shares = _checked_shares(fractions)
    n = numbered_length("source", source)
    rng = randomness.generator("split", validation.integer("seed", seed))
    parts: list[list[np.ndarray]] = [[] for _ in shares]
    ends, seen = np.cumsum([0.0, *shares]), 0
    for group in _groups(n, stratify):
        # Rounded over all classes so far, so that what one class rounds down another rounds up.
        bounds = np.rint(ends * (seen + len(group))).astype(int) - np.rint(ends * seen).astype(int)
        bounds = np.maximum.accumulate(bounds)
        shuffled = rng.permutation(group)
        for i, part in enumerate(parts):
            part.append(shuffled[bounds[i] : bounds[i + 1]])
        seen += len(group)
    rows = [np.sort(np.concatenate(part)) for part in parts]
    for i, part_rows in enumerate(rows):
        if len(part_rows) == 0:
            raise ArgumentError(
                f"fractions[{i}] of {n} samples is less than one sample; raise it, or split more samples"
            )
    return [SubsetDataSource(source, part_rows) for part_rows in rows]


def _checked_shares(fractions: Any) -> np.ndarray:
    try:
        shares = np.asarray(fractions, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"fractions must be numbers, not {fractions!r}; (0.8, 0.2) gives two parts") from None
    if shares.ndim != 1 or len(shares) == 0 or not (shares > 0).all() or shares.sum() > 1 + 1e-9:
        raise ArgumentError(
            f"fractions must be above 0, adding up to at most 1, not {fractions!r}; (0.8, 0.2) gives two parts"
        )
    return shares


def _groups(n: int, stratify: Any) -> list[np.ndarray]:
    """Return the positions of the samples of each class, those of the samples without a class (NaN) being one too."""
    if stratify is None:
        return [np.arange(n)]
    classes = np.asarray(stratify)
    if classes.shape != (n,):
        raise ArgumentError(f"stratify must hold the class of each of the {n} samples, not be of shape {classes.shape}")
    try:
        _, which, counts = np.unique(classes, return_inverse=True, return_counts=True)
    except TypeError:
        raise ArgumentTypeError(
            "stratify must hold classes of one kind, numbers or strings, that can be sorted; give None, or what else "
            "is among them, a class of that kind"
        ) from None
    return np.split(np.argsort(which, kind="stable"), np.cumsum(counts)[:-1])


def take(source: AbstractDataSource, n: int) -> TakeDataSource:
    """Return a source whose epochs end after the first `n` samples, in whatever order the epoch is.

    So a shuffled epoch has other samples each time; for the same ones, ``subset(source, range(n))``. It gives an end
    to sources that have none, such as those with a weighted sampler.
    """
    return TakeDataSource(source, n)


def repeat(source: AbstractDataSource, times: int = -1) -> PlannedDataSource:
    """Return a source whose epoch is `times` epochs of `source`, each in an order of its own; -1 without end.

    If a shuffled epoch is a permutation of the rows (arrays, their maps, ``concat``, ``subset``, ``zip``), batches
    reach over the seam between two epochs, as with ``repeats=``. Elsewhere (a choice, a composite, ``take``, a
    stream) each epoch ends with a batch of its own, which may be short.
    """
    checked_source("source", source)
    times = validation.repeats(times)
    if source.permutes_rows() and source.num_samples() > 0:
        return SubsetDataSource(source, None, repeats=times)
    return RoundsDataSource(source, times)


def zip(*sources: AbstractDataSource, flatten: bool = True) -> ZipDataSource:  # the field's name for it
    """Return a source whose sample i is that of all `sources`, side by side; shuffling keeps them together.

    If `flatten`, the arrays of all stand in one tuple, ``(a0, a1, b0)``; else ``((a0, a1), (b0,))``. Sources of
    different lengths are refused.
    """
    return ZipDataSource(_one_list(sources), flatten)


def _one_list(sources: Sequence[Any]) -> Sequence[Any]:
    """Return the sources that were given one by one, or in one list."""
    return sources[0] if len(sources) == 1 and isinstance(sources[0], (list, tuple)) else sources


def coerce_data_source(x: Any) -> AbstractDataSource:
    """Return `x` as a data source.

    A source is returned as it is; a list, tuple or dict of arrays becomes an :class:`ArrayDataSource`, an iterator an
    :class:`IteratorDataSource`, a function a :class:`CallableDataSource`. All else is an :class:`ArgumentTypeError`, an
    empty sequence an :class:`ArgumentError`.
    """
    if isinstance(x, AbstractDataSource):
        return x
    if isinstance(x, (list, tuple)):
        for item in x:
            if not hasattr(item, "__getitem__") or not hasattr(item, "__len__"):
                raise ArgumentTypeError(
                    f"Cannot convert x to a data source; x is a sequence and one of the elements is not an array-like "
                    f"object, rather a {type(item)}"
                )
        if not x:
            raise ArgumentError("Cannot convert x to a data source; x is an empty sequence")
        x = list(x)
    if isinstance(x, (list, dict)):
        return ArrayDataSource(x)
    if isinstance(x, Iterator):
        return IteratorDataSource(x)
    if callable(x):
        return CallableDataSource(x)
    raise ArgumentTypeError(
        f"Cannot convert x to a data source; can only handle iterators, callables, non-empty sequences of array-like "
        f"objects; cannot handle {type(x)}"
    )


AbstractDataSource._functions = {
    "map": MapDataSource, "map_samples": SampleMapDataSource, "collate": CollateDataSource, "take": take,
    "repeat": repeat, "subset": subset, "split": split, "concat": concat, "zip": zip, "with_index": IndexedDataSource,
    "filter": filter_samples,
}  # fmt: skip
