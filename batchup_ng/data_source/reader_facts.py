"""The class names and the report of a reader of files, as attributes of sources that are made of the reader's."""

from __future__ import annotations

from typing import Any

from .own_attributes import replaceable


@replaceable
def class_names(source: Any) -> tuple[str, ...]:
    """The names of the classes in the order of their numbers, as the reader of the files knows them.

    Empty if no reader knows them, or the source has no labels any more. A map with ``on=`` or ``out=`` that changes the
    labels leaves no names. A map without ``on=`` is taken to keep the labels.
    """
    classes = source.node.classes()
    return () if classes is None else classes.names


@replaceable
def report(source: Any) -> Any:
    """The :class:`~batchup_ng.FilesReport` of the reader of files that all samples come from, or None.

    It reports on all files that the reader found, also if this source has only some of their samples.
    """
    return source.node.reader_report()
