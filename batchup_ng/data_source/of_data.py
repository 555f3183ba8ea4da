"""The source of what a user passes to a loader: arrays, accessors, lists of samples, data sets of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..accessors.map_style import MapStyle
from ..errors import ArgumentTypeError
from .array import ArrayDataSource
from .source import AbstractDataSource


def source_of(data: Any, with_pool: tuple[type, ...]) -> AbstractDataSource:
    """Return `data` if it is a data source, otherwise a data source of its samples. Refuse objects `with_pool`."""
    if type(data).__name__ == "DataLoader":
        raise ArgumentTypeError(
            "data is a DataLoader of PyTorch's; batchup_ng.frameworks.torch.from_dataloader(data) runs it, or pass its "
            "data set"
        )
    if isinstance(data, (str, bytes)):
        raise ArgumentTypeError(f"data must be arrays or a data set, not {data!r:.80}")
    if isinstance(data, with_pool):
        raise ArgumentTypeError(
            f"data must be what a pool is to work for, and this {type(data).__name__} has one already; pass the "
            f"source, and the pool, or the loader, as pool="
        )
    if isinstance(data, AbstractDataSource):
        return data
    if hasattr(data, "iloc"):
        raise ArgumentTypeError(
            f"data is a {type(data).__name__} of pandas, which is indexed by label, not by row; pass its columns as "
            f"arrays: {{name: table[name].to_numpy() for name in table}}"
        )
    if isinstance(data, np.ndarray) or hasattr(data, "read_into"):
        return ArrayDataSource([data])
    of_samples = isinstance(data, (list, tuple)) and data and isinstance(data[0], (tuple, dict))
    if isinstance(data, (list, tuple, dict)) and not of_samples:
        return ArrayDataSource(list(data) if isinstance(data, tuple) else data)
    return ArrayDataSource([MapStyle(data)])
