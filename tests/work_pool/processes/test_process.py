"""Starting worker processes: what is refused, what dies, what does not answer."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchup_ng.errors import PoolBroken, PoolClosed
from batchup_ng.memory.limits import entries
from batchup_ng.work_pool.processes import fork_server, process, protocol
from batchup_ng.work_pool.processes.pool import START_METHODS
from batchup_ng.work_pool.processes.process import EXIT_UNKNOWN, WorkerProcess, refused
from tests.extent import methods, quick
from tests.messages import raises
from tests.threads import in_threads
from tests.work_pool.processes.serialization_helpers import ran, wait_until


@pytest.fixture(autouse=True)
def servers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the servers that are stopped and killed here apart from that of the pools which tests share."""
    monkeypatch.setenv("BATCHUP_NG_TESTS_OF_STARTS", "yes")
    monkeypatch.setattr(process, "KILL_TIMEOUT", 240.0)


@contextmanager
def starting(method: str, **given: Any) -> Iterator[Any]:
    """Give a launcher that is closed with the block."""
    made = START_METHODS[method](1, **given)
    try:
        yield made
    finally:
        made.interrupt()
        made.rest()


def started(launcher: Any) -> WorkerProcess:
    """Return a new worker that has said that it is ready."""
    worker: WorkerProcess = launcher.start()
    worker.sock.setblocking(True)
    frame = protocol.FrameReader(worker.sock).next()
    assert frame is not None
    assert (frame.kind, frame.number) == (protocol.Kind.READY, worker.pid)
    return worker


def end(worker: WorkerProcess) -> int | None:
    """End a worker, however long it takes, and return its exit code."""
    return worker.end(240.0)


def server_of(starter: Any) -> psutil.Process:
    return psutil.Process(starter._server._process.pid)


@pytest.mark.parametrize("method", methods("forkserver"))
def test_a_worker_has_the_descriptors_and_ends_with_its_socket(method: str) -> None:
    fd = os.memfd_create("test")
    os.write(fd, bytes(8192))
    try:
        with starting(method, arena_fd=fd, blas_threads=1) as starter:
            workers = [started(starter) for _ in range(2)]
            for worker in workers:
                targets = [os.readlink(path) for path in Path(f"/proc/{worker.pid}/fd").iterdir()]
                assert sum(target.startswith("/memfd:test") for target in targets) >= 1
            assert [end(worker) for worker in workers] == [0, 0]
    finally:
        os.close(fd)


@pytest.mark.in_turn
def test_the_server_is_started_again_if_it_has_died_and_its_workers_end_or_are_killed() -> None:
    with starting("forkserver") as starter:
        first, stopped = started(starter), started(starter)
        before = server_of(starter)
        before.kill()
        before.wait(120)
        second = started(starter)
        assert server_of(starter).pid != before.pid
        assert psutil.pid_exists(first.pid)
        assert end(first) == EXIT_UNKNOWN
        os.kill(stopped.pid, signal.SIGSTOP)
        assert stopped.end(0.05) == EXIT_UNKNOWN
        assert fork_server._state(stopped.pid) in "ZX"
        assert end(second) == 0


def test_a_process_that_has_the_number_of_a_dead_worker_by_now_is_not_killed() -> None:
    worker_process, other = subprocess.Popen(["sleep", "600"]), subprocess.Popen(["sleep", "600"])
    try:
        sock, end = socket.socketpair()
        with end:
            worker = WorkerProcess(worker_process.pid, sock, lambda timeout: None)
            worker.pid = other.pid  # as if the system had given it the number
            assert worker.end(0.0) is None
        assert worker_process.wait(120) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for each in (worker_process, other):
            each.kill()
            each.wait()


