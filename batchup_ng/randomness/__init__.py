"""The only place that makes random numbers: each is a function of a seed, an epoch, a place in the stream. So a batch
has the same draws in every pool and in whatever order.
"""

from .hashing import generator, pair_words, unit_floats, word, words_at
from .keys import BatchKey, OrderKey
from .numpy_rng import (
    check_rng,
    copy_of,
    globals_kept,
    globals_seeded,
    seed_draw,
    seed_from_state,
    seed_globals,
    uniform_draws,
)
from .sample_rng import SampleRng

__all__ = [
    "BatchKey",
    "OrderKey",
    "SampleRng",
    "check_rng",
    "copy_of",
    "generator",
    "globals_kept",
    "globals_seeded",
    "pair_words",
    "seed_draw",
    "seed_from_state",
    "seed_globals",
    "uniform_draws",
    "unit_floats",
    "word",
    "words_at",
]
