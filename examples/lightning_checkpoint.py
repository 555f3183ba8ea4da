"""Resume a Lightning training in mid-epoch: the loader saves and loads its own state."""

import tempfile
import warnings

import numpy as np
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

EPOCHS, BATCH_SIZE, SEED = 3, 32, 1
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="pytorch_lightning")  # it recommends its own loaders


def augment(images, labels, rng):
    """Add noise: every sample has its own row of draws."""
    return images / np.float32(16) + rng.normal(size=(8, 8)).astype(np.float32) / 10, labels.astype(np.int64)


class Loader:
    """Yields the epochs of a source in turn; Lightning saves and loads its state by the last two methods."""

    def __init__(self, source):
        self.source, self.epoch, self.state, self.batches = source, 0, None, None

    def __len__(self):
        return bu.num_batches(self.source.num_samples(), BATCH_SIZE)

    def __iter__(self):  # a generator, since Lightning also calls this without taking a batch
        state, self.state = self.state, None
        self.batches = self.source.batch_iterator(BATCH_SIZE, shuffle=SEED, epoch=self.epoch, state=state)
        if len(self.batches) == 0:  # saved at the end of an epoch: begin the next
            self.epoch += 1
            self.batches = self.source.batch_iterator(BATCH_SIZE, shuffle=SEED, epoch=self.epoch)
        self.epoch += 1
        yield from self.batches

    def state_dict(self):
        return self.batches.state_dict()

    def load_state_dict(self, state):
        self.state, self.epoch = state, state["epoch"]


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED)
        self.network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def training_step(self, batch, number):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.network(torch.as_tensor(x)), torch.as_tensor(y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.003)


def train(source, steps=-1, save=None, checkpoint=None):
    """Return the network after `steps` steps, or all epochs; `save` it, or resume from `checkpoint`, if given."""
    callbacks = {"callbacks": save, "enable_checkpointing": save is not None}
    trainer = lightning.Trainer(max_epochs=EPOCHS, max_steps=steps, accelerator="cpu", **callbacks, **QUIET)
    network = Digits()
    trainer.fit(network, Loader(source), ckpt_path=checkpoint)
    return network


digits = bu.ArrayDataSource(list(load_digits())).map(augment, rng="sample")
with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    unbroken = train(digits)  # without workers
    save = ModelCheckpoint(folder, filename="digits", every_n_train_steps=100)
    train(pool.parallel_data_source(digits), steps=110, save=save)
    resumed = train(pool.parallel_data_source(digits), checkpoint=f"{folder}/digits.ckpt")

pairs = zip(unbroken.parameters(), resumed.parameters(), strict=True)
print(f"weights equal to those of the unbroken run: {all(torch.equal(a, b) for a, b in pairs)}")
