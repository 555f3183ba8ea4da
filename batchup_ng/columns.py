"""Columns of a batch, chosen by name or place.

A batch is a tuple of columns, which have places from 0, or a dict, whose columns have names. A negative place counts
from the end. The form of a batch has the place or the name of each column in place of its values: ``(0, 1)``, or
``{"x": "x", "y": "y"}``. The form of tuples may know names that a batch does not show: :class:`Places`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from . import validation
from .batch import as_batch, lengths
from .errors import ArgumentError, ArgumentTypeError, MapResultError

ANNOTATIONS = {
    "boxes": "boxes", "bbox": "boxes", "bboxes": "boxes", "mask": "masks", "masks": "masks", "keypoints": "keypoints",
}  # fmt: skip
"""Names of columns whose values are in the pixels of an image, as our readers and most data sets call them. The values
are the options of ``augment.compose`` that move these columns with the image."""

class Places(tuple[int, ...]):
    """The form of tuples whose columns have names too, as from ``from_folder``.

    Attributes:
        names: The place of each name.
    """

    names: Mapping[str, int]

    @classmethod
    def named(cls, places: Iterable[int], names: Mapping[str, int]) -> Places:
        """Return the form of columns at `places`, some of which have names."""
        made = cls(places)
        made.names = names
        return made


def column_names(name: str, columns: Any) -> list[Any]:
    """Return the names or places that a user gave as the argument `name`: one, or a list or tuple of them."""
    listed = list(columns) if isinstance(columns, (list, tuple)) else [columns]
    for column in listed:
        if not isinstance(column, str):
            try:
                validation.integer(name, column)
            except ArgumentTypeError:
                remedy = "pass 'age', or a list"
                if isinstance(column, (list, tuple)) and column:
                    remedy = f"pass {', '.join(map(repr, column))} in place of this {type(column).__name__}"
                raise ArgumentTypeError(
                    f"{name} must be names of columns, or their places from 0, not {column!r}; {remedy}"
                ) from None
    if not listed or len(set(listed)) < len(listed):
        raise ArgumentError(f"{name} must be at least one column, each once, not {columns!r}")
    return listed


def form_of(names: Iterable[str] | int) -> Any:
    """Return the form of batches with these names, or with so many places."""
    return tuple(range(names)) if isinstance(names, int) else {name: name for name in names}


def form_like(origin: Any) -> Any:
    """Return the form of batches whose columns have these names or places, whatever `origin` has for them."""
    if isinstance(origin, Places):
        return Places.named(range(len(origin)), origin.names)
    return None if origin is None else form_of(list(origin) if isinstance(origin, Mapping) else len(origin))


def with_places(form: Any, columns: Iterable[Any]) -> list[Any]:
    """Return `columns` with a place for each name that only the form has, because a batch does not show the name."""
    named = isinstance(form, Places)
    return [place_in(form, column) if named and isinstance(column, str) else column for column in columns]


def joined_form(forms: Sequence[Any]) -> Any:
    """Return the form of batches of `forms` that are joined side by side, or None if it is not known.

    If two columns of tuples have one name, both lose it.
    """
    if None in forms:
        return None
    if all(isinstance(form, Mapping) for form in forms):
        keys = [name for form in forms for name in form]
        return form_of(keys) if len(set(keys)) == len(keys) else None
    if any(isinstance(form, Mapping) for form in forms):  # a dict counts as one part of a tuple
        return None
    names: list[tuple[str, int]] = []
    n = 0
    for form in forms:
        names += [(name, n + place) for name, place in (form.names.items() if isinstance(form, Places) else ())]
        n += len(form)
    found = [name for name, _ in names]
    once = {name: place for name, place in names if found.count(name) == 1}
    return Places.named(range(n), once) if once else form_of(n)


def common_form(forms: Sequence[Any]) -> Any:
    """Return the form that all of `forms` are, or None. Names that differ are left out."""
    first = forms[0]
    if not all(form == first for form in forms):
        return None
    alike = all(getattr(form, "names", None) == getattr(first, "names", None) for form in forms)
    return first if alike or not isinstance(first, tuple) else tuple(first)


def place_in(batch: Any, column: Any) -> int:
    """Return the place of a column in a batch or a form. Raise if there is none."""
    if isinstance(batch, Mapping):
        names = list(batch)
        if not isinstance(column, str):
            raise ArgumentError(f"columns must be names here, for batches are dicts, not {column}; {_names(names)}")
        return names.index(validation.one_of("columns", column, names))
    if isinstance(batch, Places) and isinstance(column, str):
        return batch.names[validation.one_of("columns", column, batch.names)]
    if isinstance(column, str):
        raise ArgumentError(
            f"columns must be places from 0 to {len(batch) - 1} here, for batches are tuples, not {column!r}; "
            f"rename(...) gives columns names, as does ArrayDataSource({{'x': x, 'y': y}})"
        )
    if not -len(batch) <= column < len(batch):
        raise ArgumentError(f"columns must be places of the {len(batch)} columns, from 0 on, not {column}")
    return int(column) % len(batch)


def check_new(batch: Any, name: Any, kind: type[ArgumentError] = ArgumentError) -> None:
    """Raise `kind` if a batch, or a form, cannot get a column of this name or place."""
    if isinstance(batch, Mapping) != isinstance(name, str):
        form, what = ("dicts", "name") if isinstance(batch, Mapping) else ("tuples", "place")
        raise kind(f"name must be a {what}, for batches are {form}, not {name!r}")
    if not isinstance(name, str) and not 0 <= name <= len(batch):
        raise kind(
            f"name must be a place of the {len(batch)} columns, from 0 on, or {len(batch)} for one more, not {name}"
        )


def keys_in(batch: Any, columns: Iterable[Any]) -> list[Any]:
    """Return the keys of some columns: names, or places that are not negative."""
    keys = list(batch) if isinstance(batch, Mapping) else range(len(batch))
    found = [keys[place_in(batch, column)] for column in columns]
    _check_once(found, columns)
    return found


def _check_once(keys: Sequence[Any], columns: Iterable[Any]) -> None:
    """Raise if two of `columns`, such as 0 and -2, are one column of the batch."""
    if len(set(keys)) < len(keys):
        raise ArgumentError(f"columns must name each column once, and {list(columns)} names one twice")


def picked(batch: Any, columns: Iterable[Any]) -> Any:
    """Return a batch, or a form, of some columns of `batch`, in this order."""
    keys = keys_in(batch, columns)
    if isinstance(batch, Mapping):
        return {key: batch[key] for key in keys}
    taken = tuple([batch[key] for key in keys])
    if isinstance(batch, Places):
        return Places.named(taken, {name: keys.index(place) for name, place in batch.names.items() if place in keys})
    return taken


def result_columns(result: Any, keys: Sequence[Any], name: str) -> Sequence[Any]:
    """Return the result of the map `name` as one column for each of `keys`."""
    if isinstance(result, Mapping):
        if set(result) != set(keys):
            remedy = "return (column,) if this dict is the column, or " if len(keys) == 1 else ""
            raise MapResultError(
                f"map {name!r} returned the columns {_listed(result)}, and must return {_listed(keys)}; {remedy}pass "
                f"on= or out= with their names"
            )
        result = [result[key] for key in keys]
    elif len(keys) == 1 and type(result) is not tuple:
        result = [result]
    if not isinstance(result, (tuple, list)) or len(result) != len(keys):
        what = f"{len(result)} columns" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
        raise MapResultError(
            f"map {name!r} returned {what}, and must return one for each of {_listed(keys)}; return a tuple of so "
            f"many, or pass on= or out= with other columns"
        )
    for key, column in zip(keys, result, strict=True):
        if not lengths((column,)):
            raise MapResultError(
                f"map {name!r} returned a {type(column).__name__} for the column {key!r}; let it return an array with "
                f"one row for each sample"
            )
    return result


@dataclasses.dataclass(frozen=True)
class MappedColumns:
    """The columns that a map takes, and those that its results become."""

    on: Sequence[Any]
    out: Sequence[Any] | None = None

    @classmethod
    def checked(cls, on: Any, out: Any, form: Any) -> MappedColumns | None:
        """Return the columns for ``on=`` and ``out=`` of a map of batches of this form, if it is known."""
        if on is None:
            if out is not None:
                raise ArgumentError(f"out must be left out without on=, not {out!r}; pass on= with the columns to take")
            return None
        names = with_places(form, column_names("on", on))
        made = cls(names, None if out is None else with_places(form, column_names("out", out)))
        if form is not None:
            made.form(form)  # raises for columns that do not exist
        return made

    @property
    def named(self) -> Sequence[Any]:
        """The columns of the results, as they were given."""
        return self.on if self.out is None else self.out

    def taken_from(self, batch: Any) -> tuple[Any, ...]:
        """Return the columns that the function is called with."""
        return tuple([batch[key] for key in keys_in(batch, self.on)])

    def writable(self, batch: Any, own: Collection[Any]) -> Collection[Any]:
        """Return the places, among the columns taken, of those in `own` that do not stay in the batch as they are."""
        if not own:
            return ()
        replaced = set(own).intersection(self._targets(batch))
        return [place for place, key in enumerate(keys_in(batch, self.on)) if key in replaced]

    def form(self, form: Any) -> Any:
        """Return the form of the results for batches of `form`."""
        keys_in(form, self.on)
        return self._joined(form, self._targets(form))

    def changes(self, form: Any, keys: Sequence[Any]) -> bool:
        """Return whether the results become one of the columns `keys`, for batches of `form`."""
        return not set(keys).isdisjoint(self._targets(form))

    def put_into(self, batch: Any, result: Any, name: str) -> Any:
        """Return the batch with the result of the map `name` in its columns."""
        targets = self._targets(batch)
        return self._joined(batch, targets, result_columns(result, targets, name))

    def _targets(self, batch: Any) -> list[Any]:
        """Return the keys of the columns of results. A new column is at the end."""
        if self.out is None:
            return keys_in(batch, self.on)
        if isinstance(batch, Mapping):
            if places := [column for column in self.out if not isinstance(column, str)]:
                raise ArgumentError(f"out must be names here, for batches are dicts, not {places[0]}; {_names(batch)}")
            return list(self.out)
        targets: list[Any] = []
        for column in self.out:
            new = len(batch) + sum(target >= len(batch) for target in targets)
            targets.append(new if column == new else place_in(batch, column))
        _check_once(targets, self.out)
        return targets

    def _joined(self, batch: Any, targets: Sequence[Any], values: Sequence[Any] | None = None) -> Any:
        new = dict(zip(targets, targets if values is None else values, strict=True))
        if isinstance(batch, Mapping):
            return {**batch, **new}
        joined = [new.get(place, column) for place, column in enumerate(batch)]
        joined += [new[place] for place in sorted(new) if place >= len(batch)]
        return Places.named(joined, batch.names) if isinstance(batch, Places) else tuple(joined)


@dataclasses.dataclass(frozen=True)
class ChosenColumns:
    """The columns that stay in a batch, and their new names.

    Attributes:
        keep: The columns that stay, in this order; None for all that are not in `drop`.
        drop: The columns to leave out.
        names: New names of columns. Names for places make a dict of a tuple, and then each column needs one.
    """

    keep: Sequence[Any] | None = None
    drop: Sequence[Any] = ()
    names: Mapping[Any, str] = dataclasses.field(default_factory=dict)

    def in_places(self, form: Any) -> ChosenColumns:
        """Return this choice with places for the names that only the form of the batches has."""
        keep = None if self.keep is None else with_places(form, self.keep)
        names = dict(zip(with_places(form, self.names), self.names.values(), strict=True))
        return ChosenColumns(keep, with_places(form, self.drop), names)

    def chosen(self, batch: Any) -> Any:
        """Return the batch, or its form, of the columns that stay."""
        if self.keep is not None:
            return picked(batch, self.keep)
        if self.drop:
            left_out = set(keys_in(batch, self.drop))
            keys = batch if isinstance(batch, Mapping) else range(len(batch))
            kept = [key for key in keys if key not in left_out]
            if not kept:
                raise ArgumentError(f"columns must leave at least one of {_listed(keys)}, and drop leaves none")
            return picked(batch, kept)
        return self._renamed(batch)

    def __repr__(self) -> str:
        if self.keep is not None:
            return f"only {_listed(self.keep)}"
        if self.drop:
            return f"without {_listed(self.drop)}"
        return ", ".join(f"{old!r} as {new!r}" for old, new in self.names.items())

    def _renamed(self, batch: Any) -> Any:
        named = dict(zip(keys_in(batch, self.names), self.names.values(), strict=True))
        keys = list(batch) if isinstance(batch, Mapping) else list(range(len(batch)))
        if not isinstance(batch, Mapping) and len(named) < len(keys):
            raise ArgumentError(
                f"names must name each of the {len(keys)} columns of a tuple, not only {_listed(named)}; batches are "
                f"then dicts"
            )
        new = [named.get(key, key) for key in keys]
        if len(set(new)) < len(new):
            twice = next(name for name in new if new.count(name) > 1)
            # No policy takes it for the fault of a sample, if only the batch shows the names.
            raise MapResultError(f"names must give each column another name, and two are {twice!r}; drop one before")
        return {name: batch[key] for name, key in zip(new, keys, strict=True)}


@dataclasses.dataclass(frozen=True)
class AddedColumn:
    """The name or place of a column that a batch gets. The two are side by side: ``(batch, (column,))``.

    It is for batches whose form is not known in advance. If they have such a column, it is replaced.
    """

    name: Any

    def in_places(self, form: Any) -> AddedColumn:
        """Return this: it names no column of the batches as they were."""
        return self

    def chosen(self, pair: Any) -> Any:
        """Return the batch with the column. No policy takes a wrong name for the fault of a sample."""
        batch, (column,) = pair
        batch = as_batch(batch)
        batch = batch if isinstance(batch, (tuple, Mapping)) else (batch,)
        check_new(batch, self.name, MapResultError)
        if isinstance(batch, Mapping):
            return {**batch, self.name: column}
        return (*batch[: self.name], column, *batch[self.name + 1 :])

    def __repr__(self) -> str:
        return f"with {self.name!r}"


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(repr, names))


def _names(names: Iterable[Any]) -> str:
    return f"the columns are {_listed(names)}"
