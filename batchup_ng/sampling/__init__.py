"""Samplers and the plan of an epoch: which rows, in which order. Index arithmetic only; no data is read."""

from .base import AbstractSampler, BatchSampler, RandomAccessSampler, num_batches
from .block_shuffle import BlockShuffleSampler, measure_mixing
from .buckets import BucketSampler
from .class_samplers import BalancedBatchSampler, StratifiedSampler
from .companions import other_class, same_class
from .feedback import FeedbackSampler
from .mixture import MixtureSampler
from .packing import PackSampler
from .plans.epoch import BatchPlan, PlannedBatch
from .plans.rows import ChoiceBatch
from .standard import StandardSampler, SubsetSampler
from .strided import StridedSampler
from .weighted import WeightedSampler, WeightedSubsetSampler

__all__ = [
    "AbstractSampler",
    "BalancedBatchSampler",
    "BatchPlan",
    "BatchSampler",
    "BlockShuffleSampler",
    "BucketSampler",
    "ChoiceBatch",
    "FeedbackSampler",
    "MixtureSampler",
    "PackSampler",
    "PlannedBatch",
    "RandomAccessSampler",
    "StandardSampler",
    "StratifiedSampler",
    "StridedSampler",
    "SubsetSampler",
    "WeightedSampler",
    "WeightedSubsetSampler",
    "measure_mixing",
    "num_batches",
    "other_class",
    "same_class",
]
