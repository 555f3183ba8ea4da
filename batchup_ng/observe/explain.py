"""Explains what a loop over batches waits for, for everything that gives batches of a pool."""

from __future__ import annotations

from typing import Any

from .. import validation
from ..data_source.epoch.iterator import BatchIterator
from ..errors import ArgumentTypeError
from ..explanation.explanation import Explanation
from ..loader import Loader
from ..work_pool.explaining import explained


@validation.known_names({})
def explain(batches: Any, *, trial: bool = True, try_it: bool = False) -> Explanation:
    """Explain what the loop over `batches` waits for, and what would help: see :meth:`batchup_ng.Loader.explain`.

    Args:
        batches: A loader, or an iterator of batches that a pool makes, also of ``to_torch`` and other adapters.
        trial: As for a loader.
        try_it: As for a loader.

    Raises:
        ArgumentError: fewer than 8 batches were measured, or no pool makes them.
        ArgumentTypeError: `batches` is neither of these.
    """
    if isinstance(batches, Loader):
        return batches.explain(trial=trial, try_it=try_it)
    inner = batches
    while inner is not None and not isinstance(inner, BatchIterator):
        inner = vars(inner).get("_iterator") if hasattr(inner, "__dict__") else None
    if inner is None:
        raise ArgumentTypeError(
            f"batches must be a Loader or an iterator of batches that a pool makes, not a {type(batches).__name__}; "
            f"pass what your loop iterates over"
        )
    node, options = inner.made_of
    return explained(node, options, trial, try_it)
