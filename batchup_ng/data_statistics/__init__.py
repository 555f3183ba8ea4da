"""Statistics of the columns of a source, and functions that standardise by them."""

from .class_weights import class_weights
from .column import ColumnStatistics
from .compute import statistics
from .result import Statistics
from .standardize import standardize

__all__ = ["ColumnStatistics", "Statistics", "class_weights", "standardize", "statistics"]
