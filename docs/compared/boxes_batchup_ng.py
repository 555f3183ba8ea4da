import pandas as pd
from model import train_step

import batchup_ng as bu

scenes = pd.read_json("scenes.jsonl", lines=True)
scenes = bu.from_table(scenes, size=64, columns=["boxes", "labels"], as_dict=True)
augment = bu.augment.compose(bu.augment.flip(), bu.augment.random_crop(48), boxes="boxes")
with bu.Loader(scenes.map(augment), 16, shuffle=1) as loader:
    for batch in loader.epochs(2):
        train_step(batch)
