"""The saved state of an epoch, and the checks that it is not damaged.

A state is a dict that can be written as JSON, of 4 kB at most. It records the samples *handed out*, and nothing about
the pool. It includes a digest of its content (BLAKE2b, RFC 7693), so the library refuses a state with any change.

The entries are the same on all ranks, except the counts of the samples' outcomes. These are in a list with its own
digest, because torch's distributed checkpoint takes each entry of a dict from any rank that has it, and treats a list
as one entry.

The digest shows that nobody changed a state, not that its content makes sense. So each entry is also checked for its
type and range, and for consistency with the others.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ... import validation
from ...errors import StateError
from ...sampling.plans.shortened import Skipped
from .accounting import COUNTS

STATE_FORMAT = "batchup_ng epoch"
STATE_VERSION = 4
"""Version of the format. A newer version than this is refused."""

READ_VERSIONS = (2, 3, STATE_VERSION)
"""The versions that can be read. Version 2 has another list in an order by blocks. Version 4 added `parts`."""

LAST_POSITION = (1 << 63) - 1
"""The largest position or batch number: all positions are int64."""

OLD_ORDER = "old "
"""Prefix for an order by blocks of version 2. Its list has the pairs of all nodes, sorted, each once."""

ORDER_BY_BLOCKS = re.compile(r"blocks \[(\(N, N(, N, N)?\)(, (?=\()|(?=\])))+\]".replace("N", r"[1-9]\d{0,17}"))
"""An order by blocks: the block and window of each node that has an order, and if there are groups, their number and
the batch size. One of them stands for all if they are equal."""

MAX_DESCRIPTION = 200
"""Maximum number of characters of a state that describe the source. Each may take 12 bytes as JSON."""

NO_STATE_OF_STREAM = (
    "this source only streams, so that its epoch cannot be entered in the middle; use a source with random access, or "
    "give IteratorDataSource an iterator that has state_dict() and load_state_dict() (with nothing around it but maps, "
    "and no drop_last=, which reads ahead)"
)
"""Reason why an epoch of a stream cannot be saved or resumed."""


STEPS = "steps"
"""The entry of a loader's state that has the steps of its loop."""


class Identity(NamedTuple):
    """A source with its fingerprint: the digest of it, and the beginning of its text."""

    source: str
    told: str
    node: Any
    fingerprint: Any


@dataclasses.dataclass(frozen=True)
class SavedEpoch:
    """The progress of an epoch."""

    source: str  # digest of the fingerprint of the source
    told: str  # description of the source, for an error
    order: str  # "in order", "seed", "stream", or "blocks" with their list
    seed: int  # of the order and of the maps' randomness
    epoch: int
    batch_size: int
    drop_last: bool
    world: int  # number of ranks that shared the epoch
    samples: int  # handed out by all ranks together, including failed ones
    batches: int  # the same in batches, of a world of one
    counts: dict[str, int]  # samples planned, delivered, failed and replaced on this rank
    inner: Any = None  # state of a stream: of the user's own iterator, and the samples that each map received
    parts: Any = None  # weights, rows and history of the source: see `described.py` and `history.py`; None: not known


class SavedSteps(NamedTuple):
    """The steps in a state: their number, the digest that names the run, the batches left out."""

    step: int
    run: str
    skipped: tuple[Skipped, ...]


def as_state(saved: SavedEpoch) -> dict[str, Any]:
    """Return `saved` as a state. Refuse a state of the user's own iterator that cannot be written as JSON."""
    body = {"format": STATE_FORMAT, "version": STATE_VERSION, **vars(saved)}
    named = body.pop("counts")
    counts = [named[name] for name in COUNTS]
    try:
        body = _plain(body)
    except (TypeError, ValueError) as error:
        raise StateError(f"the state of this stream's own iterator cannot be written as JSON: {error}") from error
    own = digest(body)
    return {**body, "counts": [*counts, digest([own, *counts])], "digest": own}


