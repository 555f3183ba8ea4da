"""Reads the samples to show, at each stage of a chain of maps, with the keys of the epoch.

Each stage is read from the source again, because a map may write to its argument. Its node gets the same key as in the
epoch, so random maps draw the same numbers. Functions of maps are copied first. So the user's functions keep their
state, such as a generator of their own.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import batch as nests
from ..accessors.map_style import MapStyle
from ..augment.base import compose
from ..batch import NOTHING_LEFT, as_batch
from ..batch_layout import finished
from ..data_source.array import ArrayDataSource
from ..data_source.epoch.prepared import Epoch
from ..data_source.epoch.reading import MakeBatch
from ..data_source.of_data import source_of
from ..data_source.source import AbstractDataSource
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.columns import ColumnsNode
from ..graph.filtered import FilterNode
from ..graph.map import MapNode
from ..graph.node import Classes, Node, nodes_of
from ..graph.rearranged import SubsetNode
from ..graph.streams import IteratorNode
from ..graph.wrapped import WrapperNode
from ..loader import Loader
from ..memory.leases import FRESH
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from ..sampling.plans.epoch import PlannedBatch
from ..sampling.plans.rows import take_rows, whole_samples
from ..work_pool.parallel import WithConsumerMaps
from ..work_pool.processes.serialization import dumps, load_result

MOST_EMPTY = 100
"""How many batches without a sample are read one after the other: a lazy filter may keep none of an endless epoch."""


class Level(NamedTuple):
    """A node in the chain of maps, and the rows and the key that it gets for one batch."""

    node: Node
    rows: Any
    key: BatchKey


class Stage(NamedTuple):
    """A stage of the chain of maps: the name of the map that made it, the form of its batches, its class names."""

    title: str
    form: Any
    classes: Classes | None


class Sample(NamedTuple):
    """A sample to show: its name, and its value at each stage, or the exception of reading it."""

    name: str
    values: list[Any]


def source_or_batch(data: Any) -> AbstractDataSource:
    """Return the source that `data` is, or a source of the samples of the data or the batch that it is."""
    samples = _samples_of_batch(data)
    if samples and any(isinstance(part, (tuple, Mapping)) for part in _parts(as_batch(data))):
        return ArrayDataSource([MapStyle(samples)])  # a nest, which data are not
    try:
        return source_of(data, (WithConsumerMaps, Loader))
    except (ArgumentError, ArgumentTypeError):
        if not samples:
            raise
        return ArrayDataSource([MapStyle(samples)])


def _samples_of_batch(data: Any) -> list[Any]:
    """Return the samples of a batch; none if `data` is no batch of arrays, tensors and lists of one length."""
    batch = as_batch(data)
    if not isinstance(batch, (tuple, Mapping)):
        return []
    if not all(isinstance(leaf, list) or getattr(leaf, "ndim", 0) for leaf in nests.leaves(batch)):
        return []
    try:
        return list(nests.samples_of(batch))
    except (ArgumentError, TypeError):
        return []


def _parts(batch: Any) -> Any:
    return batch.values() if isinstance(batch, Mapping) else batch


def read_epoch(epoch: Epoch, n: int, with_stages: bool) -> tuple[list[Stage], list[Sample]]:
    """Return the stages, and the first `n` samples of a prepared epoch; the last stage is the source's own."""
    if epoch.plan is not None:
        return read_planned(epoch.node, epoch.plan, n, with_stages)
    if with_stages:
        raise ArgumentTypeError(
            f"stages must be False, because this {epoch.node.name} only streams; show a source with random access"
        )
    refuse_used_up(epoch.node)
    samples: list[Sample] = []
    stream = with_copied_maps(epoch.node).stream(epoch.options, ())
    while len(samples) < n:
        with globals_kept():
            batch = next(stream, None)
        if batch is None:
            break
        read = [] if batch is NOTHING_LEFT else list(nests.samples_of(as_batch(batch)))
        samples += [Sample(f"sample {len(samples) + i}", [one]) for i, one in enumerate(read)]
    return [_stage("", epoch.node)], samples[:n]


def read_planned(
    node: Node, batches: Iterable[PlannedBatch], n: int, with_stages: bool
) -> tuple[list[Stage], list[Sample]]:
    """Return the stages, and the first `n` samples of planned batches of `node`."""
    node = with_copied_maps(node)
    stages: list[Stage] = []
    samples: list[Sample] = []
    found_names: list[tuple[str | None, str]] = []
    n_empty = 0
    for planned in batches:
        top = Level(node, planned.rows, planned.key)
        levels = _stages_of(top) if with_stages else [("", top)]
        stages = [_stage(title, level.node) for title, level in levels]
        found = [_read(level) for _, level in levels]
        if with_stages and any(resized for _, resized in found):
            raise ArgumentError(
                "stages must be False for maps that change the number of samples, because a sample is then not one row "
                "of each stage; show the source before such a map"
            )
        *before, (last, resized) = found
        for place in sorted(last):
            names = (None, f"sample {len(samples)}") if resized else _names(node, planned, place)
            samples.append(Sample("", [*[stage[place] for stage, _ in before], last[place]]))
            found_names.append(names)
        n_empty = 0 if last else n_empty + 1
        if len(samples) >= n or n_empty == MOST_EMPTY:
            break
    times = collections.Counter(file for file, _ in found_names[:n])
    for i, (file, row) in enumerate(found_names[:n]):
        name = row if file is None else file if times[file] == 1 else f"{file}, {row}"
        samples[i] = samples[i]._replace(name=name)
    return stages, samples[:n]


