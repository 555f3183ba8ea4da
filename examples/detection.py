"""Train a small detector in PyTorch on a COCO file: boxes move with their images, and batches pad them."""

import os
import tempfile

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, max_pool2d, one_hot

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.demo.shapes import write_shapes
from batchup_ng.frameworks.torch import to_torch

EPOCHS, SEED, SIDE, CELL = 5, 2, 96, 8
torch.manual_seed(SEED)
torch.set_num_threads(1)

# A grid of cells of 8 pixels. For each: scores of 3 classes, and the logarithms of the distances to 4 edges.
layers = []
for n_in, n_out, size, stride in [(3, 32, 4, 4), (32, 48, 3, 2), (48, 48, 3, 1), (48, 48, 3, 1), (48, 48, 3, 1)]:
    layers += [torch.nn.Conv2d(n_in, n_out, size, stride, 1, bias=False), torch.nn.BatchNorm2d(n_out), torch.nn.ReLU()]
network = torch.nn.Sequential(*layers, torch.nn.Conv2d(48, 3 + 4, 1))
network[-1].bias.data[:3] = -2  # most cells have no class
steps = torch.arange(CELL / 2, SIDE, CELL)
centres = torch.cartesian_prod(steps, steps).flip(1)  # x and y of each cell


def predict(images):
    """Return the scores of the cells, positive where a shape is, and their boxes: (n, cells, 3), (n, cells, 4)."""
    scores, edges = network(images).flatten(2).mT.split([3, 4], 2)
    edges = edges.exp() * 2 * CELL
    return scores, torch.cat([centres - edges[..., :2], centres + edges[..., 2:]], 2)


def loss_of(image, boxes, labels, boxes_mask):
    """Return the loss. Cells in the inner half of a box have its class and its edges; all others have no class."""
    low, high = boxes[:, :, None].split(2, 3)
    depth = (torch.minimum(centres - low, high - centres) / (high - low)).amin(3)  # (n, most, cells), at most 0.5
    depth, nearest = depth.masked_fill(~boxes_mask[:, :, None], 0).max(1)  # padding has no area: 0 / 0
    inner, (scores, predicted) = depth > 0.25, predict(image)
    classes = one_hot(labels.gather(1, nearest), 3) * inner[:, :, None]
    loss = binary_cross_entropy_with_logits(scores, classes.float(), reduction="sum") / inner.sum()
    wanted = boxes.gather(1, nearest[:, :, None].expand(-1, -1, 4))
    return loss + (predicted - wanted)[inner].abs().mean() / CELL


def overlaps(a, b):
    """Return the intersection over union of each pair of boxes: (len(a), len(b))."""
    both = (torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])).clamp(0).prod(2)
    return both / ((a[:, 2:] - a[:, :2]).prod(1)[:, None] + (b[:, 2:] - b[:, :2]).prod(1) - both)


resize, normalize = augment.letterbox(SIDE, fill=128), augment.normalize(0.5, 0.25, layout="NCHW")
crop, colours = augment.random_crop(SIDE, padding=8, fill=128), augment.color_jitter(0.2, 0.2)
training = augment.compose(resize, augment.flip(), crop, colours, normalize, boxes="boxes", min_visibility=0.5)

with tempfile.TemporaryDirectory() as folder:
    write_shapes(folder, seed=SEED)
    shapes = bu.from_coco(os.path.join(folder, "images"), os.path.join(folder, "instances.json"))
    train, test = shapes.drop("image_id").split([0.8, 0.2], SEED)
    train = train.map(training, rng="sample").pad("boxes", mask=True).pad("labels")
    with bu.Loader(train, 8, shuffle=SEED) as loader:
        optimiser = torch.optim.Adam(network.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=EPOCHS * len(loader))
        for batch in to_torch(loader).epochs(EPOCHS):
            optimiser.zero_grad()
            loss_of(**batch).backward()
            optimiser.step()
            schedule.step()

    network.eval().requires_grad_(False)
    right = shown = there = 0
    for batch in to_torch(test.map(augment.compose(resize, normalize, boxes="boxes")).batch_iterator(50)):
        scores, predicted = predict(batch["image"])
        best, classes = scores.max(2)
        grid = best.unflatten(1, (1, len(steps), -1))
        peaks = (best > 0) & (best == max_pool2d(grid, 3, 1, 1).flatten(1))  # better than the cells around them
        for i, (boxes, labels) in enumerate(zip(batch["boxes"], batch["labels"], strict=True)):
            same = (overlaps(boxes, predicted[i, peaks[i]]) >= 0.5) & (labels[:, None] == classes[i, peaks[i]])
            right, shown, there = right + int(same.any(1).sum()), shown + same.shape[1], there + len(boxes)
print(f"of {there} objects {right / there:.3f} found, of {shown} boxes {right / shown:.3f} right")
