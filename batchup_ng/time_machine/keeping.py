"""The ledger of a run: the first step of each set of options of the loader."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import platform
import sys
from typing import Any

import numpy as np

from .. import validation
from .._version import __version__
from ..data_source.epoch_options import EpochOptions
from ..errors import ArgumentError, ArgumentTypeError, LedgerError
from ..loader import Loader
from ..replaced_file import replace_text
from ..sampling.plans.epoch import START, BatchPlan
from ..sampling.plans.shortened import ShortenedPlan
from ..work_pool.steps import steps_of
from .finding import Taken, attempts_at, checked_rank, never_taken, options_of, plan_at, read_ledger, segment_of
from .graph_facts import difference, facts_of
from .ledger_file import Content, Segment, content_of, read_text

LIBRARIES = (
    "PIL", "cv2", "h5py", "jax", "keras", "lmdb", "pandas", "pyarrow", "ray", "scipy", "sklearn", "skimage",
    "tensorflow", "tokenizers", "torch", "torchvision", "albumentations", "zarr",
)  # fmt: skip
"""Libraries whose versions a ledger keeps, if the program has imported them."""

NOT_OF_ORDER = {"shuffle", "generator", "own", "counted", "policy", "history"}
"""Options of an epoch that its order does not depend on, once it is open, or that are checked before."""


@validation.known_names({})
def ledger(loader: Loader, path: str | os.PathLike[str]) -> Loader:
    """Keep a ledger of a run in a file, to find the rows of any step and to make its batch again.

    A step is one batch on every rank, counted from 0 over all epochs. The file has the first step of each setting:
    seed, source, world and batch size. It is written when an epoch begins and these or the count of steps have
    changed: at the start, after a resume, after a loop that left an epoch early. All ranks make this call; only rank 0
    writes. Saved states then contain the number of steps, so a resumed run goes on with the ledger.

    ``loader.replay(step)`` makes a batch again. ``python -m batchup_ng who PATH --step N`` lists its rows.

    Args:
        loader: The loader of the training loop, before its loop.
        path: The file. If it exists, the run goes on in it, as another attempt.

    Returns:
        The loader.

    Raises:
        ArgumentError: the source only streams, a ``RandomState`` draws the order, or a loop is under way.
        LedgerError: the file is no ledger, or damaged. The first epoch raises it if the ledger is of another run.
        OSError: the file cannot be read. The first epoch raises it if the file cannot be written.
    """
    if not isinstance(loader, Loader):
        raise ArgumentTypeError(f"loader must be a batchup_ng.Loader, not {loader!r:.80}; pass the loader of the loop")
    shared = loader._shared
    steps = steps_of(loader)
    if shared.inner is not None and not shared.inner.over:
        raise ArgumentError(
            "loader must have no loop under way, for the ledger would lack its beginning; call ledger before the loop"
        )
    steps.ledger = Ledger(path)
    return loader


class Ledger:
    """The ledger of a loader. Rank 0 writes its file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        text = read_text(self.path)
        if text is not None:
            content_of(text, path)  # refuses another file before the loop
        self._attempt = 0  # the present one; 0 before the first epoch
        self._text: str | None = None  # of the file as this ledger wrote it
        self._content = Content("")
        self._facts: tuple[Any, dict[str, Any]] | None = None  # of the source's node

    def begins(self, loader: Loader, inner: Any, step: int) -> None:
        """Note that an epoch begins at `step`, unless the file says that already.

        Raises:
            LedgerError: the ledger is of another run, or another loader writes to it.
            OSError: the file cannot be written.
        """
        node, options = loader._shared.source.node, inner.made_of[1]
        if options.shard.rank != 0:
            return
        steps = steps_of(loader)
        content, attempt, left = self._content, self._attempt, steps.left
        if not attempt:
            content = self._opened(loader, node, options)
        if not attempt or (left is not None and left != step):
            if attempt and left is not None:
                content = _ended(content, left)
            began = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            content = dataclasses.replace(content, attempts=[*content.attempts, {"began": began, **_versions()}])
            attempt = len(content.attempts)
        facts = self._facts_of(node)
        sources = content.sources if facts in content.sources else [*content.sources, facts]
        segment = _segment(options, inner.plan, step, sources.index(facts), attempt)
        last = content.segments[-1] if content.segments else None
        if last is None or last.attempt != attempt or not _covers(last, segment):
            self._write(dataclasses.replace(content, sources=sources, segments=[*content.segments, segment]))
        self._attempt, steps.left = attempt, None

    def ends(self, step: int | None) -> None:
        """Note that the loader closes at `step`. If that fails, the ledger stays as if the program had ended."""
        if self._attempt and step is not None and self._content.segments[-1].end != step:
            with contextlib.suppress(OSError, LedgerError):
                self._write(_ended(self._content, step))

    def found(self, loader: Loader, step: int, rank: int | None, attempt: int | None) -> tuple[EpochOptions, list[int]]:
        """Return the options of the epoch of a step, and in a list the number of its batch.

        Raises:
            LedgerError: the step was never taken, or by another source or fewer ranks.
        """
        validation.not_negative("step", step)
        content, node = read_ledger(self.path), loader._with_plan()
        own, facts = loader._options_of(loader.epoch).shard.rank, facts_of(loader._shared.source.node)
        for taken in attempts_at(content, step, attempt):
            check_source(self.path, content, taken, facts)
            chosen = checked_rank(taken.segment, rank, own, "rank=")
            if plan_at(node, taken, chosen) is not None:
                return options_of(taken, chosen), [taken.number]
        raise never_taken(self.path, content, step)

    def _opened(self, loader: Loader, node: Any, options: EpochOptions) -> Content:
        """Return the content of the file for this run, before its first epoch here."""
        run = steps_of(loader).named(loader)
        self._text = read_text(self.path)
        if self._text is None:
            return Content(run)
        content = content_of(self._text, self.path)
        if content.run == run:
            return content
        facts, why = self._facts_of(node), "it has no steps"
        if content.segments:
            last = content.segments[-1]
            then = content.sources[last.source]
            if then["digest"] != facts["digest"]:
                why = f"the source differs: {difference(then, facts)}"
            else:
                own = options.seed if options.shuffled else None
                why = f"its shuffle= is {last.shuffle!r}, and this one's is {own!r}"
        raise LedgerError(
            f"{self.path!r} is the ledger of another run, and {why}; give each loader and each run a path of its own, "
            f"or load a state of that run into this loader first"
        )

    def _facts_of(self, node: Any) -> dict[str, Any]:
        if self._facts is None or self._facts[0] is not node:
            self._facts = node, facts_of(node)
        return self._facts[1]

    def _write(self, content: Content) -> None:
        """Write the file, unless another program has written to it."""
        if read_text(self.path) not in (None, self._text):
            raise LedgerError(
                f"another loader has written to the ledger {self.path!r} while this one ran; give each its own path. "
                f"If several processes train together, pass shard= to their loaders, for only rank 0 writes"
            )
        text = content.text()
        replace_text(self.path, text)
        self._content, self._text = content, text


