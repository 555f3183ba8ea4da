"""Run programs of docs/compared, with a module `model` that keeps their batches.

Arguments: the file for the results, then `task_library` for each program. They read files of the
current folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.compared.programs import PROGRAMS, code_of

STEPS_BEFORE_THE_STOP = 3
WORLDS = (2, 3)
"""Of training that is stopped and resumed: how many ranks there are before and after the stop."""


class Stop(Exception):
    """The end of a program in mid-epoch."""


def kept(value: Any) -> Any:
    """Return a batch of any library in arrays of NumPy, dicts and lists."""
    if isinstance(value, dict):
        return {name: kept(part) for name, part in value.items()}
    if type(value).__name__ == "RaggedTensor":
        return [kept(row) for row in value]
    if hasattr(value, "numpy"):
        return value.numpy().copy()
    return [kept(part) for part in value] if isinstance(value, (list, tuple)) else value


class Model(ModuleType):
    """The module `model` of one run of one program."""

    def __init__(self, state: Any = None, most: float = float("inf")) -> None:
        super().__init__("model")
        self.log: list[tuple[str, Any]] = []
        self.states: list[Any] = []
        self._state, self._most = state, most

    def train_step(self, batch: Any) -> None:
        """Keep a batch of the training."""
        self.log.append(("train", kept(batch)))

    def evaluate(self, batch: Any) -> None:
        """Keep a batch of the validation."""
        self.log.append(("evaluate", kept(batch)))

    def load(self) -> Any:
        """Return the state to begin with, or None."""
        return self._state

    def save(self, state: Any) -> None:
        """Keep a state as JSON; stop the program if it has done its steps."""
        self.states.append(json.loads(json.dumps(state)))
        if len(self.states) >= self._most:
            raise Stop


def run(path: Path, model: Model) -> Model:
    """Run a program with this model."""
    sys.modules["model"] = model
    with contextlib.suppress(Stop):
        runpy.run_path(str(path), run_name="__main__")
    return model


def stopped_and_resumed(path: Path) -> list[list[Model]]:
    """Run a program on each rank of the first world up to the stop, then on each rank of the second from that state."""
    state, worlds = None, []
    for world, most in zip(WORLDS, (STEPS_BEFORE_THE_STOP, float("inf")), strict=True):
        models = []
        for rank in range(world):
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
            models.append(run(path, Model(state, most)))
        state = models[0].states[-1]
        worlds.append(models)
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    return worlds


def declare_operators() -> None:
    """Let torchvision be imported if its compiled operators do not fit torch. No program uses them."""
    from benchmarks.peers.augmentations import torchvision_v2

    torchvision_v2()


def main(result: str, *programs: str) -> None:
    """Run the programs, each to its end or its error."""
    if importlib.util.find_spec("torchvision") and any("torch" in code_of(name) for name in programs):
        declare_operators()
    results: dict[str, Any] = {}
    for name in programs:
        path = PROGRAMS / f"{name}.py"
        try:
            if name.startswith("resume"):
                results[name] = [[model.log for model in models] for models in stopped_and_resumed(path)]
            else:
                results[name] = run(path, Model()).log
        except Exception:
            results[name] = traceback.format_exc()
    Path(result).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
