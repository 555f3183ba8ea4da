"""docs/errors.md has an entry for each error and warning, with a message that a program really gives."""

from __future__ import annotations

import errno
import importlib
import inspect
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import errors
from batchup_ng.data_source.epoch.accounting import Accounting
from batchup_ng.datasets.standard import table
from batchup_ng.formats import npy
from batchup_ng.testing import assert_reproducible
from batchup_ng.work_pool import prefetch_buffer, rank_exchange
from batchup_ng.work_pool.processes.process import refused
from batchup_ng.work_pool.ray.actor import check_file

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
ENTRY = re.compile(
    r"^### `(\w+)`\n\n```\{code-block\} text\n:class: message\n\n(.*?)^```\n\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL
)

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")

X = np.arange(12)
SOURCE = bu.ArrayDataSource([X])


def refuse_seven(x: Any) -> Any:
    if 7 in x:
        raise ValueError("seven is not allowed")
    return (x,)


def batch_error() -> None:
    list(SOURCE.map(refuse_seven).batch_iterator(4))


def argument_error() -> None:
    bu.Loader([X], 0)


def argument_type_error() -> None:
    bu.Loader([X], 64, num_workers=2)  # type: ignore[call-arg]


def serialization_error() -> None:
    lock = threading.Lock()
    with bu.WorkerProcessPool(1) as pool:
        pool.parallel_data_source(SOURCE.map(lambda x: (x, lock)))


def map_call_error() -> None:
    list(bu.ArrayDataSource([X, X]).map(lambda image: image / 255).batch_iterator(4))


def map_result_error() -> None:
    def scale(x: Any) -> None:
        x * 2

    list(SOURCE.map(scale).batch_iterator(4))


def in_order_not_supported() -> None:
    list(SOURCE.sample(weights=np.ones(12)).batch_iterator(4))


def sample_read_error() -> None:
    list(bu.ArrayDataSource([bu.ImageFiles(["photos/cat.jpg"], size=8)]).batch_iterator(1))


def write_error() -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npy.NpyWriter, "write", full)
        bu.convert(SOURCE, "train.npy", progress=False)


def download_error() -> None:
    pytest.importorskip("pooch", reason="data sets are downloaded by pooch, which is not installed")
    with pytest.MonkeyPatch.context() as patch:
        gone = [file._replace(urls=(f"http://127.0.0.1:9/{file.name}",)) for file in table.FILES["mnist"]]
        patch.setitem(table.FILES, "mnist", tuple(gone))
        bu.datasets.mnist("data", progress=False)


def sample_timeout() -> None:
    ended = threading.Event()

    def hang(x: Any) -> Any:
        if 7 in x:
            ended.wait(100)
        return (x,)

    try:
        with bu.WorkerThreadPool(1) as pool:
            list(pool.parallel_data_source(SOURCE.map(hang), timeout=1).batch_iterator(4))
    finally:
        ended.set()


def too_many_errors() -> None:
    policy = bu.ErrorPolicy("skip", max_errors=0)
    list(SOURCE.map(refuse_seven).batch_iterator(4, on_error=policy))


def reentrant_iteration() -> None:
    batches: Any = None

    def following(x: Any) -> Any:
        return x, next(batches)

    batches = SOURCE.map(following).batch_iterator(4)
    list(batches)


def pool_closed() -> None:
    with bu.WorkerThreadPool(1) as pool:
        background = pool.parallel_data_source(SOURCE)
    list(background.batch_iterator(4))


def worker_died() -> None:
    def kill(x: Any) -> Any:
        if 7 in x:
            os.kill(os.getpid(), 9)
        return (x,)

    with bu.WorkerProcessPool(1) as pool:
        list(pool.parallel_data_source(SOURCE.map(kill)).batch_iterator(4))


def state_error() -> None:
    with bu.Loader([X], 4, shuffle=7, pool="serial") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with bu.Loader([X[:10]], 4, shuffle=7, pool="serial") as loader:
        loader.load_state_dict(state)


def ledger_error() -> None:
    with bu.Loader([X], 4, shuffle=7, pool="serial") as loader:
        kept = bu.ledger(loader, "run.json")
        list(kept)
    with bu.Loader([X[:10]], 4, shuffle=7, pool="serial") as loader:
        list(bu.ledger(loader, "run.json"))


def not_reproducible() -> None:
    rng = np.random.default_rng(0)
    assert_reproducible(SOURCE.map(lambda x: (x * rng.integers(2, 9, len(x)),)), 4)


def pool_broken() -> None:
    raise refused(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))


def cluster_error() -> None:
    check_file("data/train.h5", 1000, 0, "10.0.0.7")


def rank_timeout() -> None:
    raise rank_exchange._not_all([3], 8, 60)


def accounting_error() -> None:
    accounting = Accounting()
    accounting.record(0, 4, 4, 0, "")
    accounting.balance(2)


def remote_traceback() -> None:
    with bu.WorkerProcessPool(1) as pool:
        try:
            list(pool.work_stream(iter([(divmod, (1, 0))])))
        except ZeroDivisionError as error:
            raise error.__cause__ or error from None


