"""The measurements of loaders in the text format of OpenMetrics, which Prometheus reads.

The format is OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/): a family of samples begins with
its type, unit and meaning, the unit ends the name of the family, and the text ends with ``# EOF``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..loader import Loader

LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

OWN_LABELS = ("loader", "map", "quantile")
"""Names of labels that the text has itself."""

OF_A_MAP = "map_ms_mean/"
"""Begin of the names of measurements that end with the name of a map."""


class Family(NamedTuple):
    """A family of samples.

    Attributes:
        kind: ``counter``, ``gauge`` or ``summary``.
        unit: The unit that ends its name; "" for none.
        help: The meaning, in words.
        of: The measurement of each sample, by the value of the label ``quantile``; None for no such label.
        scale: Factor from the measurement to the unit.
    """

    kind: str
    unit: str
    help: str
    of: dict[str | None, str]
    scale: float = 1


def _plain(kind: str, of: str, help: str, unit: str = "") -> Family:
    return Family(kind, unit, help, {None: of})


def _mean(of: str, help: str) -> Family:
    return Family("gauge", "seconds", f"{help}, mean of the latest batches", {None: of}, 1e-3)


def _quantiles(of: str, help: str) -> Family:
    places: dict[str | None, str] = {"0.5": f"{of}_p50", "0.99": f"{of}_p99"}
    return Family("summary", "seconds", f"{help}, of the latest batches", places, 1e-3)


DURATIONS = {
    "wait": "Wait of the loop for a batch",
    "step": "Time of the loop between two batches",
    "make": "Time of a worker for a batch",
    "queue": "Time of a task until a worker began it",
    "transfer": "Time of a result until it arrived",
}
"""Measurements with percentiles, with their meaning."""

MEANS = {
    "cpu": "CPU time of a worker for a batch",
    "read": "Time to read and decode the rows of a batch",
    "packing": "Time to write a batch to shared memory",
}
"""Measurements without percentiles."""

FAMILIES = {
    "batches": _plain("counter", "batches", "Batches that the loop got"),
    "samples": _plain("counter", "samples", "Samples that the loop got"),
    "wait_seconds": _plain("counter", "wait_seconds", "Time that the loop waited for batches", "seconds"),
    "epoch": _plain("gauge", "epoch", "Number of the latest epoch"),
    "workers": _plain("gauge", "workers", "Tasks that the pool runs at once"),
    "batches_per_second": _plain("gauge", "batches_per_second", "Rate of the latest batches"),
    "samples_per_second": _plain("gauge", "samples_per_second", "Rate of the samples of the latest batches"),
    "wait_ratio": _plain("gauge", "wait_share", "Share of the time that the loop waited, of the latest", "ratio"),
    "busy_ratio": _plain("gauge", "busy_share", "Share of the time that workers made batches, of the latest", "ratio"),
    "ready_batches": _plain("gauge", "ready_mean", "Finished batches when the loop asked for one, mean", "batches"),
    **{f"batch_{name}_seconds": _quantiles(f"{name}_ms", help) for name, help in DURATIONS.items()},
    **{f"batch_{name}_mean_seconds": _mean(f"{name}_ms_mean", help) for name, help in (DURATIONS | MEANS).items()},
    "batch_map_mean_seconds": _mean(OF_A_MAP, "Time of the calls of a map for a batch"),
}
"""The families by name, without the prefix ``batchup_ng_``."""

KNOWN = {name for family in FAMILIES.values() for name in family.of.values()}


@validation.known_names({})
def openmetrics(loaders: Any, labels: Mapping[str, Any] | None = None) -> str:
    r"""Return the measurements of loaders in the text format of OpenMetrics, for Prometheus.

    A server sends the text, encoded as UTF-8, with the content type
    ``application/openmetrics-text; version=1.0.0; charset=utf-8``. Names begin with ``batchup_ng_``. Times are seconds,
    shares are ratios from 0 to 1. Counters end in ``_total``, and count from when the loader was made. The other
    figures are those of the latest 1,024 batches, as in :meth:`Loader.metrics`. A loader without measurements, such as
    one before its first epoch, has no samples.

    Args:
        loaders: A :class:`~batchup_ng.Loader`, or the dict of its :meth:`~batchup_ng.Loader.metrics`. For several, a
            dict of these by name: samples then have the label ``loader``, as in
            ``openmetrics({"train": train, "val": val})``.
        labels: Labels of each sample, by name. Values are converted to text.

    Raises:
        ArgumentError: a label has a name that OpenMetrics does not allow or that the text needs itself, or a dict has a
            figure that is none of ``metrics()``.
        ArgumentTypeError: `loaders` or `labels` is none of these.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader([np.arange(12)], 4, pool="serial") as loader:
    ...     for (x,) in loader:
    ...         pass
    ...     text = bu.openmetrics({"train": loader}, labels={"run": "a \"test\""})
    >>> print(*text.splitlines()[:3], text.splitlines()[-1], sep="\n")
    # TYPE batchup_ng_batches counter
    # HELP batchup_ng_batches Batches that the loop got
    batchup_ng_batches_total{run="a \"test\"",loader="train"} 3
    # EOF
    """
    given = _checked_labels(labels)
    told = [({**given, **own}, metrics) for own, metrics in _by_labels(loaders)]
    lines: list[str] = []
    for name, family in FAMILIES.items():
        samples = [line for of, metrics in told for line in _samples(f"batchup_ng_{name}", family, of, metrics)]
        if samples:
            lines.append(f"# TYPE batchup_ng_{name} {family.kind}")
            if family.unit:
                lines.append(f"# UNIT batchup_ng_{name} {family.unit}")
            lines.append(f"# HELP batchup_ng_{name} {family.help}")
            lines += samples
    return "\n".join([*lines, "# EOF\n"])


def _checked_labels(labels: Any) -> dict[str, str]:
    """Return the labels with their values as text."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise ArgumentTypeError(f"labels must be a dict of values by name, not {labels!r:.80}")
    for name in labels:
        if not isinstance(name, str) or LABEL.fullmatch(name) is None or name.startswith("__"):
            raise ArgumentError(
                f"labels must have names of letters, digits and '_' that begin with no digit or '__', and {name!r:.80} "
                f"is none; rename it"
            )
        if name in OWN_LABELS:
            raise ArgumentError(f"labels must not have the name {name!r}, which the text uses itself; rename it")
    return {name: str(value) for name, value in labels.items()}


