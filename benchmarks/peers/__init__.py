"""The peers: a file for each library or use in this folder.

A module has ``VARIANTS``. Tables list them in the order of ``FAMILIES``, then of module names.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from importlib import import_module

from benchmarks.peers.base import Variant

FAMILIES = ("plain", "ours", "torch", "tensorflow", "batchup")


def known(kind: str) -> tuple[Variant, ...]:
    """Return every variant that delivers a workload, installed or not."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")
    variants = [variant for name in names for variant in import_module(f"{__name__}.{name}").VARIANTS]
    order = {family: place for place, family in enumerate(FAMILIES)}
    able = [variant for variant in variants if kind in (variant.workloads or [kind])]
    return tuple(sorted(able, key=lambda variant: order.get(variant.family, len(order))))


def choose(variants: Iterable[Variant], usual: Sequence[str], names: Sequence[str] | None) -> tuple[Variant, ...]:
    """Return the variants that take part.

    Args:
        variants: All possible variants.
        usual: Names of the variants that take part if none are named; empty for all with ``usual`` set.
        names: Names of variants and families. A family, also if a variant has its name, selects its usual variants.
            None for the usual variants.
    """
    expected = [v for v in variants if (v.name in usual if usual else v.usual)]
    if names is None:
        return tuple(expected)
    named = [v for v in variants if v.name in names and v.name != v.family]
    return tuple(v for v in variants if v in named or (v in expected and not {v.name, v.family}.isdisjoint(names)))
