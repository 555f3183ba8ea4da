"""Feeds neural networks: composes sources of samples into batches that are always ahead of the consumer.

    >>> import numpy as np
    >>> import batchup_ng as bu
    >>> source = bu.ArrayDataSource([np.arange(6), np.arange(6) ** 2])
    >>> with bu.WorkerThreadPool(2) as pool:
    ...     for x, y in pool.parallel_data_source(source).batch_iterator(4):
    ...         print(x, y)
    [0 1 2 3] [0 1 4 9]
    [4 5] [16 25]

The names of BatchUp 0.2.3 are where they were: ``data_source``, ``sampling``, ``work_pool``, ``image.utils``.
"""

from . import data_source, sampling, work_pool
from ._version import __version__
from .accessors import (
    Accessor,
    CenterCrop,
    ImageArrayUInt8ToFloat32,
    ImageBytes,
    ImageFiles,
    MapStyle,
    RandomResizedCrop,
)
from .data_source import (
    AbstractDataSource,
    ArrayDataSource,
    BatchIterator,
    CallableDataSource,
    ChoiceDataSource,
    CompositeDataSource,
    IteratorDataSource,
    MapDataSource,
    RandomAccessDataSource,
    batch_map_concat,
    batch_map_mean,
    coerce_data_source,
    concat,
    mix,
    repeat,
    split,
    subset,
    take,
)
from .data_source.functions import zip as zip  # not in __all__, so that no star import hides Python's own
from .errors import (
    AccountingError,
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    BatchupError,
    InOrderNotSupported,
    MapResultError,
    NotReproducible,
    PoolBroken,
    PoolClosed,
    ReentrantIteration,
    RepeatedEpochWarning,
    SampleReadError,
    SampleTimeout,
    SampleWarning,
    SerializationError,
    SharedMemoryWarning,
    StallWarning,
    StateError,
    TooManyErrors,
    WorkerDied,
    WorkerWarning,
)
from .loader import Loader
from .padding import PadColumns, pad_batch
from .randomness import SampleRng
from .sampling import (
    AbstractSampler,
    BalancedBatchSampler,
    BlockShuffleSampler,
    BucketSampler,
    MixtureSampler,
    StandardSampler,
    StratifiedSampler,
    StridedSampler,
    SubsetSampler,
    WeightedSampler,
    WeightedSubsetSampler,
    measure_mixing,
    num_batches,
)
from .waiting import EpochWait, watch
from .work_pool import ErrorPolicy, SerialPool, WorkerProcessPool, WorkerThreadPool

__all__ = [
    "AbstractDataSource",
    "AbstractSampler",
    "Accessor",
    "AccountingError",
    "ArgumentError",
    "ArgumentTypeError",
    "ArrayDataSource",
    "BalancedBatchSampler",
    "BatchError",
    "BatchIterator",
    "BatchupError",
    "BlockShuffleSampler",
    "BucketSampler",
    "CallableDataSource",
    "CenterCrop",
    "ChoiceDataSource",
    "CompositeDataSource",
    "EpochWait",
    "ErrorPolicy",
    "ImageArrayUInt8ToFloat32",
    "ImageBytes",
    "ImageFiles",
    "InOrderNotSupported",
    "IteratorDataSource",
    "Loader",
    "MapDataSource",
    "MapResultError",
    "MapStyle",
    "MixtureSampler",
    "NotReproducible",
    "PadColumns",
    "PoolBroken",
    "PoolClosed",
    "RandomAccessDataSource",
    "RandomResizedCrop",
    "ReentrantIteration",
    "RepeatedEpochWarning",
    "SampleReadError",
    "SampleRng",
    "SampleTimeout",
    "SampleWarning",
    "SerialPool",
    "SerializationError",
    "SharedMemoryWarning",
    "StallWarning",
    "StandardSampler",
    "StateError",
    "StratifiedSampler",
    "StridedSampler",
    "SubsetSampler",
    "TooManyErrors",
    "WeightedSampler",
    "WeightedSubsetSampler",
    "WorkerDied",
    "WorkerProcessPool",
    "WorkerThreadPool",
    "WorkerWarning",
    "__version__",
    "batch_map_concat",
    "batch_map_mean",
    "coerce_data_source",
    "concat",
    "data_source",
    "measure_mixing",
    "mix",
    "num_batches",
    "pad_batch",
    "repeat",
    "sampling",
    "split",
    "subset",
    "take",
    "watch",
    "work_pool",
]
