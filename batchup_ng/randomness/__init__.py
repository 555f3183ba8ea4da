"""The only place that makes random numbers. Each is a function of a seed, an epoch, a position in the epoch.

So a batch has the same draws in every pool and in any order.
"""

from .hashing import generator, pair_words, unit_floats, word, words_at
from .keys import BatchKey, OrderKey
from .sample_rng import SampleRng

__all__ = [
    "BatchKey",
    "OrderKey",
    "SampleRng",
    "generator",
    "pair_words",
    "unit_floats",
    "word",
    "words_at",
]
