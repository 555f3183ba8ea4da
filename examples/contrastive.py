"""Learn from images without labels: two views of each, SimCLR's loss, then judge by ten labelled images."""

import tempfile

import numpy as np
import torch
from torch.nn.functional import cross_entropy, normalize

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.demo.digits import write_digits
from batchup_ng.frameworks.torch import to_torch

EPOCHS, SEED, TEMPERATURE = 12, 1, 0.5
torch.manual_seed(SEED)
torch.set_num_threads(1)

to_network = augment.normalize(mean=0.5, std=0.5, layout="NCHW")  # (n, 1, 8, 8) float32
view = augment.compose(
    augment.affine(rotate=25, translate=0.1, scale=(0.8, 1.2), shear=15), augment.cutout(scale=(0.05, 0.25)), to_network
)


def contrastive_loss(first, second):
    """Return NT-Xent: which of the other 2n - 1 views is the partner? (Chen et al., SimCLR, ICML 2020)."""
    vectors = normalize(torch.cat([first, second]), dim=1)
    likeness = (vectors @ vectors.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    return cross_entropy(likeness, torch.arange(len(vectors)).roll(len(first)))


encoder = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Conv2d(32, 64, 3, stride=2, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * 4 * 4, 64),
)
head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(64, 64))  # for the loss; thrown away after training
optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.003)


@torch.no_grad()
def embedded(source):
    """Return the vectors of a source, of length 1, and its labels."""
    batches = list(source.map(to_network).batch_iterator(256))
    vectors = normalize(torch.cat([encoder(torch.from_numpy(batch["image"])) for batch in batches]), dim=1)
    return vectors.numpy(), np.concatenate([batch["label"] for batch in batches])


def accuracy_of_nearest(train, test):
    """Give each test image the class of the nearest of ten images, one a class; return the mean of 20 draws of ten."""
    (known, labels), (vectors, expected) = embedded(train), embedded(test)
    draws = np.random.default_rng(SEED)
    tens = [[draws.choice(np.flatnonzero(labels == label)) for label in range(10)] for _ in range(20)]
    return np.mean([(vectors @ known[ten].T).argmax(1) == expected for ten in tens])


with tempfile.TemporaryDirectory() as folder:
    write_digits(folder)
    digits = bu.from_folder(folder, 8).with_images(mode="L").cache().rename({0: "image", 1: "label"})
    train, test = digits.split([0.75, 0.25], SEED, stratify="label")
    before = accuracy_of_nearest(train, test)

    pairs = train.select("image").views(2, view, out=["first", "second"])
    with bu.Loader(pairs, 128, shuffle=SEED, drop_last=True) as loader:
        for batch in bu.watch(to_torch(loader)).epochs(EPOCHS):
            loss = contrastive_loss(head(encoder(batch["first"])), head(encoder(batch["second"])))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    print(f"accuracy by ten labelled digits {before:.3f} untrained, {accuracy_of_nearest(train, test):.3f} trained")
