"""Opens HDF5 files, and finds the data sets in them.

Nothing outside the file is ever opened: each link is checked before it is followed, and storage in other files is
refused.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from ...errors import ArgumentError, SampleReadError
from ...extras import library

MAX_LISTED_DATA_SETS = 20
"""Data sets that an error lists."""

MAX_LINKS = 100
"""Links that a path may lead through: soft links may form a circle."""

_STAMPS: dict[int, Any] = {}
"""The stamp of each file when HDF5 opened it, by HDF5's number for the file."""


def data_set(file: Any, name: str | None) -> Any:
    """Return a data set that lies in this file and can be decoded.

    Raises:
        SampleReadError: it lies in other files.
        ArgumentError: no data set has that name.
        ImportError: a library that decodes it is not installed.
    """
    h5py, path = h5py_library(), file.filename
    names = list(data_sets(file)) if name is None else [name]
    data = _linked(file, names[0]) if len(names) == 1 else None
    if not isinstance(data, h5py.Dataset):
        listed = ", ".join(map(repr, list(data_sets(file))[:MAX_LISTED_DATA_SETS]))
        raise ArgumentError(f"dataset must be one of those of {path!r}, not {name!r}; it has {listed or 'none'}")
    plist = data.id.get_create_plist()
    if plist.get_external_count() or plist.get_layout() == h5py.h5d.VIRTUAL:
        raise SampleReadError(
            f"the data of {data.name!r} of {path!r} lie in other files, or other data sets, which are not opened; name "
            f"these, and put them together by bu.concat",
            path,
        )
    if not data.shape:
        raise SampleReadError(f"{data.name!r} of {path!r} holds a single value, or none, not rows", path)
    for place in range(plist.get_nfilters()):
        code, _, _, called = plist.get_filter(place)
        if not h5py.h5z.filter_avail(code):
            with contextlib.suppress(ImportError):
                importlib.import_module("hdf5plugin")  # it registers its decoders with HDF5
        if not h5py.h5z.filter_avail(code):
            raise ImportError(
                f"{data.name!r} of {path!r} is compressed by {called.decode(errors='replace')!r} (filter {code}), "
                f"which h5py alone cannot decode: pip install hdf5plugin"
            )
    return data


def _linked(file: Any, name: str) -> Any:
    """Follow a path along the hard and soft links of a file; return None if it leads nowhere.

    Raises:
        SampleReadError: it leads to another file.
    """
    h5py, here = h5py_library(), file["/"]
    parts = name.encode("utf-8", "surrogateescape").strip(b"/").split(b"/")
    for _ in range(MAX_LINKS):
        if not parts:
            return here
        part, *parts = parts
        links = here.id.links if isinstance(here, h5py.Group) else None
        if links is None or not part or not links.exists(part):
            return None
        kind = links.get_info(part).type
        if kind == h5py.h5l.TYPE_HARD:
            here = here[part]
        elif kind == h5py.h5l.TYPE_SOFT:
            target = links.get_val(part)
            here = file["/"] if target.startswith(b"/") else here
            parts = target.strip(b"/").split(b"/") + parts
        else:
            raise SampleReadError(
                f"{name!r} of {file.filename!r} leads by way of {part.decode(errors='replace')!r} to another file, "
                f"which is not opened; open that by itself",
                file.filename,
            )
    return None


def data_sets(file: Any) -> list[str]:
    """Return the paths of all data sets of a file that hard links lead to.

    Data sets of a single value are left out. So are the indices of PyTables, whose groups have reserved names (its
    manual, "The object tree": ``_i_``, ``_p_``).
    """
    h5py = h5py_library()
    found: list[str] = []

    def note(name: str | bytes, item: Any) -> None:
        name = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
        indices = any(group.startswith(("_i_", "_p_")) for group in name.split("/")[:-1])
        if not isinstance(item, h5py.Dataset) or indices:
            return
        virtual = item.id.get_create_plist().get_layout() == h5py.h5d.VIRTUAL  # its shape would come from other files
        if virtual or item.shape:
            found.append(name)

    file.visititems(note)
    return found


def rows_differ(data: Any) -> bool:
    """Return whether the rows of a data set differ in length."""
    h5py = h5py_library()
    text = data.dtype.hasobject and h5py.check_string_dtype(data.dtype)
    return bool(text or h5py.check_vlen_dtype(data.dtype))


def open_hdf5(path: str, cache: int = 0) -> Any:
    """Return an open file. HDF5 caches `cache` bytes of chunks for each of its data sets."""
    try:
        return h5py_library().File(path, "r", rdcc_nbytes=cache)
    except OSError as error:
        if "unable to lock file" not in str(error) and "already open for" not in str(error):
            raise
        raise SampleReadError(
            f"{path!r} is being written to, or was when its writer was killed; close it there, or, if nothing has it "
            f"open, mend it by h5clear -s ({error})",
            path,
        ) from error


def is_fresh(file: Any, stamp: Any) -> bool:
    """Return whether HDF5 opened a file in its present state.

    Everything that opens a file in a process shares HDF5's state of the file, until the last user closes it. If other
    code opened the file before this library did, its state counts as fresh.
    """
    h5py = h5py_library()
    if h5py.h5f.get_obj_count(types=h5py.h5f.OBJ_FILE) == 1:
        _STAMPS.clear()
    known: bool = _STAMPS.setdefault(h5py.h5o.get_info(file.id).fileno, stamp) == stamp
    return known


def h5py_library() -> Any:
    return library("h5py", "HDF5 files need h5py", "hdf5")