def refuse_used_up(node: Node) -> None:
    """Raise an error for a source that gives each batch once: looking at a batch would take it from the program."""
    once = [each for each in nodes_of(node) if isinstance(each, IteratorNode)]
    if once:
        raise ArgumentTypeError(
            f"data must give its batches again, and this {once[0].name} gives each once; pass one of its batches: "
            f"next(source.batch_iterator(16))"
        )


def with_copied_maps(node: Node) -> Node:
    """Return a node like this one whose maps are copies. A function that cannot be pickled stays."""
    if not (children := node.children()):
        return node
    try:
        made: Any = node.with_children([with_copied_maps(child) for child in children])
    except ArgumentTypeError:  # a source of the user's over others
        return node
    if isinstance(node, MapNode):
        with contextlib.suppress(Exception):
            made.fn = load_result(dumps(node.fn))
    return made  # type: ignore[no-any-return]


def _stages_of(top: Level) -> list[tuple[str, Level]]:
    """Return the levels of a chain of maps from the lowest on, each with the name of the map that made it."""
    chain = [top]
    while isinstance(node := chain[-1].node, (WrapperNode, SubsetNode)):
        rows = node.rows_of_source(chain[-1].rows) if isinstance(node, SubsetNode) else chain[-1].rows
        chain.append(Level(node.source, rows, chain[-1].key.child(0)))
    maps = [place for place, level in enumerate(chain) if _is_stage(level.node)]
    names = [_title(chain[place].node.fn) for place in maps]  # type: ignore[attr-defined]  # they are maps
    levels = [top, *[chain[place + 1] for place in maps]]  # each with the selections of columns and rows above its map
    return list(zip([*names, "before"], levels, strict=True))[::-1]


def _title(fn: Any) -> str:
    """Return the name of a map: of a chain of augmentations, the names of all."""
    if isinstance(fn, compose) and fn.operations:
        return ", ".join(map(function_name, fn.operations))
    return function_name(fn)


def _is_stage(node: Node) -> bool:
    """Return whether a node is a map that may change what a sample looks like."""
    return isinstance(node, MapNode) and not isinstance(node, (FilterNode, ColumnsNode))


def _stage(title: str, node: Node) -> Stage:
    return Stage(title, node.form(), node.classes())


def _read(level: Level) -> tuple[dict[int, Any], bool]:
    """Return the samples of a batch by their place, or their exceptions; and whether a map changed their number.

    Samples that a lazy filter leaves out are left out here too.

    Raises:
        Exception: the exception of the batch, if no sample is to blame: an error of the program, for example.
    """
    make = MakeBatch("skip", seeded=True)
    places, failures = np.arange(whole_samples(level.rows)[1]), dict[int, Any]()
    try:
        batch, kept = _read_kept(level)
    except Exception as error:
        if not make.catches(error, level.rows):
            raise
        read = lambda rows, key: make.read(level.node, rows, key, FRESH)  # noqa: E731
        partial = make.isolated(read, level.rows, level.key, error)
        failures = dict(partial.failures)
        if partial.of_program or partial.error is not None:
            raise partial.error or failures[min(failures)] from error
        places = np.setdiff1d(places, list(failures))
        if not len(places):
            return failures, False
        batch, kept = _read_kept(Level(level.node, take_rows(level.rows, places), level.key.part(places)))
    if batch is NOTHING_LEFT:
        return failures, False
    samples = list(nests.samples_of(as_batch(batch)))
    left = places if kept is None else places[kept]
    if len(left) != len(samples):
        return dict(enumerate([*failures.values(), *samples])), True
    return {**failures, **dict(zip(left.tolist(), samples, strict=True))}, False


def _read_kept(level: Level) -> tuple[Any, Any]:
    """Return the batch of a level, and which of its planned samples it has; None for all."""
    with globals_kept(level.key):
        batch, kept = level.node.read_kept(level.rows, level.key, FRESH)
        return finished(batch, FRESH), kept


def _names(node: Node, planned: PlannedBatch, place: int) -> tuple[str | None, str]:
    """Return the file or key of a sample, or None, and the number of its row."""
    file = None
    with contextlib.suppress(Exception):  # a source of the user's may have an error there
        file = node.sample_name(take_rows(planned.rows, np.array([place])))
    if isinstance(planned.rows, np.ndarray):
        return file, f"row {planned.rows[place]}"
    return file, f"sample {planned.key.position(place)}"


def flat_items(value: Any, form: Any = None, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Return the leaves of a sample: the name of each, its value, and the key of its column.

    A leaf inside a dict or tuple has a dotted name: ``target.boxes``.
    """
    if isinstance(value, Mapping):
        parts = [(key, key, part) for key, part in value.items()]
    elif isinstance(value, tuple):
        names = {place: name for name, place in getattr(form, "names", {}).items()}
        parts = [(place, names.get(place, place), part) for place, part in enumerate(value)]
    else:
        return [(prefix[:-1] or "0", value, None)]
    return [
        (name, leaf, key) for key, named, part in parts for name, leaf, _ in flat_items(part, None, f"{prefix}{named}.")
    ]
