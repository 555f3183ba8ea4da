import grain
import numpy as np
import pandas as pd
from model import train_step
from PIL import Image


def load(row):
    image = Image.open(row["path"]).convert("RGB").resize((64, 64))
    return np.asarray(image), row["label"], row["age"] / 100


people = pd.read_csv("people.csv").to_dict("records")
people = grain.MapDataset.source(people).seed(1).shuffle().repeat(2)
for batch in people.map(load).batch(16):
    train_step(batch)
