"""Which rows, in what order: samplers, the plan of an epoch. Index arithmetic only; no data is read."""

from .base import AbstractSampler, RandomAccessSampler, num_batches
from .plan import BatchPlan, PlannedBatch
from .row_plan import ChoiceBatch
from .standard import StandardSampler, SubsetSampler
from .weighted import WeightedSampler, WeightedSubsetSampler

__all__ = [
    "AbstractSampler",
    "BatchPlan",
    "ChoiceBatch",
    "PlannedBatch",
    "RandomAccessSampler",
    "StandardSampler",
    "SubsetSampler",
    "WeightedSampler",
    "WeightedSubsetSampler",
    "num_batches",
]
