"""The files of a pattern such as ``"train-{000..099}.tar"``."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Sequence

from ...errors import ArgumentError, SampleReadError
from ..packed_paths import path_text
from .remote import is_remote, matching

BRACES = re.compile(r"\{(\d+\.\.\d+|[^{}]*,[^{}]*)\}")


def shard_paths(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the files of one path or pattern, or of several, in their order. The files of a ``*`` are sorted.

    In a pattern, ``{000..099}`` stands for numbers with as many digits, ``{a,b}`` for either; ``*``, ``?`` and ``[]``
    are as in :mod:`glob`. A path that exists is used as it is. In a URL, ``*`` needs a store that can list files.

    >>> shard_paths("train-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar']

    Raises:
        SampleReadError: nothing matches a pattern, or one of those that braces stand for.
        ArgumentError: there are no paths.
        ArgumentTypeError: one of them is not a path.
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ArgumentError("paths must hold at least one path; it is empty: check where they were looked for")
    return [path for place, each in enumerate(several) for path in _matching(path_text(place, each))]


def _matching(text: str) -> list[str]:
    if not (_has_magic(text) or BRACES.search(text)) or os.path.exists(text):
        return [text]
    parts = BRACES.split(text)  # every second part stood in braces
    choices = [_choices(part) if number % 2 else [part] for number, part in enumerate(parts)]
    patterns = ["".join(chosen) for chosen in itertools.product(*choices)]
    found: list[str] = []
    for each in patterns:
        some = _listed(each) if _has_magic(each) else [each]
        if not some:
            of = "" if each == text else f", of {text!r}"
            raise SampleReadError(f"no file matches {each!r}{of}; check the folder and the pattern", text)
        found += some
    return found


def _has_magic(text: str) -> bool:
    return "*" in text if is_remote(text) else glob.has_magic(text)  # a URL may have its own ? and []


def _listed(pattern: str) -> list[str]:
    return matching(pattern) if is_remote(pattern) else sorted(glob.glob(pattern))


def _choices(braced: str) -> list[str]:
    if "," in braced:
        return braced.split(",")
    first, last = braced.split("..")
    padded = any(len(bound) > 1 and bound[0] == "0" for bound in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if int(first) <= int(last) else -1
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + step, step)]
