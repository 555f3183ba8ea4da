"""The index of a data set of tars: the samples, and where their members are."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...error_context import shortened
from ...errors import SampleReadError
from ..packed_paths import PackedPaths
from .tar_members import members

INDEX_FORM = {
    **dict.fromkeys(["offsets", "sizes", "samples", "kinds", "key_ends"], "<i8"),
    **dict.fromkeys(["keys", "names"], "|u1"),
}
"""The index of one tar. For each member: its first byte, its bytes, its sample, the number of its extension. For each
sample: the end of its key in `keys`. Then the extensions, each followed by a zero."""

SKIPPED_MEMBERS = re.compile(rb"__[^/]*__($|/)")
"""Members that WebDataset skips."""


class PackedKeys(PackedPaths):
    """Names of members, decoded as Python decodes file names: bytes that are not UTF-8 become lone surrogates."""

    _errors = "surrogateescape"

    def __init__(self, joined: np.ndarray, ends: np.ndarray) -> None:
        self._joined, self._ends = joined, ends


def scan(read: Callable[[int, int], bytes], size: int) -> dict[str, np.ndarray]:
    """Return the index of a tar of `size` bytes. `read` is as for :func:`~.tar_members.members`.

    Raises:
        ValueError: the file is not a tar that can be read in place, or has no samples.
    """
    offsets, sizes, samples, kinds, key_ends = (array("q") for _ in range(5))
    keys, numbers, last, n_files = bytearray(), dict[bytes, int](), None, 0
    for name, start, nbytes in members(read, size):
        n_files += 1
        dot = name.find(b".", name.rfind(b"/") + 1)
        if dot < 0 or name[dot - 1 : dot] in (b"", b"/") or SKIPPED_MEMBERS.match(name):
            continue
        if name[:dot] != last:
            last = name[:dot]
            keys += last
            key_ends.append(len(keys))
        offsets.append(start)
        sizes.append(nbytes)
        samples.append(len(key_ends) - 1)
        kinds.append(numbers.setdefault(name[dot + 1 :].lower(), len(numbers)))
    if not offsets:
        raise ValueError(
            f"it holds no samples: none of its {n_files} files is called KEY.EXT; links, folders, devices, and files "
            f"whose names begin with a dot are passed over"
        )
    arrays = [np.frombuffer(each, np.int64) for each in (offsets, sizes, samples, kinds, key_ends)]
    names = b"".join(name + b"\0" for name in numbers)
    return dict(zip(INDEX_FORM, [*arrays, np.frombuffer(keys, np.uint8), np.frombuffer(names, np.uint8)], strict=True))


def believable(index: dict[str, np.ndarray], size: int) -> bool:
    """Return whether an index fits a tar of `size` bytes: it must not lead to a read outside the tar."""
    offsets, sizes, samples, kinds, ends, keys, names = index.values()
    steps = np.diff(samples, prepend=-1, append=len(ends))
    return (
        len(offsets) == len(sizes) == len(samples) == len(kinds) > 0
        and bool(((sizes >= 0) & (sizes <= size) & (offsets >= 0) & (offsets <= size - sizes)).all())
        and steps[0] == steps[-1] == 1
        and bool(((steps == 0) | (steps == 1)).all())
        and bool(((kinds >= 0) & (kinds < names.tobytes().count(b"\0"))).all())
        and bool((np.diff(ends, prepend=0, append=len(keys)) >= 0).all())
    )


class Samples:
    """The samples of several tars, one tar after the other.

    Attributes:
        keys: The key of each sample.
        ends: The number of the first sample after each tar: ``(n_tars,) int64``.
        names: The extensions, in the order of their first member.
    """

    def __init__(self, paths: Sequence[str], indices: Iterator[dict[str, np.ndarray]]) -> None:
        self._paths = paths
        numbers: dict[str, int] = {}
        parts: dict[str, list[np.ndarray]] = {name: [] for name in INDEX_FORM}
        n_samples, n_key_bytes, ends = 0, 0, []
        for index in indices:
            names = index.pop("names").tobytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
            index["kinds"] = np.array([numbers.setdefault(name, len(numbers)) for name in names])[index["kinds"]]
            index["samples"] = index["samples"] + n_samples
            n_samples += len(index["key_ends"])
            index["key_ends"] = index["key_ends"] + n_key_bytes
            n_key_bytes += len(index["keys"])
            ends.append(n_samples)
            for name, part in index.items():
                parts[name].append(part)
        self.names = list(numbers)
        self.ends = np.array(ends, np.int64)
        self.keys = PackedKeys(np.concatenate(parts["keys"]), np.concatenate([[0], *parts["key_ends"]]))
        self._offsets, self._sizes, self._samples, self._kinds = (
            np.concatenate(parts[name]) for name in ("offsets", "sizes", "samples", "kinds")
        )

    def column(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where a member of each sample begins: the first of the extensions `names` that the sample has.

        Returns:
            The offsets and sizes, ``(n,) int64``, and the extension as an index into `names`, ``(n,) uint8``.

        Raises:
            SampleReadError: a sample has none of the extensions, or one of them twice; ``.source`` is its tar.
        """
        member = np.full(len(self.keys), -1)
        which = np.zeros(len(self.keys), np.uint8)
        for place, name in reversed(list(enumerate(names))):
            found = np.flatnonzero(self._kinds == (self.names.index(name) if name in self.names else -1))
            rows = self._samples[found]
            twice = rows[1:][rows[1:] == rows[:-1]]
            if len(twice):
                raise self._wrong(int(twice[0]), f"has two members {name!r}; a column needs one, so write the tar anew")
            member[rows], which[rows] = found, place
        lacking = np.flatnonzero(member < 0)
        if len(lacking):
            row = int(lacking[0])
            has = ", ".join(repr(self.names[kind]) for kind in self._kinds[self._samples == row][:20])
            raise self._wrong(
                row, f"has no {' or '.join(map(repr, names))}, and {len(lacking)} of {len(self.keys)} have "
                f"none; it has {has}; ask for columns that all have, or write the tars without such samples"
            )  # fmt: skip
        return self._offsets[member], self._sizes[member], which

    def _wrong(self, row: int, what: str) -> SampleReadError:
        path = self._paths[int(np.searchsorted(self.ends, row, "right"))]
        return SampleReadError(f"sample {shortened(repr(self.keys[row]), 400)} of {path!r} {what}", path)
