"""Files without a name that processes share: pages, whole writes, the way to another process, the descriptor."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import pickle
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchup_ng.memory import shared_file
from batchup_ng.memory.shared_file import Place, SharedFile, give_back, identity, private
from tests.messages import raises

MB = 1 << 20


def blocks(file: SharedFile) -> int:
    """Return the bytes of the pages that a file has."""
    return os.fstat(file.fd).st_blocks * 512


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def in_memory(nbytes: int) -> SharedFile:
    return SharedFile.nameless(nbytes)


def in_folder(nbytes: int) -> SharedFile:
    file = SharedFile.in_folder(tempfile.gettempdir())
    os.ftruncate(file.fd, nbytes)
    return file


@pytest.fixture(params=[in_memory, in_folder])
def new(request: pytest.FixtureRequest) -> Callable[[int], SharedFile]:
    made: Callable[[int], SharedFile] = request.param
    return made


def in_a_fork(act: Callable[[], object]) -> bool:
    """Return whether a function returns what is true in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if act() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


# -- pages --------------------------------------------------------------------------------------------------------


def test_a_file_has_no_pages_until_they_are_reserved(new: Any) -> None:
    file = new(8 * MB)
    assert (file.size, blocks(file)) == (8 * MB, 0)
    file.reserve(MB, 2 * MB)
    assert 2 * MB <= blocks(file) < 3 * MB
    mapping = file.map()
    mapping[MB] = 7
    give_back(mapping, MB, 2 * MB)
    assert blocks(file) < MB
    assert mapping[MB] == 0


def test_reserved_bytes_stay_what_they_are(new: Any) -> None:
    file = new(MB)
    file.write(b"whole", 10)
    file.reserve(0, MB)
    assert file.map()[10:15] == b"whole"


