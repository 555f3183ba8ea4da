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
def explain(
    batches: Any, *, trial: bool = True, try_it: bool = False, ranks: Any = False, timeout: float = 60.0
) -> Explanation:
    """Explain what the loop over `batches` waits for, and what would help: see :meth:`batchup_ng.Loader.explain`.

    Args:
        batches: A loader, or an iterator of batches that a pool makes, also of ``to_torch`` and other adapters.
        trial: As for a loader.
        try_it: As for a loader.
        ranks: As for a loader.
        timeout: As for a loader.

    Raises:
        ArgumentError: fewer than 8 batches were measured, or no pool makes them; or `ranks` is True without
            ``torch.distributed``.
        ArgumentTypeError: `batches` or `ranks` is none of these.
        RankTimeout: another rank did not call this within `timeout` seconds.
    """
    if isinstance(batches, Loader):
        return batches.explain(trial=trial, try_it=try_it, ranks=ranks, timeout=timeout)
    inner = batches
    while inner is not None and not isinstance(inner, BatchIterator):
        inner = vars(inner).get("_iterator") if hasattr(inner, "__dict__") else None
    if inner is None:
        raise ArgumentTypeError(
            f"batches must be a Loader or an iterator of batches that a pool makes, not a {type(batches).__name__}; "
            f"pass what your loop iterates over"
        )
    node, options = inner.made_of
    return explained(node, options, trial, try_it, ranks, timeout)