@pytest.mark.in_turn
def test_pools_share_a_server_if_their_workers_have_the_same_surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with starting("forkserver") as one:
        assert end(one.start()) == 0
        with monkeypatch.context() as patch, starting("forkserver") as other:
            patch.setenv("BATCHUP_NG_ANYTHING", "else")
            assert end(other.start()) == 0
            changed = server_of(other)
            assert changed != server_of(one)
        assert not changed.is_running()
        assert server_of(one).is_running()
    as_it_was = fork_server.surroundings_of_workers(1)
    for change in (
        lambda patch: patch.chdir(tmp_path),
        lambda patch: patch.syspath_prepend(str(tmp_path)),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            assert fork_server.surroundings_of_workers(1) != as_it_was
    assert fork_server.surroundings_of_workers(None) != as_it_was == fork_server.surroundings_of_workers(1)


def test_what_a_process_has_from_its_parent_must_be_the_same(tmp_path: Path) -> None:
    changes = [
        lambda: os.umask(0o137),
        lambda: os.nice(1),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500)),
        lambda: os.chdir(tmp_path),
        lambda: (tmp_path.rmdir(), tmp_path.mkdir(), os.chdir(tmp_path)),  # another one of that name
        lambda: os.dup2(os.memfd_create("output"), 1),
        lambda: os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]),
    ]
    if len(os.sched_getaffinity(0)) == 1:
        changes.pop()
    if os.getuid() == 0:
        changes.append(lambda: os.setuid(65534))
    pid = os.fork()
    if pid == 0:
        different = 0
        try:
            for change in changes:
                before = fork_server.surroundings_of_workers(1)
                assert before is not None
                change()
                different += fork_server.surroundings_of_workers(1) != before
        finally:
            os._exit(different)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == len(changes)


PROGRAM = """
import atexit, os, sys
atexit.register(lambda: use("at the end"))
import batchup_ng as bu
from batchup_ng.work_pool import prefetch_buffer
prefetch_buffer.STALL_SECONDS = 3600.0  # a busy machine is no stall, of which a warning would be printed

def use(when):
    with bu.WorkerProcessPool(1) as pool:
        print(when, next(pool.work_stream(iter([(len, ("abc",))]))), flush=True)

use("first")
if (pid := os.fork()) == 0:
    use("fork")
    sys.exit()
os.waitpid(pid, 0)
os.closerange(3, 100)  # as daemons do
others = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]  # which have the numbers now
use("closed")
assert all(os.path.samestat(os.fstat(fd), os.stat(os.devnull)) for fd in others)
"""


@pytest.mark.in_turn
def test_programs_that_fork_close_all_or_use_a_pool_at_their_end_are_told_nothing() -> None:
    done = ran("-X", "dev", "-c", PROGRAM)
    if (3, 12, 0) <= sys.version_info < (3, 12, 3):  # in which Python starts no thread for what atexit calls
        assert done.stdout == "first 3\nfork 3\nclosed 3\n"
        assert done.stderr.count("use the pool before the program ends") == 2
        return
    assert done.stdout == "first 3\nfork 3\nat the end 3\nclosed 3\nat the end 3\n"
    assert done.stderr == ""


def test_two_pools_at_once_have_one_server_and_either_may_end_first() -> None:
    with starting("forkserver") as first:
        with starting("forkserver") as second:
            workers = [started(first), started(second)]
            assert server_of(first) == server_of(second)
            assert end(workers[1]) == 0
        server = server_of(first)
        later = started(first)
        assert [end(workers[0]), end(later)] == [0, 0]
    assert not server.is_running()


def test_threads_that_start_pools_at_once_get_one_server() -> None:
    at_once, servers = threading.Barrier(4), []

    def start() -> None:
        at_once.wait(120)
        with starting("forkserver") as starter:
            worker = started(starter)
            servers.append(server_of(starter).pid)
            at_once.wait(120)
            end(worker)

    in_threads([start] * 4)
    assert len(servers) == 4
    assert len(set(servers)) == 1


@pytest.mark.in_turn
def test_a_pool_that_is_closed_while_a_server_is_stopped_does_not_keep_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "SERVER_TIMEOUT", 1.0)
    with starting("forkserver") as other:
        worker = started(other)
        with starting("forkserver") as starter:
            end(started(starter))
            stopped = server_of(other)
            stopped.suspend()
            said: list[BaseException] = []

            def start() -> None:
                with pytest.raises(PoolBroken) as caught:
                    starter.start()
                said.append(caught.value)

            thread = threading.Thread(target=start)
            thread.start()
            wait_until(starter._server._lock.locked)  # its request is under way
            starter.interrupt()
            thread.join(120)
        assert said
        assert end(worker) == EXIT_UNKNOWN
        again = started(other)
        assert server_of(other) != stopped
        assert end(again) == 0


