"""The tables of the study of file formats: a row per format, milliseconds per batch in the cells."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.formats import FORMATS
from benchmarks.plan import Result
from benchmarks.report.columns import middle, number, ratio, times
from benchmarks.report.pages import HOW_RATIOS, table

ORDERS = {"random": "at random", "blocks": "in blocks", "contiguous": "in order"}
"""Names of a workload's orders in the tables."""
OVERVIEW = [*((order, f"ours-{pool}") for order in ORDERS for pool in ("threads", "processes")),
            ("random", "torch-workers")]  # fmt: skip
"""Columns of the first table: the order and the variant."""


def tables(results: Sequence[Result]) -> list[str]:
    """Return the cost of a batch of each format: a table of our pools, then a table of all variants for each order."""
    formats: dict[str, dict[str, Result]] = {}
    for result in results:
        formats.setdefault(FORMATS[result.workload.detail["format"]].title, {})[result.workload.order] = result
    rows = []
    for title, orders in formats.items():
        gigabytes = next(iter(orders.values())).workload.detail["bytes"] * 1e-9
        cells = [milliseconds(orders.get(order), name) for order, name in OVERVIEW]
        rows.append([title, number(gigabytes), *cells])
    heads = [f"{ORDERS[order]}, {name.removeprefix('ours-')}" for order, name in OVERVIEW]
    parts = ["Milliseconds of a batch, median over the rounds:", table(["format", "GB", *heads], rows)]
    for order, how in ORDERS.items():
        chosen = {title: orders[order] for title, orders in formats.items() if order in orders}
        names = dict.fromkeys(name for result in chosen.values() for name in result.told)
        rows = []
        for title, result in chosen.items():
            batches = -(-result.workload.samples // result.workload.batch_size)
            rows.append([title, str(batches), *(compared(result, name) for name in names)])
        lead = f"Rows {how}; in brackets the rate as a multiple of that of the plain loop {HOW_RATIOS}:"
        parts += [lead, table(["format", "batches", *names], rows)] if names else []
    return parts


def milliseconds(result: Result | None, name: str) -> str:
    """Return the median of a variant."""
    return number(middle(result.told[name], result.part.reading)) if result and name in result.told else "–"


def compared(result: Result, name: str) -> str:
    """Return the median of a variant, with its rate as a multiple of the plain loop's."""
    plain = result.part.usual[0]
    if name == plain or not result.told.keys() >= {name, plain}:
        return milliseconds(result, name)
    rate = ratio(result.part.reading, result.told[plain], result.told[name])
    return f"{milliseconds(result, name)} ({times(rate)})"
