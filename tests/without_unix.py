"""A plugin of pytest that hides from the package what Windows lacks: ``pytest -p tests.without_unix``.

Modules of the package then import ``os``, ``signal``, ``socket``, ``time``, ``mmap`` and ``sys`` as they are there:
without calls and constants that the documentation of Python marks "Availability: Unix", and with ``sys.platform``
``"win32"``. ``fcntl``, ``resource`` and others cannot be imported. The tests, the libraries and the programs that tests
start see all of it. A test that makes a pool of processes is skipped where the pool refuses.

On Windows itself nothing is hidden. The plugin leaves out the same tests. Other files of tests that import ``fcntl`` or
``resource`` get an empty module.
"""

from __future__ import annotations

import builtins
import errno
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

if sys.platform != "win32":
    import fcntl

PACKAGE = "batchup_ng"
LEFT_OUT = ("tests/work_pool/processes/", "tests/work_pool/ray/", "tests/faults/", "tests/frameworks/",
            "tests/benchmarks/", "tests/memory/", "tests/observe/test_answers.py/", "tests/observe/test_top.py/",
            "tests/accessors/test_cached_files.py/", "tests/work_pool/test_choice.py/")  # fmt: skip
"""Tests of worker processes, of Ray, of memory, signals, limits and ``/proc``, and of programs, which see all of it."""
NO_MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"}
HIDDEN: dict[ModuleType, tuple[str, ...]] = {
    os: (
        "fork", "forkpty", "register_at_fork", "memfd_create", "MFD_CLOEXEC", "pidfd_open", "pread", "preadv", "pwrite",
        "pwritev", "posix_fallocate", "posix_fadvise", "fdatasync", "getuid", "geteuid", "getgid", "getegid",
        "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_setscheduler", "sched_param",
        "SCHED_BATCH", "SCHED_OTHER", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_DSYNC",
        "fchmod", "fchown", "chown", "statvfs", "fstatvfs", "mkfifo", "setsid", "getpgid", "killpg", "WNOHANG",
        "waitid", "set_blocking", "sendfile", "nice", "getloadavg", "sysconf", "sync", "setpriority", "posix_spawn",
    ),
    signal: (
        "pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK", "SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1",
        "SIGUSR2", "SIGPIPE", "SIGCHLD", "SIGQUIT", "SIGSTOP", "SIGCONT", "sigtimedwait", "sigwait", "setitimer",
        "alarm", "pause", "sigpending", "pthread_kill",
    ),
    socket: ("AF_UNIX", "SCM_RIGHTS", "send_fds", "recv_fds", "CMSG_SPACE", "CMSG_LEN", "MSG_DONTWAIT", "SO_PEERCRED"),
    time: ("pthread_getcpuclockid", "clock_gettime", "clock_gettime_ns", "CLOCK_MONOTONIC", "CLOCK_THREAD_CPUTIME_ID"),
    mmap: (
        "MAP_SHARED", "MAP_PRIVATE", "MAP_ANONYMOUS", "PROT_READ", "PROT_WRITE", "MADV_DONTNEED", "MADV_REMOVE",
        "MADV_WILLNEED", "MADV_RANDOM", "MADV_SEQUENTIAL", "MADV_HUGEPAGE", "MADV_FREE", "MADV_NORMAL", "MADV_COLD",
        "MADV_POPULATE_READ", "MADV_POPULATE_WRITE",
    ),
    sys: ("setdlopenflags",),
}  # fmt: skip
REPLACED: dict[ModuleType, dict[str, Any]] = {sys: {"platform": "win32"}}

