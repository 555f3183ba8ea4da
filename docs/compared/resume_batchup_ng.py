from model import load, save, train_step

import batchup_ng as bu

with bu.Loader(bu.from_file("train.npz"), 4, shuffle=1, shard="auto") as loader:
    if state := load():
        loader.load_state_dict(state)
    for batch in loader.epochs(2):
        train_step(batch)
        save(loader.state_dict())
