"""Feed the rows of a table of (path, label), in a new order each epoch, with pixels in [-1, 1]."""

import tempfile

import numpy as np
import pandas as pd

import batchup_ng as bu
from batchup_ng.demo.digits import write_digits


def to_signed_range(images, labels):
    """Turn 0..255 into -1..1."""
    return images.astype(np.float32) / 127.5 - 1, labels


with tempfile.TemporaryDirectory() as folder:
    paths, labels = write_digits(folder)
    table = pd.DataFrame({"path": paths, "label": labels})
    print(table.sample(3, random_state=0).to_string())

    # Only the list of paths is kept; workers open the files batch by batch.
    images = bu.ImageFiles(table["path"].tolist(), size=(128, 128), mode="RGB")
    source = bu.ArrayDataSource([images, table["label"].to_numpy()]).map(to_signed_range)

    with bu.Loader(source, 64, shuffle=12345) as loader:
        for epoch in range(2):
            rows, low, high = 0, np.inf, -np.inf
            for x, y in loader:
                if rows == 0:
                    print(f"epoch {epoch}: x {x.shape} {x.dtype}, first labels {y[:10].tolist()}")
                rows, low, high = rows + len(y), min(low, x.min()), max(high, x.max())
            print(f"epoch {epoch}: {rows} rows, pixels from {low:.2f} to {high:.2f}")
