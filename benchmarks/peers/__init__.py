"""The registry of peers.

Each module of this package has ``variants(kind)``, the tuple of its variants for one workload; a new peer is a new
module and one name below. The order here is the order of the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.peers import batchup_old, batchup_start, orders, ours, ours_start, plain, torch_loader, torch_start
from benchmarks.peers.base import Variant

LOADERS = (plain, ours, torch_loader, batchup_old)
"""Whose epochs are compared."""
STARTERS = (ours_start, torch_start, batchup_start)
"""Whose start is compared."""


def loaders(kind: str) -> tuple[Variant, ...]:
    """Every variant that delivers a workload, installed or not."""
    return tuple(variant for module in LOADERS for variant in module.variants(kind))


def starters(kind: str) -> tuple[Variant, ...]:
    """Every variant whose start can be watched on a workload, installed or not."""
    return tuple(variant for module in STARTERS for variant in module.variants(kind))


def orderers(kind: str) -> tuple[Variant, ...]:
    """Every variant that hands out row numbers alone, installed or not."""
    return orders.variants(kind)


def choose(known: Iterable[Variant], names: Sequence[str]) -> tuple[Variant, ...]:
    """Those of the variants whose own name or family's name is given, in their own order."""
    return tuple(variant for variant in known if {variant.name, variant.family} & set(names))


def check_names(known: Iterable[Variant], text: str) -> list[str]:
    """The names in a comma-separated list of families or variants.

    Args:
        known: Who may be named.
        text: For instance ``"ours,torch-workers"``.

    Raises:
        ValueError: There is no name, or one is neither a family nor a variant.
    """
    variants = list(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    choices = dict.fromkeys([v.family for v in variants] + [v.name for v in variants])
    if not names or not choices.keys() >= set(names):
        raise ValueError(f"peers must be among {', '.join(choices)}; got {text!r}")
    return names
