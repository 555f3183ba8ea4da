"""Runs one planted bottleneck and follows its first advice: ``python -m benchmarks.bottlenecks.program NAME``.

It prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import batchup_ng as bu
from benchmarks.bottlenecks.planted import BATCH, PLANTED, Followed, Planted

LONGEST = 6.0
"""Seconds of an epoch after which the measurement of an advice ends."""


def main(name: str) -> None:
    """Run it, explain it, follow the advice, and print what came out."""
    planted = PLANTED[name]
    with neighbours(planted.beside):
        seconds, told = run(planted, planted.options, Followed())
        figures: dict[str, Any] = {
            "name": name, "causes": sorted(planted.causes), "cause": told.verdict.cause, "seconds": seconds,
            "confidence": told.verdict.confidence, "wait_share": told.wait_share, "screen": str(told),
        }  # fmt: skip
        if told.advice:
            first = told.advice[0]
            figures |= {"advice": first.change, "predicted": first.seconds}
            options, followed = followed_by(first, planted)
            if options is not None:
                figures["measured"], _ = run(planted, options, followed)
    print(json.dumps(figures))


def followed_by(advice: Any, planted: Planted) -> tuple[dict[str, Any] | None, Followed]:
    """Return the options of the loader, and other changes, that follow an advice; None if it is not known how."""
    if advice.options:
        changed = {**planted.options, **advice.options}
        return {key: value for key, value in changed.items() if value is not None}, Followed()
    words = {"half the time": "half", "rows in memory": "cached", "in place of Python objects": "arrays",
             "in a map of the source": "moved", "in the workers": "moved"}  # fmt: skip
    for part, change in words.items():
        if part in advice.change:
            return planted.options, Followed(**{change: True})
    return None, Followed()


def run(planted: Planted, options: dict[str, Any], followed: Followed) -> tuple[float, Any]:
    """Return the seconds from one batch to the next in the last epoch, and the explanation."""
    loop, seconds = planted.loop(), 0.0
    source = planted.source(followed)
    with contextlib.ExitStack() as stack:
        if planted.after_pool is None or followed.moved:
            loader = stack.enter_context(bu.Loader(source, BATCH, shuffle=1, **options))
            view: Any = loader if planted.view is None or followed.moved else loader.map(planted.view())
            epochs, explained = (lambda epoch: view), loader.explain
        else:
            pool = stack.enter_context(bu.WorkerThreadPool(options["workers"]))
            mapped = pool.parallel_data_source(source).map(planted.after_pool(), on=0)
            kept: list[Any] = []

            def epochs(epoch: int) -> Iterator[Any]:
                kept[:] = [mapped.batch_iterator(BATCH, shuffle=1, epoch=epoch)]
                return kept[0]

            def explained() -> Any:
                return bu.explain(kept[0])

        for epoch in range(planted.epochs):
            began, taken = time.perf_counter(), 0
            for batch in epochs(epoch):
                loop(batch)
                taken += 1
                if followed != Followed() and epoch == planted.epochs - 1 and time.perf_counter() - began > LONGEST:
                    break
            seconds = (time.perf_counter() - began) / taken
        return seconds, explained()


@contextlib.contextmanager
def neighbours(n: int) -> Iterator[None]:
    """Run `n` other programs that compute."""
    programs = [multiprocessing.get_context("spawn").Process(target=burn, daemon=True) for _ in range(n)]
    for program in programs:
        program.start()
    if programs:
        time.sleep(1.0)  # until they compute
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.join()


def burn() -> NoReturn:
    """Compute until the process is killed."""
    while True:
        pass


if __name__ == "__main__":
    main(sys.argv[1])