def check_source(path: str, content: Content, taken: Taken, facts: dict[str, Any]) -> None:
    """Raise an error unless these are the facts about the source of a step."""
    then = content.sources[taken.segment.source]
    if then["digest"] != facts["digest"]:
        raise LedgerError(
            f"this source is not the one that {path!r} names for attempt {taken.segment.attempt}: "
            f"{difference(then, facts)}; make the source as it was"
        )


def _ended(content: Content, step: int) -> Content:
    last = dataclasses.replace(content.segments[-1], end=step)
    return dataclasses.replace(content, segments=[*content.segments[:-1], last])


def _segment(options: EpochOptions, plan: BatchPlan, step: int, source: int, attempt: int) -> Segment:
    if options.history is not None and options.history.at(options.epoch) is not None:
        raise LedgerError(
            "a ledger cannot keep an epoch with weights of set_weights, or one that goes on with adopt=; leave the "
            "ledger out until that epoch has ended, and pass weights=bu.steps(...) to mix in place of set_weights"
        )
    plain = plan.in_samples and not isinstance(plan, ShortenedPlan) and options.reached == START
    whole = plain and 0 < plan.n_batches < float("inf")
    segment = segment_of(options, plan, step, source, attempt, whole)
    again = options_of(Taken(segment, options.epoch, plan.first, True), options.shard.rank)
    for name in {each.name for each in dataclasses.fields(EpochOptions)} - NOT_OF_ORDER:
        if getattr(again, name) != (own := getattr(options, name)):
            raise LedgerError(f"a ledger cannot keep {name}={own!r:.100} of this epoch; leave one out")
    return segment


def _covers(last: Segment, segment: Segment) -> bool:
    """Return whether `last` says already what `segment` does."""
    if last.end is not None or not last.same_options(segment):
        return False
    place = ("step", "epoch", "batch", "samples", "batches")
    if all(getattr(last, name) == getattr(segment, name) for name in place):
        return True
    if last.per_epoch is None or last.per_epoch != segment.per_epoch:
        return False
    later = segment.epoch - last.epoch
    return later > 0 and segment.step - last.step == later * last.per_epoch


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that the program uses."""
    found = {"python": platform.python_version(), "numpy": np.__version__, "batchup_ng": __version__}
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in LIBRARIES}
    return {**found, **{name: str(version) for name, version in versions.items() if version is not None}}
