"""Resume a Lightning training in mid-epoch: its checkpoints include the state of the data set."""

import tempfile
import warnings

import numpy as np
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits
from batchup_ng.frameworks.torch import as_dataset

EPOCHS, BATCH_SIZE, SEED = 3, 32, 1
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="pytorch_lightning")  # it recommends its own loaders


def augment(images, labels, rng):
    """Add noise; each sample has its own row of random numbers."""
    return images / np.float32(16) + rng.normal(size=(8, 8)).astype(np.float32) / 10, labels.astype(np.int64)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED)
        self.network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def training_step(self, batch, number):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.network(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.003)


def train(pool, steps=-1, save=None, checkpoint=None):
    """Return the network after `steps` steps, or all epochs; checkpoint with `save`, resume from `checkpoint`."""
    callbacks = {"callbacks": save, "enable_checkpointing": save is not None}
    trainer = lightning.Trainer(max_epochs=EPOCHS, max_steps=steps, accelerator="cpu", **callbacks, **QUIET)
    network = Digits()
    with bu.Loader(digits, BATCH_SIZE, shuffle=SEED, pool=pool) as loader:
        trainer.fit(network, as_dataset(bu.watch(loader)), ckpt_path=checkpoint)
    return network


digits = bu.ArrayDataSource(list(load_digits())).map(augment, rng="sample")
with tempfile.TemporaryDirectory() as folder:
    print("without a break:")
    unbroken = train("serial")
    print("for 110 steps, with a checkpoint after 100:")
    train("threads", steps=110, save=ModelCheckpoint(folder, filename="digits", every_n_train_steps=100))
    print("from the checkpoint on:")
    resumed = train("threads", checkpoint=f"{folder}/digits.ckpt")

pairs = zip(unbroken.parameters(), resumed.parameters(), strict=True)
print(f"weights equal to those of the unbroken run: {all(torch.equal(a, b) for a, b in pairs)}")
