from model import train_step

import batchup_ng as bu

people = bu.from_csv("people.csv", label="label", size=64, columns=["age"])
people = people.map(lambda age: age / 100, on="age")
with bu.Loader(people, 16, shuffle=1) as loader:
    for batch in loader.epochs(2):
        train_step(batch)
