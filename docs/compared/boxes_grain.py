import grain
import numpy as np
import pandas as pd
from model import train_step
from PIL import Image


def load(row, rng):
    image = np.asarray(Image.open(row["path"]).convert("RGB"))
    boxes = np.float32(row["boxes"]).reshape(-1, 4)
    if rng.random() < 0.5:
        image, boxes = image[:, ::-1], np.abs([64, 0, 64, 0] - boxes[:, [2, 1, 0, 3]])
    left, top = rng.integers(0, 17, 2)
    boxes = np.clip(boxes - [left, top, left, top], 0, 48)
    kept = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    image = image[top : top + 48, left : left + 48]
    return {"image": image, "boxes": boxes[kept], "labels": np.int64(row["labels"])[kept]}


scenes = pd.read_json("scenes.jsonl", lines=True).to_dict("records")
scenes = grain.MapDataset.source(scenes).seed(1).shuffle().random_map(load).repeat(2)
for batch in scenes.batch(16, batch_fn=list):
    train_step(batch)
