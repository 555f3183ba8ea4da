"""The file of a ledger: a text in JSON, one segment a line, which is replaced as a whole.

A segment is a part of a run whose steps are found by arithmetic: from a step on, with these options of the epochs. The
segments of an attempt follow each other. Another attempt begins when a run is resumed. Each attempt may begin before
the end of the attempt before it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from ..data_source.epoch.state import LAST_POSITION, is_whole
from ..errors import LedgerError
from ..sampling.plans.epoch import UNEVEN_OPTIONS

LEDGER_FORMAT = "batchup_ng ledger"
LEDGER_VERSION = 1

MAX_BYTES = 1 << 28
"""Maximum size of a file in bytes: some 500,000 segments."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of an attempt.

    Attributes:
        attempt: Number of the attempt, from 1 on.
        step: The first step.
        end: The number of steps before its end, or None if the end is not known.
        epoch, batch: The epoch of the first step, and the number of the batch in it.
        samples, batches: How far that epoch was, as in a state.
        per_epoch: Batches of that epoch and of all that follow; None if the segment is a part of one epoch.
        source: Number of the source in the ledger.
        shuffle: None, a seed, or ``["blocks", seed]`` with the number of groups if the user chose it.
    """

    attempt: int
    step: int
    end: int | None
    epoch: int
    batch: int
    samples: int
    batches: int
    per_epoch: int | None
    source: int
    world: int
    batch_size: int
    shuffle: Any
    drop_last: bool
    uneven: str
    pad_mask: bool
    order_blocks: list[list[int]] | None
    skipped: list[list[int]]

    def same_options(self, other: Segment) -> bool:
        """Return whether another segment has the same options."""
        return all(getattr(self, name) == getattr(other, name) for name in OPTIONS)


OPTIONS = tuple([each.name for each in dataclasses.fields(Segment)][8:])
"""The options of a segment, which do not depend on its place."""


@dataclasses.dataclass
class Content:
    """The content of a ledger.

    Attributes:
        run: The digest of the source and the seed at the begin of the run.
        sources: The facts about each source: see :func:`.graph_facts.facts_of`.
        attempts: For each attempt the versions of Python and of libraries, and the time of its beginning.
        segments: All segments, in the order of their begin.
    """

    run: str
    sources: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    attempts: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    segments: list[Segment] = dataclasses.field(default_factory=list)

    def text(self) -> str:
        """Return the text of the file."""
        head = {"format": LEDGER_FORMAT, "version": LEDGER_VERSION, "run": self.run}
        parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        lists = {"sources": self.sources, "attempts": self.attempts, "segments": [vars(each) for each in self.segments]}
        for name, entries in lists.items():
            lines = ",\n".join(f" {json.dumps(entry)}" for entry in entries)
            parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
        return "{" + ",\n".join(parts) + "}\n"


def read_text(path: str | os.PathLike[str]) -> str | None:
    """Return the text of a ledger's file, or None if there is no file.

    Raises:
        OSError: the file cannot be read.
        LedgerError: it is no regular file, or too large.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for a writer
            raise LedgerError(f"{os.fspath(path)!r} must be a regular file, not a pipe, a folder or a device")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(raw) > MAX_BYTES:
        raise LedgerError(f"{os.fspath(path)!r} holds more than {MAX_BYTES} bytes, as no ledger does")
    return raw.decode("utf-8", "replace")


def content_of(text: str, path: str | os.PathLike[str]) -> Content:
    """Return the content of the text of a ledger. `path` is for an error.

    Raises:
        LedgerError: the text is no ledger, of another version, or damaged.
    """
    name = os.fspath(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LedgerError(
            f"{name!r} is damaged, for example cut by a full disk or a copy that broke off: {error}; take a copy of it "
            f"that is whole, or move it away and begin another"
        ) from error
    if not isinstance(found, dict) or found.get("format") != LEDGER_FORMAT:
        raise LedgerError(f"{name!r} is no ledger: its 'format' is not {LEDGER_FORMAT!r}; pass another path")
    if found.get("version") != LEDGER_VERSION:
        raise LedgerError(
            f"{name!r} is of version {found.get('version')!r:.40} of the format, and this batchup_ng reads version "
            f"{LEDGER_VERSION}; use the release that wrote it"
        )
    parts: list[Any] = [found.get(part) for part in ("sources", "attempts", "segments")]
    if type(found.get("run")) is not str or not all(map(_is_list_of_dicts, parts)):
        raise LedgerError(f"{name!r} is damaged: it has no list of sources, attempts and segments")
    sources, attempts, listed = parts
    for number, source in enumerate(sources):
        if not _is_source(source):
            raise LedgerError(f"{name!r} is damaged: its source {number} is {source!r:.200}")
    segments = []
    for number, entry in enumerate(listed):
        wrong = _wrong(entry, len(sources), len(attempts))
        if wrong:
            value = entry.get(wrong)
            raise LedgerError(f"{name!r} is damaged: in segment {number}, {wrong!r} cannot be {value!r:.100}")
        segments.append(Segment(**entry))
    return Content(found["run"], sources, attempts, segments)


def _is_list_of_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _is_source(source: Mapping[str, Any]) -> bool:
    if source.keys() != {"digest", "graph", "order", "draws"} or type(source["digest"]) is not str:
        return False
    order, graph, draws = source["order"], source["graph"], source["draws"]
    good = isinstance(graph, list) and all(type(each) is str for each in graph) and isinstance(draws, list)
    good_order = order is None or (
        isinstance(order, list) and len(order) == 2 and type(order[0]) is str and isinstance(order[1], dict)
    )
    return good and good_order and all(isinstance(each, list) and len(each) == 3 for each in draws)


def _wrong(entry: Mapping[str, Any], n_sources: int, n_attempts: int) -> str | None:
    """Return the name of an entry of a segment that is missing, too much, or of no valid type or range."""
    names = {each.name for each in dataclasses.fields(Segment)}
    if entry.keys() != names:
        return min(entry.keys() ^ names)
    limits = {"attempt": (1, n_attempts), "source": (0, n_sources - 1), "world": (1, LAST_POSITION)}
    limits["batch_size"] = (1, LAST_POSITION)
    good = {name: is_whole(entry[name], *limits.get(name, ())) for name in (
        "attempt", "step", "epoch", "batch", "samples", "batches", "source", "world", "batch_size")}  # fmt: skip
    good |= {name: entry[name] is None or is_whole(entry[name]) for name in ("end", "per_epoch")}
    good |= {name: type(entry[name]) is bool for name in ("drop_last", "pad_mask")}
    good["uneven"] = entry["uneven"] in UNEVEN_OPTIONS
    shuffle, blocks = entry["shuffle"], entry["order_blocks"]
    by_blocks = isinstance(shuffle, list) and len(shuffle) in (2, 3) and shuffle[0] == "blocks"
    seeds = shuffle[1:] if by_blocks else [] if shuffle is None else [shuffle]
    good["shuffle"] = all(is_whole(each, 0, float("inf")) for each in seeds)
    good["order_blocks"] = _is_table(blocks, 4, 0) if by_blocks else blocks is None
    good["skipped"] = _is_table(entry["skipped"], 3, 0)
    return next((name for name, is_good in good.items() if not is_good), None)


def _is_table(value: Any, width: int, least: int) -> bool:
    """Return whether a value is a list of lists of `width` numbers."""
    rows = isinstance(value, list) and all(isinstance(each, list) and len(each) == width for each in value)
    return rows and all(is_whole(number, least) for each in value for number in each)
