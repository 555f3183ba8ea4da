"""The description of a source in a state, besides its digest: the weights of a mixture, and the rows of each part.

If the digests of two sources differ, their descriptions show how. The form must be the same: it is the graph
without the weights, the numbers of rows and the rows that are left out. Only plain graphs have a description: a
mixture, joined sources, or one source, perhaps under maps, over data whose rows are numbered from 0.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple

import numpy as np

from ...accessors.base import sample_name
from ...graph.arrays import ArraysNode
from ...graph.mixed import ordering
from ...graph.node import Node
from ...graph.rearranged import ConcatNode, SubsetNode, ZipNode
from ...graph.rows import NO_USER_METHODS, RowsNode
from ...graph.wrapped import SameOrderNode
from ...sampling.mixture import MixtureSampler
from ...sampling.row_sets import MAX_PARTS, MAX_ROWS, PartRows, RowSet
from ...sampling.standard import StandardSampler
from .state import Identity, digest

MAX_LEFT_OUT = 1000
"""The most characters of a state that list the rows that are left out, all parts together."""

MAX_LISTED_PARTS = 700
"""The most characters of a state that describe the parts, without the rows that are left out."""

Rows = tuple[int, "tuple[int, ...] | None"]
"""Of a part: how many rows are stored, and which of them are left out, ascending. None: too many for a state."""


class Described(NamedTuple):
    """The order of a source.

    Attributes:
        form: Digest of the graph without the entries below.
        weights: The weights of a mixture as a JSON value; None if it is no mixture.
        rows: The rows of each part.
        parts: The node of each part.
    """

    form: str
    weights: Any
    rows: tuple[Rows, ...]
    parts: tuple[Node, ...]

    def plain(self) -> dict[str, Any]:
        """Return this as a JSON value for a state; rows that are too many to list are None."""
        rows = [[n, None if left_out is None else list(left_out)] for n, left_out in self.rows]
        last = [self.file_of(part, n - 1) for part, (n, _) in enumerate(self.rows)]
        return {"form": self.form, "weights": self.weights, "rows": rows, "last": last}

    def file_of(self, part: int, row: int) -> str | None:
        """Return the digest of the name of the file with a stored row of a part. None if rows have no file each."""
        return _file_of(self.parts[part], row)

    def row_set(self) -> RowSet | None:
        """Return the rows; None if a part leaves out more than a state lists."""
        return row_set_of(self.rows)


def description(own: Identity) -> Described | None:
    """Return the description of a source, or None if its graph has none."""
    return described(own.node.described_as(), own.fingerprint)


def row_set_of(rows: tuple[Rows, ...]) -> RowSet | None:
    """Return the rows of parts as a set; None if a part leaves out more than a state lists."""
    if any(left_out is None for _, left_out in rows):
        return None
    return RowSet([PartRows(i, n, left_out or ()) for i, (n, left_out) in enumerate(rows)])


def with_sampler(node: Node, made: RowsNode) -> Node:
    """Return `node` with `made` in place of the node that orders its samples."""
    above, _ = ordering(node)
    built: Node = made
    for each in reversed(above):
        built = each.with_children([built])
    return built


def described(node: Node, fingerprint: Any) -> Described | None:
    """Return the description of a source with this `fingerprint`, or None if its graph has none."""
    above, root = ordering(node)
    form: list[Any] = []
    for _ in above:
        if not isinstance(fingerprint, list) or len(fingerprint) < 2:
            return None
        form.append(fingerprint[:-1])
        fingerprint = fingerprint[-1]
    sampler = getattr(root, "sampler", None)
    if not isinstance(root, RowsNode) or root.own != NO_USER_METHODS or not isinstance(fingerprint, list):
        return None
    weights = None
    if isinstance(sampler, MixtureSampler):
        weights = sampler.schedule.plain()
        form.append(["mixture", sampler.given_length, sampler.max_repeats, sampler.until == "first"])
    elif type(sampler) is StandardSampler:
        form.append(["rows", sampler.repeats])
    else:
        return None
    if isinstance(root, ConcatNode):
        nodes = tuple(root.sources)
        parts = [_part(*pair) for pair in zip(nodes, fingerprint[-len(nodes) :], strict=False)]
    elif weights is None:
        nodes, parts = (root,), [_part(root, fingerprint, whole=False)]
    else:
        return None
    form += [part for part, _ in parts]
    made = Described(digest(form), weights, _limited([rows for _, rows in parts]), nodes)
    shown = json.dumps([weights, [n for n, _ in made.rows]])
    return made if len(shown) <= MAX_LISTED_PARTS and len(parts) < MAX_PARTS else None


def _part(node: Node, fingerprint: Any, whole: bool = True) -> tuple[Any, Rows]:
    """Return what must be the same of a part, and its rows. If `whole`, its samples must come once."""
    if isinstance(node, SameOrderNode) and isinstance(fingerprint, list) and len(fingerprint) > 1:
        form, rows = _part(node.source, fingerprint[-1], whole)
        return [fingerprint[:-1], form], rows
    sampler = node.sampler if isinstance(node, RowsNode) and node.own == NO_USER_METHODS else None
    if not isinstance(sampler, StandardSampler) or type(sampler) is not StandardSampler:
        return _opaque(node, fingerprint)
    once = not whole or sampler.repeats == 1
    if once and isinstance(node, SubsetNode):
        form, (n, left_out) = _part(node.source, fingerprint[-1])
        if node.rows is None:
            return form, (n, left_out)
        if left_out == () and len(node.rows) and (np.diff(node.rows) > 0).all():
            return form, (n, _left_out(node.rows, n))
        return _opaque(node, fingerprint)
    if once and isinstance(node, ZipNode):
        pairs = zip(node.sources, fingerprint[-len(node.sources) :], strict=False)
        forms = [_part(*pair) for pair in pairs]
        if len({rows for _, rows in forms}) == 1:
            return [node.name, [form for form, _ in forms]], forms[0][1]
    if once and not node.children() and sampler.length < MAX_ROWS:
        return [fingerprint[0], *fingerprint[2:]], (int(sampler.length), ())  # without the sampler's
    return _opaque(node, fingerprint)


def _opaque(node: Node, fingerprint: Any) -> tuple[Any, Rows]:
    """Return the description of a part whose rows must all be the same."""
    n = node.num_samples()
    return digest(fingerprint), (0 if n == math.inf else int(n), ())


def _file_of(node: Node, row: int) -> str | None:
    while isinstance(node, (SameOrderNode, SubsetNode)):
        node = node.source
    if isinstance(node, ZipNode):
        found = [name for name in (_file_of(source, row) for source in node.sources) if name is not None]
        return found[0] if found else None
    for array in node.data if isinstance(node, ArraysNode) and 0 < row < len(node.data[0]) else ():
        if hasattr(array, "file_paths"):  # the names are known without reading
            first, own = sample_name(array, 0), sample_name(array, row)
            if own is not None and own != first:
                return digest(os.path.basename(own))[:8]
    return None


def _left_out(rows: np.ndarray, n: int) -> tuple[int, ...] | None:
    """Return which of `n` rows are not in `rows`, which ascend; None if they are too many to list."""
    if n - len(rows) > MAX_LEFT_OUT:
        return None
    around = np.concatenate([[-1], rows, [n]])
    gaps = np.flatnonzero(np.diff(around) > 1)
    found = [row for gap in gaps for row in range(int(around[gap]) + 1, int(around[gap + 1]))]
    return tuple(found)


def _limited(rows: list[Rows]) -> tuple[Rows, ...]:
    """Return the rows of all parts. If they leave out too many for a state, the longest lists become None."""
    made = list(rows)
    while len(json.dumps([left_out for _, left_out in made])) > MAX_LEFT_OUT:
        longest = max(range(len(made)), key=lambda i: len(made[i][1] or ()))
        if not made[longest][1]:
            break
        made[longest] = made[longest][0], None
    return tuple(made)
