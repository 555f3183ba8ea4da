"""Train a small segmentation network in PyTorch on pairs of images and masks, which augmentation moves together."""

import os
import tempfile

import torch

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.demo.shapes import write_shapes
from batchup_ng.frameworks.torch import to_torch

EPOCHS, SEED, SIDE, IGNORED = 6, 2, 96, 255
CLASSES = ("background", "box", "diamond", "triangle")
torch.manual_seed(SEED)
torch.set_num_threads(1)

# A grid of cells of 4 pixels. Dilated convolutions look farther each time; the last has 4 classes for each pixel.
layers = [torch.nn.Conv2d(3, 32, 4, stride=4), torch.nn.ReLU()]
for reach in (2, 4, 2, 1):
    convolution = torch.nn.Conv2d(32, 32, 3, padding=reach, dilation=reach, bias=False)
    layers += [convolution, torch.nn.BatchNorm2d(32), torch.nn.ReLU()]
network = torch.nn.Sequential(*layers, torch.nn.Conv2d(32, len(CLASSES) * 4 * 4, 1), torch.nn.PixelShuffle(4))
loss_function = torch.nn.CrossEntropyLoss(ignore_index=IGNORED)
resize, normalize = augment.letterbox(SIDE), augment.normalize(0.5, 0.25, layout="NCHW")
affine = augment.affine(rotate=15, translate=0.1, scale=(0.8, 1.25))
training = augment.compose(
    resize, augment.flip(), affine, augment.color_jitter(0.2, 0.2), normalize, masks="mask", mask_fill=IGNORED
)
testing = augment.compose(resize, normalize, masks="mask", mask_fill=IGNORED)

with tempfile.TemporaryDirectory() as folder:
    write_shapes(folder, seed=SEED)
    pairs = bu.from_pairs(os.path.join(folder, "images"), os.path.join(folder, "masks"), mask_dtype="int64")
    train, test = pairs.drop("image_id").split([0.8, 0.2], SEED)
    with bu.Loader(train.map(training, rng="sample"), 8, shuffle=SEED) as loader:
        optimiser = torch.optim.Adam(network.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.02, total_steps=EPOCHS * len(loader))
        for batch in to_torch(loader).epochs(EPOCHS):
            optimiser.zero_grad()
            loss_function(network(batch["image"]), batch["mask"]).backward()
            optimiser.step()
            schedule.step()

    network.eval().requires_grad_(False)
    counts = torch.zeros(len(CLASSES), len(CLASSES))  # of pixels, by true class and predicted class
    for batch in to_torch(test.map(testing).batch_iterator(50)):
        known = batch["mask"] != IGNORED
        cells = batch["mask"][known] * len(CLASSES) + network(batch["image"]).argmax(1)[known]
        counts += cells.bincount(minlength=counts.numel()).view_as(counts)
ious = counts.diag() / (counts.sum(0) + counts.sum(1) - counts.diag())
print({name: round(float(iou), 3) for name, iou in zip(CLASSES, ious, strict=True)})
print(f"mean IoU {ious.mean():.3f} on {len(test)} images")
