"""One of two processes that Accelerate or Lightning trains in: prints which rows it is handed out."""

import json
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

import batchup_ng as bu
from batchup_ng.frameworks.torch import as_dataset, from_dataloader


def loader(**options):
    return bu.Loader([np.arange(24)], 4, shuffle=1, pool="serial", **options)


def theirs():
    return DataLoader(torch.arange(24), 4, shuffle=True)


def rows_of(batches):
    return [n for batch in batches for n in (batch[0] if isinstance(batch, (tuple, list)) else batch).tolist()]


def outcome(make):
    try:
        batches = make()
        return [rows_of(batches) for _ in range(2)]
    except bu.ArgumentError as error:
        return str(error)


def by_accelerate():
    """Return what each way of a loop with Accelerate hands out."""
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    prepare = accelerator.prepare
    return {
        "prepared DataLoader of a dataset": lambda: prepare(DataLoader(as_dataset(loader()), batch_size=None)),
        "prepared DataLoader of a shard": lambda: prepare(
            DataLoader(as_dataset(loader(shard="auto")), batch_size=None)
        ),
        "prepared dataset": lambda: prepare(as_dataset(loader())),
        "prepared dataset of a shard": lambda: prepare(as_dataset(loader(shard="auto"))),
        "dataloader": lambda: prepare(from_dataloader(theirs(), pool="serial")),
        "dataloader that was prepared": lambda: from_dataloader(prepare(theirs()), pool="serial"),
        "base_dataloader": lambda: from_dataloader(prepare(theirs()).base_dataloader, pool="serial"),
    }


def by_lightning():
    """Return what each way of a training with Lightning hands out."""
    import pytorch_lightning

    class Module(pytorch_lightning.LightningModule):
        def __init__(self, make):
            super().__init__()
            self.make, self.epochs = make, []
            self.weight = torch.nn.Parameter(torch.ones(1))

        def train_dataloader(self):  # the group has begun
            return self.make()

        def on_train_epoch_start(self):
            self.epochs.append([])

        def training_step(self, batch, number):
            batch = batch[0] if isinstance(batch, (tuple, list)) else batch
            self.epochs[-1] += batch.tolist()
            return (self.weight * batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}

    def fit(make):
        module = Module(make)
        options = {"accelerator": "cpu", "strategy": "ddp", "devices": 2, "enable_checkpointing": False}
        try:
            pytorch_lightning.Trainer(max_epochs=2, **options, **quiet).fit(module)
        except Exception as error:  # Lightning may raise another while it cleans up
            while error.__context__ is not None and not isinstance(error, bu.ArgumentError):
                error = error.__context__
            return f"{type(error).__name__}: {error}"
        return module.epochs

    def sharded():
        return DataLoader(torch.arange(24), 4, sampler=DistributedSampler(range(24)))

    return {
        "dataset": lambda: fit(lambda: as_dataset(loader())),
        "dataset of a shard": lambda: fit(lambda: as_dataset(loader(shard="auto"))),
        "DataLoader of a dataset": lambda: fit(lambda: DataLoader(as_dataset(loader()), batch_size=None)),
        "DataLoader of a shard": lambda: fit(lambda: DataLoader(as_dataset(loader(shard="auto")), batch_size=None)),
        "dataloader": lambda: fit(lambda: from_dataloader(theirs(), pool="serial")),
        "sharded dataloader": lambda: fit(lambda: from_dataloader(sharded(), pool="serial")),
    }


if __name__ == "__main__":
    if sys.argv[1] == "accelerate":
        found = {way: outcome(make) for way, make in by_accelerate().items()}
    else:
        found = {way: run() for way, run in by_lightning().items()}
    print(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
