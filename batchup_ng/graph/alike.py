"""Comparison of the parts of a concatenation. All its batches have the same columns, dtypes and class names.

A concatenation compares its parts when it is made, without reading a row. So it does not know the columns after a map
without ``on=``, nor a column that a map makes. Each batch of such a part is compared with the parts that are known. The
answer depends on the batch alone, so it is the same in every process. If no part is known, only a batch with rows of
several parts is compared. Arrays of text may differ in the number of characters: all batches have the greatest known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .. import tensors
from ..accessors.own_rows import PictureRows
from ..accessors.packed_texts import PackedTexts
from ..accessors.ragged import Ragged
from ..accessors.storage.base import StoredValues
from ..batch import as_text, kind_of_samples, of_class
from ..columns import Places, form_of
from ..errors import ArgumentError, MapResultError
from .arrays import ArraysNode
from .node import Classes, Kind, Node, nodes_of, stacks

LISTS = (Ragged, PackedTexts, PictureRows, StoredValues)
"""Accessors whose batches are lists unless they have a `shape`."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """How the batches of one part are checked, and brought to the form of the others.

    Attributes:
        part: The name of the part.
        model: The name of the part that the structure is compared with.
        form: The form of the model, if the structure of this part is not known or its names have another order. Else
            None.
        kinds: The columns to compare, each with the part that it is compared with, and what that holds.
    """

    part: str
    model: str
    form: Any
    kinds: Mapping[Any, tuple[str, Kind]]

    def fitted(self, batch: Any) -> Any:
        """Return the batch in the form of the others.

        Raises:
            MapResultError: it has other columns, dtypes or shapes. No policy takes that for the fault of a sample.
        """
        try:
            return self._fitted(batch)
        except ArgumentError as error:
            raise MapResultError(str(error)) from None

    def _fitted(self, batch: Any) -> Any:
        if self.form is not None:
            if not isinstance(batch, (tuple, Mapping)):
                raise ArgumentError(
                    f"sources that are joined must have the same columns, and {self.part} gives a "
                    f"{type(batch).__name__}, no tuple or dict of columns; let it return (x,) for one column"
                )
            has = form_of(batch if isinstance(batch, Mapping) else len(batch))
            _check_form(self.model, self.form, self.part, has)
            if isinstance(batch, Mapping) and list(batch) != list(self.form):
                batch = of_class(batch, {name: batch[name] for name in self.form})
        changed = {}
        for key, (model, kind) in self.kinds.items():
            column = batch[key]
            if not isinstance(column, np.ndarray) and not tensors.is_any_tensor(column):
                if isinstance(column, list):
                    _check_kind(key, model, kind, self.part, _kind_of_list(column, kind))
                continue
            if kind.listed and len(column.shape) > 1:  # a map of samples returns lists and arrays
                column = changed[key] = list(column)
                _check_kind(key, model, kind, self.part, _kind_of_list(column, kind))
                continue
            if not kind.listed and as_text(column.dtype, kind.dtype):
                if column.dtype.itemsize < kind.dtype.itemsize:
                    changed[key] = column.astype(kind.dtype)
                continue
            _check_kind(key, model, kind, self.part, _kind_of_arrays(column))
        if not changed:
            return batch
        if isinstance(batch, Mapping):
            return of_class(batch, {**batch, **changed})
        return of_class(batch, [changed.get(place, column) for place, column in enumerate(batch)])

    def only(self, keys: Sequence[Any]) -> Fit | None:
        """Return the same for a part that has only these columns, in this order; None if nothing is left to do."""
        named = isinstance(keys[0], str)
        kinds = {key if named else i: self.kinds[key] for i, key in enumerate(keys) if key in self.kinds}
        return Fit(self.part, self.model, None, kinds) if kinds else None


def fits_of(parts: Sequence[Node]) -> tuple[list[Fit | None], dict[Any, Kind] | None]:
    """Compare `parts`. Return how to check and change the batches of each part, and what their columns hold.

    The first is None for a part whose batches need nothing. The second is None if the columns of no part are known.

    Raises:
        ArgumentError: two of the parts have other columns, or a column of another dtype, or shape of a sample.
    """
    names = [f"sources[{i}]" for i in range(len(parts))]
    forms = [part.form() for part in parts]
    known = [i for i, form in enumerate(forms) if form is not None]
    if len(parts) == 1 or not known:
        return [None] * len(parts), None
    first = known[0]
    for i in known[1:]:
        _check_form(names[first], forms[first], names[i], forms[i])
    joined: dict[Any, Kind] = {}
    kinds: list[dict[Any, tuple[str, Kind]]] = [{} for _ in parts]
    for key in forms[first] if isinstance(forms[first], Mapping) else range(len(forms[first])):
        found = {i: kind for i in known if (kind := kind_of(parts[i], key)) is not None}
        if not found:
            continue
        model, *others = found
        common = found[model]
        for i in others:
            common = _common(common, found[i], key, names[model], names[i])
        joined[key] = common
        for i, own in enumerate(kinds):
            if i not in found or (not common.listed and found[i].dtype != common.dtype):
                own[key] = names[model], common
    fits: list[Fit | None] = []
    for i, form in enumerate(forms):
        ordered = form is not None and (not isinstance(form, Mapping) or list(form) == list(forms[first]))
        fit = Fit(names[i], names[first], None if ordered else forms[first], kinds[i])
        fits.append(fit if fit.kinds or fit.form is not None else None)
    return fits, joined


def kind_of(node: Node, key: Any) -> Kind | None:
    """Return what a column holds, or None if that is not known without reading a row."""
    if node.kinds is not None:
        return node.kinds.get(key)
    narrow = node.only([key])
    if narrow is None:
        return None
    arrays = [array for each in nodes_of(narrow) if isinstance(each, ArraysNode) for array in each.data]
    kinds: list[Kind] = [kind for array in arrays if (kind := _kind_of_array(array)) is not None]
    if len(kinds) < len(arrays):
        return None
    first = kinds[0]  # several of a concatenation, which are alike
    texts = [kind.dtype for kind in kinds if as_text(first.dtype, kind.dtype)]
    return first._replace(dtype=np.result_type(*texts)) if texts and not first.listed else first


def stacked_columns(parts: Sequence[Node], form: Any) -> Collection[Any] | bool:
    """Return the keys of the columns that a part stacks from single samples. Without a form: whether there may be one.

    In batches of such a column, samples of several shapes are a list, also if the samples of each part are alike.
    """
    if form is None:
        return any(stacks(part, None) for part in parts)
    keys = form if isinstance(form, Mapping) else range(len(form))
    return frozenset(key for key in keys if any(stacks(part, key) for part in parts))


def classes_of(parts: Sequence[Node]) -> Classes | None:
    """Return the class names that all of `parts` have. Parts without class names do not count.

    Raises:
        ArgumentError: a number means different classes in two of the parts.
    """
    found = [(f"sources[{i}]", classes) for i, part in enumerate(parts) if (classes := part.classes()) is not None]
    if not found:
        return None
    (model, first), *others = found
    for name, classes in others:
        if classes.names != first.names:
            pairs = enumerate(zip((*first.names, None), (*classes.names, None), strict=False))
            number, (a, b) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
            column = first.column if classes.column is None else classes.column
            raise ArgumentError(
                f"sources that are joined must have the same class_names, and class {number} is {_word(a)} in {model}, "
                f"{_word(b)} in {name}; read both with class_names=[...], all classes in one order, or "
                f"give the labels of one new numbers by map(fn, on={'label' if column is None else column!r})"
            )
    same = all(classes.column == first.column for _, classes in others)
    return first if same else Classes(first.names, None)


def _word(name: str | None) -> str:
    return "missing" if name is None else f"{name!r:.80}"


def _check_form(model: str, form: Any, part: str, has: Any) -> None:
    """Refuse a part whose batches have other columns, by the forms."""
    if isinstance(form, Mapping) != isinstance(has, Mapping):
        named, places = (form, has) if isinstance(form, Mapping) else (has, form)
        tuples, dicts = (part, model) if isinstance(form, Mapping) else (model, part)
        renamed = dict(zip(range(len(places)), [*named, *["..."] * len(places)], strict=False))
        raise ArgumentError(
            f"sources that are joined must have the same columns, and {dicts} gives dicts, {tuples} tuples; call "
            f"rename({renamed}) of {tuples}, which gives its columns names"
        )
    if isinstance(form, Mapping):
        lacks, more = [name for name in form if name not in has], [name for name in has if name not in form]
        if lacks or more:
            raise ArgumentError(
                f"sources that are joined must have the same columns, and {model} has {_listed(form)}, {part} "
                f"{_listed(has)}; call {_remedy(lacks, more, model, part)}"
            )
        return
    if len(form) != len(has):
        longer, n = (model, len(has)) if len(form) > len(has) else (part, len(form))
        raise ArgumentError(
            f"sources that are joined must have the same columns, and {model} has {len(form)}, {part} {len(has)}; call "
            f"select({', '.join(map(str, range(n)))}) of {longer}, or with_column(...) of the other"
        )
    for place in range(len(form)) if isinstance(form, Places) and isinstance(has, Places) else ():
        ours, theirs = ([name for name in each.names if each.names[name] == place] for each in (form, has))
        if ours and theirs and not set(ours) & set(theirs):
            raise ArgumentError(
                f"sources that are joined must have the same columns, and column {place} is {ours[-1]!r} in {model}, "
                f"{theirs[-1]!r} in {part}; put the columns into one order by select(...), or, if they hold the same, "
                f"call rename({{{place}: {ours[-1]!r}, ...}}) of both, whose batches are then dicts"
            )


def _remedy(lacks: Sequence[str], more: Sequence[str], model: str, part: str) -> str:
    """Return in words how `part`, which lacks some columns and has some more, gets the columns of `model`."""
    if lacks and more:
        others = " and select(...) or drop(...)" if len(lacks) != len(more) or len(more) > 1 else ""
        return f"rename({{{more[0]!r}: {lacks[0]!r}}}){others} of {part}"
    if more:
        return f"drop({_listed(more)}) of {part}"
    return f"drop({_listed(lacks)}) of {model}, or with_column({lacks[0]!r}, values) of {part}"


def _common(model_kind: Kind, kind: Kind, key: Any, model: str, part: str) -> Kind:
    """Return what batches of both parts hold. Raise if they differ in more than the length of texts."""
    if not model_kind.listed and not kind.listed and as_text(model_kind.dtype, kind.dtype):
        _check_kind(key, model, model_kind._replace(dtype=kind.dtype), part, kind)
        return model_kind._replace(dtype=np.result_type(model_kind.dtype, kind.dtype))
    _check_kind(key, model, model_kind, part, kind)
    return model_kind


def _check_kind(key: Any, model: str, kind: Kind, part: str, has: Kind) -> None:
    """Refuse a column that holds something else than in the part `model`."""
    if kind.listed != has.listed:
        lists, arrays, of = (model, part, has) if kind.listed else (part, model, kind)
        raise ArgumentError(
            f"sources that are joined must have columns of one dtype and shape, and batches of the column {key!r} are "
            f"lists in {lists}, arrays of {of.dtype} in {arrays}; make arrays of both, by size= for images, pad(...) "
            f"for sequences, or map(fn, on={key!r})"
        )
    if kind.dtype is not None and has.dtype is not None and kind.dtype != has.dtype:
        if kind.listed and as_text(kind.dtype, has.dtype):
            return
        raise ArgumentError(
            f"sources that are joined must have columns of one dtype, and the column {key!r} is {kind.dtype} in "
            f"{model}, {has.dtype} in {part}; convert {_remedy_for_dtypes(key, model, kind, part, has)}"
        )
    if kind.shape is not None and has.shape is not None and kind.shape != has.shape:
        raise ArgumentError(
            f"sources that are joined must have samples of one shape, and the column {key!r} has {kind.shape} in "
            f"{model}, {has.shape} in {part}; bring them to one shape by size= or with_images(size=...) for images, or "
            f"by map(fn, on={key!r})"
        )


def _remedy_for_dtypes(key: Any, model: str, kind: Kind, part: str, has: Kind) -> str:
    """Return in words how columns of two dtypes become columns of one, by the rules of their library."""
    a, b, lost = kind.dtype, has.dtype, ""
    if not isinstance(a, np.dtype) or not isinstance(b, np.dtype):
        both = not isinstance(a, np.dtype) and not isinstance(b, np.dtype)
        wider = tensors.promoted(a, b) if both else b if isinstance(a, np.dtype) else a
        cast = f"torch.as_tensor(x, dtype={wider})"
        code = f"lambda column: [{cast} for x in column]" if kind.listed else f"lambda x: {cast}"
    elif a.kind in "biufc" and b.kind in "biufc":
        wider = np.result_type(a, b)
        cast = f"x.astype({str(wider)!r})"
        code = f"lambda column: [{cast} for x in column]" if kind.listed else f"lambda x: {cast}"
        digits = np.finfo(wider).nmant + 1 if wider.kind == "f" else 64
        if any(dtype.kind in "iu" and 8 * dtype.itemsize > digits for dtype in (a, b)):
            lost = f", after a check that no number above 2**{digits} loses digits"
    else:
        wider, code = None, "fn"
    which = part if wider == a else model if wider == b else "one" if wider is None else "each"
    return f"{which} by map({code}, on={key!r}){lost}"


def _kind_of_array(array: Any) -> Kind | None:
    """Return what batches of an array, tensor or accessor hold, or None if that is not known."""
    dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", None)
    if dtype is not None and shape is not None:
        return _kind_of_arrays(array)
    if isinstance(array, Ragged):
        return Kind(True, _native(array.values.dtype), (None, *array.values.shape[1:]))
    return Kind(True, dtype, None) if isinstance(array, LISTS) else None


def _kind_of_arrays(array: Any) -> Kind:
    return Kind(False, _native(array.dtype), tuple(array.shape[1:]))


def _kind_of_list(column: list[Any], model: Kind) -> Kind:
    """Return what a list of samples holds, with the axes of `model` unless it has another number of them."""
    found = kind_of_samples(column)
    if found is None:
        return Kind(True, None, None)
    dtype, axes = found
    return Kind(True, dtype, model.shape if model.shape is None or len(model.shape) == axes else (None,) * axes)


def _native(dtype: Any) -> Any:
    """Return a dtype as batches have it."""
    try:
        return np.dtype(dtype).newbyteorder("=")
    except TypeError:  # of a tensor
        return dtype


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))
