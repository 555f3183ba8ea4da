"""What the tests of picture files share: pictures, files of them, how Pillow reads those."""

import functools
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps


def colours(height=12, width=20, channels=3, seed=0):
    """A picture that is smooth, so that JPEG keeps it, and that no turn or flip leaves as it is."""
    small = np.random.default_rng(seed).integers(0, 256, (3, 5, channels), dtype=np.uint8)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    return Image.fromarray(small[:, :, 0] if channels == 1 else small).convert(mode).resize((width, height))


def save(path, image=None, **options):
    """Write a picture to a file; return its path as text."""
    (image or colours()).save(path, **options)
    return str(path)


def by_pillow(path, size=None, mode="RGB", resample=Image.Resampling.BILINEAR):
    """The plain reference: everything in Pillow's own words."""
    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image).convert(mode)
    return np.asarray(image if size is None else image.resize(size[::-1], resample))


def paths_of_all_kinds(folder):
    """Write six pictures of several formats, sizes and modes; return their paths."""
    for name, content in files_of_all_kinds().items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in files_of_all_kinds()]


@functools.cache
def files_of_all_kinds():
    with tempfile.TemporaryDirectory() as folder:
        made = [
            save(f"{folder}/a.jpg"),
            save(f"{folder}/b.png", colours(30, 10, seed=1)),
            save(f"{folder}/c.gif", colours(8, 8, seed=2)),
            save(f"{folder}/d.bmp", colours(7, 9, channels=1, seed=3)),
            save(f"{folder}/e.png", colours(9, 9, channels=4, seed=4)),
            save(f"{folder}/f.tif", colours(5, 40, seed=5)),
        ]
        return {Path(path).name: Path(path).read_bytes() for path in made}


def png_chunk(name, content):
    """One part of a PNG file, with its length and checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
