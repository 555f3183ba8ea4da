"""Reads damaged files, each in a child: whatever they hold must be rows, or one of our errors.

It is a program of its own, since libraries may crash, and may not bear to be forked once they are in use.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchup_ng as bu

SECONDS = 60
"""Seconds after which a child that still reads is ended by SIGALRM; it reads for milliseconds on an idle machine."""

BYTES = (0, 1, 127, 255, *b"019[]{}ab")
"""Bytes that lengths, offsets and metadata are likely to be damaged by."""


def damaged(folder: Path, tries: int, modules: str, code: str) -> tuple[int, list[int]]:
    """Return how many damaged copies of what is in ``folder/whole`` a child survived, and the signals that ended more.

    Args:
        folder: Where the copies are made.
        tries: How many.
        modules: The libraries to import before children are forked.
        code: Reads the file ``path``, by the functions ``tried`` and ``some_rows`` of this module.

    Raises:
        AssertionError: a child raised an exception that is not ours.
    """
    command = [sys.executable, "-W", "ignore", "-m", __name__, str(folder), str(tries), modules, code]
    root = Path(bu.__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7000, check=False, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]
    read, crashed = json.loads(done.stdout)
    return read, crashed


def tried(read: Callable[[], object]) -> None:
    """Call a function, which may raise our errors."""
    with contextlib.suppress(bu.BatchupError, ImportError, MemoryError):
        read()


def some_rows(rows: Any) -> None:
    """Read some rows of an accessor."""
    if len(rows) and getattr(rows, "row_bytes", 0) < 1 << 20:
        tried(lambda: rows[[len(rows) - 1, 0]])
        assert len(rows[:5]) <= 5


def damage(path: Path, chance: random.Random) -> None:
    """Change some bytes of a file, or cut it short."""
    content = bytearray(path.read_bytes())
    used = [place for place, byte in enumerate(content) if byte]
    for _ in range(chance.choice([1, 1, 2, 8])):
        place = chance.choice(used) - chance.choice([0, 1])
        content[place] = chance.choice(BYTES) if chance.random() < 0.7 else chance.randrange(256)
    path.write_bytes(content[: chance.randrange(len(content)) if chance.random() < 0.1 else None])


def main(folder: Path, tries: int, modules: str, code: str) -> None:
    """Damage and read; print, as JSON, what :func:`damaged` returns."""
    for module in modules.split():
        with contextlib.suppress(ImportError):
            __import__(module)
    names = {"bu": bu, "tried": tried, "some_rows": some_rows}
    chance, wholes = random.Random(1), sorted((folder / "whole").iterdir())
    read, crashed = 0, list[int]()
    for number in range(tries):
        whole = wholes[number % len(wholes)]
        path = folder / f"{number} {whole.name}"
        (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
        damage(chance.choice(sorted(each for each in (path, *path.rglob("*")) if each.is_file())), chance)
        if (child := os.fork()) == 0:
            signal.alarm(SECONDS)
            try:
                tried(lambda: exec(code, {**names, "path": str(path)}))  # noqa: B023  # called at once
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status >> 8:
            sys.exit(f"{path} was read with an error that is not ours")
        if status:
            crashed.append(status & 127)
        else:
            read += 1
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(json.dumps([read, crashed]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
