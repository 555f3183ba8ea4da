import pandas as pd
from model import train_step

from batchup_ng import Loader, augment, from_table

scenes = pd.read_json("scenes.jsonl", lines=True)
scenes = from_table(scenes, columns=["boxes", "labels"], as_dict=True)
chain = [augment.resize(64), augment.flip(), augment.random_crop(48)]
with Loader(scenes.map(augment.compose(*chain, boxes="boxes")), 16, shuffle=1) as loader:
    for batch in loader.epochs(2):
        train_step(batch)
