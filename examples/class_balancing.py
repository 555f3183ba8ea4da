"""Draw rare classes as often as common ones."""

import numpy as np

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

images, labels = load_digits()

# Make the classes unequal: keep all zeros, and one in n + 1 of digit n.
keep = np.concatenate([np.flatnonzero(labels == digit)[:: digit + 1] for digit in range(10)])
images, labels = images[keep], labels[keep].astype(np.int64)
print("in the data:", np.bincount(labels, minlength=10).tolist())

# Each class comes equally often, in epochs of 9,600 samples. balanced=True, per_class=6 gives 6 of each in every batch.
source = bu.ArrayDataSource([images, labels]).sample(balanced=True, num_samples=9600)
drawn = np.zeros(10, dtype=int)
with bu.Loader(source, 64, shuffle=1) as loader:
    for _, y in loader:
        drawn += np.bincount(y, minlength=10)

print("as drawn:   ", drawn.tolist())
print(f"rarest to commonest class: 1 to {drawn.max() / drawn.min():.2f}")
