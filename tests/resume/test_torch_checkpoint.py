"""An iterator is saved and loaded by torch.distributed.checkpoint, from one process or several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool

torch = pytest.importorskip("torch", reason="its checkpoints are what holds the state")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning:torch")

ROOT = Path(__file__).parents[2]
SHUFFLES: dict[str, Callable[[int], Any]] = {
    "in order": lambda seed: None,
    "seed": lambda seed: 1 << 80,
}
PROGRAM = """
import sys
import numpy as np
from torch import distributed
from torch.distributed import checkpoint
import batchup_ng as bu

def refuse(x):
    if (x < 7).any():
        raise ValueError("below 7")
    return (x,)

distributed.init_process_group("gloo")
with bu.WorkerThreadPool(1) as pool:
    source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(1000)]).map(refuse), on_error="skip")
    with source.batch_iterator(10, shuffle=None, shard="auto") as batches:
        for _ in range(3):
            next(batches)
        checkpoint.save({"data": batches}, checkpoint_id=sys.argv[1])
        counts = [None] * distributed.get_world_size()
        distributed.all_gather_object(counts, batches.state_dict()["counts"][:-1])
distributed.destroy_process_group()
assert counts == [[30, 23, 7, 0], [30, 30, 0, 0]], counts
"""


def refuse(x: np.ndarray) -> Any:
    """Pass a batch on: the same graph as that of the program."""
    return (x,)


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.normal(size=3)


@pytest.mark.parametrize("stop", [0, 3, 100])
@pytest.mark.parametrize("kind", SHUFFLES)
def test_torch_saves_an_iterator_and_loads_it_into_another(
    pools: list[AbstractWorkerPool], kind: str, stop: int, tmp_path: Path
) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.stateful import Stateful

    source = bu.ArrayDataSource([np.arange(1000)]).map(noisy, rng="sample")
    whole = list(source.batch_iterator(10, SHUFFLES[kind](3), epoch=2))
    with pools[1].parallel_data_source(source).batch_iterator(10, SHUFFLES[kind](3), epoch=2) as batches:
        assert isinstance(batches, Stateful)
        assert len(list(islice(batches, stop))) == stop
        checkpoint.save({"data": batches, "weights": torch.ones(3)}, checkpoint_id=tmp_path)
    # Neither its epoch nor its generator is that of the saved one.
    other = source.batch_iterator(10, SHUFFLES[kind](99))
    checkpoint.load({"data": other, "weights": torch.zeros(3)}, checkpoint_id=tmp_path)
    assert_same_batches(list(other), whole[stop:])


@pytest.mark.thorough
def test_what_several_ranks_saved_one_process_loads(tmp_path: Path) -> None:
    from torch.distributed import checkpoint

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    torchrun(2, program, tmp_path / "saved")
    batches = bu.ArrayDataSource([np.arange(1000)]).map(refuse).batch_iterator(10)
    checkpoint.load({"data": batches}, checkpoint_id=tmp_path / "saved")
    assert batches.state_dict()["counts"][:-1] in ([30, 23, 7, 0], [30, 30, 0, 0]), "those of one rank"
    assert np.concatenate([x for (x,) in batches]).tolist() == list(range(60, 1000))


def torchrun(processes: int, program: Path, *arguments: Path) -> None:
    """Run a program as torchrun does."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    launcher.append(f"--log-dir={program.parent}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.Popen(
        [*launcher, str(program), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        out, _ = done.communicate(timeout=800)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        raise
    assert done.returncode == 0, out
