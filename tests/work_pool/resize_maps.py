"""What pools that are resized are given to do. Workers import it without pytest."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np


def shifted(x: np.ndarray, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    return x, x + rng.random(len(x))


def bad_at(rows: set[int], x: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if rows & set(x.tolist()):
        raise ValueError("bad")
    return x, noise


def ends_once(folder: Path, rows: set[int], x: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """End the process at each of these rows when it is read for the first time."""
    for row in rows & set(x.tolist()):
        try:
            (folder / str(row)).touch(exist_ok=False)
        except FileExistsError:
            continue
        os._exit(3)
    return x, noise


def tuple_of(x: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, noise


def sleeping(x: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    time.sleep(0.004)
    return x, noise


def waits_for(go: Path, begun: Path) -> int:
    begun.touch()
    while not go.exists():
        time.sleep(0.001)
    return 1
