"""One of two processes of a gloo group: prints which rows its loader, with ``shard="auto"``, hands out."""

import json
import sys

import numpy as np

import batchup_ng as bu
from batchup_ng.data_source.distributed import rank_from_torch


def main(file: str, rank: int) -> None:
    """Begin the group whose processes meet in a file, and take two epochs and a resumed one."""
    import torch.distributed

    from batchup_ng.frameworks.torch import to_torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    with bu.Loader([np.arange(24)], 4, shuffle=1, shard="auto", pool="threads", workers=1) as loader:
        batches = to_torch(loader)
        epochs = [[x.tolist() for (x,) in batches] for _ in range(2)]
        loader.set_epoch(0)
        next(iter(batches))
        batches.load_state_dict(batches.state_dict())
        resumed = [x.tolist() for (x,) in batches]
    print(json.dumps({"shard": rank_from_torch(), "epochs": epochs, "resumed": resumed}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
