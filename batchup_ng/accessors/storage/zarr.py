"""Arrays of Zarr stores, formats 2 and 3, by their chunks."""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ... import validation
from ...errors import ArgumentError, BatchupError, SampleReadError
from ..base import files_digest
from .base import called, of_one_length, reason
from .chunks import EvenChunks
from .remote import RemoteSystem, is_remote, stamps_of

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
"""The files that describe an array or a group, of format 3 and of format 2."""


class ZarrRows(EvenChunks):
    """The rows of an array in a Zarr store: a folder, also one at a URL, or a ``.zip`` file.

    The cache keeps chunks of the first axis. If the array has chunks along other axes too, each such chunk is put
    together from several. By Zarr's rule, chunks without a file, never written or deleted, have the fill value of the
    array. In a folder, only the metadata file is checked for changes, so **a chunk that is rewritten in place is not
    noticed**. :class:`Cached` recognises the array by its fingerprint, which covers all files of the array; at a URL,
    only the metadata.

    The library starts threads in each process that reads; they end with the process. A web server cannot list the
    arrays of a group, so name them. For a damaged chunk, the library allocates as much memory as the chunk decodes to.

    ::

        images = ZarrRows("data.zarr", "train/images")
        source = ArrayDataSource(ZarrRows.columns("digits.zarr", ["image", "label"]))  # batches are dicts

    Args:
        path: The store; a URL must lead to a folder.
        array: The path of an array in it, such as ``"train/images"``; it may be left out if the store is an array, or a
            group of only one.
        cache: Bytes of decoded chunks that are kept, as an int or a string such as ``"500MB"``.

    Raises:
        SampleReadError: the store is not there, or is not a store; the array holds Python objects or strings of any
            length, is a single value or coded by pickle; or one chunk of rows, or compressed file of a zip, has more
            bytes than 1 GiB and than `cache`.
        ArgumentError: there is no array of that name.
        ImportError: zarr 3 is not installed; it needs Python 3.11.
    """

    takes_urls = True

    @validation.known_names({})
    def __init__(self, path: str | os.PathLike[str], array: str | None = None, *, cache: int | str = "256MB") -> None:
        self._set_cache(cache)
        node = self._root(path)
        if hasattr(node, "array_keys"):
            with _naming(self.path):
                self.array = _chosen(node, self.path, array)
            self.close()
            super().__init__([_metadata(self.path, self.array)])
            node = self._handle()
        elif array:
            raise ArgumentError(f"array must be left out for {self.path!r}, which is an array itself, not {array!r}")
        self._shape, self._dtype = tuple(node.shape), node.dtype
        self._chunk_rows: int = max(1, min(node.chunks[0], len(self)))
        self._check_claim(max(self._chunk_bytes, math.prod(node.chunks) * self.dtype.itemsize), self.paths[0])

    @classmethod
    def columns(
        cls, path: str | os.PathLike[str], names: Iterable[str] | None = None, *, cache: int | str = "256MB"
    ) -> dict[str, ZarrRows]:
        """Return an accessor for each array of a group: for all, or for `names`. Each accessor has its own `cache`.

        Raises:
            ArgumentError: the arrays differ in length; or as the class.
        """
        if names is None:
            store = cls.__new__(cls)
            store._set_cache(cache)
            node = store._root(path)
            with _naming(store.path):
                names = sorted(getattr(node, "array_keys", list)())
            store.close()
        return of_one_length(path, {name: cls(path, name, cache=cache) for name in names})

    def _root(self, path: str | os.PathLike[str]) -> Any:
        """Begin with the root of the store, an array or a group, and return it."""
        self.path, self.array = self._known(os.fspath(path)), ""
        super().__init__([_metadata(self.path, "")])
        return self._handle()

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of a zip file; the size of the chunks in a folder is not known."""
        return super().file_sizes() if self.paths[0] == self.path else {}

    def _options(self) -> list[Any]:
        files: list[str] = []
        if not is_remote(self.path) and self.paths[0] != self.path:
            for folder, _, names in os.walk(os.path.join(self.path, self.array)):
                files += (os.path.join(folder, name) for name in names)
        return [self.array, files_digest(sorted(set(files) - {self.paths[0]}))]  # its stamp is there already

    def _open(self, path: str) -> Any:
        zarr = zarr_library()
        store = zarr.storage.ZipStore(path, mode="r") if path == self.path else self.path
        if path == self.path and not hasattr(self, "_shape"):  # other processes skip the check
            with zipfile.ZipFile(path) as file:
                sizes = [each.file_size for each in file.infolist() if each.compress_type]
                self._check_claim(max(sizes, default=0), path)
        if is_remote(path):
            system = RemoteSystem(self.path)
            store = zarr.storage.FsspecStore(system, read_only=True, path=system.path.rstrip("/"))
        node = zarr.open(store, mode="r", path=self.array)
        if not hasattr(node, "array_keys"):
            _check(node)
        return node

    def _close(self, handle: Any) -> None:
        if self.paths[0] != self.path:  # a zip file closes with its last reference: a thread may be reading
            handle.store.close()

    def _read_chunk(self, handle: Any, number: int, out: np.ndarray) -> None:
        start, target = number * self._chunk_rows, zarr_library().core.buffer.cpu.NDBuffer.from_numpy_array(out)
        handle.get_basic_selection(slice(start, start + len(out)), out=target)


def zarr_library() -> Any:
    """Return zarr 3. zarr 2 unpickles the fill value in an array's metadata.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import zarr

        if str(zarr.__version__).startswith("2."):
            raise ImportError(f"zarr {zarr.__version__} is installed")
    except ImportError as error:
        needs = "Zarr stores need zarr 3 (Python 3.11 or newer)"
        raise ImportError(f"{needs}: pip install 'batchup_ng[zarr]' ({error})") from error
    return zarr


