"""Train PyTorch on texts in a file of JSON lines: words to numbers, batches of similar length, padding with a mask."""

import json
import tempfile
from collections import Counter

import numpy as np
import torch

import batchup_ng as bu
from batchup_ng.frameworks.torch import to_torch

EPOCHS, SEED = 3, 1
GOOD, BAD = ("good", "great", "kind", "fresh", "clean"), ("bad", "poor", "rude", "stale", "dirty")
THINGS, FILLER = ("food", "room", "staff", "view"), ("we", "came", "late", "and", "it", "was", "a", "long", "day")
torch.manual_seed(SEED)
torch.set_num_threads(1)


def write_reviews(path, count=1500):
    """Write made-up reviews of 4 to 39 words, one JSON object a line; "not good" is negative."""
    rng = np.random.default_rng(SEED)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            positive, denied = rng.random(2) < 0.5
            words = [*rng.choice(FILLER, rng.integers(0, 18)), "the", rng.choice(THINGS), "was", *["not"] * int(denied)]
            words += [rng.choice(GOOD if positive != denied else BAD), *rng.choice(FILLER, rng.integers(0, 18))]
            label = "positive" if positive else "negative"
            print(json.dumps({"text": " ".join(words), "label": label}), file=file)


class Network(torch.nn.Module):
    """Convolution over three words, then the maximum over all that are no padding."""

    def __init__(self, words, classes):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, 32)
        self.convolution = torch.nn.Conv1d(32, 64, 3, padding=1)
        self.linear = torch.nn.Linear(64, classes)

    def forward(self, ids, mask):
        found = torch.relu(self.convolution(self.embedding(ids).transpose(1, 2)))
        return self.linear((found * mask[:, None]).amax(2))


with tempfile.TemporaryDirectory() as folder:
    write_reviews(f"{folder}/reviews.jsonl")
    lines = bu.from_file(f"{folder}/reviews.jsonl")  # one column "x": a dict for each line
    labels = [line["label"] for batch in lines.batch_iterator(1000) for line in batch["x"]]
    class_names, labels = np.unique(labels, return_inverse=True)
    reviews = lines.map(lambda x: [line["text"] for line in x], on="x", out="text").drop("x")
    train, test = reviews.with_column("label", labels).split([0.8, 0.2], SEED, stratify="label")

    # Number 0 is padding, 1 a word that the training part does not have.
    counts = Counter(word for batch in train.batch_iterator(1000) for text in batch["text"] for word in text.split())
    numbers = {word: number for number, (word, _) in enumerate(counts.most_common(5000), start=2)}

    def tokenize(texts):
        return [[numbers.get(word, 1) for word in text.split()] for text in texts]

    train, test = [part.map(tokenize, on="text", out="ids").drop("text") for part in (train, test)]
    buckets = bu.BucketSampler(train.lengths("ids"), max_tokens=1000)  # padding included
    train, test = train.sample(buckets).pad("ids", mask=True), test.pad("ids", mask=True)

    network = Network(len(numbers) + 2, len(class_names))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.005)
    with bu.Loader(train, 64, shuffle=SEED) as loader, bu.Loader(test, 256, pool=loader) as validation:
        for epoch in range(EPOCHS):
            for batch in to_torch(loader):
                loss = torch.nn.functional.cross_entropy(network(batch["ids"], batch["ids_mask"]), batch["label"])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            right = 0
            with torch.no_grad():
                for batch in to_torch(validation):
                    guess = network(batch["ids"], batch["ids_mask"]).argmax(1)
                    right += int((guess == batch["label"]).sum())
            print(f"epoch {epoch}: test accuracy {right / len(test):.3f}")
print(f"test accuracy {right / len(test):.3f} after {EPOCHS} epochs, {len(numbers)} words")
