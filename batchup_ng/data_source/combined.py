"""Sources that draw their batches from several sources."""

from __future__ import annotations

from collections.abc import Sequence

from .. import validation
from ..graph.choice import ChoiceNode
from ..graph.composite import CompositeNode
from .planned import PlannedDataSource
from .reader_facts import class_names, report
from .source import AbstractDataSource, nodes_in


class CompositeDataSource(PlannedDataSource, node=CompositeNode):
    """A source that draws a batch from each of several sources side by side, each in its own order.

    An epoch ends with the shortest source. To make another source longer, use ``repeats``. To keep rows together that
    belong together, use :func:`~batchup_ng.zip`.

    With `batch_size`, the parts give different numbers of samples. ``batch_size=[1, 7]`` gives 7 unlabelled samples for
    each labelled one, as in FixMatch: ``batch_iterator(64)`` then gives batches of 64 and of 448. Such a group of 1 and
    7 counts as one sample for lengths, resuming, shards and ``on_error=``, and is never split. All parts must have
    random access.

    Args:
        datasets: The sources.
        flatten: True: one tuple for the arrays of all sources, ``(a0, a1, b0)``. False: ``((a0, a1), (b0,))``.
        trim: Whether the last batches are cut to the shortest of them. If False, the arrays of one batch may differ in
            length.
        batch_size: For each part, its number of samples per unit of the batch size of ``batch_iterator``. Default: 1
            each. With ``batch_iterator(1)`` these are the batch sizes.

    Raises:
        ArgumentError: there are no sources; or `batch_size` does not have one number of at least 1 for each source, or
            is given although a source only streams; or a source has a ``BucketSampler`` or ``PackSampler``, and `trim`
            would cut samples off in the middle of the epoch.
        ArgumentTypeError: an element is no data source, or an option is of a wrong kind.
    """

    class_names = class_names
    report = report

    @validation.known_names({})
    def __init__(
        self,
        datasets: Sequence[AbstractDataSource],
        flatten: bool = True,
        trim: bool = True,
        *,
        batch_size: Sequence[int] | None = None,
    ) -> None:
        self._show(CompositeNode(nodes_in("datasets", datasets), flatten, trim, batch_size=batch_size))


class ChoiceDataSource(PlannedDataSource, node=ChoiceNode):
    """A source that draws each batch whole from one of several sources.

    Args:
        datasets: The sources. Their batches have the same structure.
        stratified: True: the epoch has all batches of all sources, each source spread over the whole epoch. False: the
            sources take turns (in a new random order each round, when shuffled). The epoch ends when a source has no
            batch for its turn. If a source never ends or its number of batches is not known, False applies.

    Raises:
        ArgumentError: there are no sources.
        ArgumentTypeError: an element is no data source, or `stratified` is not True or False.
    """

    class_names = class_names
    report = report

    @validation.known_names({})
    def __init__(self, datasets: Sequence[AbstractDataSource], stratified: bool = False) -> None:
        self._show(ChoiceNode(nodes_in("datasets", datasets), stratified))
