import torch
from datasets import load_dataset
from model import train_step
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers.trainer_pt_utils import LengthGroupedSampler


def collate(rows):
    ids = pad_sequence([row["ids"] for row in rows], batch_first=True)
    return ids, torch.stack([row["label"] for row in rows])


corpus = load_dataset("parquet", data_files="corpus.parquet", split="train").with_format("torch")
sampler = LengthGroupedSampler(16, lengths=[*map(len, corpus["ids"])])
loader = DataLoader(corpus, 16, sampler=sampler, collate_fn=collate, num_workers=2)
for _ in range(2):
    for batch in loader:
        train_step(batch)
