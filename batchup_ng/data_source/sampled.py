"""The samples of a source in the order of a sampler: balanced, stratified, by weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.node import Node, numbered_length
from ..graph.rearranged import ConcatNode
from ..sampling.base import AbstractSampler
from ..sampling.buckets import BucketSampler
from ..sampling.class_samplers import BalancedBatchSampler, StratifiedSampler
from ..sampling.weighted import WeightedSampler
from .column_lengths import sizes
from .faces import shown
from .labels import grouped, labels_of, values_of

if TYPE_CHECKING:
    from .planned import PlannedDataSource
    from .source import AbstractDataSource

ENDLESS = -1
"""The value of ``num_samples=`` for an epoch without an end."""


@validation.known_names()
def sample(
    source: AbstractDataSource, sampler: AbstractSampler | None = None, *, balanced: Any = None, stratified: Any = None,
    weights: Any = None, per_class: int | None = None, classes_per_batch: int | None = None,
    num_samples: int | None = None, replacement: bool | None = None,
) -> PlannedDataSource:  # fmt: skip
    """Return a source with these samples in the order of a sampler. Give one of the first four arguments.

    Args:
        sampler: A sampler for as many rows as this source has samples.
        balanced: The classes to draw equally often: True for :attr:`~batchup_ng.AbstractDataSource.labels`; the name or
            place of a column; or the class of each sample, ``(n,) int`` or strings. Without `per_class`, each draw
            takes one of the classes at random (:class:`~batchup_ng.WeightedSampler`), and `num_samples` ends the epoch.
        stratified: The classes to spread evenly over the epoch, in the same form: each sample once
            (:class:`~batchup_ng.StratifiedSampler`).
        weights: The weight of each sample, ``(n,)``, or the name or place of a column: samples are drawn in
            proportion (:class:`~batchup_ng.WeightedSampler`).
        per_class: With `balanced`: samples of each class in a batch (:class:`~batchup_ng.BalancedBatchSampler`).
            The epoch ends with the largest class. A ``Loader`` takes the batch size from the sampler.
        classes_per_batch: With `per_class`: how many classes a batch has. Default: all.
        num_samples: Draws in an epoch, with `weights`, or with `balanced` without `per_class`. Default: the number
            of samples; -1: no end.
        replacement: With `weights`: whether a sample may come more than once in an epoch. Default: True. False:
            each comes at most once, and the default of `num_samples` is all with a weight above 0.

    Raises:
        ArgumentError: none or several of the first four are given, an option belongs to another of them, there is
            no such column or a map makes it, or there is not one value for each sample; and the errors of the
            samplers.
        ArgumentTypeError: the classes are floats, or the samples have no order.

    >>> import numpy as np, batchup_ng as bu
    >>> rare = bu.ArrayDataSource({"x": np.arange(100), "label": (np.arange(100) > 97).astype(int)})
    >>> even = rare.sample(balanced=True, num_samples=64)
    >>> print(next(even.batch_iterator(64, shuffle=1))["label"].mean())
    0.453125
    """
    way = {"sampler": sampler, "balanced": balanced, "stratified": stratified, "weights": weights}
    options = {"per_class": per_class, "classes_per_batch": classes_per_batch, "num_samples": num_samples}
    return shown(sampled(source.node, way, {**options, "replacement": replacement}))


@validation.known_names()
def batched(
    source: AbstractDataSource, by: Any, *, max_tokens: int | None = None, boundaries: Any = None,
    num_buckets: int = 16, ranks: int | str | None = None,
) -> PlannedDataSource:  # fmt: skip
    """Return a source with these samples in batches of similar length: ``sample`` with a ``BucketSampler``.

    It takes any source whose samples have numbers, such as a part of a split, or sources that were joined or zipped.
    Batch it last: a source of whole batches cannot be joined or split. A map that draws lengths at random comes after
    it, because the lengths here are those of one read.

    Args:
        by: The column that decides, by its name or place. Whole numbers are the lengths themselves; of other values it
            is ``len(value)``, as in :meth:`lengths`, which reads each sample once. Or the length of each sample:
            ``(n,) int``.
        max_tokens, boundaries, num_buckets, ranks: See :class:`~batchup_ng.BucketSampler`.

    Raises:
        ArgumentError: there is no such column, there is not one length for each sample, or one is negative or above
            `max_tokens`.
        ArgumentTypeError: the values have no length, or the samples have no order (a choice, a draw by weight).

    >>> import batchup_ng as bu
    >>> texts = bu.ArrayDataSource({"ids": [[1, 2, 3], [4], [5, 6, 7], [8]]})
    >>> for batch in bu.Loader(texts.batched("ids", max_tokens=6).pad("ids"), pool="serial"):
    ...     print(batch["ids"].tolist())
    [[4], [8]]
    [[1, 2, 3], [5, 6, 7]]
    """
    n = numbered_length("source", source.node)
    if isinstance(by, (str, int, np.integer)) and not isinstance(by, bool):
        found = sizes(source, by, numbers=True)
    else:
        found = values_of("by", "the length", source.node, by, n)
    options: dict[str, Any] = {"max_tokens": max_tokens, "boundaries": boundaries, "num_buckets": num_buckets}
    return sample(source, BucketSampler(found, **options, ranks=ranks))


def sampled(node: Node, way: dict[str, Any], options: dict[str, Any]) -> ConcatNode:
    """Return a node with the samples of `node` in the order of a sampler.

    Args:
        node: The node to draw from.
        way: The arguments ``sampler``, ``balanced``, ``stratified`` and ``weights`` of ``sample``. The user gives one.
        options: The other arguments of ``sample``; None if the user did not give them.
    """
    chosen = [name for name, value in way.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise ArgumentError(
            f"sample must be given one of sampler, balanced=, stratified= or weights=, not "
            f"{' and '.join(chosen) or 'none'}; balanced=True draws each class equally often"
        )
    name, n = chosen[0], numbered_length("source", node)
    return ConcatNode([node], WAYS[name](node, way[name], n, Options(name, options)))


class Options:
    """The options of one way to sample. Each is taken once; those that remain belong to other ways."""

    def __init__(self, way: str, given: dict[str, Any]) -> None:
        self._way = way
        self._given = {name: value for name, value in given.items() if value is not None}

    def take(self, name: str) -> Any:
        """Return an option, None if it was not given."""
        return self._given.pop(name, None)

    def end(self, remedy: str) -> None:
        """Raise if an option was given that this way does not have."""
        for name in self._given:
            raise ArgumentError(f"{name} must be left out with {self._way}=; {remedy}")


def _of_user(node: Node, sampler: Any, n: int, options: Options) -> Any:
    options.end("give it to the sampler")
    return sampler


def _balanced(node: Node, given: Any, n: int, options: Options) -> AbstractSampler:
    classes = _classes("balanced", node, given, n)
    per_class, classes_per_batch = options.take("per_class"), options.take("classes_per_batch")
    if per_class is not None:
        options.end("an epoch with per_class= ends with the largest class, and take(n) cuts it")
        return BalancedBatchSampler(classes, per_class, classes_per_batch)
    if classes_per_batch is not None:
        raise ArgumentError(f"classes_per_batch must come with per_class=, not alone; pass both: {classes_per_batch} "
                            f"classes of per_class=4 samples")  # fmt: skip
    num_samples = _end(options.take("num_samples"), n)
    options.end("it is an option of weights=, because rows of small classes have to come several times")
    return WeightedSampler(WeightedSampler.class_balancing_sample_weights(classes), num_samples=num_samples)


def _stratified(node: Node, given: Any, n: int, options: Options) -> AbstractSampler:
    options.end("an epoch has each sample once; repeat(times) and take(n) change its length")
    return StratifiedSampler(_classes("stratified", node, given, n))


def _weighted(node: Node, given: Any, n: int, options: Options) -> AbstractSampler:
    replacement, num_samples = options.take("replacement"), options.take("num_samples")
    options.end("it is an option of balanced=")
    weights = values_of("weights", "the weight", node, given, n)
    if replacement is None or validation.true_or_false("replacement", replacement):
        return WeightedSampler(weights, num_samples=_end(num_samples, n))
    return WeightedSampler(weights, replacement=False, num_samples=num_samples)


WAYS: dict[str, Callable[[Node, Any, int, Options], Any]] = {
    "sampler": _of_user, "balanced": _balanced, "stratified": _stratified, "weights": _weighted
}  # fmt: skip
"""The function that makes the sampler, by the argument that was given."""


def _end(num_samples: Any, n: int) -> Any:
    """Return the samples in an epoch of draws with replacement: as many as there are, if the user gives no number."""
    if num_samples is None:
        return n
    return None if num_samples == ENDLESS else num_samples


def _classes(name: str, node: Node, given: Any, n: int) -> np.ndarray:
    """Return the class of each sample as a number from 0 on: ``(n,) int``. Text and negative numbers are numbered."""
    if given is True:
        given = labels_of(node)
        if given is None:
            raise ArgumentError(
                f"{name} must name the column of the classes, {name}='kind', or hold the class of each sample, not be "
                f"True; this source has no column of labels"
            )
    if n == 0:
        raise ArgumentError(f"{name} needs samples, and this source has none; look at its filter or subset")
    classes = values_of(name, "the class", node, given, n)
    if classes.dtype.kind == "f":
        raise ArgumentTypeError(
            f"{name} must hold classes, whole numbers or text, not {classes.dtype}; convert them by astype(int)"
        )
    whole = classes.dtype.kind in "iub" and int(classes.min()) >= 0
    return classes if whole else grouped(name, classes)[0]
