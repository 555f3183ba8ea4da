from model import train_step

import batchup_ng as bu

with bu.Loader(bu.from_file("train.h5"), 16, shuffle=1) as loader:
    for batch in loader.epochs(2):
        train_step(batch)
