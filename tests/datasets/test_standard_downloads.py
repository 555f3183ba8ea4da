"""Downloads of standard data sets: mirrors, checksums, broken connections, kills, full disks."""

from __future__ import annotations

import bz2
import concurrent.futures
import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import cli, datasets
from batchup_ng.datasets.standard import fetching, table
from batchup_ng.platforms import system
from tests.datasets import standard_helpers as made
from tests.messages import raises

pytest.importorskip("pooch", reason="downloads need pooch")

TRAIN, TEST = made.small_mnist()
FILES = made.mnist_files(TRAIN, TEST)
FIRST, CONTENT = FILES[0]
"""The file that tests break, and its content."""


CHUNK = 100
"""Bytes of a chunk: those of the last one are lost when a connection breaks."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[made.Server]:
    monkeypatch.setattr(fetching, "CHUNK_BYTES", CHUNK)
    with made.serving() as server:
        server.add("mnist", *FILES, mirrors=("a", "b"))
        yield server


def check(root: Path, **options: Any) -> None:
    found = datasets.mnist(root, progress=options.pop("progress", False), **options)
    for source, (images, labels) in ((found.train, TRAIN), (found.test, TEST)):
        got = [np.concatenate(parts) for parts in zip(*source.batch_iterator(16), strict=True)]
        np.testing.assert_array_equal(got[0], images)
        np.testing.assert_array_equal(got[1], labels)


def left(root: Path) -> list[str]:
    """Return the files that are there."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


