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
import time
from collections.abc import Callable, Sequence

import batchup_ng as bu

IN_A_FOLDER = 1000


def make_tree(root: str, files: int) -> list[str]:
    """Make the files; return their paths."""
    paths = []
    for number in range(files):
        folder = os.path.join(root, f"class_{number // IN_A_FOLDER:05}")
        if number % IN_A_FOLDER == 0:
            os.mkdir(folder)
        paths.append(os.path.join(folder, f"picture_{number:08}.jpg"))
        os.close(os.open(paths[-1], os.O_CREAT | os.O_WRONLY))
    return paths


def count_files(folder: str) -> int:
    """Count the files below a folder, by `os.scandir` alone."""
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                count += count_files(entry.path)
            elif entry.is_file():
                count += 1
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the median of each row, and of its ratio to the walk in the same round."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.folders", description="Measure from_folder.")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as root:
        paths = make_tree(root, options.files)
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
                begin = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - begin)
    (first, *_), *_ = seconds.items()
    print(f"{options.files:,} files, {IN_A_FOLDER:,} in a folder; median of {options.rounds} rounds after a first")
    for name, taken in seconds.items():
        ratio = statistics.median(own / walk for own, walk in zip(taken[1:], seconds[first][1:], strict=True))
        print(f"{name:28}  {statistics.median(taken[1:]):7.3f} s  {ratio:5.2f} × the walk")


if __name__ == "__main__":
    main()
