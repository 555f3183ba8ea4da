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


def new_network():
    """Return two convolutions and a linear layer, with the same first weights each time."""
    torch.manual_seed(SEED)
    layers = []
    for n_in, n_out, stride in [(1, 24, 1), (24, 48, 2)]:
        convolution = torch.nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        layers += [convolution, torch.nn.BatchNorm2d(n_out), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(48 * 4 * 4, 10))


def loss_of(network, image, label, weak=None, strong=None):
    """Return the loss of labelled images, and of the strong views whose weak views the network is sure of."""
    if weak is None:
        return cross_entropy(network(image), label)
    outputs = network(torch.cat([image, weak, strong]))
    of_weak, of_strong = outputs[len(image) :].chunk(2)
    confidence, guess = of_weak.detach().softmax(1).max(1)
    unlabelled = (cross_entropy(of_strong, guess, reduction="none") * (confidence > SURE)).mean()
    return cross_entropy(outputs[: len(image)], label) + unlabelled


def trained_accuracy(train, test):
    """Train a network, keep a moving average of its weights, and return the average's accuracy."""
    network = new_network()
    smooth = torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    average = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=smooth, use_buffers=True)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    with bu.Loader(train, 16, shuffle=SEED) as loader:
        for batch in to_torch(loader).epochs(EPOCHS):
            optimiser.zero_grad()
            loss_of(network, **batch).backward()
            optimiser.step()
            average.update_parameters(network)
    average.eval()
    with torch.no_grad():
        batches = to_torch(test.map(to_network).batch_iterator(256))
        return sum(int((average(x["image"]).argmax(1) == x["label"]).sum()) for x in batches) / len(test)


with tempfile.TemporaryDirectory() as folder:
    write_digits(folder)
    digits = bu.from_folder(folder, 8).with_images(mode="L").cache().rename({0: "image", 1: "label"})
    train, test = digits.split([0.75, 0.25], SEED, stratify="label")
    few = np.concatenate([np.flatnonzero(train.labels == label)[:EACH] for label in range(10)])
    labelled = train.subset(few).map(weak).repeat(-1)
    others = train.subset(np.setdiff1d(np.arange(len(train)), few)).select("image")
    views = others.views(weak, strong, out=["weak", "strong"])
    # A batch of 16 labelled digits comes with 64 others. An epoch ends with the others.
    both = bu.CompositeDataSource([labelled, views], batch_size=[1, 4])
    alone, together = trained_accuracy(labelled.take(len(others) // 4), test), trained_accuracy(both, test)
print(f"test accuracy {alone:.3f} from {len(few)} labelled digits, {together:.3f} with {len(others)} others")
