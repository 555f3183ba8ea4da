"""One run of a conversion: the loop that writes rows and makes checkpoints, and its journal.

The journal in the folder of unfinished work (:mod:`.partial`) records the progress: how many rows the writer
(:mod:`.base`) has brought to the disk, and the state of the loader for the next rows. It is updated after a number of
batches that follows from the size of the first batch, or sooner if later batches are larger. Both depend on the rows
alone. So a writer makes its checkpoints at the same rows whether it was killed or not, and writes the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..data_source import AbstractDataSource
from ..display import counted
from ..error_context import raise_if_of_signal_handler, shortened
from ..errors import ArgumentError, BatchupError, WriteError
from ..loader import Loader
from .base import Writer
from .columns import Column, Values, columns_of, fitting, named_parts
from .partial import Partial
from .prepared import names_of
from .writers import check_columns

PART_BYTES = 1 << 26
"""Bytes of rows between two checkpoints, plus a batch at most: kept in memory, and lost by a kill."""

ASSUMED_VALUE_BYTES = 100
"""Assumed bytes of a value of unknown size."""


@dataclasses.dataclass(frozen=True)
class Journal:
    """The progress of a conversion.

    Attributes:
        about: The source and the options.
        columns: The columns of the first batch.
        every: Batches between two checkpoints, at most.
        rows: The number of rows that are safe.
        state: The loader's state after them.
        place: The writer's place after them.
        skipped: The samples that were left out.
        done: The names of the results, once they are complete.
    """

    about: dict[str, Any]
    columns: list[Any]
    every: int
    rows: int = 0
    state: Any = None
    place: Any = None
    skipped: list[str] = dataclasses.field(default_factory=list)
    done: list[str] | None = None


class Job:
    """One run over the rows that are not yet written.

    Args:
        writer: The writer of the format.
        partial: The folder of the unfinished work.
        about: The source and the options, for the journal.
        source: The source.
    """

    def __init__(
        self, writer: type[Writer], partial: Partial, about: dict[str, Any], source: AbstractDataSource
    ) -> None:
        self._format = writer
        self._partial = partial
        self._source = source
        self._names = names_of(source)
        self._journal = Journal(about, [], 0)
        self._writer: Writer | None = None
        self._unsafe_bytes = 0  # of rows after the last checkpoint

    def run(self, loader: Loader, journal: Journal | None, advance: Callable[[int], object]) -> Journal:
        """Write the rows after the journal's checkpoint, and return the final journal; `advance` takes numbers of rows.
        """
        with contextlib.closing(self):
            if journal is None:
                with self._telling():
                    self._partial.begin(json.dumps(vars(self._journal)))
            else:
                loader.load_state_dict(journal.state)
                writer = self._open(journal)
                with self._telling():
                    writer.resume(journal.place)
            skipped = self._journal.skipped
            n_batches = 0  # since the last checkpoint
            for batch in loader if loader.epoch == 0 else ():  # a state after the last batch is of the next epoch
                advance(self._write(named_parts(batch, self._names)))
                n_batches += 1
                if n_batches == self._journal.every or self._unsafe_bytes > PART_BYTES:
                    self._checkpoint(loader, skipped)
                    n_batches = 0
            if n_batches:
                self._checkpoint(loader, skipped)
            return self._finished()

    def close(self) -> None:
        """Close the writer's files."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, parts: dict[str, Any]) -> int:
        """Write a batch, and return its number of rows. The first batch decides about the columns."""
        if self._writer is None:
            columns, values = columns_of(parts, self._format.holds)
            check_columns(self._format, columns)
            every = max(1, PART_BYTES // max(1, _bytes_of(values)))
            told = [column.as_json() for column in columns]
            writer = self._open(dataclasses.replace(self._journal, columns=told, every=every))
            with self._telling():
                writer.begin()
        else:
            writer = self._writer
            values = fitting(writer.columns, parts, writer.row, self._format.holds)
        n = len(next(iter(values.values())))
        with self._telling():
            writer.write(values, n)
        writer.row += n
        self._unsafe_bytes += _bytes_of(values)
        return n

    def _open(self, journal: Journal) -> Writer:
        """Make the writer for a journal."""
        columns = [Column.from_json(parts) for parts in journal.columns]
        options, classes = journal.about["options"], self._source.node.classes()
        self._writer = self._format.chosen(columns, options)(
            self._partial.made, self._partial.work, self._partial.target.name, columns, int(self._source.num_samples()),
            journal.every * journal.about["batch_size"], [] if classes is None else classes.names, options,
        )  # fmt: skip
        self._writer.row = journal.rows
        self._journal = journal
        return self._writer

    def _checkpoint(self, loader: Loader, skipped: list[str]) -> None:
        """Bring the written rows to the disk, then the journal that records them."""
        assert self._writer is not None
        failed = [error for error in loader.errors if error.row is not None]  # a later try might make the others
        errors = [error.row if error.source is None else error.source for error in failed]
        with self._telling():
            place = self._writer.checkpoint()
            state = loader.state_dict()
            self._save(place=place, rows=self._writer.row, state=state, skipped=[*skipped, *map(str, errors)])
        self._unsafe_bytes = 0

    def _finished(self) -> Journal:
        """Complete the result, and record it in the journal."""
        if self._writer is None:
            raise ArgumentError("source must have rows, and has none that could be read")
        with self._telling():
            self._writer.finish()
            self._writer.close()
            names = [path.name for path in self._partial.made.iterdir()]
            self._save(done=sorted(names, key=lambda name: [(len(part), part) for part in re.split(r"(\d+)", name)]))
        return self._journal

    def _save(self, **changes: Any) -> None:
        journal = dataclasses.replace(self._journal, **changes)
        self._partial.save(json.dumps(vars(journal)))
        self._journal = journal

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn any exception of a library that cannot write into an error that names the target and a remedy."""
        try:
            yield
        except (BatchupError, MemoryError):
            raise
        except Exception as error:
            raise_if_of_signal_handler(error)
            reason = f"{type(error).__name__}: {shortened(str(error), 300)}"
            told = WriteError(
                f"{str(self._partial.target)!r} cannot be written ({reason}); {counted(self._journal.rows, 'row')} of "
                f"it are safe, in {str(self._partial.folder)!r}: mend that, as by making room, and make the same call "
                f"again to go on"
            )
            told.errno = getattr(error, "errno", None)
            raise told from error


def _bytes_of(values: Values) -> int:
    """Return the approximate bytes of a batch's columns."""
    arrays = [column for column in values.values() if isinstance(column, np.ndarray)]
    others = [value for column in values.values() if not isinstance(column, np.ndarray) for value in column]
    sizes = (
        getattr(each, "nbytes", len(each) if isinstance(each, (str, bytes)) else ASSUMED_VALUE_BYTES)
        for each in others
    )
    return sum(array.nbytes for array in arrays) + sum(sizes)
