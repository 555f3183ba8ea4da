from itertools import islice
from pathlib import Path
from random import Random

import grain
import numpy as np
from model import evaluate, train_step
from PIL import Image, ImageOps


def load(path):
    return Image.open(path).convert("RGB"), classes.index(path.parent.name)


def augment(sample, rng):
    image, label = sample
    side = int(min(image.size) * rng.uniform(0.3, 1))
    left, top = rng.integers(0, np.subtract(image.size, side), endpoint=True)
    image = image.resize((64, 64), box=(left, top, left + side, top + side))
    return np.float32(ImageOps.mirror(image) if rng.random() < 0.5 else image) / 255, label


def center(sample):
    return np.float32(ImageOps.fit(sample[0], (64, 64))) / 255, sample[1]


paths = sorted(Path("photos").glob("*/*"))
classes = sorted({path.parent.name for path in paths})
Random(1).shuffle(paths)
n = len(paths) // 10
train = grain.MapDataset.source(paths[n:]).seed(1).shuffle().map(load).random_map(augment).batch(16)
val = grain.MapDataset.source(paths[:n]).map(load).map(center).batch(16)
batches = iter(train.repeat(2))
for _ in range(2):
    for batch in islice(batches, len(train)):
        train_step(batch)
    for batch in val:
        evaluate(batch)
