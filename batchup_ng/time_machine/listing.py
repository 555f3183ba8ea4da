"""The rows, files and random numbers of a step of a run, without reading any data."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np

from .. import validation
from ..data_source.of_data import source_of
from ..display import counted
from ..errors import ArgumentError, LedgerError
from ..graph.node import Node
from ..loader import Loader
from ..randomness import BatchKey
from ..sampling.plans.epoch import PlannedBatch
from ..sampling.plans.rows import one_row, take_rows, whole_samples
from .finding import Taken, attempts_at, checked_rank, never_taken, plan_at, read_ledger
from .graph_facts import facts_of, node_of_order
from .keeping import check_source
from .ledger_file import Content

GENERATORS = {"sample": "each sample", "batch": "the batch"}
"""For what a map has a generator, in words."""


def who(
    path: str | os.PathLike[str],
    step: int,
    rank: int | None = None,
    attempt: int | None = None,
    source: str | None = None,
) -> str:
    """Return a page about a step of a run: which batch it was, its rows and files, and what it drew. No data is read.

    Args:
        path: The ledger.
        step: The number of the step.
        rank: The rank that got the batch; None for a run of one process.
        attempt: Which attempt took the step; None for the latest.
        source: ``"module:function"``, a function that returns the loader or its data. Without it the page has no
            names of files, and no rows of a source whose order the ledger cannot describe.

    Raises:
        LedgerError: the ledger is damaged, the step was never taken, or the rows cannot be found without `source`.
        ArgumentError: `source` names no such function.
    """
    validation.not_negative("step", step)
    content = read_ledger(path)
    given, facts = (None, None) if source is None else _source_at(source)
    takings = attempts_at(content, step, attempt)
    while takings:
        taken = takings.pop(0)
        if facts is not None:
            check_source(os.fspath(path), content, taken, facts)
        chosen = checked_rank(taken.segment, rank, None, "--rank")
        node = _node_of(content, taken) if given is None else given
        if node is None:
            raise LedgerError(
                f"the rows of step {step} cannot be found in {os.fspath(path)!r} alone, for its source has an order of "
                f"its own: {content.sources[taken.segment.source]['graph'][-1]}; pass --source MODULE:FUNCTION, a "
                f"function that returns the loader or its data"
            )
        plan = plan_at(node, taken, chosen)
        if plan is not None:
            planned = plan[taken.number]
            others = [_other(each, taken, planned, chosen, node) for each in takings]
            names_known = given is not None
            lines = [*_head(content, step, chosen, taken, planned), *filter(None, others)]
            if not taken.sure:
                lines.append(f"the ledger does not know how far attempt {taken.segment.attempt} came")
            lines += [*_draws(content, taken, planned.key), "", *_table(planned, node, names_known)]
            return "\n".join(lines)
    raise never_taken(path, content, step)


def _head(content: Content, step: int, rank: int, taken: Taken, planned: PlannedBatch) -> list[str]:
    """Return the lines about the place of the step."""
    segment, n = taken.segment, whole_samples(planned.rows)[0]
    by = f", rank {rank} of {segment.world}" if segment.world > 1 else ""
    versions = content.attempts[segment.attempt - 1]
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "began")
    return [
        f"step {step}{by}: batch {taken.number} of epoch {taken.epoch}, {counted(n, 'sample')}",
        f"attempt {segment.attempt}, begun {versions.get('began')} with {told}",
    ]


def _other(other: Taken, taken: Taken, planned: PlannedBatch, rank: int, node: Node) -> str:
    """Return a line about the same step in an earlier attempt, or "" if it did not come so far."""
    number = other.segment.attempt
    begins = f"attempt {number} {'took' if other.sure else 'may have taken'} this step before"
    if (other.segment.source, other.segment.world) != (taken.segment.source, taken.segment.world):
        return f"{begins}, with another source or world: --attempt {number}"
    plan = plan_at(node, other, rank)
    if plan is None:
        return ""
    theirs = plan[other.number]
    same = repr(_rows(planned)) == repr(_rows(theirs))
    return f"{begins}, with {'the same' if same else 'other'} rows: --attempt {number}"


def _draws(content: Content, taken: Taken, key: BatchKey) -> list[str]:
    """Return the lines about the random numbers."""
    lines = []
    for name, how, path in content.sources[taken.segment.source]["draws"]:
        own = key._replace(path=tuple(path), offsets=None)
        lines.append(f"{name} drew for {GENERATORS.get(how, how)}: {_key_in_words(own)}")
    return lines or ["no map drew random numbers"]


def _key_in_words(key: BatchKey) -> str:
    return f"seed {key.seed}, epoch {key.epoch}, batch {key.batch}, position {key.start}, path {list(key.path)}"


def _table(planned: PlannedBatch, node: Node, names_known: bool) -> list[str]:
    """Return the lines about the samples of a batch."""
    rows = [str(row) for row in _rows(planned)]
    n = len(rows)
    names = [""] * n
    if names_known:
        names = [node.sample_name(take_rows(planned.rows, np.array([place]))) or "" for place in range(n)]
    table = [("position", "row", "file" if any(names) else "")]
    table += zip(map(str, planned.key.positions(n).tolist()), rows, names, strict=True)
    widths = [max(len(line[column]) for line in table) for column in (0, 1)]
    return [f"{at:>{widths[0]}}  {row:>{widths[1]}}  {name}".rstrip() for at, row, name in table]


def _rows(planned: PlannedBatch) -> list[Any]:
    n, _ = whole_samples(planned.rows)
    return [one_row(take_rows(planned.rows, np.array([place]))) for place in range(n)]


def _node_of(content: Content, taken: Taken) -> Node | None:
    """Return a node with the order of the source in the ledger, or None if the ledger cannot say it."""
    order = content.sources[taken.segment.source]["order"]
    return None if order is None else node_of_order(order)


def _source_at(source: str) -> tuple[Node, dict[str, Any]]:
    """Return the node of the loader or the data that the function ``module:function`` returns, and its facts."""
    module, _, name = source.partition(":")
    if not module or not name:
        raise ArgumentError(f"source must be MODULE:FUNCTION, such as train:make_loader, not {source!r}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    made = getattr(importlib.import_module(module), name, None)
    if made is None:
        raise ArgumentError(f"source must name a function, and module {module!r} has no {name!r}")
    made = made() if callable(made) else made
    if isinstance(made, Loader):
        return made._with_plan(), facts_of(made._shared.source.node)
    node: Node = source_of(made, ()).node
    return node, facts_of(node)
