"""Each claim of docs/what_a_worker_sees.md, tried by one program with all pools; those on torch by a test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from batchup_ng.work_pool.processes import process
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import ENVIRONMENT, one, ran

FLAGS = ["-W", "error::UserWarning", "-X", "utf8", "-X", "dev"]
SETTINGS = "import contextvars\nSCALE, NAME = 1, contextvars.ContextVar('NAME', default='default')\n"
PROGRAM = """
import contextlib, decimal, io, json, logging, os, sys, warnings
import numpy as np
import batchup_ng as bu
import settings

number, written = 1, []

class Holder:
    kept = 1

def look(x):
    print("printed by a map", flush=True)
    written.append(1)
    try:
        warnings.warn("as an error by -W", UserWarning)
        warned = "shown"
    except UserWarning:
        warned = "raised"
    try:
        np.array([1.0]) / 0
        divided = "quietly"
    except FloatingPointError:
        divided = "raised"
    return x, len(x) * [json.dumps({
        "module": settings.SCALE, "global": number, "class": Holder.kept, "folder": os.path.basename(os.getcwd()),
        "early": os.environ.get("EARLY"), "late": os.environ.get("LATE"), "warned": warned, "divided": divided,
        "level": logging.getLogger().level, "variable": settings.NAME.get(), "precision": decimal.getcontext().prec,
        "flags": [sys.flags.optimize + sys.flags.bytes_warning, sys.flags.utf8_mode, sys.flags.dev_mode],
        "hash": hash("text"), "omp": os.environ.get("OMP_NUM_THREADS"),
        "scheduling": os.sched_getscheduler(0),
    })]

source = bu.ArrayDataSource([np.arange(4)]).map(look)
settings.SCALE = 2
os.environ["EARLY"] = "yes"
pools = {
    "loop": None, "serial": bu.SerialPool(), "threads": bu.WorkerThreadPool(1),
    "forkserver": bu.WorkerProcessPool(1), "spawn": bu.WorkerProcessPool(1, start_method="spawn"),
}
sources = {kind: source if pool is None else pool.parallel_data_source(source) for kind, pool in pools.items()}
for each in sources.values():
    next(each.batch_iterator(4))
written.clear()
settings.SCALE, number, Holder.kept, os.environ["LATE"] = 3, 2, 2, "yes"
os.mkdir("elsewhere")
os.chdir("elsewhere")
warnings.simplefilter("ignore")
logging.getLogger().setLevel(5)
settings.NAME.set("set")
seen, texts, writes = {}, {}, {}
for kind, each in sources.items():
    with contextlib.redirect_stdout(io.StringIO()) as text, np.errstate(divide="raise"):
        with decimal.localcontext() as context:
            context.prec = 5
            iterator = each.batch_iterator(4)
            seen[kind] = [json.loads(one) for _, (one, *_) in iterator][0]
    texts[kind], writes[kind] = text.getvalue(), len(written)
    written.clear()
for pool in pools.values():
    if pool is not None:
        pool.close()
