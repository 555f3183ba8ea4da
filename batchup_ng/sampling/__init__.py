"""Which rows, in what order: samplers, the plan of an epoch. Index arithmetic only; no data is read."""

from .base import AbstractSampler, RandomAccessSampler, num_batches
from .batch_sampler import BatchSampler
from .blocks import BlockShuffleSampler, measure_mixing
from .buckets import BucketSampler
from .classes import BalancedBatchSampler, StratifiedSampler
from .mixing import InterleaveSampler
from .plan import BatchPlan, PlannedBatch
from .row_plan import ChoiceBatch
from .sequential import SequentialSampler
from .standard import StandardSampler, SubsetSampler
from .weighted import WeightedSampler, WeightedSubsetSampler

__all__ = [
    "AbstractSampler",
    "BalancedBatchSampler",
    "BatchPlan",
    "BatchSampler",
    "BlockShuffleSampler",
    "BucketSampler",
    "ChoiceBatch",
    "InterleaveSampler",
    "PlannedBatch",
    "RandomAccessSampler",
    "SequentialSampler",
    "StandardSampler",
    "StratifiedSampler",
    "SubsetSampler",
    "WeightedSampler",
    "WeightedSubsetSampler",
    "measure_mixing",
    "num_batches",
]
