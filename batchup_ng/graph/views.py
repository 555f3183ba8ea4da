"""The node that replaces columns by several views of them, each made by a function.

The source reads a batch once for all views. Each view draws from a stream of its own. No view shares memory with
another view, and no function sees a change that another function made: the operations of ``batchup_ng.augment`` do not
write to their arguments, and any other function gets a copy.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import batch as nests
from ..batch_layout import copied
from ..columns import MappedColumns, Places, column_names, form_of, keys_in, result_columns, with_places
from ..error_context import function_name
from ..errors import ArgumentError, MapResultError
from ..randomness import SampleRng
from .map import MapNode, call, for_columns
from .node import Classes, Node

IMAGE = "image"
"""The column to make views of by default. Without it, the first one."""


class Views:
    """A function that calls one function for each view, all with the same columns of a batch.

    Raises:
        ArgumentError: a function that makes several views draws no numbers, so they would be equal.
    """

    def __init__(self, fns: Sequence[Callable[..., Any]]) -> None:
        self.fns = tuple(fns)
        self.names = [function_name(fn) for fn in fns]
        times = [(name, len(list(group))) for name, group in itertools.groupby(self.names)]
        self.__qualname__ = f"views({', '.join(name if n == 1 else f'{n}, {name}' for name, n in times)})"
        self._draws = [_takes_rng(fn) for fn in fns]
        for fn, name, draws in zip(self.fns, self.names, self._draws, strict=True):
            if not draws and sum(other is fn for other in self.fns) > 1:
                raise ArgumentError(
                    f"{name} must take rng= to make several views, because they would be equal; draw from it, def "
                    f"{'fn' if name.startswith('<') else name}(images, rng), or give each view another function"
                )

    def __call__(self, /, *columns: Any, rng: SampleRng) -> list[Any]:
        """Return the result of each function."""
        results: list[Any] = []
        for number, (fn, draws) in enumerate(zip(self.fns, self._draws, strict=True)):
            keywords = {"rng": rng.of_view(number)} if draws else {}
            if hasattr(type(fn), "writing_to"):  # it writes to no column, but may return one
                results.append(nests.map_leaves(functools.partial(_apart, columns), call(fn, columns, keywords)))
            else:
                results.append(call(fn, copied(columns), keywords))
                if any(map(_share_memory, results[:-1], itertools.repeat(results[-1]))):
                    raise MapResultError(
                        f"map {self.names[number]!r} returned the same array for two views, so it has overwritten the "
                        f"first; return a new array each time"
                    )
        return results


@dataclasses.dataclass(frozen=True)
class ViewColumns(MappedColumns):
    """The columns that views are made of, and the names of the views.

    Attributes:
        on: The columns. Empty: the images, if only a batch shows which column has them.
        out: The names of the views in a dict: first all views of the first column. None: the default names.
        fns: The names of the functions.
    """

    fns: Sequence[str] = ()

    def taken_from(self, batch: Any) -> tuple[Any, ...]:
        return tuple([batch[key] for key in self._keys(batch)])

    def form(self, form: Any) -> Any:
        made = self.origin(form)
        if isinstance(form, Mapping) or not isinstance(form, Places):
            return form_of(list(made) if isinstance(form, Mapping) else len(made))
        keys = self._keys(form)
        names: dict[str, int] = {}
        for name, place in form.names.items():
            first = place + (len(self.fns) - 1) * sum(key < place for key in keys)
            names |= {f"{name}_{i + 1}": first + i for i in range(len(self.fns))} if place in keys else {name: first}
        return Places.named(range(len(made)), names)

    def origin(self, form: Any) -> Any:
        """Return the form of the results, with the key of each column in batches of `form`, and None for views."""
        return self._with_views(form, [[None] * len(self.fns) for _ in self._keys(form)])

    def put_into(self, batch: Any, result: Any, name: str) -> Any:
        keys = self._keys(batch)
        of_fns = [result_columns(one, keys, fn) for one, fn in zip(result, self.fns, strict=True)]
        return self._with_views(batch, list(zip(*of_fns, strict=True)))

    def _keys(self, batch: Any) -> list[Any]:
        return keys_in(batch, self.on or [_image_in(batch)])

    def _with_views(self, batch: Any, views: Sequence[Sequence[Any]]) -> Any:
        """Return a batch, or its form, with the views of each column in its place."""
        keys, n = self._keys(batch), len(self.fns)
        if not isinstance(batch, Mapping):
            if self.out is not None:
                raise ArgumentError(
                    f"out must be left out, for batches are tuples, and views stand in place of their column; "
                    f"rename(...) gives columns names, and out is {list(self.out)}"
                )
            of = dict(zip(keys, views, strict=True))
            return tuple([view for place, column in enumerate(batch) for view in of.get(place, [column])])
        names = self.out or [f"{key}_{i + 1}" for key in keys for i in range(n)]
        named = {key: zip(names[i * n : (i + 1) * n], views[i], strict=True) for i, key in enumerate(keys)}
        pairs = [pair for key, column in batch.items() for pair in named.get(key, [(key, column)])]
        if len(dict(pairs)) < len(pairs):
            found = [name for name, _ in pairs]
            twice = next(name for name in found if found.count(name) > 1)
            raise ArgumentError(f"out must give views names that no other column has, not {twice!r}; pass out=")
        return dict(pairs)


class ViewsNode(MapNode):
    """A node with several views of columns of another node."""

    name = "ViewsDataSource"

    def __init__(self, source: Node, fns: Sequence[Callable[..., Any]], *, on: Any = None, out: Any = None) -> None:
        form = source.form()
        chosen = column_names("on", on) if on is not None else [] if form is None else [_image_in(form)]
        columns = with_places(form, chosen)
        views = Views([for_columns(fn, chosen) for fn in fns] if chosen else fns)
        if on is None and isinstance(form, Mapping):
            for fn in fns:  # as in a map of all columns, this raises for boxes or masks that would not move
                for_columns(fn, list(form))
        super().__init__(source, views, rng="sample")
        self.on = on
        self.out = out
        self._fns_in_words = function_name(views)
        n = len(fns) * max(1, len(columns))
        names = None if out is None else column_names("out", out)
        if names is not None and (len(names) != n or not all(isinstance(name, str) for name in names)):
            raise ArgumentError(f"out must be a list of {n} names, one for each view, not {out!r}")
        self._columns: ViewColumns = ViewColumns(columns, names, views.names)
        self.form()  # raises for names of two columns

    def classes(self) -> Classes | None:
        found = self.source.classes()
        return found and found.moved(self._origin())

    def _origin(self) -> Any:
        form = self.source.form()
        known = form is not None and isinstance(self._columns, ViewColumns)  # it is not yet while this is made
        return self._columns.origin(form) if known else None

    def only(self, names: Sequence[Any]) -> Node | None:
        form, origin = self.form(), self._origin()
        if form is None:
            return None
        keys = [origin[key] for key in keys_in(form, names)]
        return None if None in keys else self.source.only(keys)


def _apart(columns: Sequence[Any], result: Any) -> Any:
    """Return a column of a result; a copy if it may share memory with the columns that it was made of."""
    if not isinstance(result, np.ndarray) or any(
        isinstance(column, np.ndarray) and np.may_share_memory(column, result) for column in columns
    ):
        return copied(result)
    return result


def _share_memory(one: Any, other: Any) -> bool:
    """Return whether arrays of two results may share memory."""
    arrays = [[leaf for leaf in nests.leaves(result) if isinstance(leaf, np.ndarray)] for result in (one, other)]
    return any(np.may_share_memory(a, b) for a, b in itertools.product(*arrays))


def _image_in(batch: Any) -> Any:
    """Return the name or place of the images of a batch, or of a form."""
    if isinstance(batch, Mapping):
        return IMAGE if IMAGE in batch else next(iter(batch))
    return IMAGE if isinstance(batch, Places) and IMAGE in batch.names else 0


def _takes_rng(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters
    except ValueError:  # it has no signature, as some functions in C
        return False
    return "rng" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
