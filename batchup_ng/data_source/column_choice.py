"""Functions over nodes that leave out, rename and add columns."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..accessors.column import as_column
from ..accessors.listed_rows import of_list
from ..columns import AddedColumn, ChosenColumns, Places, check_new, column_names, keys_in, with_places
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.columns import ColumnsNode
from ..graph.map import MapNode
from ..graph.node import Node, numbered_length
from ..graph.rearranged import ZipNode
from ..sampling.standard import StandardSampler


def selected(node: Node, columns: Sequence[Any]) -> Node:
    """Return the node with some columns of `node`. It reads no others if `node` can do so."""
    form = node.form()
    names = with_places(form, column_names("columns", list(columns)))
    if form is not None:
        keys_in(form, names)  # raises for two names of one column
    return node.only(names) or ColumnsNode(node, ChosenColumns(keep=names))


def dropped(node: Node, columns: Sequence[Any]) -> Node:
    """Return the node without some columns of `node`."""
    chosen, form = ChosenColumns(drop=column_names("columns", list(columns))), node.form()
    if form is None:
        return ColumnsNode(node, chosen)
    kept = chosen.chosen(form)
    return selected(node, list(kept))


def renamed(node: Node, names: Any) -> ColumnsNode:
    """Return the node whose columns have other names."""
    if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names.values()):
        raise ArgumentTypeError(
            f"names must be a dict of new names by the present ones, not {names!r}; {{'x': 'image'}}"
        )
    column_names("names", list(names))
    return ColumnsNode(node, ChosenColumns(names=dict(names)))


def with_column(node: Node, name: Any, values: Any, on: Any) -> Node:
    """Return the node with one more column, `values`: a function of others, or an array."""
    (name,), form = column_names("name", [name]), node.form()
    if callable(values):
        if on is None:
            on = _parameters(values)
            if "rng" in on and isinstance(form, Mapping) and "rng" not in form:
                others = [column for column in on if column != "rng"]
                raise ArgumentError(
                    f"with_column calls {function_name(values)!r} with columns alone, and it takes rng; call map(fn, "
                    f"on={others}, out={name!r}, rng='sample')"
                )
        return MapNode(node, values, on=on, out=name)
    if on is not None:
        raise ArgumentError("on must be left out if values is an array; it is for functions")
    column, n = as_column("values", of_list("values", values)), numbered_length("source", node)
    if len(column) != n:
        raise ArgumentError(f"values must have one row for each of the {n} samples of an epoch, not {len(column)}")
    if form is None:
        pair = ZipNode([node, ArraysNode([column], None, StandardSampler(n))], flatten=False)
        return ColumnsNode(pair, AddedColumn(name))
    place = form.names.get(name, name) if isinstance(form, Places) else name
    check_new(form, place)
    by_name = isinstance(form, Mapping)
    names = {each: 0 for each, old in form.names.items() if old == place} if isinstance(form, Places) else None
    added = ArraysNode([column], (name,) if by_name else None, StandardSampler(n), places=names)
    keys = list(form) if by_name else list(range(len(form)))
    if place not in keys:
        return ZipNode([node, added])
    if len(keys) > 1:
        kept = keys if by_name else [*keys[:place], len(keys) - 1, *keys[place:-1]]
        joined = ZipNode([dropped(node, [place]), added])
        return joined if place == keys[-1] else ColumnsNode(joined, ChosenColumns(keep=kept))
    old = renamed(node, {name: f"old {name}"}) if by_name else node  # only the order of its samples is left
    return ColumnsNode(ZipNode([old, added]), ChosenColumns(keep=[name if by_name else 1]))


def _parameters(fn: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of a function, which name columns."""
    parameters: list[inspect.Parameter] = []
    with contextlib.suppress(ValueError):  # `fn` has no signature
        parameters = list(inspect.signature(fn).parameters.values())
    names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty]
    if not names:
        raise ArgumentError(
            f"on must name the columns that {function_name(fn)!r} is called with, since its parameters name none; pass "
            f"on='age'"
        )
    return names
