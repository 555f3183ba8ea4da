"""Which rows, in what order: samplers, the plan of an epoch. Index arithmetic only; no data is read."""

from .base import AbstractSampler, RandomAccessSampler, num_batches
from .batch_sampler import BatchSampler
from .buckets import BucketSampler
from .plan import BatchPlan, PlannedBatch
from .row_plan import ChoiceBatch
from .standard import StandardSampler, SubsetSampler
from .weighted import WeightedSampler, WeightedSubsetSampler

__all__ = [
    "AbstractSampler",
    "BatchPlan",
    "BatchSampler",
    "BucketSampler",
    "ChoiceBatch",
    "PlannedBatch",
    "RandomAccessSampler",
    "StandardSampler",
    "SubsetSampler",
    "WeightedSampler",
    "WeightedSubsetSampler",
    "num_batches",
]
