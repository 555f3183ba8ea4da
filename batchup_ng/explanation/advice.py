"""Changes of a loader that would help, each with the gain that the model predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..display import in_seconds
from . import model
from .evidence import Evidence
from .model import mean
from .pipeline import Pipeline
from .verdict import LARGE_BUFFER, LITTLE_LOCK, Verdict, is_tiny, slowed_by_workers

MOST = 3
"""Number of changes that are advised."""

LEAST_GAIN = 0.05
"""Share of the time between two batches below which a change is not advised."""

THREADS_BELOW = 0.5
"""Share of the time of a batch with the interpreter's lock, below which threads are advised."""

MUCH = 0.3
"""Share of the work for a batch, from which a change of a stage is advised."""

SLOW_TO_TAKE = 5.0
"""How many times longer than an array of its bytes a batch takes to receive, if its parts are pickled."""

SHARE_FOR_CACHE, SHARE_FOR_BUFFER = 0.5, 0.25
"""Shares of the free memory that rows in a cache, and batches ahead, may take to be advised."""


SIMULATED = "simulated with the measured times of each batch"


class Advice(NamedTuple):
    """A change and its predicted effect.

    Attributes:
        change: What to do, in words.
        code: What to write.
        seconds: Predicted time from one batch to the next, in seconds.
        gain: Share of the present time that the change saves, 0 to 1.
        how: How the prediction was computed.
        options: The changed options of the loader; empty if other code has to change.
    """

    change: str
    code: str
    seconds: float
    gain: float
    how: str
    options: Mapping[str, Any]


class Change(NamedTuple):
    """A change that is possible."""

    causes: tuple[str, ...]  # of verdicts that it answers
    change: str
    code: str  # "" if it follows from the options
    then: Pipeline | float  # or the time from one batch to the next
    how: str
    options: Mapping[str, Any]


def advised(evidence: Evidence, verdict: Verdict) -> list[Advice]:
    """Return the changes that help most; first those that answer the cause of the verdict."""
    if verdict.cause == "short_epochs":
        return []
    interval = evidence.interval
    modelled = max(model.pipeline(evidence).seconds_per_batch(), 1e-9)
    found: list[tuple[bool, Advice]] = []
    for each in [*_of_the_pool(evidence), *_of_the_buffer(evidence), *_of_the_work(evidence)]:
        then = each.then if isinstance(each.then, float) else interval * each.then.seconds_per_batch() / modelled
        given = ", ".join(f"{name}={value!r}" for name, value in each.options.items())
        advice = Advice(
            each.change, each.code or f"Loader(..., {given})", then, 1.0 - then / interval, each.how, each.options
        )
        if advice.gain >= LEAST_GAIN:
            found.append((verdict.cause in each.causes, advice))
    found.sort(key=lambda each: (not each[0], -each[1].gain))
    return [advice for _, advice in found[:MOST]]


def _of_the_pool(evidence: Evidence) -> Iterator[Change]:
    """Yield other pools and numbers of workers."""
    setting, need, alone = evidence.setting, model.needs(evidence), evidence.alone
    kind, now, cpus = setting.kind, setting.workers, setting.cpus
    lock = math.nan if alone is None else alone.lock
    if kind == "serial" and not is_tiny(evidence):
        if lock < THREADS_BELOW:
            yield Change(
                ("serial",), f"{cpus} threads", "", model.in_threads(evidence, cpus),
                f"simulated; a batch holds the interpreter's lock for {lock:.0%} of its time",
                {"pool": "threads", "workers": cpus},
            )  # fmt: skip
        yield Change(
            () if lock < THREADS_BELOW else ("serial",), f"{cpus} processes", "", model.in_processes(evidence, cpus),
            "simulated with the time to copy a batch", {"pool": "processes", "workers": cpus},
        )  # fmt: skip
    if kind != "serial" and is_tiny(evidence):
        yield Change(
            ("tiny",), "the serial pool, which hands nothing over", 'Loader(..., pool="serial"), or larger batches',
            model.serial_seconds(evidence),
            "the step and the time to make a batch", {"pool": "serial", "workers": None},
        )  # fmt: skip
    if kind == "threads" and not need.lock <= LITTLE_LOCK * need.cpu and slowed_by_workers(evidence) > 0:
        yield Change(
            ("lock_loop", "lock"), "processes, which leave the loop its interpreter", "",
            model.in_processes(evidence, min(now, cpus), mean(evidence.step) / (1 + slowed_by_workers(evidence))),
            "simulated with the steps while no worker ran", {"pool": "processes", "workers": min(now, cpus)},
        )  # fmt: skip
    elif kind == "threads" and need.lock > LITTLE_LOCK * need.cpu:
        yield Change(
            ("lock",), f"{cpus} processes, which run Python code at the same time", "",
            model.in_processes(evidence, cpus),
            f"simulated without a lock; a batch takes {in_seconds(need.cpu)} of CPU time",
            {"pool": "processes", "workers": cpus},
        )  # fmt: skip
    if kind == "processes" and lock < LITTLE_LOCK:
        yield Change(
            ("transfer", "receive"), f"{now} threads, to which nothing is sent", "", model.in_threads(evidence, now),
            f"simulated without sending; a batch holds the interpreter's lock for {lock:.0%} of its time",
            {"pool": "threads", "workers": now},
        )  # fmt: skip
    if kind != "serial":
        more, _ = model.best_workers(evidence, model.most_workers(evidence))
        if more > now:
            options = {"workers": more, **({"buffer": more + 1} if more >= setting.buffer_asked else {})}
            yield Change(
                ("workers",), f"{more} workers instead of {now}", "", model.with_workers(evidence, more), SIMULATED,
                options,
            )  # fmt: skip


