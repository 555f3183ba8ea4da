"""A source over files, which knows what was found where they were looked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..display import counted, printable
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError
from .array import ArrayDataSource

Reader: TypeAlias = Callable[..., Any]
"""Makes the accessor of files: called with a sequence of paths, then with a size where the user gave one."""

OF_IMAGES = dict.fromkeys(
    ["mode", "dtype", "resize", "crop", "decoder", "max_pixels", "truncated"],
    "give a function that makes the accessor: images=functools.partial(ImageFiles, crop='random')",
)
"""What to do instead of options of ``ImageFiles``."""

SHOWN_CLASSES = 20
"""Classes that a report has a line for."""

LONGEST_NAME = 100
"""Characters of the name of a class that a report shows."""

SHOWN_PATHS = 3
"""Paths of a kind that a report names; all are in its attributes."""


@dataclass(frozen=True)
class FilesReport:
    """What was found where files were looked for; its ``str`` is a page for people.

    Attributes:
        where: The folder, table or file that it is about.
        samples: How many samples the source has.
        class_counts: How many samples each class has, in the order of their numbers; of several labels a sample, each
            counts. Empty where there are no classes.
        skipped: The files and folders that were left out, by the reason.
        missing: The files that a table names and that do not exist.
        duplicates: The paths that a table names more than once, each as often as it is there again.
        unmatched: The absolute paths on the exclusion list that are none of the files.
        hint: What may be wanted instead, or is there besides, in words.
    """

    where: str
    samples: int
    class_counts: Mapping[str, int]
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    duplicates: Sequence[str] = ()
    unmatched: Sequence[str] = ()
    hint: str = ""

    def __str__(self) -> str:
        first = list(self.class_counts.items())[:SHOWN_CLASSES]
        shown = [(shortened(printable(name), LONGEST_NAME), count) for name, count in first]
        width = max((len(name) for name, _ in shown), default=0)
        classes = f" in {counted(len(self.class_counts), 'class', 'classes')}" if shown else ""
        lines = [f"{printable(self.where)}: {counted(self.samples, 'file')}{classes}"]
        lines += [f"  {name:{width}}  {count:,}" for name, count in shown]
        if rest := list(self.class_counts.values())[SHOWN_CLASSES:]:
            lines.append(f"  and {len(rest):,} more, each with {min(rest):,} to {max(rest):,}")
        told = [*((f"left out, {why}", paths) for why, paths in self.skipped.items()), ("missing", self.missing)]
        told += [("named again", self.duplicates), ("on the exclusion list, but not there", self.unmatched)]
        lines += [f"{what}: {named(paths)}" for what, paths in told if len(paths)]
        return "\n".join([*lines, self.hint] if self.hint else lines)


def named(paths: Sequence[str]) -> str:
    """Return how many paths there are, and the first of them, each once."""
    more = ", …" if len(paths) > SHOWN_PATHS else ""
    return f"{len(paths):,} ({', '.join(map(repr, dict.fromkeys(paths[:SHOWN_PATHS])))}{more})"


class FilesDataSource(ArrayDataSource):
    """An :class:`ArrayDataSource` over files and their labels: what :func:`~batchup_ng.from_folder`,
    :func:`~batchup_ng.from_table` and :func:`~batchup_ng.from_csv` return.

    Attributes:
        report: What was found, a :class:`FilesReport`.
    """

    def __init__(self, data: list[Any], report: FilesReport, labelled: bool) -> None:
        super().__init__(data)
        self.report = report
        self._labelled = labelled
        self._report_in_words = counted(len(report.class_counts), "class", "classes")
        self.runs_user_code = ArrayDataSource(data).runs_user_code  # which this subclass adds none to

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, by their numbers; empty where there are none."""
        return tuple(self.report.class_counts)

    @property
    def labels(self) -> np.ndarray | None:
        """The label of each sample, ``(n, ...)``, for ``split(stratify=)`` or a sampler; None where there are none."""
        return self.data[1] if self._labelled else None


def opened(images: Reader, paths: Sequence[Any], size: Any) -> Any:
    """Return the accessor of the files, or of encoded pictures."""
    return images(paths) if size is None else images(paths, size)


def checked_class_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return names of classes that the user gave, each once."""
    if isinstance(class_names, (str, bytes, Set, Mapping)):
        raise ArgumentTypeError(
            f"class_names must be a list of names, in the order of their numbers, not a {type(class_names).__name__}; "
            f"pass sorted(...) of a set, sorted(d, key=d.get) of a dict of numbers"
        )
    names = tuple(map(str, class_names))
    if len(set(names)) < len(names):
        again = sorted({name for name in names if names.count(name) > 1})
        raise ArgumentError(f"class_names must name each class once, and has {again} again; leave the others out")
    return names