print(json.dumps([seen, texts, writes, hash("text")]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, in_full: bool) -> Any:
    """What the program saw in each pool, what was captured, what maps wrote, and the hash of a text in the program."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "settings.py").write_text(SETTINGS)
    (folder / "program.py").write_text(PROGRAM)
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "2"}
    environment.pop("PYTHONHASHSEED", None)
    # By -O each of the three interpreters would compile all that it imports anew, where nobody has before.
    done = ran("-O" if in_full else "-b", *FLAGS, "program.py", cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    return [folder.name, printed, *json.loads(last)]


HERE = ("loop", "serial", "threads")
PROCESSES = ("forkserver", "spawn")


def of(seen: dict[str, Any], name: str, kinds: tuple[str, ...]) -> Any:
    """Return what all of these saw."""
    values = [seen[kind][name] for kind in kinds]
    assert values == values[:1] * len(values)
    return values[0]


@pytest.mark.parametrize(
    ("name", "here", "there"),
    [
        ("module", 3, 1),
        ("global", 2, 1),
        ("class", 2, 1),
        ("folder", "elsewhere", None),
        ("early", "yes", "yes"),
        ("late", "yes", None),
        ("warned", "shown", "raised"),
        ("divided", "raised", "quietly"),
        ("level", 5, 30),
        ("variable", "set", "default"),
        ("precision", 5, 28),
        ("flags", [1, 1, True], [1, 1, True]),
        ("omp", "2", "1"),
    ],
)
def test_a_worker_sees_what_the_page_says(found: Any, name: str, here: Any, there: Any) -> None:
    folder, _, seen, *_ = found
    assert of(seen, name, HERE) == here
    assert of(seen, name, PROCESSES) == (folder if name == "folder" else there)


def test_workers_leave_the_cpu_of_the_loop_to_the_loop(found: Any) -> None:
    _, _, seen, *_ = found
    assert of(seen, "scheduling", ("loop", "serial")) == os.SCHED_OTHER
    assert of(seen, "scheduling", ("threads", *PROCESSES)) == os.SCHED_BATCH


def test_sets_of_texts_have_one_order_in_all_workers(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, seen, _, _, own = found
    assert of(seen, "hash", HERE) == own
    assert of(seen, "hash", PROCESSES) != own
    for given, expected in {"": "0", "random": "0", "7": "7"}.items():
        monkeypatch.setenv("PYTHONHASHSEED", given)
        assert process.same_bits(1)["PYTHONHASHSEED"] == expected


def test_what_a_map_prints_and_writes_stays_in_its_process(found: Any) -> None:
    _, printed, _, texts, writes, *_ = found
    assert {kind: text.count("printed") for kind, text in texts.items()} == dict.fromkeys(HERE, 1) | dict.fromkeys(
        PROCESSES, 0
    )
    assert printed.count("printed by a map") == len(HERE) + 2 * len(PROCESSES)
    assert writes == dict.fromkeys(HERE, 1) | dict.fromkeys(PROCESSES, 0)


def test_the_context_is_that_in_which_an_epoch_was_opened() -> None:
    def divide(x: np.ndarray) -> Any:
        return np.ones(len(x)) / 0, x

    source = bu.ArrayDataSource([np.arange(8)]).map(divide)
    with bu.SerialPool() as serial:
        for batches in (source.batch_iterator(2), serial.parallel_data_source(source).batch_iterator(2)):
            with np.errstate(divide="ignore"):  # here it is that of each next()
                next(batches)
            with raises(RuntimeWarning):
                next(batches)
    with bu.WorkerThreadPool(2) as pool:
        with np.errstate(divide="ignore"):
            quiet = pool.parallel_data_source(source, 1).batch_iterator(2)
            tasks = pool.work_stream(((np.divide, (np.ones(1), 0)) for _ in range(3)), 1)
        assert len(list(quiet)) == 4
        assert len(list(tasks.retrieve_iter())) == 3
        with raises(RuntimeWarning):
            list(pool.parallel_data_source(source).batch_iterator(2))

    def stream(batch_size: int, **options: Any) -> Iterator[Any]:
        with np.errstate(divide="ignore"):  # left in another task than that in which it was entered
            for _ in range(3):
                yield divide(np.arange(batch_size))

    with bu.WorkerThreadPool(1) as pool:
        assert len(list(pool.prefetch(bu.CallableDataSource(stream)).batch_iterator(2))) == 3


def test_torch_in_a_worker(pools: list[AbstractWorkerPool]) -> None:
    torch = pytest.importorskip("torch", reason="what becomes of torch's settings; it is not installed")

    def look() -> Any:
        return torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.get_num_threads()

    before = torch.get_default_dtype(), torch.get_num_threads()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        with torch.no_grad():
            assert look() == (False, "torch.float64", 2)
            assert one(pools[0], look)[:2] == (True, "torch.float64")
            assert one(pools[1], look) == (True, "torch.float32", 1)
    finally:
        torch.set_default_dtype(before[0])
        torch.set_num_threads(before[1])
