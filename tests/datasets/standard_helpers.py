"""Files in the formats of the standard data sets, and a server for them on this machine."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import http.server
import io
import socket
import struct
import tarfile
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from batchup_ng.datasets.standard import table
from batchup_ng.datasets.standard.class_names import IMAGENETTE

Answer = Callable[["Handler", bytes], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``server.files``, with ranges. ``server.answers`` has other answers by path, each for one request."""

    server: Any

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Range")))
        content = self.server.files.get(self.path)
        answers = self.server.answers.get(self.path, [])
        if answers:
            answers.pop(0)(self, content or b"")
        elif content is None:
            self.send_error(404)
        else:
            self.serve(content)

    def serve(self, content: bytes, ranges: bool = True, cut: int | None = None, encoding: str = "") -> None:
        asked, start = self.headers.get("Range"), 0
        if asked and ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(content[start:cut])
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        pass


class Server:
    """A server of files: the requests that came, and what to answer."""

    def __init__(self, server: Any, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.files: dict[str, bytes] = server.files
        self.answers: dict[str, list[Answer]] = server.answers
        self.requests: list[tuple[str, str | None]] = server.requests

    def add(self, name: str, *files: tuple[str, bytes], mirrors: Sequence[str] = ("a",)) -> None:
        """Have the table give files of this server for a download."""
        made = []
        for file, content in files:
            for mirror in mirrors:
                self.files[f"/{mirror}/{file}"] = content
            urls = tuple(f"{self.url}/{mirror}/{file}" for mirror in mirrors)
            made.append(table.RemoteFile(file, urls, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)))
        self._patch.setitem(table.FILES, name, tuple(made))

    def counts(self) -> Counter[str]:
        return Counter(path for path, _ in self.requests)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Serve files until the end. The table of downloads has only those that are added: no test asks other servers."""
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    server.files, server.answers, server.requests = {}, {}, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in table.FILES:
                patch.setitem(table.FILES, name, ())
            yield Server(server, patch)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def breaks_off(after: int) -> Answer:
    """An answer that ends in the middle, though its head tells the whole length."""
    return lambda handler, content: handler.serve(content, cut=after)


def ignores_ranges(handler: Handler, content: bytes) -> None:
    handler.serve(content, ranges=False)


def resets(handler: Handler, content: bytes) -> None:
    """Close the connection without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


def serves(content: bytes) -> Answer:
    return lambda handler, _: handler.serve(content)


def random_images(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def random_labels(seed: int, n: int, n_classes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n_classes, n)


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


def mnist_files(train: Any, test: Any) -> list[tuple[str, bytes]]:
    return [
        ("train-images-idx3-ubyte.gz", idx(train[0])),
        ("train-labels-idx1-ubyte.gz", idx(train[1].astype(np.uint8))),
        ("t10k-images-idx3-ubyte.gz", idx(test[0])),
        ("t10k-labels-idx1-ubyte.gz", idx(test[1].astype(np.uint8))),
    ]


def small_mnist(n: int = 50, n_test: int = 20) -> tuple[Any, Any]:
    return (
        (random_images(0, n, 28, 28), random_labels(1, n, 10)),
        (random_images(2, n_test, 28, 28), random_labels(3, n_test, 10)),
    )


def tar_gz(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def zipped(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def emnist_zip(split: str, images: np.ndarray, labels: np.ndarray) -> bytes:
    """Both parts are the same: images as they are to be read, with the labels of the file."""
    members = []
    for part in ("train", "test"):
        members.append((f"gzip/emnist-{split}-{part}-images-idx3-ubyte.gz", idx(images.transpose(0, 2, 1))))
        members.append((f"gzip/emnist-{split}-{part}-labels-idx1-ubyte.gz", idx(labels.astype(np.uint8))))
    return zipped(*members)


def cifar_file(images: np.ndarray, *labels: np.ndarray) -> bytes:
    records = [bytes(label) + image.transpose(2, 0, 1).tobytes() for image, *label in zip(images, *labels, strict=True)]
    return b"".join(records)


def stl_file(images: np.ndarray) -> bytes:
    """Plane by plane, column by column."""
    return b"".join(image[:, :, channel].T.tobytes() for image in images for channel in range(3))


def usps_text(values: np.ndarray, labels: np.ndarray) -> bytes:
    lines = [
        " ".join([str(label), *(f"{i}:{value:.6g}" for i, value in enumerate(row, 1))])
        for row, label in zip(values, labels, strict=True)
    ]
    return bz2.compress(("\n".join(lines) + "\n").encode())


def jpeg(color: tuple[int, int, int], size: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "JPEG")
    return out.getvalue()


def imagenette_members(n: int = 2) -> list[tuple[str, bytes]]:
    members = []
    for number, wnid in enumerate(IMAGENETTE):
        for part in ("train", "val"):
            for i in range(n):
                color = (10 * number, 100 * (part == "val"), 20 * i)
                members.append((f"imagenette2-160/{part}/{wnid}/{wnid}_{i}.JPEG", jpeg(color, (24, 16))))
    return members
