"""An accessor that tells, across processes, which rows were read from it."""

import os

import numpy as np


class Counting:
    """Rows of numbers that depend on their own; each reading appends its row number to the file `log`."""

    dtype = np.dtype(np.int32)

    def __init__(self, log, n=12, row=(3, 2), version=1):
        self.log = os.fspath(log)
        self.shape = (n, *row)
        self.version = version

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        rows = np.arange(len(self))[rows]
        with open(self.log, "ab", buffering=0) as log:
            log.write(np.atleast_1d(rows).astype(np.int64).tobytes())
        return self.expected(rows)

    def expected(self, rows):
        """What the rows are, without a reading of them."""
        per_row = np.arange(int(np.prod(self.shape[1:])), dtype=np.int32).reshape(self.shape[1:])
        return np.multiply.outer(np.asarray(rows, np.int32) + 1, per_row + self.version).astype(np.int32)

    def read(self):
        """Return which rows were read since the last call, in order."""
        if not os.path.exists(self.log):
            return []
        with open(self.log, "r+b") as log:
            rows = np.frombuffer(log.read(), np.int64).tolist()
            log.truncate(0)
        return sorted(rows)

    def fingerprint(self):
        return {"version": self.version}
