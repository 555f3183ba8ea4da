"""Images of shapes on noise with their boxes and masks, written as the files of COCO, YOLO and pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

OUTLINES = {
    "box": ((0, 0), (1, 0), (1, 1), (0, 1)),
    "diamond": ((0.5, 0), (1, 0.5), (0.5, 1), (0, 0.5)),
    "triangle": ((0, 1), (0.5, 0), (1, 1)),
}
"""The corners of the shape of each class: x and y, as shares of the width and height of its box."""


def write_shapes(folder: str | Path, count: int = 500, seed: int = 0) -> None:
    """Write `count` images of two to four shapes on noise, with their annotations.

    Images have 90 to 130 pixels a side. Shapes have 22 to 42 pixels a side, one of three classes, a random place and a
    random colour. They do not overlap. Another seed gives other images. The files:

    - ``images/000.jpg``, ``images/001.jpg`` and so on.
    - ``instances.json``: boxes, as COCO lists them.
    - ``labels/000.txt`` and ``classes.txt``: the same boxes, as YOLO lists them.
    - ``masks/000.png``: the class of each pixel, 1 to 3, and 0 for the noise.

    Args:
        folder: A new folder, or one without ``images``, ``labels`` and ``masks``.
        count: Number of images.
        seed: Seed of the random numbers.
    """
    root, rng = Path(folder), np.random.default_rng(seed)
    for name in ("images", "labels", "masks"):
        (root / name).mkdir(parents=True)
    images: list[Any] = []
    objects: list[Any] = []
    for number in range(count):
        picture, mask, boxes = _drawn(rng)
        picture.save(root / "images" / f"{number:03}.jpg")
        mask.save(root / "masks" / f"{number:03}.png")
        width, height = picture.size
        images.append({"id": number, "file_name": f"{number:03}.jpg", "width": width, "height": height})
        lines = []
        for label, (left, top, right, bottom) in boxes:
            bbox = left, top, right - left, bottom - top
            objects.append({"id": len(objects), "image_id": number, "category_id": label + 1, "bbox": bbox})
            shares = (left + right) / 2 / width, (top + bottom) / 2 / height, bbox[2] / width, bbox[3] / height
            lines.append(" ".join(map(str, (label, *shares))))
        (root / "labels" / f"{number:03}.txt").write_text("\n".join(lines), encoding="utf-8")
    categories = [{"id": number, "name": name} for number, name in enumerate(OUTLINES, 1)]
    content = {"images": images, "annotations": objects, "categories": categories}
    (root / "instances.json").write_text(json.dumps(content), encoding="utf-8")
    (root / "classes.txt").write_text("\n".join(OUTLINES), encoding="utf-8")


def _drawn(rng: np.random.Generator) -> tuple[Image.Image, Image.Image, list[tuple[int, tuple[int, int, int, int]]]]:
    """Return an image, its mask, and the class and box (left, top, right, bottom) of each shape."""
    width, height = rng.integers(90, 131, 2).tolist()
    picture = Image.fromarray(rng.integers(60, 200, (height, width, 3), np.uint8))
    mask, boxes = Image.new("L", (width, height)), []
    for quarter in rng.permutation(4)[: rng.integers(2, 5)].tolist():
        label, sides = int(rng.integers(len(OUTLINES))), rng.integers(22, 43, 2)
        room = np.array([width // 2, height // 2])
        corner = room * (quarter % 2, quarter // 2) + rng.integers(room - sides + 1)
        outline = corner + (sides - 1) * tuple(OUTLINES.values())[label]
        shape = Image.new("L", (width, height))
        ImageDraw.Draw(shape).polygon([(x, y) for x, y in outline.tolist()], 255)
        picture.paste(tuple(rng.choice([30, 225], 3).tolist()), mask=shape)
        mask.paste(label + 1, mask=shape)
        box = shape.getbbox()
        assert box is not None
        boxes.append((label, box))
    return picture, mask, boxes