def _by_labels(loaders: Any) -> Iterator[tuple[dict[str, str], Mapping[str, float]]]:
    """Yield the measurements of each loader with the labels that tell it from the others."""
    if isinstance(loaders, Mapping) and any(isinstance(each, (Loader, Mapping)) for each in loaders.values()):
        for name, each in loaders.items():
            if not isinstance(name, str):
                raise ArgumentTypeError(f"loaders must be a dict of loaders by name, and {name!r:.80} is no text")
            yield {"loader": name}, _metrics(each)
    else:
        yield {}, _metrics(loaders)


def _metrics(loader: Any) -> Mapping[str, float]:
    if isinstance(loader, Loader):
        return loader.metrics()
    if not isinstance(loader, Mapping):
        raise ArgumentTypeError(
            f"loaders must be a Loader, what its metrics() returned, or a dict of these by name, not a "
            f"{type(loader).__name__}"
        )
    for name, value in loader.items():
        if name not in KNOWN and not str(name).startswith(OF_A_MAP):
            raise ArgumentError(f"loaders must have figures of metrics() alone, and {name!r:.80} is none; leave it out")
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise ArgumentTypeError(f"loaders must have a number as {name!r:.80}, not {value!r:.80}")
    return loader


def _samples(name: str, family: Family, labels: dict[str, str], metrics: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of a family for one loader."""
    total = "_total" * (family.kind == "counter")
    for quantile, of in family.of.items():
        if of == OF_A_MAP:
            found = [({"map": each.removeprefix(OF_A_MAP)}, each) for each in metrics if each.startswith(OF_A_MAP)]
        else:
            found = [({} if quantile is None else {"quantile": quantile}, of)] if of in metrics else []
        for own, each in found:
            shown = ",".join(f'{key}="{_escaped(value)}"' for key, value in {**labels, **own}.items())
            yield f"{name}{total}{f'{{{shown}}}' if shown else ''} {_number(metrics[each], family.scale)}"


def _escaped(text: str) -> str:
    """Return the value of a label as it stands between quotes. Lone surrogates, which UTF-8 lacks, become escapes."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float, scale: float) -> str:
    number = float(value) * scale
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return "NaN" if math.isnan(number) else repr(number).removesuffix(".0")
