"""The class names and the report of a reader of files, as attributes of sources that are made of the reader's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .labels import LABEL
from .own_attributes import replaceable


@replaceable
def class_names(source: Any) -> tuple[str, ...]:
    """The names of the classes in the order of their numbers, as the reader of the files knows them.

    Empty if no reader knows them, the source has no labels any more, or a new column ``"label"`` has others. A map with
    ``on=`` or ``out=`` that changes the labels leaves no names. A map without ``on=`` is taken to keep the labels.
    """
    classes = source.node.classes()
    if classes is None:
        return ()
    form = source.node.form()
    others = isinstance(form, Mapping) and LABEL in form and classes.column not in (LABEL, None)
    return () if others else classes.names


@replaceable
def report(source: Any) -> Any:
    """The :class:`~batchup_ng.FilesReport` of the reader of files that all samples come from, or None.

    Arrays beside the files, as from ``with_column``, do not count. It reports on all files that the reader found, also
    if this source has only some of their samples.
    """
    return source.node.reader_report()
