"""The peers: one file each, found by being here.

A module has ``VARIANTS``. The order of the tables is that of ``FAMILIES``, then of the names of modules.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from importlib import import_module

from benchmarks.peers.base import Variant

FAMILIES = ("plain", "ours", "torch", "tensorflow", "batchup")


def find(module: str, name: str) -> Variant:
    """The variant of that name, imported from its module; KeyError if there is none."""
    variants: tuple[Variant, ...] = import_module(module).VARIANTS
    return {variant.name: variant for variant in variants}[name]


def known(kind: str) -> tuple[Variant, ...]:
    """Every variant that delivers a workload, installed or not."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")
    variants = [variant for name in names for variant in import_module(f"{__name__}.{name}").VARIANTS]
    order = {family: place for place, family in enumerate(FAMILIES)}
    able = [variant for variant in variants if kind in (variant.workloads or [kind])]
    return tuple(sorted(able, key=lambda variant: order.get(variant.family, len(order))))


def choose(variants: Iterable[Variant], usual: Sequence[str], names: Sequence[str] | None) -> tuple[Variant, ...]:
    """Who takes part.

    Args:
        variants: Those that may.
        usual: Who takes part where none are named; empty for all that are usual by themselves.
        names: A variant's name selects it, a family's, also where a variant has the same, those of its variants that
            are usual here; None for the usual.
    """
    expected = [v for v in variants if (v.name in usual if usual else v.usual)]
    if names is None:
        return tuple(expected)
    named = [v for v in variants if v.name in names and v.name != v.family]
    return tuple(v for v in variants if v in named or (v in expected and not {v.name, v.family}.isdisjoint(names)))


def check_names(what: str, choices: Iterable[str], text: str) -> list[str]:
    """The names in a comma-separated list.

    Raises:
        ValueError: There is no name, or one that is not among the choices.
    """
    names, choices = [name.strip() for name in text.split(",") if name.strip()], dict.fromkeys(choices)
    if not names or not choices.keys() >= set(names):
        raise ValueError(f"{what} must be among {', '.join(choices)}; got {text!r}")
    return names