def _of_the_buffer(evidence: Evidence) -> Iterator[Change]:
    """Yield larger buffers."""
    setting = evidence.setting
    larger = max(LARGE_BUFFER, 4 * setting.workers)
    if setting.kind == "serial":
        return
    if setting.buffer < setting.buffer_asked:
        size = f"{setting.buffer_asked * max(1, setting.batch_bytes) / 1e6:.0f} MB"
        yield Change(
            ("buffer",), f"memory for all {setting.buffer_asked} batches ahead", "",
            model.with_buffer(evidence, setting.buffer_asked), SIMULATED, {"buffer_bytes": size},
        )  # fmt: skip
    elif larger > setting.buffer and larger * setting.batch_bytes < SHARE_FOR_BUFFER * _free(evidence):
        yield Change(
            ("slow_samples",), f"a buffer of {larger} batches instead of {setting.buffer}", "",
            model.with_buffer(evidence, larger), SIMULATED, {"buffer": larger},
        )  # fmt: skip


def _of_the_work(evidence: Evidence) -> Iterator[Change]:
    """Yield changes that save work or move it."""
    setting, need = evidence.setting, model.needs(evidence)
    make = max(mean(evidence.make), 1e-9)
    of_workers = ("workers", "cpu", "lock", "serial", "contention")
    fits = setting.can_cache and setting.data_bytes < SHARE_FOR_CACHE * _free(evidence)
    if fits and mean(evidence.read) > MUCH * make:
        spared = evidence.read * (1 - model.CACHED_READ)
        yield Change(
            (*of_workers, "slow_samples"), "rows in memory from the second epoch on",
            "Loader(source.cache().map(...), ...)" if evidence.maps else "Loader(source.cache(), ...)",
            model.with_faster(evidence, spared, need.cpu * mean(spared) / make),
            f"simulated with {model.CACHED_READ:.0%} of the time to read", {},
        )  # fmt: skip
    for name, of_map in evidence.maps.items():
        if mean(of_map) > MUCH * make:
            yield Change(
                of_workers, f"the map {name} in half the time", f"python -m cProfile shows where {name} spends it",
                model.with_faster(evidence, of_map / 2, need.cpu * mean(of_map) / 2 / make), "simulated with that", {},
            )  # fmt: skip
    if setting.kind != "serial" and mean(evidence.converted) > LEAST_GAIN * evidence.interval:
        yield Change(
            ("conversion",), "what the view does to arrays, in a map of the source", "Loader(source.map(fn), ...)",
            model.with_conversion_in_workers(evidence), "simulated with its time in the workers", {},
        )  # fmt: skip
    if setting.kind == "processes" and mean(evidence.take) > SLOW_TO_TAKE * model.taken_seconds(evidence):
        yield Change(
            ("receive", "transfer"), "arrays in place of Python objects, which are pickled",
            "return np.array(...) in the map", model.with_arrays(evidence),
            "simulated with the time to copy arrays", {},
        )  # fmt: skip
    if setting.consumer_maps and setting.kind != "serial":
        yield Change(
            ("consumer_map",), f"the map {', '.join(setting.consumer_maps)} in the workers",
            "pool.parallel_data_source(source.map(fn)), not pool.parallel_data_source(source).map(fn)",
            model.with_maps_in_workers(evidence), "simulated with its time in the workers", {},
        )  # fmt: skip


def _free(evidence: Evidence) -> float:
    return 0.0 if math.isnan(evidence.setting.free_bytes) else evidence.setting.free_bytes