WRONG = {
    "missing": lambda handler, content: handler.send_error(404),
    "unavailable": lambda handler, content: handler.send_error(503),
    "reset": made.resets,
    "shorter": made.serves(CONTENT[:-1]),
    "longer": made.serves(CONTENT + b"x"),
    "another": made.serves(bytes(len(CONTENT))),
    "a page": made.serves(b"<html>Sign in</html>"),
    "empty": made.serves(b""),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mirror_that_fails_is_passed_over(server: made.Server, tmp_path: Path, wrong: str) -> None:
    server.answers[f"/a/{FIRST}"] = [WRONG[wrong]] * 50
    check(tmp_path)
    assert server.counts()[f"/b/{FIRST}"] == 1
    assert server.counts()[f"/a/{FIRST}"] == 1
    assert sum(server.counts().values()) == 5


def test_where_no_mirror_has_the_file_the_error_says_why_and_nothing_stays(server: made.Server, tmp_path: Path) -> None:
    server.answers[f"/a/{FIRST}"] = [WRONG["another"]]
    server.answers[f"/b/{FIRST}"] = [WRONG["missing"]]
    with raises(bu.DownloadError) as caught:
        datasets.mnist(tmp_path, progress=False)
    assert isinstance(caught.value, OSError)
    assert f"{server.url}/a/{FIRST}: SHA256 hash of downloaded file" in str(caught.value)
    assert f"{server.url}/b/{FIRST}: 404" in str(caught.value)
    assert left(tmp_path) == []
    check(tmp_path)  # they have it now


def test_a_server_that_is_gone_is_named(tmp_path: Path) -> None:
    with made.serving() as server:
        server.add("mnist", *FILES)
    with made.serving():
        pass
    with pytest.MonkeyPatch.context() as patch:
        gone = [file._replace(urls=(f"http://127.0.0.1:9/{file.name}",)) for file in table.FILES["mnist"]]
        patch.setitem(table.FILES, "mnist", tuple(gone))
        with raises(bu.DownloadError):
            datasets.mnist(tmp_path, progress=False)
    assert left(tmp_path) == []


HALF = len(CONTENT) // 2 // CHUNK * CHUNK


def test_a_download_that_breaks_off_goes_on_where_it_was(server: made.Server, tmp_path: Path) -> None:
    server.answers[f"/a/{FIRST}"] = [made.breaks_off(HALF)]
    check(tmp_path)
    assert server.requests[:2] == [(f"/a/{FIRST}", None), (f"/a/{FIRST}", f"bytes={HALF}-")]
    assert sum(server.counts().values()) == 5


def test_another_mirror_goes_on_with_the_bytes_of_the_first(server: made.Server, tmp_path: Path) -> None:
    server.answers[f"/a/{FIRST}"] = [made.breaks_off(HALF), WRONG["unavailable"]]
    check(tmp_path)
    assert server.requests[2] == (f"/b/{FIRST}", f"bytes={HALF}-")


def test_a_server_without_ranges_sends_the_whole_file_again(server: made.Server, tmp_path: Path) -> None:
    server.answers[f"/a/{FIRST}"] = [made.breaks_off(HALF), made.ignores_ranges]
    check(tmp_path)
    assert sum(server.counts().values()) == 5


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
def test_a_server_that_takes_the_file_for_an_encoded_one_does_no_harm(
    server: made.Server, tmp_path: Path, encoding: str
) -> None:
    server.answers[f"/a/{FIRST}"] = [lambda handler, content: handler.serve(content, encoding=encoding)]
    check(tmp_path)
    assert sum(server.counts().values()) == 4


def test_what_a_server_says_is_shown_in_printable_characters(server: made.Server, tmp_path: Path) -> None:
    server.add("mnist", *FILES)
    server.answers[f"/a/{FIRST}"] = [lambda handler, content: handler.send_error(404, "\x1b[31mred")]
    with raises(bu.DownloadError) as caught:
        datasets.mnist(tmp_path, progress=False)
    assert str(caught.value).isprintable()


def test_threads_at_once_make_one_set(server: made.Server, tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(check, tmp_path) for _ in range(4)]:
            done.result()
    assert set(server.counts().values()) == {1}


def test_a_server_that_breaks_off_again_and_again_is_given_up(server: made.Server, tmp_path: Path) -> None:
    server.add("mnist", *FILES)
    cuts = [CHUNK * i for i in range(1, 40)]
    server.answers[f"/a/{FIRST}"] = [made.breaks_off(cut) for cut in cuts]
    with raises(bu.DownloadError):
        datasets.mnist(tmp_path, progress=False)
    assert server.counts() == {f"/a/{FIRST}": fetching.TRIES}
    assert left(tmp_path) == [f"downloads/mnist/{FIRST}.part"]
    server.answers.clear()
    check(tmp_path)
    assert server.requests[fetching.TRIES] == (f"/a/{FIRST}", f"bytes={cuts[fetching.TRIES - 1]}-")


@pytest.mark.parametrize("part", [bytes(HALF), bytes(len(CONTENT)), bytes(len(CONTENT) + 9), CONTENT, CONTENT[:1]])
def test_whatever_a_break_left_the_file_is_right(server: made.Server, tmp_path: Path, part: bytes) -> None:
    folder = tmp_path / "downloads" / "mnist"
    folder.mkdir(parents=True)
    (folder / f"{FIRST}.part").write_bytes(part)
    (folder / "tmpabc").write_bytes(b"of a killed download")
    (folder / "made").mkdir()
    (folder / "made" / "train_image.npy").write_bytes(b"of a killed conversion")
    check(tmp_path)
    assert os.listdir(tmp_path / "downloads") == []


def test_files_of_unknown_size_are_judged_by_their_checksum(server: made.Server, tmp_path: Path) -> None:
    unknown = tuple(file._replace(size=None) for file in table.FILES["mnist"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table.FILES, "mnist", unknown)
        server.answers[f"/a/{FIRST}"] = [made.breaks_off(HALF), WRONG["another"], WRONG["a page"]]
        check(tmp_path)


def test_files_that_somebody_put_there_are_taken_if_they_are_right(server: made.Server, tmp_path: Path) -> None:
    folder = tmp_path / "downloads" / "mnist"
    folder.mkdir(parents=True)
    for name, content in FILES:
        (folder / name).write_bytes(content)
    (folder / FIRST).write_bytes(b"wrong")
    check(tmp_path)
    assert server.requests == [(f"/a/{FIRST}", None)]


def test_a_set_that_is_there_needs_no_request_no_library_and_no_write(
    server: made.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path)
    server.requests.clear()
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setenv("BATCHUP_NG_DATA", str(tmp_path))
    monkeypatch.setattr(os, "makedirs", None)
    check(tmp_path)
    check(None)  # type: ignore[arg-type]  # the default
    assert server.requests == []
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before


def test_the_folder_is_the_argument_or_the_variable_or_that_of_the_user(
    server: made.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    monkeypatch.delenv("BATCHUP_NG_DATA", raising=False)
    assert datasets.mnist(progress=False).folder == str(tmp_path / "batchup_ng" / "mnist")
    monkeypatch.setenv("BATCHUP_NG_DATA", str(tmp_path / "chosen"))
    assert datasets.mnist(progress=False).folder == str(tmp_path / "chosen" / "mnist")
    assert datasets.mnist(tmp_path / "given", progress=False).folder == str(tmp_path / "given" / "mnist")


def test_a_library_that_is_missing_is_named_with_its_extra(
    server: made.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATCHUP_NG_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    for path in (tmp_path, None):
        with raises(ImportError):
            datasets.mnist(path, progress=False)
    monkeypatch.delitem(sys.modules, "pooch")
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    server.add("svhn", ("train_32x32.mat", b"x"), ("test_32x32.mat", b"x"))
    with raises(ImportError):
        datasets.svhn(tmp_path, progress=False)


class Bar:
    """A function like tqdm's, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __call__(self, iterator: Any, **options: Any) -> Bar:
        self.told.append(options)
        return self

    def update(self, n: int) -> None:
        self.told.append(n)

    def close(self) -> None:
        self.told.append("closed")


def test_the_progress_of_each_download_is_shown(server: made.Server, tmp_path: Path) -> None:
    server.answers[f"/a/{FIRST}"] = [made.breaks_off(HALF)]
    bar = Bar()
    check(tmp_path, progress=bar)
    options = [each for each in bar.told if isinstance(each, dict)]
    sizes = [len(content) for _, content in FILES]
    assert [each["total"] for each in options] == [sizes[0], *sizes]
    assert [each["initial"] for each in options] == [0, HALF, 0, 0, 0]
    assert sum(each for each in bar.told if isinstance(each, int)) == sum(sizes)
    assert bar.told.count("closed") == 5
    with raises(bu.ArgumentTypeError):
        datasets.mnist(tmp_path, progress=3)  # type: ignore[arg-type]
    for wrong in (3, lambda iterator, **options: iterator or "no bar"):
        with raises(bu.ArgumentTypeError):
            datasets.mnist(tmp_path / "other", progress=wrong)  # type: ignore[arg-type]


def test_an_interrupt_keeps_what_has_come(server: made.Server, tmp_path: Path) -> None:
    def interrupt(n: int) -> None:
        raise KeyboardInterrupt

    bar = Bar()
    bar.update = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        datasets.mnist(tmp_path, progress=bar)
    assert left(tmp_path) == [f"downloads/mnist/{FIRST}.part"]
    check(tmp_path)


@pytest.mark.parametrize("harm", ["shorter", "missing", "another"])
def test_a_damaged_set_is_named_with_the_remedy(server: made.Server, tmp_path: Path, harm: str) -> None:
    check(tmp_path)
    path = tmp_path / "mnist" / "train_label.npy"
    if harm == "shorter":
        os.truncate(path, path.stat().st_size - 1)
    elif harm == "missing":
        path.unlink()
    else:
        np.save(path, np.arange(3))
    with raises(bu.BatchupError):
        datasets.mnist(tmp_path, progress=False)
    for each in (tmp_path / "mnist").iterdir():
        each.unlink()
    (tmp_path / "mnist").rmdir()
    check(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server: made.Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with raises(bu.WriteError):
            datasets.mnist(root, progress=False)
    with raises(bu.ArgumentTypeError):
        datasets.mnist(7, progress=False)  # type: ignore[arg-type]
    (tmp_path / "mnist").write_text("a file where the set belongs")
    with raises(bu.WriteError):
        datasets.mnist(tmp_path, progress=False)


# Other processes

needs_unix = pytest.mark.skipif(not system.HAS_PROCESS_POOLS, reason="this system has no fork")


def started(function: str, root: Path, *arguments: Any) -> subprocess.Popen[str]:
    told = {"function": function, "root": str(root), "arguments": arguments, "files": table.FILES["mnist"]}
    command = [sys.executable, "-m", "tests.datasets.standard_program", json.dumps(told)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=800)
    assert process.returncode == 0, err
    return json.loads(out)


@needs_unix
@pytest.mark.in_turn
def test_a_kill_at_any_time_leaves_no_half_set(server: made.Server, tmp_path: Path, in_full: bool) -> None:
    kills, digests = result(started("killed_anywhere", tmp_path, 5 if in_full else 100))
    assert kills >= 4
    assert len(digests) == 1
    check(tmp_path / "whole")
    assert digests == [result(started("digest", tmp_path / "whole"))]


@pytest.mark.in_turn
def test_two_processes_at_once_make_one_set(server: made.Server, tmp_path: Path) -> None:
    first_asks, go_on = threading.Event(), threading.Event()

    def waits(handler: Any, content: bytes) -> None:
        first_asks.set()
        go_on.wait(600)
        handler.serve(content)

    server.answers[f"/a/{FIRST}"] = [waits]
    programs = [started("digest", tmp_path) for _ in range(3)]
    assert first_asks.wait(600)
    go_on.set()
    assert len({result(program) for program in programs}) == 1
    check(tmp_path)
    assert set(server.counts().values()) == {1}


@needs_unix
@pytest.mark.in_turn
def test_a_full_disk_is_named_and_the_same_call_goes_on(server: made.Server, tmp_path: Path, in_full: bool) -> None:
    full, digests = result(started("on_full_disks", tmp_path, 4096 if in_full else 32768))
    if not isinstance(full, int):
        pytest.skip(full)
    assert full >= 3
    check(tmp_path / "whole")
    assert digests == [result(started("digest", tmp_path / "whole"))]


# What is no such file

IMAGES, LABELS = TRAIN


def raw(array: np.ndarray) -> bytes:
    return gzip.decompress(made.idx(array))


BAD_MNIST = {
    "no gzip": (0, b"<html>"),
    "cut gzip": (0, CONTENT[:-30]),
    "empty": (0, b""),
    "no header": (0, gzip.compress(b"\0\0\x08")),
    "labels for images": (0, FILES[1][1]),
    "images for labels": (1, CONTENT),
    "another dtype": (0, gzip.compress(b"\0\0\x0d" + raw(IMAGES)[3:])),
    "another shape": (0, made.idx(IMAGES[:, :27])),
    "a row too few": (0, gzip.compress(raw(IMAGES)[:-784])),
    "a byte too many": (0, gzip.compress(raw(IMAGES) + b"x")),
    "a huge claim": (0, gzip.compress(raw(IMAGES)[:4] + b"\xff" * 4 + raw(IMAGES)[8:])),
    "fewer labels": (1, made.idx(LABELS[:-1].astype(np.uint8))),
    "another class": (1, made.idx(np.full(50, 10, np.uint8))),
    "more after gzip": (0, CONTENT + b"more"),
}


@pytest.mark.parametrize("bad", BAD_MNIST)
def test_a_file_that_is_no_idx_file_is_refused(server: made.Server, tmp_path: Path, bad: str) -> None:
    number, content = BAD_MNIST[bad]
    files = [*FILES]
    files[number] = (files[number][0], content)
    server.add("mnist", *files)
    with raises(bu.SampleReadError) as caught:
        datasets.mnist(tmp_path, progress=False)
    assert caught.value.source == str(tmp_path / "downloads" / "mnist" / files[number][0])
    assert os.listdir(tmp_path) == ["downloads"]
    assert set(left(tmp_path)) == {f"downloads/mnist/{name}" for name, _ in files}


CIFAR = made.cifar_file(made.random_images(0, 3, 32, 32, 3), np.array([1, 2, 3]))
STL = made.stl_file(made.random_images(0, 2, 96, 96, 3))
GOOD_STL = {"train_X.bin": STL, "train_y.bin": b"\1\2", "test_X.bin": STL, "test_y.bin": b"\1\2",
            "unlabeled_X.bin": STL, "fold_indices.txt": b"0 1"}  # fmt: skip
VALUES = np.zeros((2, 256))


def cifar(**changed: Any) -> bytes:
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    contents = dict.fromkeys(names, CIFAR) | {name.replace("_bin", ".bin"): new for name, new in changed.items()}
    return made.tar_gz(*[(f"cifar-10-batches-bin/{name}", new) for name, new in contents.items() if new is not None])


def stl(name: str, content: bytes | None) -> bytes:
    contents = {**GOOD_STL, name: content}
    return made.tar_gz(*[(f"stl10_binary/{each}", new) for each, new in contents.items() if new is not None])


def usps(old: bytes, new: bytes) -> bytes:
    return bz2.compress(bz2.decompress(made.usps_text(VALUES, np.array([1, 10]))).replace(old, new, 1))


BAD = {
    "no tar": ("cifar10", "cifar-10-binary.tar.gz", b"<html>"),
    "no tar in gzip": ("cifar10", "cifar-10-binary.tar.gz", gzip.compress(b"<html>" * 1000)),
    "cut tar": ("cifar10", "cifar-10-binary.tar.gz", cifar()[:-2000]),
    "no batch": ("cifar10", "cifar-10-binary.tar.gz", cifar(data_batch_3_bin=None)),
    "half record": ("cifar10", "cifar-10-binary.tar.gz", cifar(test_batch_bin=CIFAR[:-1])),
    "empty batch": ("cifar10", "cifar-10-binary.tar.gz", cifar(test_batch_bin=b"")),
    "no class": ("cifar10", "cifar-10-binary.tar.gz", cifar(test_batch_bin=b"\x0a" + CIFAR[1:])),
    "half image": ("stl10", "stl10_binary.tar.gz", stl("unlabeled_X.bin", STL[:-1])),
    "label 0": ("stl10", "stl10_binary.tar.gz", stl("test_y.bin", b"\0\1")),
    "one label": ("stl10", "stl10_binary.tar.gz", stl("train_y.bin", b"\1")),
    "no folds": ("stl10", "stl10_binary.tar.gz", stl("fold_indices.txt", None)),
    "uneven folds": ("stl10", "stl10_binary.tar.gz", stl("fold_indices.txt", b"0 1\n0")),
    "folds beyond": ("stl10", "stl10_binary.tar.gz", stl("fold_indices.txt", b"0 2")),
    "no bz2": ("usps", "usps.bz2", b"<html>"),
    "a value too few": ("usps", "usps.bz2", usps(b" 256:0", b"")),
    "a value twice": ("usps", "usps.bz2", usps(b" 256:0", b" 255:0")),
    "no number": ("usps", "usps.bz2", usps(b" 256:0", b" 256:x")),
    "not finite": ("usps", "usps.bz2", usps(b" 256:0", b" 256:nan")),
    "too large": ("usps", "usps.bz2", usps(b" 256:0", b" 256:1.5")),
    "no label": ("usps", "usps.bz2", usps(b"1 ", b"")),
    "label 11": ("usps", "usps.bz2", usps(b"10 ", b"11 ")),
    "an empty line": ("usps", "usps.bz2", usps(b"\n", b"\n\n")),
    "no mat": ("svhn", "train_32x32.mat", b"<html>"),
    "no zip": ("emnist", "gzip.zip", b"<html>"),
    "no image": ("imagenette-160", "imagenette2-160.tgz", made.tar_gz()),
    "no other part": ("imagenette-160", "imagenette2-160.tgz", made.tar_gz(*made.imagenette_members()[:2])),
    "another class of images": (
        "imagenette-160", "imagenette2-160.tgz", made.tar_gz(("imagenette2-160/val/n00000001/a.JPEG", b"")),
    ),
    "an image twice": ("imagenette-160", "imagenette2-160.tgz", made.tar_gz(*made.imagenette_members()[:1] * 2)),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_another_file_that_is_not_what_it_should_be_is_refused(tmp_path: Path, bad: str) -> None:
    name, file, content = BAD[bad]
    if name == "svhn":
        pytest.importorskip("scipy", reason="SVHN needs SciPy")
    with made.serving() as server:
        server.add(name, (file, content), *([("usps.t.bz2", content)] if name == "usps" else []))
        if name == "svhn":
            server.add(name, (file, content), ("test_32x32.mat", content))
        with raises(bu.SampleReadError) as caught:
            getattr(datasets, name.split("-")[0])(tmp_path, progress=False)
    assert os.path.basename(str(caught.value.source)) == file
    assert os.listdir(tmp_path) == ["downloads"]
    assert not any(path.suffix in (".npy", ".JPEG") for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("harm", ["names", "dtype", "shape", "labels"])
def test_a_mat_file_of_something_else_is_refused(tmp_path: Path, harm: str) -> None:
    scipy_io = pytest.importorskip("scipy.io", reason="SVHN needs SciPy")
    arrays = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [10]], np.uint8)}
    if harm == "names":
        arrays["Z"] = arrays.pop("X")
    elif harm == "dtype":
        arrays["X"] = arrays["X"].astype(np.float32)
    elif harm == "shape":
        arrays["X"] = arrays["X"][:31]
    else:
        arrays["y"] = arrays["y"][:1]
    path = tmp_path / "made.mat"
    scipy_io.savemat(path, arrays)
    with made.serving() as server:
        server.add("svhn", ("train_32x32.mat", path.read_bytes()), ("test_32x32.mat", path.read_bytes()))
        with raises(bu.SampleReadError):
            datasets.svhn(tmp_path / "sets", progress=False)


# The command line


def test_the_command_lists_and_fetches(server: made.Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["datasets", "--path", str(tmp_path)]) == 0
    assert f"in {tmp_path}\n" in capsys.readouterr().out
    assert cli.main(["datasets", "mnist", "--path", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"mnist: {tmp_path / 'mnist'}\n"
    assert cli.main(["datasets", "--path", str(tmp_path)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["mnist"] == "there"
    assert lines["cifar10"].startswith("download of")
    server.files.clear()
    assert cli.main(["datasets", "mnist", "--path", str(tmp_path / "other")]) == 1
    assert "could not be downloaded" in capsys.readouterr().err
    with pytest.raises(SystemExit), contextlib.redirect_stderr(None):
        cli.main(["datasets", "minst", "--path", str(tmp_path)])
