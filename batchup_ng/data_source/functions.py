"""Functions that make sources from sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.mixed import MixBatchesNode, MixNode, mixed
from ..sampling.base import AbstractSampler
from .array import ArrayDataSource
from .combined import ChoiceDataSource
from .composing import repeated, subset_of
from .derived import TakeDataSource
from .faces import FACES, shown
from .iterable import CallableDataSource, IteratorDataSource
from .planned import PlannedDataSource
from .random_access import ConcatDataSource, SubsetDataSource, ZipDataSource
from .source import AbstractDataSource, node_of, nodes_in
from .splitting import ADVICE_ON_FOLDS_OPTIONS, ADVICE_ON_SPLIT_OPTIONS, folds_nodes, split_nodes

FACES[MixNode], FACES[MixBatchesNode] = ConcatDataSource, ChoiceDataSource


@validation.known_names()
def concat(*sources: AbstractDataSource, sampler: AbstractSampler | None = None) -> ConcatDataSource:
    """Return a source with the samples of all `sources`, one source after the other. Shuffling mixes them all.

    All batches have the same columns, dtypes and class names. So the sources must have the same columns, by name or
    number, each with one dtype and samples of one shape. Arrays of text may differ in length: batches have the longest.
    This function compares what is known without reading a row. A map without ``on=``, and the columns that a map makes,
    are not: their batches are compared, as they are made, with the sources whose columns are known. If none is known,
    only a batch with rows of several sources is compared.

    Args:
        sampler: The order of the samples. Row numbers run through all sources.

    Raises:
        ArgumentError: there are no sources, a source has an endless epoch, or the sampler is for another number of
            rows; sources differ in their columns, in a dtype or shape, or in the class names of their labels.
        ArgumentTypeError: an element is no source, or its samples have no row numbers (a choice, a stream).
        MapResultError: when a batch is made: a map gives other columns, dtypes or shapes than the other sources have.

    >>> import numpy as np
    >>> concat(ArrayDataSource([np.zeros(3, np.float32)]), ArrayDataSource([np.zeros(3, np.uint8)]))
    Traceback (most recent call last):
    batchup_ng.errors.ArgumentError: sources that are joined must have columns of one dtype, and the column 0 is...
    """
    return ConcatDataSource(_one_list(sources), sampler)


@validation.known_names()
def mix(
    *sources: AbstractDataSource,
    weights: Any = None,
    length: int | None = None,
    max_repeats: Any = None,
    until: str | None = None,
) -> PlannedDataSource:
    """Return a source that mixes the samples of all `sources` in given proportions within each batch.

    It is :func:`concat` with an :class:`~batchup_ng.MixtureSampler`, which documents how it keeps the proportions. A
    source that draws by weight (``a.sample(weights=w)``) keeps its draws. If a source makes whole batches (a
    :class:`~batchup_ng.BucketSampler`, a :class:`~batchup_ng.PackSampler`), each batch comes whole from one source, and
    `weights`, `length` and positions count batches. For batches that come from one source each in turn, use a
    :class:`~batchup_ng.ChoiceDataSource`.

    Args:
        weights: Share of each source, not negative, in any unit. Default: equal shares. :func:`~batchup_ng.steps` and
            :func:`~batchup_ng.ramp` make weights that change in the course of the epoch.
        length: Samples per epoch; -1: no end. None: `until` says.
        max_repeats: How often each sample may come in an epoch, one number or one a source. A source whose samples have
            come that often leaves, and the others go on by their weights. Default: any number of times.
        until: The end of an epoch without `length`. ``"all"``, the default: when every sample of every source was
            handed out; samples of small sources repeat. ``"first"``: when the first source is used up.

    Raises:
        ArgumentError: as for :func:`concat`, or the weights are invalid; `length` is given with `until`, or is more
            than `max_repeats` allows.
        ArgumentTypeError: an element is no source, or its samples have no row numbers (a choice, a stream).

    >>> import numpy as np
    >>> pair = mix(ArrayDataSource([np.arange(4)]), ArrayDataSource([np.arange(10, 12)]), weights=[2, 1])
    >>> [x.tolist() for (x,) in pair.batch_iterator(3)]
    [[0, 10, 1], [2, 11, 3]]
    """
    return shown(mixed(nodes_in("sources", _one_list(sources)), weights, length, max_repeats, until))


@validation.known_names()
def subset(source: AbstractDataSource, rows: Any = None, *, exclude: Any = None) -> SubsetDataSource:
    """Return a source with the samples of `source` at positions `rows` of its unshuffled epoch.

    It raises the errors of :func:`concat`, and errors about `exclude`.

    Args:
        rows: ``(n,) int``; negative numbers count from the end. Default: all.
        exclude: Positions to leave out, ``(k,) int``; or a CSV file from :func:`~batchup_ng.write_errors` with the
            samples of `source` that failed. If the file has another name for one of them, that is an error.
    """
    return cast(SubsetDataSource, shown(subset_of(node_of("source", source), rows, exclude)))


@validation.known_names(ADVICE_ON_SPLIT_OPTIONS)
def split(
    source: AbstractDataSource,
    fractions: Sequence[float],
    seed: int | None = None,
    stratify: Any = None,
    groups: Any = None,
    *,
    shuffle: bool = True,
    gap: int = 0,
) -> list[SubsetDataSource]:
    """Divide the samples of `source` at random among several sources. The result is a function of the seed.

    The samples of each part keep their order.

    Args:
        fractions: The share of the samples of each part, above 0, together at most 1. The rest is in no part.
        seed: Seed of the draw. Needed unless `shuffle` is False.
        stratify: Class of each sample: the name or place of a column, or ``(n,) int`` or strings. Each class is then
            divided separately. Without `groups`, the number of its samples in each part does not depend on the seed, so
            a class of one sample is always in the same part. Floats must be whole numbers; samples with NaN are a
            class. Other columns are not read.
        groups: Group of each sample, such as the patient, in the same form. All samples of a group go to one part. The
            groups are laid end to end in a random order, and each part ends at the end of the group that is nearest to
            its share of the samples. (GroupShuffleSplit of scikit-learn counts groups, not samples.) With `stratify`,
            all samples of a group must be of one class.
        shuffle: False divides the samples in their order, such as by time: the first part has the first samples.
            Nothing is drawn, so `seed`, `stratify` and `groups` must be left out.
        gap: With ``shuffle=False``: how many samples to leave out before each part but the first. They are the last
            ones of the part before.

    Raises:
        ArgumentError: a fraction is not above 0, the sum is more than 1, a part stays empty, `stratify` or `groups` and
            `source` differ in length, there is no such column or a map makes it, `stratify` holds floats that are not
            whole numbers or no two samples of one class, a sample has no group (NaN), or a group has several classes;
            `gap` is given without ``shuffle=False``, or `seed`, `stratify` or `groups` with it.
        ArgumentTypeError: `seed` is not a whole number, or not given.

    >>> import numpy as np
    >>> parts = split(ArrayDataSource([np.arange(10)]), (0.8, 0.2), seed=1)
    >>> [part.num_samples() for part in parts]
    [8, 2]
    >>> scans = ArrayDataSource({"scan": np.arange(6), "patient": np.array([7, 7, 8, 8, 8, 9])})
    >>> [part[:]["patient"].tolist() for part in split(scans, (0.5, 0.5), seed=2, groups="patient")]
    [[7, 7, 9], [8, 8, 8]]
    >>> days = ArrayDataSource([np.arange(10)])
    >>> [part[:][0].tolist() for part in split(days, (0.6, 0.4), shuffle=False, gap=1)]
    [[0, 1, 2, 3, 4], [6, 7, 8, 9]]
    """
    parts = split_nodes(node_of("source", source), fractions, seed, stratify, groups, shuffle, gap)
    return [cast(SubsetDataSource, shown(part)) for part in parts]


@validation.known_names(ADVICE_ON_FOLDS_OPTIONS)
def folds(
    source: AbstractDataSource, k: int, seed: int, stratify: Any = None, groups: Any = None
) -> list[tuple[SubsetDataSource, SubsetDataSource]]:
    """Return `k` pairs of sources, for training and validation, to cross-validate. They are a function of the seed.

    Each sample of `source` is in one of the `k` validation parts, and in the training part of the other pairs. The
    sizes of the validation parts differ by at most one. The samples of each part keep their order.

    Args:
        k: Number of pairs, from 2 to the number of samples.
        seed: Seed of the draw.
        stratify: Class of each sample, as for :func:`split`. The numbers of samples of a class in the validation parts
            differ by at most one. They do not depend on the seed. A class of fewer than `k` samples is missing in some
            validation parts.
        groups: Group of each sample, as for :func:`split`, at least `k` groups. All samples of a group are in one
            validation part. Groups are dealt, the largest first, to the validation part with the fewest samples. So
            sizes may differ by up to the size of a group, and the seed orders groups of one size only. With `stratify`,
            a group goes to the part with the fewest samples of its classes. A group may have several classes.

    Raises:
        ArgumentError: `k` is out of range, there are fewer groups than `k`, or `stratify`, `groups` or `source` is
            refused as by :func:`split`.
        ArgumentTypeError: `k` or `seed` is not a whole number.

    >>> import numpy as np
    >>> for train, validation in folds(ArrayDataSource([np.arange(5)]), 2, seed=1):
    ...     print(train[:][0], validation[:][0])
    [0 3] [1 2 4]
    [1 2 4] [0 3]
    """
    pairs = folds_nodes(node_of("source", source), k, seed, stratify, groups)
    return [(cast(SubsetDataSource, shown(one)), cast(SubsetDataSource, shown(other))) for one, other in pairs]


def take(source: AbstractDataSource, n: int) -> TakeDataSource:
    """Return a source whose epochs end after the first `n` samples, in the order of the epoch.

    So each shuffled epoch has other samples. For the same samples use ``subset(source, range(n))``. ``take`` also gives
    an end to endless sources, such as a source with a weighted sampler.
    """
    return TakeDataSource(source, n)


@validation.known_names({})
def repeat(source: AbstractDataSource, times: int = -1) -> PlannedDataSource:
    """Return a source whose epoch is `times` epochs of `source`, each in its own order; -1 for no end.

    If a shuffled epoch is a permutation of the rows (arrays, their maps, ``concat``, ``subset``, ``zip``), a batch may
    have samples of two epochs, as with ``repeats=``. Otherwise (a choice, a composite, ``take``, a stream) each epoch
    ends with its own last batch, which may be short.
    """
    return shown(repeated(node_of("source", source), times))


@validation.known_names()
def zip(*sources: AbstractDataSource, flatten: bool = True) -> ZipDataSource:  # the field's name for it
    """Return a source that joins sample i of all `sources` side by side. Shuffling keeps them together.

    If `flatten`, the arrays of all sources are in one tuple, ``(a0, a1, b0)``; otherwise ``((a0, a1), (b0,))``. Sources
    must have the same length.
    """
    return ZipDataSource(_one_list(sources), flatten)


def _one_list(sources: Sequence[Any]) -> Sequence[Any]:
    """Return the sources as one sequence, given one by one or in one list."""
    return sources[0] if len(sources) == 1 and isinstance(sources[0], (list, tuple)) else sources


def coerce_data_source(x: Any) -> AbstractDataSource:
    """Return `x` as a data source.

    A source is returned unchanged. A list, tuple or dict of arrays becomes an :class:`ArrayDataSource`, an iterator an
    :class:`IteratorDataSource`, a function a :class:`CallableDataSource`. Anything else raises an
    :class:`ArgumentTypeError`, and an empty sequence an :class:`ArgumentError`.
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
