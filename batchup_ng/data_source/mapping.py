"""The methods of a source that apply a function to its batches or samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import validation
from ..graph.map import MapNode, SampleMapNode
from .companions import companions_of

if TYPE_CHECKING:
    from .planned import PlannedDataSource
    from .source import AbstractDataSource


@validation.known_names()
def map(
    source: AbstractDataSource, fn: Callable[..., Any], *, on: Any = None, out: Any = None, rng: str | None = None,
    resizes: bool = False, companions: Any = None,
) -> PlannedDataSource:  # fmt: skip
    """Return a source whose batches are ``fn(*batch)``, or ``fn(**batch)`` if they are dicts.

    With `on`, `fn` is called by place with these columns alone, and the others stay as they are:
    ``source.map(scale, on="age")`` calls ``scale(ages)``.

    With `companions`, each sample comes with other samples, drawn at random: for mosaics, pairs, mixing. `fn` gets them
    as ``others=``, a list of batches in the form of its own. Sample i of ``others[0]`` is the first companion of sample
    i, and so on.

    Args:
        fn: Called with the arrays of a batch. It returns the new batch: a tuple or list of arrays with one row per
            sample, or a dict of such arrays. With `on`, it returns one column, or as many in a tuple as it was
            called with; or a dict with their names.
        on: The columns to call `fn` with: a name, a place from 0, or a list of them.
        out: The columns of the results of `fn`, as many as it returns. New columns are added at the end, others
            with these names are replaced, and the columns `on` stay. Default: `on`.
        rng: ``"batch"``: `fn` is called with ``rng=``, a ``numpy.random.Generator`` that depends on (seed, epoch,
            batch, node). ``"sample"``: with a :class:`~batchup_ng.randomness.SampleRng`, which gives one row of
            draws per sample. Each row is a function of (seed, epoch, position in the epoch, node) and does not
            depend on the batch size. The seed comes from ``shuffle=``. Default: ``"sample"`` for operations of
            ``batchup_ng.augment`` that draw numbers, else none.
        resizes: Whether `fn` may return more or fewer samples than it receives. Only maps may follow such a map:
            parts of ``concat``, ``mix``, ``zip`` and composites have one sample for each row. Epochs, ranks and
            saved states count the planned samples.
        companions: How many other samples each sample gets; or :func:`~batchup_ng.same_class`,
            :func:`~batchup_ng.other_class`. They are different samples of this source, all equally likely, with the
            maps below applied: a part of a split draws from its own samples. They are a function of (seed, epoch,
            position in the epoch, node) and of the sample's row, and do not depend on the batch size. One read of
            the source makes a batch with its companions. If a companion cannot be read, its sample fails.

    Raises:
        ArgumentTypeError: `fn` is not callable; or `companions` is none of these, or is given and the samples have no
            row numbers (a stream, a choice, a composite, what a pool made).
        ArgumentError: there is no such column, if that is known before a batch is made; or there are fewer samples
            than `companions` asks for, no labels for them, or a map or a lazy filter below changes the number of
            samples.
        MapCallError: when a batch is made: `fn` does not take the columns of the batch.
        MapResultError: when a batch is made: `fn` returned anything but a tuple, list or dict, or arrays that
            differ in length from each other or from its arguments.

    >>> import numpy as np, batchup_ng as bu
    >>> people = bu.ArrayDataSource({"age": np.array([20, 40]), "label": np.array([0, 1])})
    >>> people.map(lambda age: age / 100, on="age")[0:2]
    {'age': array([0.2, 0.4]), 'label': array([0, 1])}
    >>> people.map(lambda age, others: age - others[0][0], on="age", companions=1)[0:2]
    {'age': array([-20,  20]), 'label': array([0, 1])}
    """
    drawn = companions_of(source.node, companions)
    return source._followed_by(
        MapNode(source.node, fn, rng=rng, resizes=resizes, on=on, out=out, companions=drawn)
    )


@validation.known_names()
def map_samples(
    source: AbstractDataSource, fn: Callable[..., Any], *, on: Any = None, out: Any = None, rng: str | None = None,
    companions: Any = None,
) -> PlannedDataSource:  # fmt: skip
    """Return a source whose samples are ``fn(*sample)``, or ``fn(**sample)`` if they are dicts.

    Results of one shape are stacked to an array, of NumPy's common dtype of those in the batch. Others stay a list. A
    function may return the same array each time, with other values: it is copied.

    Args:
        fn: Called with the parts of one sample. It returns a sample: a tuple of arrays or numbers, or a dict. With
            `on`, it returns one part, or a tuple of as many as it was called with.
        on: The columns to call `fn` with, and `out` those of its results: as for :meth:`map`.
        rng: ``"sample"``: `fn` is called with ``rng=``, a ``numpy.random.Generator`` for that sample alone.
        companions: Other samples for each sample, as for :meth:`map`. `fn` gets them as ``others=``, a list of samples.
    """
    drawn = companions_of(source.node, companions)
    return source._followed_by(SampleMapNode(source.node, fn, rng=rng, on=on, out=out, companions=drawn))