OF_UNIX = {
    "processes share memory": (
        "test_a_chunk_is_decoded_once_for_all", "test_a_fork_shares_what_there_is",
        "test_memory_that_is_not_free_is_not_taken", "test_nothing_is_taken_before_the_first_use",
        "test_out_of_reach_each_has_its_own", "test_what_another_process_is_decoding_is_waited_for",
        "test_a_pickle_of_what_each_process_keeps_needs_no_shared_chunks", "test_any_sequence_of_batches_has_the_rows",
        "test_memory_that_is_not_free_is_not_counted_on", "test_memory_is_taken_as_rows_come",
        "test_the_memory_goes_with_the_last_reference",
    ),
    "the test changes a call of the system": (
        "test_a_disk_that_takes_few_bytes_at_once", "test_other_errors_of_the_system_are_told_in_its_words",
    ),
    "the second of two pools of one process has the file open": ("test_f26_a_file_that_changes_in_mid_epoch_is_named",),
    "a fork, or a signal that Windows lacks": (
        "test_other_signals_whose_handlers_may_raise_wait_too",
        "test_the_exception_of_a_signal_handler_is_no_file_that_is_missing", "test_a_fork_makes_a_pool_of_its_own",
        "test_a_loader_goes_on_in_a_fork", "test_no_picture_is_another_for_a_strike",
    ),
    "worker processes": (
        "test_batches_with_a_mask_draw_from_seeded_global_generators_too", "test_nor_a_source_that_cannot_be_pickled",
        "test_options_of_the_process_pool_are_checked", "test_the_number_of_workers_is_checked",
        "test_a_pool_in_a_source_is_refused_by_name", "test_work_that_sleeps_has_little_cpu_time",
        "test_a_row_of_any_length_does_not_replace_one_that_fails",
        "test_the_replacement_of_a_killed_worker_shares_the_rows",
    ),
    "processes are chosen": ("test_repr_tells_what_was_chosen_and_why", "test_a_choice_is_logged_with_its_reason"),
    "a folder is locked by its own descriptor": (
        "test_another_process_that_is_at_it", "test_two_programs_at_one_target_leave_one_whole_file",
    ),
}  # fmt: skip
"""Tests that tell nothing here, by the reason."""


class Hidden(ModuleType):
    """A module as it is where some names do not exist."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module
        self.__dict__["_names"] = frozenset(HIDDEN[module])
        self.__dict__.update(REPLACED.get(module, {}))

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}: it is hidden")
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


class Locks(ModuleType):
    """A stand-in for ``msvcrt``, whose locks belong to an open file, as those of Windows do."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def locking(self, fd: int, mode: int, nbytes: int) -> None:
        """Take or release a lock. Raise as Windows does if another has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_UN if mode == self.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None


_hidden: dict[str, ModuleType] = {"msvcrt": Locks("msvcrt")} | {module.__name__: Hidden(module) for module in HIDDEN}
_import = builtins.__import__


def _imported(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> Any:  # as builtins.__import__ has it
    if level == 0 and globals is not None and str(globals.get("__name__")).split(".")[0] == PACKAGE:
        top = name.split(".")[0]
        if top in NO_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}: it is hidden", name=name)
        if name in _hidden:
            return _hidden[name]
    return _import(name, globals, locals, fromlist, level)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Begin before the package is imported. An import of this module alone does nothing."""
    if sys.platform == "win32":
        for name in ("fcntl", "resource"):  # the package asks for the platform instead
            sys.modules.setdefault(name, ModuleType(name))
        return
    builtins.__import__ = _imported


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out some folders."""
    folder = f"{collection_path.relative_to(config.rootpath).as_posix()}/"
    return True if folder.startswith(LEFT_OUT) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that tell nothing here."""
    reasons = {name: reason for reason, names in OF_UNIX.items() for name in names}
    for item in items:
        if (reason := reasons.get(item.name.split("[")[0])) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    """Skip a test that made a pool of processes."""
    raised = call.excinfo
    if raised is not None and str(raised.value).startswith("WorkerProcessPool needs Linux or macOS"):
        try:
            pytest.skip("this system has no worker processes")
        except pytest.skip.Exception:
            call.excinfo = pytest.ExceptionInfo.from_current()
    return (yield)
