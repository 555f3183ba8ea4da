"""Read images of different sizes as lists, then crop each to a square of one size."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import batchup_ng as bu

SIDE = 48


def write_pictures(folder, count=60):
    """Write colour gradients of many sizes, as PNG and JPEG files; return their paths and widths."""
    rng = np.random.default_rng(0)
    paths, widths = [], []
    for number in range(count):
        height, width = rng.integers(SIDE, 160, size=2)
        down, across = np.mgrid[0:255 : height * 1j, 0:255 : width * 1j]
        pixels = np.stack([down, across, np.full_like(down, number * 4)], axis=2).astype(np.uint8)
        paths.append(Path(folder) / f"{number:03d}.{'png' if number % 2 else 'jpg'}")
        Image.fromarray(pixels).save(paths[-1])
        widths.append(width)
    return paths, np.array(widths)


def random_square(images, widths, rng):
    """Crop a random square of each image, which turns a list of images of any size into one array."""
    down, across = rng.uniform(size=2).T
    squares = []
    for image, v, h in zip(images, down, across, strict=True):
        top = int(v * (image.shape[0] - SIDE + 1))
        left = int(h * (image.shape[1] - SIDE + 1))
        squares.append(image[top : top + SIDE, left : left + SIDE])
    return np.stack(squares), widths


with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool() as pool:
    paths, widths = write_pictures(folder)
    images = bu.ImageFiles(paths)  # no size: a batch is a list of arrays (height, width, 3)
    print("as stored:", [image.shape for image in images[:3]])

    source = bu.ArrayDataSource([images, widths]).map(random_square, rng="sample")
    shapes = {x.shape[1:] for x, _ in pool.parallel_data_source(source).batch_iterator(16, shuffle=1)}
    print(f"{len(paths)} images, after the cut all of shape {shapes.pop()}: {not shapes}")
