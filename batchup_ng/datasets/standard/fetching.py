"""Downloads of the files of a standard data set, by pooch.

pooch compares the checksum of a new file before the file gets its name, and the checksum of an existing file before it
is used. The bytes from a server go into ``NAME.part`` beside the file. A later try asks for the rest, from the same
mirror or another. The checksum is of the whole file, so a wrong part is found at the end and thrown away.
A mirror is tried again only if it has sent something, or if bytes of an earlier try may be to blame.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from ..._version import __version__
from ...display import in_bytes, printable, progress_of
from ...error_context import raise_if_of_signal_handler
from ...errors import ArgumentTypeError, DownloadError
from ...extras import library
from .table import RemoteFile

TRIES = 5
"""Maximum number of tries with a mirror that breaks off."""

CHUNK_BYTES = 1 << 18
"""Bytes that are written, and shown as progress, at once."""

HEADERS = {
    "Accept-Encoding": "identity",  # else a server may send a .gz file decompressed
    "User-Agent": f"batchup_ng/{__version__}",  # some servers refuse the names of Python's libraries
}


class Refused(Exception):
    """A mirror offers another file."""


def fetched(file: RemoteFile, folder: str, progress: Any) -> str:
    """Download a file into a folder if it is not there, and return its path. The caller holds the lock of the folder.

    Raises:
        ImportError: pooch is not installed.
        DownloadError: no mirror has sent the file.
        OSError: the file cannot be written.
    """
    pooch = library("pooch", "a download needs pooch", "datasets")
    from requests import RequestException  # pooch's own dependency

    part = os.path.join(folder, f"{file.name}.part")
    failures: list[str] = []
    for url in file.urls:
        for _ in range(TRIES):
            before = _size(part)
            download = Resumed(pooch, part, file, progress)
            failure: Exception
            try:
                return str(pooch.retrieve(url, file.checksum, fname=file.name, path=folder, downloader=download))
            except (RequestException, Incomplete) as error:
                raise_if_of_signal_handler(error)
                failure, again = error, _size(part) != before
            except (Refused, ValueError) as error:  # ValueError: of pooch, another checksum
                raise_if_of_signal_handler(error)
                failure, again = error, before > 0 and not isinstance(error, Refused)
                _remove(part)
            if not again:
                break
        failures.append(f"{url}: {printable(' '.join(str(failure).split())) or type(failure).__name__}")
    if not _size(part):
        _remove(part)
    raise DownloadError(
        f"{file.name!r} could not be downloaded; try again later, which continues after what has arrived, or put the "
        f"file into {folder!r} yourself. {'; '.join(failures)}"
    )


class Incomplete(Exception):
    """A download ended before the end of the file."""


class Resumed:
    """A downloader of pooch's that continues after the bytes of ``NAME.part``."""

    def __init__(self, pooch: Any, part: str, file: RemoteFile, progress: Any) -> None:
        self.pooch = pooch
        self.part = part
        self.file = file
        self.progress = progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        with open(self.part, "ab") as opened:
            part = Part(opened, self.file.size)
            if self.file.size is None or part.at < self.file.size:
                headers = {**HEADERS, "Range": f"bytes={part.at}-"} if part.at else HEADERS
                with _bar(self.progress, self.file, part), part:
                    get = self.pooch.HTTPDownloader(
                        chunk_size=CHUNK_BYTES, headers=headers, hooks={"response": part.begins}
                    )
                    get(url, part, None)
            if self.file.size is not None and part.at < self.file.size:
                raise Incomplete(f"{part.at} of {self.file.size} bytes have come")
        os.replace(self.part, output_file)


class Part:
    """The file that a download is written to, as pooch's downloader writes to one.

    Attributes:
        at: Its bytes.
        shown: Called with a number of bytes that have come.
    """

    def __init__(self, file: Any, size: int | None) -> None:
        self.file = file
        self.at = os.fstat(file.fileno()).st_size
        self.size = size
        self.shown: Callable[[int], object] = lambda nbytes: None
        self._responses: list[Any] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        for response in self._responses:  # pooch does not close its connections
            response.close()

    def begins(self, response: Any, **_: Any) -> None:
        """Look at the head of a response.

        Raises:
            Refused: it has too many or too few bytes.
        """
        self._responses.append(response)
        if response.status_code == 416 or (response.status_code == 200 and self.at):  # 200: the server sends all of it
            self.file.truncate(0)
            self.at = 0
        response.raw.headers.pop("Content-Encoding", None)  # of a .gz file that a server takes for an encoded one
        length = response.headers.get("Content-Length", "")
        is_told = response.status_code in (200, 206) and length.isdigit()
        if is_told and self.size is not None and self.at + int(length) != self.size:
            raise Refused(f"its file has {self.at + int(length)} bytes, and {self.size} are expected")
        if response.status_code == 206 and f"bytes {self.at}-" not in response.headers.get("Content-Range", ""):
            raise Refused(f"it sends another range of bytes than from {self.at} on")

    def write(self, data: bytes) -> None:
        if self.size is not None and self.at + len(data) > self.size:
            raise Refused(f"it sends more than the {self.size} bytes that are expected")
        self.file.write(data)
        self.at += len(data)
        self.shown(len(data))

    def flush(self) -> None:
        self.file.flush()


@contextlib.contextmanager
def _bar(progress: Any, file: RemoteFile, part: Part) -> Iterator[None]:
    """Show the progress of a download."""
    shown = progress_of(progress, file.name, "B")
    bar = shown(None, desc=file.name, total=file.size, initial=part.at, unit="B", unit_scale=True)
    if bar is None:
        yield
        return
    if not hasattr(bar, "update"):
        raise ArgumentTypeError(
            f"progress must be True, False or a function like tqdm.tqdm, whose result has update, not {progress!r:.80}"
        )
    part.shown = bar.update
    try:
        yield
    finally:
        if hasattr(bar, "close"):
            bar.close()


def in_words(files: tuple[RemoteFile, ...]) -> str:
    """Return the bytes of the files in words."""
    sizes = [file.size for file in files if file.size is not None]
    return in_bytes(sum(sizes)) if len(sizes) == len(files) else "size unknown"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
