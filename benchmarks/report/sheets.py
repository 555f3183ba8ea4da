"""The contact sheets of docs/looking.md.

    python -m benchmarks.report.sheets docs/figures

The data are made by the demo: shapes with their boxes, handwritten digits, and texts and curves of random numbers.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.demo.digits import write_digits
from batchup_ng.demo.shapes import write_shapes


def stages() -> bu.ContactSheet:
    """Return boxes before and after each of three maps."""
    write_shapes("shapes", count=12)
    source = bu.from_coco("shapes/images", "shapes/instances.json")
    train = source.map(augment.compose(augment.letterbox(128), boxes="boxes"))
    train = train.map(augment.compose(augment.affine(rotate=20, scale=(0.7, 1.1)), augment.flip(), boxes="boxes"))
    train = train.map(augment.normalize(0.5, 0.25, layout="NCHW"), on="image")
    return bu.show(train, 3, stages=True, shuffle=7, side=128)


def digits() -> bu.ContactSheet:
    """Return images with their classes and files. One file is damaged."""
    os.mkdir("digits")
    write_digits("digits")
    source = bu.from_folder("digits")
    chosen = bu.show(source, 16, shuffle=1, side=96).names
    Path(chosen[5]).write_bytes(b"not an image")
    return bu.show(source, 16, shuffle=1, side=96)


def columns() -> bu.ContactSheet:
    """Return tokens with padding, a curve, and an array of two axes."""
    rng = np.random.default_rng(0)
    time = np.linspace(0, 1, 200)
    waves = np.stack([np.sin(40 * time * each) * np.exp(-3 * time) for each in (1, 2)])
    source = bu.ArrayDataSource(
        {
            "ids": [[1, 2, 3, 4, 1, 5], [1, 5, 3]],
            "wave": waves,
            "mel": np.cumsum(rng.normal(size=(2, 24, 48)), axis=2),
            "label": np.array([1, 0]),
        }
    )
    words = ["[PAD]", "the", "cat", "sees", "that", "dog"]
    return bu.show(source.pad("ids", value=0, mask=True), 2, decode={"ids": words}, side=150)


if __name__ == "__main__":
    out = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)  # so errors name files by short paths
        stages().save(out / "looking_stages.jpg")
        digits().save(out / "looking_digits.png")
        os.chdir(out)
    columns().save(out / "looking_columns.png")
