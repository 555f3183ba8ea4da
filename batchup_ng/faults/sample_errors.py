"""Which sample an error is about, in words and as attributes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..error_context import described, own_source
from ..errors import BatchError
from ..sampling.plans.epoch import PlannedBatch
from ..sampling.plans.rows import one_row, take_rows, whole_samples


class NamesSamples(Protocol):
    """The part of a source that knows what a sample is called."""

    def sample_name(self, rows: Any) -> str | None: ...


def blamed(source: NamesSamples, planned: PlannedBatch, place: int, error: BaseException) -> BatchError:
    """Return the error that names one sample of a batch.

    Args:
        source: May know what the sample is called.
        planned: The batch.
        place: Which of its samples it is.
        error: What was raised for it.
    """
    rows = take_rows(planned.rows, np.array([place]))
    row, position = one_row(rows), planned.key.position(place)
    name = own_source(error)
    if name is None:
        name = _name_of(source, rows)
    told = {"row": row, "position": position, "source": name, **_batch_of(planned)}
    known = "" if name is None else f", source {name!r}"
    return described(error, f"row {row}, position {position}{known}", _when_in_words(planned), told)


def unblamed(planned: PlannedBatch, error: BaseException) -> BatchError:
    """Return the error of a batch of which no single sample is to blame."""
    where = f"in the whole batch, since no single row is to blame: rows {listed(planned.rows)}"
    return described(error, where, _when_in_words(planned), _batch_of(planned))


def _name_of(source: NamesSamples, rows: Any) -> str | None:
    try:
        return source.sample_name(rows)
    except Exception:
        return None  # the error itself matters more than a name that cannot be had


def _batch_of(planned: PlannedBatch) -> dict[str, Any]:
    # A copy of the rows, which are a part of a long block of them.
    rows = take_rows(planned.rows, np.arange(whole_samples(planned.rows)[1]))
    return {"rows": rows, "epoch": planned.key.epoch, "batch": planned.number}


def _when_in_words(planned: PlannedBatch) -> str:
    return f"epoch {planned.key.epoch}, batch {planned.number}"


def listed(rows: Any) -> str:
    """Return the rows of a batch in words."""
    if isinstance(rows, tuple):
        return f"({', '.join(listed(part) for part in rows)})"
    return np.array2string(np.asarray(rows), separator=", ", threshold=200, max_line_width=10**9).replace("\n", "")