def _metadata(path: str, array: str) -> str:
    """Return the file that describes an array or group; a zip file describes itself."""
    if is_remote(path):
        urls = ["/".join(filter(None, (path.rstrip("/"), array, name))) for name in METADATA_FILES]
        stamps = zip(urls, stamps_of(urls), strict=True)
        return next((url for url, stamp in stamps if not isinstance(stamp, Exception)), urls[0])
    if os.path.isfile(path):
        return path
    files = [os.path.join(path, array, name) for name in METADATA_FILES]
    return next(filter(os.path.exists, files), files[0])


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the store in the library's errors about damaged metadata."""
    try:
        yield
    except (BatchupError, MemoryError):
        raise
    except Exception as error:
        raise SampleReadError(f"the arrays of {called(path)} cannot be listed ({reason(error)})", path) from error


def _chosen(group: Any, path: str, array: str | None) -> str:
    """Return the path of an array in a group: the requested one, or the only one."""
    try:
        if array and not hasattr(group[array], "array_keys"):
            return array.strip("/")
    except (KeyError, ValueError):  # no array has that name, or it is not a valid name
        pass
    names = sorted(group.array_keys())
    if array is None and len(names) == 1:
        return str(names[0])
    listed = ", ".join(map(repr, [*names, *(f"{name}/..." for name in sorted(group.group_keys()))][:20])) or "none"
    raise ArgumentError(f"array must be one of the arrays of {path!r}, not {array!r}; it has {listed}")


def _check(array: Any) -> None:
    """Refuse an array without rows of a fixed shape, or with pickled chunks, which could run code."""
    import numcodecs

    if not array.shape:
        raise ValueError("it holds a single value, not rows")
    if array.dtype.hasobject or array.dtype.kind == "T":
        raise ValueError("it holds Python objects or strings of any length; strings of a fixed length can be read")
    if any(isinstance(codec, numcodecs.Pickle) for codec in (*array.filters, *array.compressors)):
        raise ValueError("it is coded by pickle, which could run code")
