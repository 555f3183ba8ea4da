"""What the tests of handing over share: an iterator ahead of its loop, and batches as they come."""

from __future__ import annotations

from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.frameworks.ahead import AheadIterator
from batchup_ng.frameworks.handover import handed_over

from .framework_contract import FrameworkContract

SOURCE = bu.ArrayDataSource([np.arange(40)])


def ahead(batches: Any, convert: Any = lambda batch: batch, **options: Any) -> Any:
    return handed_over(batches, lambda iterator: AheadIterator(iterator, convert, **options))


def numbers(batches: Any) -> list[int]:
    return [int(x[0]) for (x,) in batches]


class AsNumPy(FrameworkContract):
    def arrays(self, batch: Any) -> Any:
        return batch