def test_what_has_no_room_is_an_error(new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = new(MB)

    def refuse(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with raises(OSError):
        file.reserve(0, MB)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 0)
    with raises(OSError):
        file.write(b"x", 0)


def test_pages_that_a_file_system_cannot_give_back_stay() -> None:
    mapping = mmap.mmap(-1, 2 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping[MB] = 7
    give_back(mapping, MB, MB)
    assert mapping[MB] == 7


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_short_writes_go_on(new: Any, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = new(4096)
    data = np.arange(100, dtype=np.int32).reshape(10, 10)

    def short(fd: int, part: memoryview, offset: int, own: Any = os.pwrite) -> int:
        done: int = own(fd, part[:at_once], offset)
        return done

    monkeypatch.setattr(os, "pwrite", short)
    assert file.write(data, 96) == 96 + 400
    assert file.map()[96:496] == data.tobytes()


# -- mappings -----------------------------------------------------------------------------------------------------


def test_all_mappings_are_of_the_same_pages_but_private_ones(new: Any) -> None:
    file = new(MB)
    one, other, read_only, own = file.map(), file.map(), file.map(mmap.ACCESS_READ, 4096), private(file.fd, 4096)
    one[0] = 7
    assert (other[0], read_only[0], own[0], len(read_only)) == (7, 7, 7, 4096)
    own[0] = 9
    assert one[0] == 7


def test_a_private_mapping_for_which_memory_is_not_promised_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def map_once(fd: int, nbytes: int, access: int, offset: int, own: Any = mmap.mmap) -> Any:
        if access == mmap.ACCESS_COPY:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return own(fd, nbytes, access=access, offset=offset)

    file = in_memory(4096)
    monkeypatch.setattr(mmap, "mmap", map_once)
    with pytest.raises(TypeError):
        private(file.fd)[0] = 1


def test_a_mapping_outlives_its_file(new: Any) -> None:
    mapping = new(4096).map()
    gc.collect()
    mapping[0] = 7
    assert mapping[0] == 7


def test_core_dumps_leave_the_pages_out() -> None:
    mapping = in_memory(MB).map()
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    of_it = re.search(rf"^{address:x}-.*?^VmFlags: (.*?)$", Path("/proc/self/smaps").read_text(), re.M | re.S)
    assert of_it is not None
    assert "dd" in of_it[1].split()


# -- names --------------------------------------------------------------------------------------------------------


def test_nothing_with_a_name_is_left(new: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = new(MB)
    file.write(b"x", 0)
    assert os.fstat(file.fd).st_nlink == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", ["absent", errno.ENOSYS, errno.EPERM])
def test_without_files_in_memory_the_file_lies_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any
) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(code, os.strerror(code))

    if code == "absent":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = SharedFile.nameless(MB)
    assert os.fstat(file.fd).st_dev == tmp_path.stat().st_dev
    assert (file.size, list(tmp_path.iterdir())) == (MB, [])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with raises(OSError):
        SharedFile.nameless(MB)


def test_a_system_that_refuses_a_file_for_another_reason_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", refuse)
    with raises(OSError):
        SharedFile.nameless(MB)


# -- another process ----------------------------------------------------------------------------------------------


def test_another_process_reaches_the_file_by_its_place(new: Any) -> None:
    file = new(4096)
    pickled = pickle.dumps(file.place)

    def write() -> bool:
        file.close()
        other = SharedFile.reached(pickle.loads(pickled))
        assert other is not None
        return other.write(b"whole", 5) == 10

    assert in_a_fork(write)
    assert file.map()[5:10] == b"whole"


def test_a_file_that_is_another_or_gone_is_out_of_reach(new: Any) -> None:
    file = new(4096)
    place, before = file.place, descriptors()
    assert SharedFile.reached(None) is None
    assert SharedFile.reached(place._replace(inode=place.inode + 1)) is None
    assert SharedFile.reached(place._replace(pid=1 << 22)) is None
    file.close()
    assert SharedFile.reached(place) is None
    assert SharedFile.reached(file.place) is None
    assert len(descriptors()) == len(before) - 1


def test_the_exception_of_a_signal_handler_does_not_count_as_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    file = in_memory(4096)

    def struck(*_: Any) -> int:
        signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("the handler raises")

    def handler(number: int, frame: Any) -> None:
        raise TimeoutError("the time is up")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(os, "open", struck)
        with raises(TimeoutError):
            SharedFile.reached(file.place)
    finally:
        signal.signal(signal.SIGUSR1, before)


# -- the descriptor -----------------------------------------------------------------------------------------------


def test_the_descriptor_goes_with_the_last_reference(new: Any) -> None:
    before = descriptors()
    file = new(4096)
    assert len(descriptors()) == len(before) + 1
    file.close()
    file.close()
    assert file.fd == -1
    file = new(4096)
    del file
    assert descriptors() == before


@pytest.fixture
def taken(new: Any, tmp_path: Path) -> Iterator[tuple[SharedFile, int]]:
    """A file whose descriptor the program has closed, as daemons do, and opened for a file of its own."""
    file = new(4096)
    mapping, fd = file.map(), file.fd
    (tmp_path / "log").touch()
    with (tmp_path / "log").open("rb+") as log:
        os.dup2(log.fileno(), fd)
    yield file, fd
    assert (tmp_path / "log").stat().st_size == 0
    del mapping


def test_a_number_that_another_file_has_taken_is_left_alone(taken: tuple[SharedFile, int], tmp_path: Path) -> None:
    file, fd = taken
    assert not file.is_open()
    for act in (lambda: file.reserve(0, 10), lambda: file.write(b"x", 0)):
        with raises(OSError):
            act()
    assert SharedFile.reached(file.place) is None
    file.close()
    assert (tmp_path / "log").samefile(f"/proc/self/fd/{fd}")
    os.close(fd)
    assert identity(fd) is None


def test_a_closed_file_refuses_what_needs_it() -> None:
    file = in_memory(4096)
    file.close()
    with raises(OSError):
        file.write(b"x", 0)


def test_a_place_is_a_plain_tuple() -> None:
    file = in_memory(4096)
    assert file.place == Place(os.getpid(), file.fd, *shared_file.identity(file.fd) or ())
