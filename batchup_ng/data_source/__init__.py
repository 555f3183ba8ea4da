"""Where samples come from: sources, how they compose, the iterator of their batches."""

from ..accessors.base import Accessor
from ..sampling.row_plan import ChoiceBatch
from .array import ArrayDataSource
from .base import AbstractDataSource, CollateDataSource, MapDataSource, PlannedDataSource, SampleMapDataSource
from .batch_map import batch_map_concat, batch_map_mean
from .choice import ChoiceDataSource
from .compose import coerce_data_source, concat, mix, repeat, split, subset, take
from .compose import zip as zip  # not in __all__, so that no star import hides Python's own
from .composite import CompositeDataSource
from .epochs import Epochs
from .indexed import IndexedDataSource
from .iterator import BatchIterator
from .random_access import RandomAccessDataSource
from .rearranged import ConcatDataSource, SubsetDataSource, ZipDataSource
from .rounds import RoundsDataSource, TakeDataSource
from .streams import CallableDataSource, IteratorDataSource

__all__ = [
    "AbstractDataSource",
    "Accessor",
    "ArrayDataSource",
    "BatchIterator",
    "CallableDataSource",
    "ChoiceBatch",
    "ChoiceDataSource",
    "CollateDataSource",
    "CompositeDataSource",
    "ConcatDataSource",
    "Epochs",
    "IndexedDataSource",
    "IteratorDataSource",
    "MapDataSource",
    "PlannedDataSource",
    "RandomAccessDataSource",
    "RoundsDataSource",
    "SampleMapDataSource",
    "SubsetDataSource",
    "TakeDataSource",
    "ZipDataSource",
    "batch_map_concat",
    "batch_map_mean",
    "coerce_data_source",
    "concat",
    "mix",
    "repeat",
    "split",
    "subset",
    "take",
]
