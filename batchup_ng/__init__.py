"""Feeds neural networks: composes sources of samples into batches and makes them ahead of the consumer.

    >>> import numpy as np
    >>> import batchup_ng as bu
    >>> source = bu.ArrayDataSource([np.arange(6), np.arange(6) ** 2])
    >>> with bu.WorkerThreadPool(2) as pool:
    ...     for x, y in pool.parallel_data_source(source).batch_iterator(4):
    ...         print(x, y)
    [0 1 2 3] [0 1 4 9]
    [4 5] [16 25]

The names of BatchUp 0.2.3 keep their places: ``data_source``, ``sampling``, ``work_pool``, ``image.utils``.
"""

from typing import TYPE_CHECKING

from . import at_exit, live  # noqa: F401  # they set what the end of the program calls, and loops once a second
from ._version import __version__
from .errors import (
    AccountingError,
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    BatchupError,
    BufferWarning,
    CacheWarning,
    ClusterError,
    DownloadError,
    InOrderNotSupported,
    LedgerError,
    MapCallError,
    MapResultError,
    NoEpochLeftWarning,
    NotReproducible,
    PoolBroken,
    PoolClosed,
    RankTimeout,
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
    WriteError,
)
from .lazy_names import on_first_use
from .memory.budget import memory, memory_limit  # at once: later, the room of this name would stand in its place

__all__ = [
    "AbstractDataSource",
    "AbstractSampler",
    "Accessor",
    "AccountingError",
    "ArgumentError",
    "ArgumentTypeError",
    "ArrayDataSource",
    "ArrowRows",
    "BalancedBatchSampler",
    "BatchError",
    "BatchIterator",
    "BatchupError",
    "BlockShuffleSampler",
    "BucketSampler",
    "BufferWarning",
    "CacheWarning",
    "Cached",
    "CallableDataSource",
    "CenterCrop",
    "ChoiceDataSource",
    "ClusterError",
    "ColumnStatistics",
    "ColumnSummary",
    "CompositeDataSource",
    "ContactSheet",
    "Converted",
    "DetectionTargets",
    "DownloadError",
    "EpochWait",
    "ErrorPolicy",
    "Explanation",
    "FeedbackSampler",
    "FileBytes",
    "FilesDataSource",
    "FilesReport",
    "FlatColumns",
    "Hdf5Rows",
    "Hdf5Values",
    "ImageArrayUInt8ToFloat32",
    "ImageBytes",
    "ImageFiles",
    "InOrderNotSupported",
    "IteratorDataSource",
    "LedgerError",
    "LmdbArray",
    "LmdbRows",
    "Loader",
    "MapCallError",
    "MapDataSource",
    "MapResultError",
    "MapStyle",
    "MixtureSampler",
    "NoEpochLeftWarning",
    "NotReproducible",
    "NpyRows",
    "NpzRows",
    "PackSampler",
    "PadColumns",
    "ParquetRows",
    "PoolBroken",
    "PoolClosed",
    "Ragged",
    "RandomAccessDataSource",
    "RandomResizedCrop",
    "RankTimeout",
    "ReentrantIteration",
    "RepeatedEpochWarning",
    "SafetensorsRows",
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
    "Statistics",
    "StratifiedSampler",
    "StridedSampler",
    "SubsetSampler",
    "Summary",
    "TarShards",
    "TextLines",
    "TokenBlocks",
    "TooManyErrors",
    "WeightedSampler",
    "WeightedSubsetSampler",
    "WorkerDied",
    "WorkerProcessPool",
    "WorkerRayPool",
    "WorkerThreadPool",
    "WorkerWarning",
    "WriteError",
    "ZarrRows",
    "__version__",
    "augment",
    "batch_map_concat",
    "batch_map_mean",
    "class_weights",
    "coerce_data_source",
    "concat",
    "convert",
    "data_source",
    "explain",
    "flat_batch",
    "folds",
    "from_coco",
    "from_csv",
    "from_file",
    "from_folder",
    "from_pairs",
    "from_table",
    "from_voc",
    "from_yolo",
    "ledger",
    "measure_mixing",
    "memory",
    "memory_limit",
    "mix",
    "num_batches",
    "openmetrics",
    "other_class",
    "pack",
    "pad_batch",
    "progress",
    "ramp",
    "repeat",
    "same_class",
    "sampling",
    "show",
    "split",
    "standardize",
    "statistics",
    "steps",
    "subset",
    "summary",
    "take",
    "trace",
    "watch",
    "windows",
    "work_pool",
    "write_errors",
]

