"""The files that the programs of docs/compared read. Each value shows the number of its sample."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, PER_CLASS = 3, 20
"""Of the folder of images: 60 images in all, so that 6 validate."""
PEOPLE, ROWS, RESUMED, TEXTS, SCENES = 50, 100, 50, 800, 40
BOXES = np.array([[4, 4, 28, 20], [40, 8, 60, 40], [0, 44, 8, 64]])
"""Of scene s, the first s % 4."""


def write_files(folder: Path) -> None:
    """Write all files into a folder, except for formats whose library is not installed."""
    for label in range(CLASSES):
        (folder / "photos" / f"class {label}").mkdir(parents=True)
        for number in range(PER_CLASS):
            picture = Image.fromarray(ramp(label * PER_CLASS + number, (80, 72)))
            picture.save(folder / "photos" / f"class {label}" / f"{number:02}.png")
    people = ["path,label,age"]
    for row in range(PEOPLE):
        Image.fromarray(ramp(row, (64, 64))).save(folder / f"person{row}.png")
        people.append(f"person{row}.png,{row % 5},{row}")
    (folder / "people.csv").write_text("\n".join(people))
    scenes = []
    for row in range(SCENES):
        boxes = BOXES[: row % 4].tolist()
        _write_scene(folder / f"scene{row}.png", row, boxes)
        labels = [10 * row + box for box in range(len(boxes))]
        scenes.append(json.dumps({"path": f"scene{row}.png", "boxes": boxes, "labels": labels}))
    (folder / "scenes.jsonl").write_text("\n".join(scenes))
    numbers = np.arange(RESUMED)
    np.savez(folder / "train.npz", x=np.repeat(numbers[:, None], 3, axis=1).astype(np.float32), y=numbers)
    if find_spec("pyarrow"):
        _write_parquet(folder / "corpus.parquet")
    if find_spec("h5py"):
        _write_hdf5(folder / "train.h5")


def ramp(number: int, size: tuple[int, int]) -> np.ndarray:
    """Return an image whose red grows from left to right, green from top to bottom, and whose blue is 4 x `number`."""
    width, height = size
    pixels = np.full((height, width, 3), 4 * number, np.uint8)
    pixels[..., 0] = np.linspace(0, 240, width)
    pixels[..., 1] = np.linspace(0, 240, height)[:, None]
    return pixels


def ids_of(row: int) -> np.ndarray:
    """Return the numbers of a text: 1 to 30 of them."""
    return np.arange(1, row * 7 % 30 + 2) * 1000 + row


def _write_parquet(path: Path) -> None:
    """Write a file of texts."""
    import pyarrow
    from pyarrow import parquet

    ids = [ids_of(row).tolist() for row in range(TEXTS)]
    parquet.write_table(pyarrow.table({"ids": ids, "label": np.arange(TEXTS)}), path)


def _write_hdf5(path: Path) -> None:
    """Write a compressed file of two columns."""
    import h5py

    numbers = np.arange(ROWS)
    with h5py.File(path, "w") as file:
        x = np.repeat(numbers[:, None], 8, axis=1).astype(np.float32)
        file.create_dataset("x", data=x, chunks=(10, 8), compression="gzip")
        file.create_dataset("y", data=numbers)


def _write_scene(path: Path, number: int, boxes: list[list[int]]) -> None:
    """Write a black image with bright boxes; its blue is 4 x `number`."""
    pixels = np.zeros((64, 64, 3), np.uint8)
    for left, top, right, bottom in boxes:
        pixels[top:bottom, left:right, 0] = 255
    pixels[..., 2] = 4 * number
    Image.fromarray(pixels).save(path)