def stall_warning() -> None:
    passed = threading.Event()

    def hang(x: Any) -> Any:
        passed.wait(100)
        return (x,)

    with pytest.MonkeyPatch.context() as patch, bu.WorkerThreadPool(1) as pool:
        patch.setattr(prefetch_buffer, "STALL_SECONDS", 0.05)
        seen = warnings.showwarning
        patch.setattr(warnings, "showwarning", lambda *given, **named: (seen(*given, **named), passed.set()))
        list(pool.parallel_data_source(SOURCE.map(hang)).batch_iterator(4))


def sample_warning() -> None:
    list(SOURCE.map(refuse_seven).batch_iterator(4, on_error="skip"))


def no_epoch_left_warning() -> None:
    with bu.Loader([X], 4, shuffle=7, pool="serial") as loader:
        for _ in range(2):
            for batch in loader.epochs(10):
                del batch


def repeated_epoch_warning() -> None:
    for _ in range(2):
        list(SOURCE.batch_iterator(4, shuffle=7))


def buffer_warning() -> None:
    bu.memory_limit("3MB")
    try:
        with bu.WorkerThreadPool(4) as pool:
            large = bu.ArrayDataSource([np.zeros((12, 1000, 100))])
            list(pool.parallel_data_source(large, buffer=8).batch_iterator(2))
    finally:
        bu.memory_limit(None)


class Decoded:
    shape, dtype = (100, 8, 8, 3), np.dtype(np.uint8)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, rows: Any) -> Any:
        return np.zeros((len(rows), 8, 8, 3), np.uint8)


def cache_warning() -> None:
    bu.ArrayDataSource([Decoded()]).cache(limit="10kB")


def shared_memory_warning() -> None:
    bu.memory_limit("1MB")
    try:
        with bu.WorkerProcessPool(1) as pool:
            pool.parallel_data_source(bu.ArrayDataSource([np.zeros((100, 1000, 100), np.uint8)]))
    finally:
        bu.memory_limit(None)


def worker_warning() -> None:
    Path("shifts.py").write_text("def shift(x):\n    return (x + 1,)\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, bu.WorkerProcessPool(1) as pool:
        patch.syspath_prepend(os.getcwd())
        shifts = importlib.import_module("shifts")
        try:
            for _ in range(2):
                list(pool.parallel_data_source(SOURCE.map(shifts.shift)).batch_iterator(4))
                importlib.reload(shifts)
        finally:
            del sys.modules["shifts"]


PROGRAMS: dict[str, Callable[[], None]] = {
    "".join(map(str.capitalize, program.__name__.split("_"))): program
    for program in (
        batch_error, argument_error, argument_type_error, serialization_error, map_call_error, map_result_error,
        in_order_not_supported, sample_read_error, write_error, download_error, sample_timeout, too_many_errors,
        reentrant_iteration, pool_closed, worker_died, state_error, ledger_error, not_reproducible, pool_broken,
        cluster_error, rank_timeout, accounting_error, remote_traceback, stall_warning, sample_warning,
        no_epoch_left_warning, repeated_epoch_warning, buffer_warning, cache_warning, shared_memory_warning,
        worker_warning,
    )
}  # fmt: skip
"""For each class, a program that ends in its exception, or gives its warning."""


def printed(program: Callable[[], None]) -> tuple[type, str]:
    """Return the class of what a program raises, or else first warns of, and how Python prints it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            program()
        except Exception as error:
            return type(error), "".join(traceback.format_exception_only(error))
    return found[0].category, f"{found[0].category.__name__}: {found[0].message}"


VARYING = (
    (r"pid \d+", "pid 4711"),
    (r"sets .* processes and", "sets a limit of 4096 processes and"),
    (r"yourself\. .*", "yourself. …"),
    (r"for 0 s\b", "for 30 s"),
    (r"temporary file in '[^']*'", "temporary file in '/var/tmp'"),
)
"""Parts of messages that are others in each run, with what the page shows."""


def plain(text: str) -> str:
    """Return a message in one line, without what is another in each run."""
    text = text.replace(f"{os.getcwd()}/", "")
    text = re.sub(r"^  .*\n", "", text, flags=re.MULTILINE)  # the frames of a traceback
    for run, shown in VARYING:
        text = re.sub(run, shown, text)
    return " ".join(text.split())


def entries() -> dict[str, tuple[str, str]]:
    """Return the message and the text below it for each class on the page."""
    found = [(name, (message, below)) for name, message, below in ENTRY.findall(PAGE.read_text(encoding="utf-8"))]
    assert len(found) == len(dict(found))
    return dict(found)


def classes() -> set[str]:
    """Return the names of all public exceptions, without their common base, which is never raised itself."""
    found = {name for name, own in vars(errors).items() if inspect.isclass(own) and issubclass(own, Exception)}
    return {name for name in found if getattr(errors, name).__module__ == errors.__name__} - {"BatchupError"}


def test_each_class_has_an_entry_with_its_cause_and_remedy() -> None:
    assert entries().keys() == classes() == PROGRAMS.keys()
    for name, (_, below) in entries().items():
        assert re.match(r"\*\*Cause\.\*\* \S.*\*\*Remedy\.\*\* \S", below, re.DOTALL), name


@pytest.mark.in_turn
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_message_of_an_entry_is_printed_by_a_program(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, said = printed(PROGRAMS[name])
    assert issubclass(kind, getattr(errors, name))
    assert plain(entries()[name][0]) == plain(said)