if TYPE_CHECKING:  # from the modules themselves: mypy would take a function for the module of the same name
    from . import augment, data_source, sampling, work_pool
    from .accessors import (
        Accessor,
        ArrowRows,
        Cached,
        CenterCrop,
        FileBytes,
        Hdf5Rows,
        Hdf5Values,
        ImageArrayUInt8ToFloat32,
        ImageBytes,
        ImageFiles,
        LmdbArray,
        LmdbRows,
        MapStyle,
        NpyRows,
        NpzRows,
        ParquetRows,
        Ragged,
        RandomResizedCrop,
        SafetensorsRows,
        TarShards,
        TextLines,
        TokenBlocks,
        ZarrRows,
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
        folds,
        mix,
        repeat,
        split,
        subset,
        take,
        write_errors,
    )
    from .data_source.functions import zip as zip  # not in __all__: a star import must not hide Python's own
    from .data_source.series import windows
    from .data_statistics.class_weights import class_weights
    from .data_statistics.column import ColumnStatistics
    from .data_statistics.compute import statistics
    from .data_statistics.result import Statistics
    from .data_statistics.standardize import standardize
    from .datasets.files import FilesDataSource, FilesReport
    from .datasets.from_coco import from_coco
    from .datasets.from_csv import from_csv
    from .datasets.from_file import from_file
    from .datasets.from_folder import from_folder
    from .datasets.from_pairs import from_pairs
    from .datasets.from_table import from_table
    from .datasets.from_voc import from_voc
    from .datasets.from_yolo import from_yolo
    from .explanation import Explanation
    from .formats import Converted, convert
    from .frameworks.keras import KeepState as KeepState
    from .loader import Loader
    from .observe.explain import explain
    from .observe.openmetrics import openmetrics
    from .observe.progress import progress
    from .observe.sheet import ContactSheet, show
    from .observe.table import ColumnSummary, Summary, summary
    from .observe.trace import trace
    from .packing import pack
    from .padding import FlatColumns, PadColumns, flat_batch, pad_batch
    from .randomness import SampleRng
    from .sampling import (
        AbstractSampler,
        BalancedBatchSampler,
        BlockShuffleSampler,
        BucketSampler,
        FeedbackSampler,
        MixtureSampler,
        PackSampler,
        StandardSampler,
        StratifiedSampler,
        StridedSampler,
        SubsetSampler,
        WeightedSampler,
        WeightedSubsetSampler,
        measure_mixing,
        num_batches,
        other_class,
        same_class,
    )
    from .sampling.schedules import ramp, steps
    from .targets import DetectionTargets
    from .time_machine import ledger
    from .waiting import EpochWait, watch
    from .work_pool import ErrorPolicy, SerialPool, WorkerProcessPool, WorkerRayPool, WorkerThreadPool
else:
    # KeepState is not in __all__: a star import must not import Keras.
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".accessors": [
                "accessors", "Accessor", "ArrowRows", "Cached", "CenterCrop", "FileBytes", "Hdf5Rows", "Hdf5Values",
                "ImageArrayUInt8ToFloat32", "ImageBytes", "ImageFiles", "LmdbArray", "LmdbRows", "MapStyle", "NpyRows",
                "NpzRows", "ParquetRows", "Ragged", "RandomResizedCrop", "SafetensorsRows", "TarShards", "TextLines",
                "TokenBlocks", "ZarrRows",
            ],
            ".augment": ["augment"],
            ".batch": ["batch"],
            ".columns": ["columns"],
            ".data_source": [
                "data_source", "AbstractDataSource", "ArrayDataSource", "BatchIterator", "CallableDataSource",
                "ChoiceDataSource", "CompositeDataSource", "IteratorDataSource", "MapDataSource",
                "RandomAccessDataSource", "batch_map_concat", "batch_map_mean", "coerce_data_source", "concat", "folds",
                "mix", "repeat", "split", "subset", "take", "write_errors",
            ],
            ".data_source.functions": ["zip"],
            ".data_source.series": ["windows"],
            ".data_statistics": [
                "data_statistics", "ColumnStatistics", "Statistics", "class_weights", "standardize", "statistics",
            ],
            ".datasets": [
                "datasets", "FilesDataSource", "FilesReport", "from_coco", "from_csv", "from_file", "from_folder",
                "from_pairs", "from_table", "from_voc", "from_yolo",
            ],
            ".explanation": ["explanation", "Explanation"],
            ".faults": ["faults"],
            ".formats": ["formats", "Converted", "convert"],
            ".graph": ["graph"],
            ".image": ["image"],
            ".loader": ["loader", "Loader"],
            ".observe": [
                "observe", "ColumnSummary", "ContactSheet", "Summary", "explain", "openmetrics", "progress", "show",
                "summary", "trace",
            ],
            ".packing": ["packing", "pack"],
            ".padding": ["padding", "FlatColumns", "PadColumns", "flat_batch", "pad_batch"],
            ".randomness": ["randomness", "SampleRng"],
            ".row_arrays": ["row_arrays"],
            ".sampling": [
                "sampling", "AbstractSampler", "BalancedBatchSampler", "BlockShuffleSampler", "BucketSampler",
                "FeedbackSampler", "MixtureSampler", "PackSampler", "StandardSampler", "StratifiedSampler",
                "StridedSampler", "SubsetSampler", "WeightedSampler", "WeightedSubsetSampler", "measure_mixing",
                "num_batches", "other_class", "same_class",
            ],
            ".sampling.schedules": ["ramp", "steps"],
            ".targets": ["targets", "DetectionTargets"],
            ".time_machine": ["ledger"],
            ".waiting": ["waiting", "EpochWait", "watch"],
            ".work_pool": [
                "work_pool", "ErrorPolicy", "SerialPool", "WorkerProcessPool", "WorkerRayPool", "WorkerThreadPool",
            ],
        },
        hidden={".frameworks.keras": ["KeepState"]},
    )
