import random

import grain
import numpy as np
import pandas as pd
from model import train_step

corpus = pd.read_parquet("corpus.parquet").to_dict("records")


def buckets():
    rows = sorted(random.sample(corpus, len(corpus)), key=lambda row: len(row["ids"]) // 4)
    return [rows[first : first + 16] for first in range(0, len(rows), 16)]


def collate(rows):
    longest = max(len(row["ids"]) for row in rows)
    ids = [np.pad(row["ids"], (0, longest - len(row["ids"]))) for row in rows]
    return np.stack(ids), np.array([row["label"] for row in rows])


for epoch in range(2):
    for batch in grain.MapDataset.source(buckets()).seed(epoch).shuffle().map(collate):
        train_step(batch)
