"""Exclusion lists of sources of files: which paths a list has, and which of them match no file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..data_source.error_list import absolute, filled, read_errors
from ..errors import ArgumentError, ArgumentTypeError, SampleWarning
from ..warn import warn_consumer
from .files import named


def excluded_paths(exclude: Any) -> dict[str, set[str]]:
    """Return the file names on an exclusion list, by the absolute path of their folder: of a CSV file, or of paths of
    images and of such files.

    Relative paths in a CSV file are relative to the folder of that file.
    """
    if exclude is None:
        return {}
    folder: str | os.PathLike[str] = ""
    if isinstance(exclude, (str, os.PathLike)):
        folder, exclude = os.path.dirname(exclude), [filled(entry, "source", exclude) for entry in read_errors(exclude)]
    if not isinstance(exclude, Iterable):
        raise ArgumentTypeError(f"exclude must be a CSV file or paths, not {exclude!r:.80}; leave it out")
    folders: dict[str, set[str]] = {}
    for each in exclude:
        if not isinstance(each, (str, os.PathLike)):
            raise ArgumentTypeError(f"exclude must be a CSV file or paths, and holds {each!r:.80}; leave it out")
        path = absolute(each, folder)
        if os.fspath(path).lower().endswith(".csv"):  # a list among paths: images have other names
            for where, names in excluded_paths(path).items():
                folders.setdefault(where, set()).update(names)
            continue
        where, name = os.path.split(path)
        folders.setdefault(where, set()).add(name)
    return folders


def unmatched_paths(exclude: Any, excluded: Mapping[str, Iterable[str]], found: Iterable[str]) -> list[str]:
    """Return the paths on an exclusion list that are not in `found`, sorted, and warn of them.

    Args:
        exclude: The list as the user gave it.
        excluded: The result of :func:`excluded_paths` for it.

    Raises:
        ArgumentError: the list has paths, and none of them was found.
    """
    listed = {os.path.join(folder, name) for folder, names in excluded.items() for name in names}
    unmatched = sorted(listed.difference(map(absolute, found)))
    if not unmatched:
        return []
    if isinstance(exclude, (str, os.PathLike)):
        seen_from = f"relative ones in {os.fspath(exclude)!r} are seen from its folder"
    else:
        seen_from = f"relative ones are seen from {os.getcwd()!r}"
    if len(unmatched) == len(listed):
        raise ArgumentError(
            f"exclude must have paths of files here, and none of its paths is one: {named(unmatched)}; {seen_from}; "
            f"pass the list of these files, or None"
        )
    warn_consumer(
        f"exclude has paths that match no file here: {named(unmatched)} of {len(listed):,}; {seen_from}",
        SampleWarning,
    )
    return unmatched
