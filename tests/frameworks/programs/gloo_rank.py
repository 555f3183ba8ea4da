"""One of two processes of a gloo group: prints which rows it is handed out in several ways."""

import json
import sys
import warnings

import numpy as np
import torch.distributed
from torch.utils.data import DataLoader, DistributedSampler, Sampler

import batchup_ng as bu
from batchup_ng.data_source.distributed import rank_from_torch
from batchup_ng.frameworks.torch import as_dataset, from_dataloader, to_torch


class Own(Sampler):
    """A sampler of the user's, that says nothing of ranks."""

    def __iter__(self):
        return iter(range(24))

    def __len__(self):
        return 24


def loader(**options):
    return bu.Loader([np.arange(24)], 4, shuffle=1, pool="serial", **options)


def as_theirs(*args, shard=(), **options):
    told = {} if shard == () else {"shard": shard}
    return from_dataloader(DataLoader(torch.arange(24), 4, *args, **options), pool="serial", **told)


class Epochs:
    """Begins an iterator of a source for each loop."""

    def __init__(self, begin):
        self.begin = begin

    def __iter__(self):
        return self.begin()


POOL = bu.SerialPool()
SOURCE = {"in order": bu.ArrayDataSource([np.arange(24)]), "named": bu.ArrayDataSource({"x": np.arange(24)})}

WAYS = {
    "tensors": lambda: to_torch(loader()),
    "tensors of a dict": lambda: to_torch(bu.Loader({"x": np.arange(24)}, 4, shuffle=1, pool="serial")),
    "tensors of a view": lambda: to_torch(loader().map(lambda x: (x,))).map(lambda x: (x,)),
    "tensors of epochs": lambda: Epochs(lambda: to_torch(loader()).epochs(1)),
    "epochs as tensors": lambda: Epochs(lambda: to_torch(loader().epochs(1))),
    "tensors, shard='auto'": lambda: to_torch(loader(shard="auto")),
    "tensors, shard=None": lambda: to_torch(to_torch(loader(shard=None))),
    "tensors of an iterator": lambda: Epochs(lambda: to_torch(SOURCE["in order"].batch_iterator(4, 1))),
    "tensors of a pool's": lambda: Epochs(
        lambda: to_torch(POOL.parallel_data_source(SOURCE["named"], 2)).batch_iterator(4, 1)
    ),
    "tensors of an iterator, shard='auto'": lambda: Epochs(
        lambda: to_torch(SOURCE["in order"].batch_iterator(4, 1, shard="auto"))
    ),
    "tensors of a generator": lambda: Epochs(lambda: to_torch((np.arange(4),) for _ in range(6))),
    "dataset of tensors": lambda: as_dataset(to_torch(loader())),
    "dataset of tensors, shard=None": lambda: as_dataset(to_torch(loader(shard=None))),
    "dataset": lambda: as_dataset(loader()),
    "dataset, shard='auto'": lambda: as_dataset(loader(shard="auto")),
    "dataset, shard=(rank, 2)": lambda: as_dataset(loader(shard=(torch.distributed.get_rank(), 2))),
    "dataset, shard=None": lambda: as_dataset(loader(shard=None)),
    "DataLoader of the dataset": lambda: DataLoader(as_dataset(loader()), batch_size=None),
    "dataloader": lambda: as_theirs(shuffle=True),
    "dataloader in order": as_theirs,
    "dataloader, shard=None": lambda: as_theirs(shard=None),
    "dataloader, sharded": lambda: as_theirs(sampler=DistributedSampler(range(24))),
    "dataloader, sharded, shard=None": lambda: as_theirs(sampler=DistributedSampler(range(24)), shard=None),
    "dataloader, own sampler": lambda: as_theirs(sampler=Own()),
}


def part_of(batch):
    if isinstance(batch, dict):
        return batch["x"]
    return batch[0] if isinstance(batch, tuple) else batch


def rows(way):
    """Return the rows of two epochs, or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = WAYS[way]()
        try:
            found = [[n for batch in batches for n in part_of(batch).tolist()] for _ in range(2)]
        except bu.ArgumentError as error:
            found = str(error)
    return found, [str(each.message) for each in caught if "torch.distributed" in str(each.message)]


def main(file: str, rank: int) -> None:
    """Begin the group whose processes meet in a file, and take two epochs and a resumed one."""
    before = as_dataset(loader())
    alone = sum(len(x) for (x,) in before)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    try:
        later = sum(len(x) for (x,) in before)
    except bu.ArgumentError as error:
        later = str(error)
    with bu.Loader([np.arange(24)], 4, shuffle=1, shard="auto", pool="threads", workers=1) as sharded:
        batches = to_torch(sharded)
        epochs = [[x.tolist() for (x,) in batches] for _ in range(2)]
        sharded.set_epoch(0)
        next(iter(batches))
        batches.load_state_dict(batches.state_dict())
        resumed = [x.tolist() for (x,) in batches]
    told = {"shard": rank_from_torch(), "epochs": epochs, "resumed": resumed, "begun later": [alone, later]}
    print(json.dumps({**told, "ways": {way: rows(way) for way in WAYS}}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
