from model import evaluate, train_step

import batchup_ng as bu

photos = bu.from_folder("photos", 64).map(bu.augment.normalize(0, 1))
train, val = photos.split([0.9, 0.1], seed=1)
train = train.with_images(crop="random").map(bu.augment.flip())
val = val.with_images(crop="center")
with bu.Loader(train, 16, shuffle=1) as train, bu.Loader(val, 16, pool=train) as val:
    for _ in range(2):
        for batch in train:
            train_step(batch)
        for batch in val:
            evaluate(batch)
