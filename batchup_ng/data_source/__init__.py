"""Data sources, the functions that compose them, and the iterator of their batches."""

from ..accessors.base import Accessor
from ..sampling.plans.rows import ChoiceBatch
from .array import ArrayDataSource
from .combined import ChoiceDataSource, CompositeDataSource
from .derived import (
    CollateDataSource,
    ColumnsDataSource,
    FilterDataSource,
    IndexedDataSource,
    MapDataSource,
    RoundsDataSource,
    SampleMapDataSource,
    TakeDataSource,
    ViewsDataSource,
)
from .epoch.epochs import Epochs
from .epoch.iterator import BatchIterator
from .error_list import write_errors
from .functions import coerce_data_source, concat, folds, mix, repeat, split, subset, take
from .functions import zip as zip  # not in __all__: a star import must not hide Python's own
from .iterable import CallableDataSource, IteratorDataSource
from .planned import PlannedDataSource
from .random_access import ConcatDataSource, RandomAccessDataSource, SubsetDataSource, ZipDataSource
from .reduce import batch_map_concat, batch_map_mean
from .source import AbstractDataSource

__all__ = [
    "AbstractDataSource",
    "Accessor",
    "ArrayDataSource",
    "BatchIterator",
    "CallableDataSource",
    "ChoiceBatch",
    "ChoiceDataSource",
    "CollateDataSource",
    "ColumnsDataSource",
    "CompositeDataSource",
    "ConcatDataSource",
    "Epochs",
    "FilterDataSource",
    "IndexedDataSource",
    "IteratorDataSource",
    "MapDataSource",
    "PlannedDataSource",
    "RandomAccessDataSource",
    "RoundsDataSource",
    "SampleMapDataSource",
    "SubsetDataSource",
    "TakeDataSource",
    "ViewsDataSource",
    "ZipDataSource",
    "batch_map_concat",
    "batch_map_mean",
    "coerce_data_source",
    "concat",
    "folds",
    "mix",
    "repeat",
    "split",
    "subset",
    "take",
    "write_errors",
]
