"""The registry of peers.

Each module of this package has ``variants(kind)``, the tuple of its variants for one workload; a new peer is a new
module and one name below. The order here is the order of the tables.
"""

from __future__ import annotations

from benchmarks.peers import batchup_old, ours, plain, torch_loader
from benchmarks.peers.base import Variant

_MODULES = (plain, ours, torch_loader, batchup_old)


def all_variants(kind: str) -> tuple[Variant, ...]:
    """Every variant of a workload, installed or not."""
    return tuple(variant for module in _MODULES for variant in module.variants(kind))


def choose(kind: str, names: str | None) -> tuple[Variant, ...]:
    """The variants that a comma-separated list of families or variants names.

    Args:
        kind: The workload.
        names: For instance ``"ours,torch-workers"``; None means all of them.

    Raises:
        ValueError: A name is neither a family nor a variant of this workload.
    """
    known = all_variants(kind)
    if names is None:
        return known
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {variant.name for variant in known} - {variant.family for variant in known}
    if unknown or not wanted:
        choices = ", ".join(dict.fromkeys([v.family for v in known] + [v.name for v in known]))
        raise ValueError(f"peers of {kind!r} must be among {choices}; got {names!r}")
    return tuple(variant for variant in known if wanted & {variant.name, variant.family})
