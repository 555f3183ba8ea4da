import random

import pandas as pd
from model import train_step
from torch import tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

corpus = pd.read_parquet("corpus.parquet").to_dict("records")


def buckets():
    rows = sorted(random.sample(corpus, len(corpus)), key=lambda row: len(row["ids"]) // 4)
    return [rows[first : first + 16] for first in range(0, len(rows), 16)]


def collate(rows):
    ids = pad_sequence([tensor(row["ids"]) for row in rows], batch_first=True)
    return ids, tensor([row["label"] for row in rows])


for _ in range(2):
    for batch in DataLoader(buckets(), None, shuffle=True, collate_fn=collate, num_workers=2):
        train_step(batch)
