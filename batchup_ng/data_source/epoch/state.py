"""What a saved state of an epoch says, with the checks that it was not damaged.

A state is a dict that JSON can hold, of 4 kB at most. It tells what was *handed out*, nothing about who made it, and
carries a digest of all that it says (BLAKE2b, RFC 7693), so that one in which anything was changed is refused.

What it says is the same on all ranks, but for the counts of what became of the samples. These stand in a list with a
digest of their own: torch's distributed checkpoint takes each entry of a dict from any rank that has it, and a list as
one entry.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import StateError
from .accounting import COUNTS

FORMAT = "batchup_ng epoch"
VERSION = 2
"""Version of the format; one that is newer than the library is refused."""

CANNOT = (
    "this source only streams, so that its epoch cannot be entered in the middle; use a source with random access, or "
    "give IteratorDataSource an iterator that has state_dict() and load_state_dict() (with nothing around it but maps, "
    "and no drop_last=, which reads ahead)"
)
"""Why an epoch of a stream cannot be saved or resumed."""


@dataclasses.dataclass(frozen=True)
class SavedEpoch:
    """How far an epoch is."""

    source: str  # digest of the fingerprint of the source
    told: str  # what the source looked like, in words, for an error
    order: str  # "in order", "seed", "stream", or "blocks" and which
    seed: int  # of the order and of the maps' randomness
    epoch: int
    batch_size: int
    drop_last: bool
    world: int  # how many ranks shared the epoch
    samples: int  # that all ranks together have handed out, failed ones included
    batches: int  # the same in batches, of a world of one
    counts: dict[str, int]  # how many samples this rank has planned, delivered, failed, replaced
    inner: Any = None  # state of the user's own iterator of a stream


def as_state(saved: SavedEpoch) -> dict[str, Any]:
    """Return the state that says what `saved` says; refuse one of the user's own iterator that JSON cannot hold."""
    body = {"format": FORMAT, "version": VERSION, **vars(saved)}
    named = body.pop("counts")
    counts = [named[name] for name in COUNTS]
    try:
        body = _plain(body)
    except (TypeError, ValueError) as error:
        raise StateError(f"the state of this stream's own iterator cannot be written as JSON: {error}") from error
    own = digest(body)
    return {**body, "counts": [*counts, digest([own, *counts])], "digest": own}


def from_state(state: Any) -> SavedEpoch:
    """Return what a state says; refuse what is none, is of another version, or was damaged."""
    if not isinstance(state, Mapping):
        hint = "; load_state(path) reads a file" if isinstance(state, (str, os.PathLike)) else ""
        raise StateError(f"a state must be the dict that state_dict() returned, not a {type(state).__name__}{hint}")
    if type(state.get("format")) is not str or state["format"] != FORMAT:
        raise StateError(
            f"this is no state of a batch iterator: its 'format' is not {FORMAT!r}; pass what state_dict() returned, "
            f"and not what that was saved in"
        )
    try:
        body = _plain(dict(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(f"this state is damaged: {error}") from error
    if body.get("version") != VERSION:
        raise StateError(
            f"this state is of version {body.get('version')!r:.40} of the format, and this batchup_ng reads version "
            f"{VERSION}; use the release that wrote it"
        )
    found, counts = body.pop("digest", None), body.pop("counts", None)
    if not isinstance(counts, list) or len(counts) != len(COUNTS) + 1:
        raise StateError("this state is damaged: it does not tell what was delivered")
    own, (*numbers, of_counts) = digest(body), counts
    if found != own or of_counts != digest([own, *numbers]):
        raise StateError("this state is damaged: its digest is not that of what it says")
    del body["format"], body["version"]
    body["counts"] = dict(zip(COUNTS, numbers, strict=True))
    return SavedEpoch(**body)


def digest(body: Any) -> str:
    """Return the digest of what JSON can hold, numbers of NumPy's being as good as Python's: 32 hexadecimal digits."""
    text = json.dumps(body, sort_keys=True, allow_nan=False, separators=(",", ":"), default=_as_json)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return `body` as it comes back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False, default=_as_json))
    return plain


def _as_json(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON has no {type(value).__name__}")