def from_state(state: Any) -> SavedEpoch:
    """Return the content of a state. Refuse anything else, another version, and a damaged state.

    A content is returned as it is.
    """
    if isinstance(state, SavedEpoch):
        return state
    if not isinstance(state, Mapping):
        hint = "; load_state(path) reads a file" if isinstance(state, (str, os.PathLike)) else ""
        raise StateError(f"a state must be the dict that state_dict() returned, not a {type(state).__name__}{hint}")
    if type(state.get("format")) is not str or state["format"] != STATE_FORMAT:
        raise StateError(
            f"this is no state of a batch iterator: its 'format' is not {STATE_FORMAT!r}; pass what state_dict() "
            f"returned, and not what that was saved in"
        )
    try:
        body = _plain(dict(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(f"this state is damaged: {error}") from error
    if type(body.get("version")) is not int or body["version"] not in READ_VERSIONS:
        raise StateError(
            f"this state is of version {body.get('version')!r:.40} of the format, and this batchup_ng reads versions "
            f"{READ_VERSIONS[0]} to {STATE_VERSION}; use the release that wrote it"
        )
    found, counts = body.pop("digest", None), body.pop("counts", None)
    if not isinstance(counts, list) or len(counts) != len(COUNTS) + 1:
        raise StateError("this state is damaged: it does not tell what was delivered")
    own, (*numbers, of_counts) = digest(body), counts
    if found != own or of_counts != digest([own, *numbers]):
        raise StateError("this state is damaged: its digest is not that of what it says")
    version = body.pop("version")
    del body["format"]
    body["counts"] = dict(zip(COUNTS, numbers, strict=True))
    if version < STATE_VERSION and "parts" not in body:
        body["parts"] = None
    if body.keys() != {each.name for each in dataclasses.fields(SavedEpoch)}:
        raise StateError("this state is damaged: an entry is missing, or there is one more")
    saved = SavedEpoch(**body)
    wrong = next((name for name, is_good in _checks(saved) if not is_good), None)
    if wrong is not None:
        raise StateError(f"this state is damaged: its {wrong!r} cannot be {vars(saved)[wrong]!r:.100}")
    if version == READ_VERSIONS[0] and saved.order.startswith("blocks"):
        return dataclasses.replace(saved, order=OLD_ORDER + saved.order)
    return saved


def _checks(saved: SavedEpoch) -> Iterator[tuple[str, bool]]:
    """Yield the name of each entry of a state, and whether its type and range are right."""
    for name in ("source", "told"):
        yield name, type(getattr(saved, name)) is str
    order = saved.order
    by_blocks = type(order) is str and ORDER_BY_BLOCKS.fullmatch(order) is not None
    yield "order", by_blocks or order in ("in order", "seed", "stream")
    for name, least in {"seed": 0, "epoch": 0, "batch_size": 1, "world": 1}.items():
        yield name, is_whole(getattr(saved, name), least, math.inf)
    yield "drop_last", type(saved.drop_last) is bool
    for name in ("samples", "batches"):
        yield name, is_whole(getattr(saved, name))
    yield "parts", saved.parts is None or (type(saved.parts) is dict and order != "stream")
    planned, delivered, failed, replaced = (saved.counts[name] for name in COUNTS)
    yield "counts", all(map(is_whole, saved.counts.values()))
    yield "counts", delivered + failed == planned and replaced <= delivered
    if order == "stream":
        yield "inner", _is_stream_state(saved.inner)
        yield "samples", saved.batches > 0 or saved.samples == 0
    else:
        yield "inner", saved.inner is None
        yield "samples", saved.samples == LAST_POSITION or -(-saved.samples // saved.batch_size) == saved.batches


def is_whole(value: Any, least: int = 0, most: float = LAST_POSITION) -> bool:
    """Return whether a value is a plain int from `least` to `most`."""
    return type(value) is int and least <= value <= most


def _is_stream_state(inner: Any) -> bool:
    """Return whether this is the state of a stream: the iterator's state, and the samples that each map received."""
    if not isinstance(inner, dict) or inner.keys() != {"iterator", "counted"} or not isinstance(inner["counted"], list):
        return False
    pairs = inner["counted"]
    if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], list) for pair in pairs):
        return False
    return all(is_whole(n, 0, LAST_POSITION // 2) and all(map(is_whole, path)) for path, n in pairs)


def blocks_in(order: str) -> list[tuple[int, ...]]:
    """Return the numbers listed in an order by blocks."""
    return [tuple(map(int, numbers.split(", "))) for numbers in re.findall(r"\(([\d, ]+)\)", order)]


def digest(body: Any) -> str:
    """Return the digest of a JSON value as 32 hexadecimal digits. NumPy numbers count as Python's."""
    text = json.dumps(body, sort_keys=True, allow_nan=False, separators=(",", ":"), default=_as_json)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def identity(node: Any) -> Identity:
    """Return the identity of a source. Its fingerprint is made once."""
    fingerprint = node.fingerprint()
    text = str(fingerprint)
    try:
        own = digest(fingerprint)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"fingerprint() of a source or sampler must return strings, numbers and lists, so that states can be "
            f"told from those of others: {error}"
        ) from error
    told = text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]}... #{own[:6]}"
    return Identity(own, told, node, fingerprint)


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return `body` as it is after a round trip through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False, default=_as_json))
    return plain


def _as_json(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON has no {type(value).__name__}")


def loader_state(state: Any, seed_drawn: bool) -> tuple[int, int | None, Any]:
    """Return the number of the epoch, the seed that was drawn if there is one, and the state of the epoch.

    Raises:
        StateError: `state` is no state of a loader, or has no drawn seed although the loader has drawn one.
    """
    try:
        epoch, seed, epoch_state = (state[name] for name in ("epoch", "seed", "batches"))
        number = validation.not_negative("epoch", epoch)
        drawn = validation.not_negative("seed", seed) if seed_drawn or seed is not None else None
    except (TypeError, KeyError, IndexError, ValueError) as error:
        what = "a state of a loader must be the dict that its state_dict() returned"
        why = ", with shuffle=True as here" if seed_drawn and isinstance(state, dict) else ""
        raise StateError(f"{what}{why}, not {state!r:.200}") from error
    return number, drawn, epoch_state


def saved_steps(state: Mapping[str, Any]) -> SavedSteps | None:
    """Return the steps in the state of a loader; None if it counted none.

    Raises:
        StateError: they are damaged.
    """
    found = state.get(STEPS)
    if found is None:
        return None
    try:
        step, run = found["step"], found["run"]
        skipped = tuple([Skipped(*each) for each in found["skipped"]])
        good = is_whole(step) and type(run) is str and all(map(is_whole, sum(skipped, ())))
    except (TypeError, KeyError):
        good = False
    if not good or any(each.first >= each.end for each in skipped):
        raise StateError(f"this state is damaged: its {STEPS!r} cannot be {found!r:.200}")
    return SavedSteps(step, run, skipped)
