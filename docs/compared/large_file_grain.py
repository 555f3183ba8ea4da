import grain
import h5py
from model import train_step

x, y = h5py.File("train.h5").values()
rows = grain.MapDataset.range(len(y)).seed(1).shuffle().batch(16)
for batch in rows.map(lambda rows: (x[sorted(rows)], y[sorted(rows)])).repeat(2):
    train_step(batch)
