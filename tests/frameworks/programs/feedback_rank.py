"""One of two processes of a gloo group that draw rows by their losses: prints what each epoch drew, and the chances."""

import json
import sys

import numpy as np
import torch.distributed

import batchup_ng as bu

N, EPOCHS = 48, 5


def losses_of(rows: np.ndarray, epoch: int) -> np.ndarray:
    return (rows * 7 % 11 + epoch) / 3.0


def trained(sampler: bu.FeedbackSampler, batch_size: int, **options: object) -> list[list[int]]:
    """Return the rows of this rank in each epoch."""
    source = bu.ArrayDataSource({"x": np.arange(N)}).with_index().sample(sampler)
    epochs = []
    with bu.Loader(source, batch_size, shuffle=3, pool="threads", workers=1, buffer=2, **options) as loader:
        for _ in range(EPOCHS):
            epochs.append([])
            for batch in loader:
                rows = batch["index"]
                epochs[-1] += rows.tolist()
                sampler.update(rows, losses_of(rows, loader.epoch), epoch=loader.epoch)
    return epochs


def main(file: str, rank: int) -> None:
    """Train without a group, then as one of two ranks, and go on from the states of both."""
    alone = bu.FeedbackSampler(N, 0.7)
    whole = trained(alone, 8)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    sampler = bu.FeedbackSampler(N, 0.7)
    own = trained(sampler, 4, shard="auto")
    states = [None, None]
    torch.distributed.all_gather_object(states, sampler.state_dict())
    again = bu.FeedbackSampler(N, 0.7)
    again.load_state_dict(states)
    for each in (alone, sampler, again):
        each.update([], [], epoch=EPOCHS)
    chances = [each.chances(EPOCHS + 1).tolist() for each in (alone, sampler, again)]
    print(json.dumps({"whole": whole, "own": own, "chances": chances, "ranks": [each["rank"] for each in states]}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
