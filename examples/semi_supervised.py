"""Learn from 40 labelled digits and many without labels (FixMatch), and compare with the labelled ones alone."""

import tempfile

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.demo.digits import write_digits
from batchup_ng.frameworks.torch import to_torch

EACH, EPOCHS, SEED, SURE = 4, 12, 1, 0.9
torch.set_num_threads(1)

to_network = augment.normalize(mean=0.5, std=0.5, layout="NCHW")  # (n, 1, 8, 8) float32
weak = augment.compose(augment.affine(translate=0.06), to_network)
strong = augment.compose(
    augment.affine(rotate=25, translate=0.1, scale=(0.8, 1.2), shear=15), augment.cutout(scale=(0.05, 0.2)), to_network
)


def two_views(image, rng):
    """Return a weak and a strong view of each image."""
    return weak(image, rng=rng)[0], strong(image, rng=rng)[0]


def new_network():
    """Return two convolutions and a linear layer, with the same first weights each time."""
    torch.manual_seed(SEED)
    layers = []
    for n_in, n_out, stride in [(1, 24, 1), (24, 48, 2)]:
        convolution = torch.nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        layers += [convolution, torch.nn.BatchNorm2d(n_out), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(48 * 4 * 4, 10))


def loss_of(network, x, y, views=None):
    """Return the loss of labelled images, and of the strong views whose weak views the network is sure of."""
    if views is None:
        return cross_entropy(network(x), y)
    outputs = network(torch.cat([x, views["weak"], views["strong"]]))
    of_weak, of_strong = outputs[len(x) :].chunk(2)
    confidence, guess = of_weak.detach().softmax(1).max(1)
    unlabelled = (cross_entropy(of_strong, guess, reduction="none") * (confidence > SURE)).mean()
    return cross_entropy(outputs[: len(x)], y) + unlabelled


def trained_accuracy(train, test, with_unlabelled):
    """Train a network, keep a moving average of its weights, and return the average's accuracy."""
    network = new_network()
    smooth = torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    average = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=smooth, use_buffers=True)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    with bu.Loader(train, 16, shuffle=SEED) as loader:
        for (x, y), views in to_torch(loader).epochs(EPOCHS):
            optimiser.zero_grad()
            loss_of(network, x, y, views if with_unlabelled else None).backward()
            optimiser.step()
            average.update_parameters(network)
    average.eval()
    with torch.no_grad():
        batches = to_torch(test.map(to_network).batch_iterator(256))
        return sum(int((average(x).argmax(1) == y).sum()) for x, y in batches) / len(test)


with tempfile.TemporaryDirectory() as folder:
    write_digits(folder)
    train, test = bu.from_folder(folder, 8).with_images(mode="L").cache().split([0.75, 0.25], SEED, stratify="label")
    few = np.concatenate([np.flatnonzero(train.labels == label)[:EACH] for label in range(10)])
    # The labelled digits repeat without end. A batch of 16 of them comes with 64 others; an epoch ends with those.
    labelled = train.subset(few).map(weak, rng="sample").repeat(-1)
    others = train.subset(np.setdiff1d(np.arange(len(train)), few)).select("image").map(two_views, rng="sample")
    both = bu.CompositeDataSource([labelled, others.rename({0: "weak", 1: "strong"})], flatten=False, batch_size=[1, 4])
    alone = trained_accuracy(both, test, with_unlabelled=False)
    together = trained_accuracy(both, test, with_unlabelled=True)
print(f"test accuracy {alone:.3f} from {len(few)} labelled digits, {together:.3f} with {len(others)} others")
