"""Time of `from_folder` compared with a bare walk that counts files, and of `from_table`'s check for missing files.

    python -m benchmarks.folders --files 100000 --rounds 9

It makes a tree of empty files, 1,000 per folder, then times each row, round by round. It is not a study of
``python -m benchmarks``, because those compare epochs of loaders.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import batchup_ng as bu
from benchmarks.trials import seconds_of

IN_A_FOLDER = 1000


def make_tree(root: Path, files: int) -> list[str]:
    """Make the files; return their paths."""
    paths = [root / f"class_{number // IN_A_FOLDER:05}" / f"picture_{number:08}.jpg" for number in range(files)]
    for number, path in enumerate(paths):
        if number % IN_A_FOLDER == 0:
            path.parent.mkdir()
        path.touch()
    return list(map(str, paths))


def count_files(folder: str | Path) -> int:
    """Count the files below a folder, by `os.scandir` alone."""
    with os.scandir(folder) as entries:
        return sum(count_files(entry.path) if entry.is_dir() else entry.is_file() for entry in entries)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the median of each row, and of its ratio to the walk in the same round."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.folders", description="Measure from_folder.")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as root:
        paths = make_tree(Path(root), options.files)
        rows: dict[str, Callable[[], object]] = {
            "os.scandir, counting": lambda: count_files(root),
            "from_folder": lambda: bu.from_folder(root),
            "os.path.exists of each": lambda: all(map(os.path.exists, paths)),
            "from_table, missing='ignore'": lambda: bu.from_table({"path": paths}, missing="ignore"),
            "from_table": lambda: bu.from_table({"path": paths}),
        }
        seconds: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(options.rounds + 1):
            for name, run in rows.items():
                seconds[name].append(seconds_of(run))
    walk, *_ = seconds.values()
    print(f"{options.files:,} files, {IN_A_FOLDER:,} in a folder; median of {options.rounds} rounds after a first")
    for name, taken in seconds.items():
        ratio = statistics.median(own / bare for own, bare in zip(taken[1:], walk[1:], strict=True))
        print(f"{name:28}  {statistics.median(taken[1:]):7.3f} s  {ratio:5.2f} × the walk")


if __name__ == "__main__":
    main()
