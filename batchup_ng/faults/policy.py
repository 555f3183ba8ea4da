"""The error policy: decides about samples that cannot be made."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from .blame import checked_types

ACTIONS = ("raise", "skip", "replace")
"""The actions for a sample that failed."""

FEW_SAMPLES = 100
"""Fewest samples that a rate is measured against, if the number of an epoch is unknown."""


@validation.known_options
@dataclasses.dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The action for a sample that cannot be made, and how many samples may fail.

    Attributes:
        action: ``"raise"``: raise a :class:`~batchup_ng.errors.BatchError` that names it. ``"skip"``: leave it out of
            its batch. A batch with no samples left is not handed out; if ranks share the epoch, and so must have
            equally many batches, it raises :class:`~batchup_ng.errors.TooManyErrors`. ``"replace"``: put another row of
            the same epoch in its place, a function of the seed, the epoch and the position.
        max_errors: How many samples of an epoch may fail; None for any number. Without this and `max_rate`, an epoch
            ends if all samples of its first batches fail, 100 or more.
        max_rate: The share of an epoch's samples that may fail, above 0 and at most 1. If the number of samples is
            unknown, the share counts against the samples handed out so far, or 100 if those are fewer. If ranks share
            the epoch, each rank counts its own errors and its own share of the samples for both limits.
        types: The exceptions that count as a sample's fault: a class, or a tuple or list of classes. Any other
            exception ends the epoch with any action. None, the default, is every exception but errors of the program:
            ``NameError``, ``AttributeError``, ``ImportError`` and ``MemoryError``. A map that does not take the columns
            of the batch, or returns no batch, ends the epoch in any case. A sample that ends its worker, or exceeds
            ``timeout=``, counts as bad in any case.
        retries: How often to make a whole failed batch again before its samples are read one by one. For storage that
            fails at times. The iterator counts and lists the batches that a retry made.

    Raises:
        ArgumentError: a value breaks a rule, or a limit or `types` is given with ``"raise"``, which raises the first
            error anyway.
        ArgumentTypeError: a value is of a wrong kind.

    >>> ErrorPolicy("skip", max_errors=10)
    ErrorPolicy(action='skip', max_errors=10, max_rate=None, types=None, retries=0)
    """

    action: str = "raise"
    _: dataclasses.KW_ONLY
    max_errors: int | None = None
    max_rate: float | None = None
    types: Any = None  # a tuple once it is checked
    retries: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.action, str):
            raise ArgumentTypeError(f"action must be one of {', '.join(map(repr, ACTIONS))}, not {self.action!r}")
        validation.one_of("action", self.action, ACTIONS)
        for name in ("max_errors", "retries"):
            value = getattr(self, name)
            if value is not None or name == "retries":
                object.__setattr__(self, name, validation.not_negative(name, value))
        if self.max_rate is not None:
            object.__setattr__(self, "max_rate", validation.number_between("max_rate", self.max_rate, 0.0, 1.0))
        if self.types is not None:
            object.__setattr__(self, "types", checked_types(self.types))
            if self.action == "raise":
                raise ArgumentError(
                    "types says which errors are skipped or replaced, and action='raise' raises any error; leave it "
                    "out, or pass action='skip'"
                )
        if self.action == "raise" and (self.max_errors is not None or self.max_rate is not None):
            raise ArgumentError(
                "max_errors and max_rate limit what is skipped or replaced, and action='raise' raises the first error; "
                "leave them out, or pass action='skip'"
            )

    def limit(self, n_samples: int | None, so_far: int) -> tuple[int, str]:
        """Return the number of samples that may fail, of `n_samples` or, if unknown, of `so_far`, with the rule."""
        limits = [(sys.maxsize, "")]
        if self.max_errors is not None:
            limits.append((self.max_errors, f"max_errors={self.max_errors}"))
        if self.max_rate is not None:
            samples = max(so_far, FEW_SAMPLES) if n_samples is None else n_samples
            limits.append((int(self.max_rate * samples), f"max_rate={self.max_rate:g} of {samples} samples"))
        return min(limits)


RAISE = ErrorPolicy()
"""The default policy."""


def error_policy(on_error: Any) -> ErrorPolicy:
    """Return the checked policy for ``on_error=``."""
    if isinstance(on_error, ErrorPolicy):
        return on_error
    if not isinstance(on_error, str):
        raise ArgumentTypeError(
            f"on_error must be {', '.join(map(repr, ACTIONS))} or an ErrorPolicy, not {on_error!r} of type "
            f"{type(on_error).__name__}"
        )
    action = validation.one_of("on_error", on_error, ACTIONS)
    return RAISE if action == "raise" else ErrorPolicy(action)