@pytest.mark.in_turn
@pytest.mark.parametrize("act", ["suspend", "kill"])
def test_a_server_that_was_killed_or_does_not_answer_is_not_shared(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with starting("forkserver") as one:
        worker = started(one)
        unfit = server_of(one)
        getattr(unfit, act)()
        with monkeypatch.context() as patch:
            patch.setattr(fork_server, "ANSWER_TIMEOUT", 0.1)
            assert end(worker) == EXIT_UNKNOWN
        unfit.resume() if act == "suspend" else unfit.wait(120)
        with starting("forkserver") as other:
            assert end(other.start()) == 0
            assert server_of(other) != unfit
    assert not unfit.is_running()


def test_a_fork_of_the_users_leaves_the_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with starting("forkserver") as starter:
        assert end(starter.start()) == 0
        with monkeypatch.context() as patch:
            patch.setattr(fork_server, "ForkServer", lambda blas_threads: types.SimpleNamespace(users=1))
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(not isinstance(fork_server.take(1), types.SimpleNamespace))
                finally:
                    os._exit(2)
            assert os.waitpid(pid, 0)[1] == 0
        server = server_of(starter)
        assert end(starter.start()) == 0
        assert server_of(starter) == server


@pytest.mark.in_turn
def test_a_server_that_dies_before_it_answers_leaves_no_worker_on_the_socket_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork, first = fork_server.ForkServer.fork, []

    def dies_once(server: fork_server.ForkServer, *how: Any) -> int | None:
        pid = fork(server, *how)
        if first:
            return pid
        first.append(pid)
        server._process.kill()
        server.ended = True
        return None

    monkeypatch.setattr(fork_server.ForkServer, "fork", dies_once)
    with starting("forkserver") as starter:
        worker = starter.start()
        wait_until(lambda: fork_server._state(first[0]) in "ZX")  # it would read what is meant for the other
        worker.sock.setblocking(True)
        frame = protocol.FrameReader(worker.sock).next()
        assert frame is not None
        assert frame.number == worker.pid
        assert end(worker) == 0


@pytest.mark.in_turn
def test_a_server_that_does_not_answer_is_told_of_and_replaced() -> None:
    with starting("forkserver") as starter:
        worker = started(starter)
        stopped = server_of(starter)
        stopped.suspend()
        starter.start_timeout = 0.1
        with raises(PoolBroken) as caught:
            starter.start()
        assert f"(pid {stopped.pid})" in str(caught.value)
        starter.start_timeout = 60.0
        again = started(starter)
        end(worker)
        assert end(again) == 0


def test_a_closed_launcher_starts_nothing() -> None:
    with starting("forkserver") as starter:
        pass
    with pytest.raises(PoolClosed):
        starter.start()


def test_a_server_without_descriptors_says_so() -> None:
    with starting("forkserver") as starter:
        worker = started(starter)
        pid = server_of(starter).pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, hard))
        with raises(PoolBroken):
            starter.start()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        later = started(starter)
        assert (end(worker), end(later)) == (0, 0)


@pytest.mark.parametrize("code", quick([errno.EAGAIN], [errno.ENOMEM]))
def test_a_system_that_gives_no_process_is_told_of(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    with starting("spawn") as starter:
        before = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", refuse)
            with raises(PoolBroken):
                starter.start()
        starter.rest()
        assert len(os.listdir("/proc/self/fd")) == before
        worker = started(starter)
        end(worker)


@pytest.mark.parametrize(
    ("limit", "counted", "option"), [("RLIMIT_DATA", "VmData", "-d"), ("RLIMIT_AS", "VmSize", "-v")]
)
def test_a_thread_without_memory_is_not_blamed_on_the_number_of_processes(
    limit: str, counted: str, option: str
) -> None:
    kind = getattr(resource, limit)
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (entries(Path("/proc/self/status"))[counted] + (1 << 20), hard))
    try:
        said = str(refused(RuntimeError("can't start new thread")))
    finally:
        resource.setrlimit(kind, (soft, hard))
    assert f"{limit} sets a limit of" in said
    assert f"ulimit {option}" in said
    assert "RLIMIT_NPROC" in str(refused(RuntimeError("can't start new thread")))
