"""The only place that makes random numbers: each is a function of a seed, an epoch, a place in the stream.

Nothing here keeps state between batches, so a batch has the same draws whoever makes it, in whatever order.

* :class:`OrderKey` names the order of one epoch of one node of the graph of sources.
* :class:`BatchKey` names one batch at one node; maps draw from it.
* :class:`SampleRng` gives one row of draws a sample, keyed by the sample's position in the stream.

Keys are mixed by BLAKE2b (RFC 7693); the vectorised draws use the finaliser of SplitMix64 (Steele, Lea, Flood:
"Fast splittable pseudorandom number generators", OOPSLA 2014, with Stafford's constants "Mix13"), applied to
a word of the row and a word of the draw, as counter-based generators do (Salmon et al., SC 2011).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import math
import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from . import checks
from .errors import ArgumentError, ArgumentTypeError

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def digest(*parts: int | str) -> bytes:
    """Return 16 bytes that depend on each of `parts` and on their order."""
    packed = b"".join(_packed(part) for part in parts)
    return hashlib.blake2b(packed, digest_size=16).digest()


def _packed(part: int | str) -> bytes:
    if isinstance(part, str):
        data = part.encode()
        return b"s" + struct.pack("<q", len(data)) + data
    if -(1 << 63) <= part < 1 << 63:
        return b"i" + struct.pack("<q", part)
    data = str(part).encode()
    return b"n" + struct.pack("<q", len(data)) + data


def word(*parts: int | str) -> int:
    """Return a 64-bit integer that depends on each of `parts`."""
    return int.from_bytes(digest(*parts)[:8], "little")


def generator(*parts: int | str) -> np.random.Generator:
    """Return a NumPy generator (Philox) that is keyed by `parts`."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest(*parts), "little")))


def mix64(x: np.ndarray) -> np.ndarray:
    """Return `x` (uint64) with its bits mixed: a bijection; writes into `x`."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def words_at(key: int, positions: np.ndarray) -> np.ndarray:
    """Return one 64-bit word a position: ``(n,) uint64``, keyed by `key`."""
    x = positions.astype(np.uint64)
    x *= np.uint64(_GOLDEN)
    mix64(x)
    x ^= np.uint64(key)
    return mix64(x)


def pair_words(key: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one 64-bit word a pair of numbers: ``(n,) uint64``, keyed by `key`."""
    return mix64(words_at(key, first) ^ words_at(key ^ _MASK, second))


def unit_floats(words: np.ndarray) -> np.ndarray:
    """Return `words` as float64 in [0, 1), from their upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))


@dataclasses.dataclass(frozen=True, slots=True)
class OrderKey:
    """Names the order of one epoch at one node of the graph of sources."""

    seed: int
    epoch: int
    path: tuple[int, ...] = ()

    def child(self, number: int) -> OrderKey:
        """Return the key of this node's child of that number."""
        return OrderKey(self.seed, self.epoch, (*self.path, number))

    def word(self, *parts: int | str) -> int:
        """Return a 64-bit integer for the use that `parts` name."""
        return word("order", self.seed, self.epoch, len(self.path), *self.path, *parts)

    def random_state(self, *parts: int | str) -> np.random.RandomState:
        """Return a generator of BatchUp's kind for the use that `parts` name."""
        seed = digest("order", self.seed, self.epoch, len(self.path), *self.path, *parts)
        return np.random.RandomState(np.frombuffer(seed, "<u4"))  # one word of 32 bits would soon come again


class BatchKey(NamedTuple):
    """Names the randomness of one batch at one node of the graph of sources.

    Attributes:
        seed: Seed of the run.
        epoch: Number of the epoch.
        batch: Number of the batch in its epoch.
        start: Position in the stream of the batch's first sample.
        path: Child numbers from the root of the graph to the node.
        offsets: Which samples of the batch this node makes, where it does not make all: ``(n,) int64``.
    """

    seed: int = 0
    epoch: int = 0
    batch: int = 0
    start: int = 0
    path: tuple[int, ...] = ()
    offsets: np.ndarray | None = None

    def child(self, number: int, offsets: np.ndarray | None = None) -> BatchKey:
        """Return the key of this node's child; `offsets` picks the samples of this node that it makes."""
        key = self if offsets is None else self.part(offsets)
        return BatchKey(self.seed, self.epoch, self.batch, self.start, (*self.path, number), key.offsets)

    def part(self, offsets: np.ndarray) -> BatchKey:
        """Return the key of those samples of the batch that stand at `offsets`: ``(n,) int64``."""
        return self._replace(offsets=offsets if self.offsets is None else self.offsets[offsets])

    def positions(self, n: int) -> np.ndarray:
        """Return the positions in the stream of the `n` samples of this batch: ``(n,) int64``."""
        if self.offsets is not None:
            return self.start + self.offsets[:n]
        return np.arange(self.start, self.start + n, dtype=np.int64)

    def position(self, place: int) -> int:
        """Return the position in the stream of the sample that stands at `place` in the batch."""
        return self.start + (place if self.offsets is None else int(self.offsets[place]))

    def generator(self) -> np.random.Generator:
        """Return the batch's generator, a function of (seed, epoch, batch, node).

        A batch is its number with its first position: an epoch that went on with larger batches has numbers twice.
        """
        first = self.position(0) if self.offsets is None or len(self.offsets) else self.start
        return generator("batch", self.seed, self.epoch, self.batch, first, len(self.path), *self.path)

    def sample_rng(self, n: int, planned: int | None = None) -> SampleRng:
        """Return the row-wise generator of the batch's `n` samples.

        Args:
            n: How many samples the batch has.
            planned: How many were planned for it, where a map may have made others of them; `n` without.
        """
        key = word("sample", self.seed, self.epoch, len(self.path), *self.path)
        if planned is None or n <= planned:
            return SampleRng(key, self.positions(n))
        if planned == 0:
            raise ArgumentError(f"a batch of no samples was mapped to one of {n}, which have no random numbers")
        places = np.arange(n, dtype=np.int64)
        return SampleRng(key, self.positions(planned)[places % planned], places // planned)


class SampleRng:
    """Draws one row of random numbers a sample, each row keyed by its sample's position in the stream.

    The rows do not depend on which samples share a batch: the batch size, the pool and the worker do not matter.
    Every method returns an array whose first axis is the samples'. Calls are told apart by their order, so a map
    must make the same calls for each batch.

    Where a map before this one made more samples of a batch than were planned, they are counted off in views: of n
    planned samples, row i is view ``i // n`` of the sample at place ``i % n``, as where whole copies of a batch stand
    one after the other. Each view has draws of its own, so that no two rows of an epoch share one.

    What bounds a draw (`low`, `high`, `loc`, `scale`, `p`) is a number, or an array that broadcasts to ``(n, *size)``:
    of shape ``(n,)`` without `size`, ``(n, 1)`` with a `size` of one axis, for one bound a sample.

    Args:
        key: 64-bit key of the seed, epoch and node.
        positions: Positions of the samples in the stream: ``(n,) int64``.
        views: Numbers of their views: ``(n,) int64``; all 0 without.
    """

    def __init__(self, key: int, positions: np.ndarray, views: np.ndarray | None = None) -> None:
        self._key = key
        self._positions = positions
        self._views = np.zeros(len(positions), dtype=np.int64) if views is None else views
        self._rows = words_at(key, positions)
        if views is not None:
            more = views > 0
            self._rows[more] = pair_words(word("views", key), positions[more], views[more])
        self._drawn = 0
        self._times = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def positions(self) -> np.ndarray:
        """The positions of the samples in the stream, ``(n,) int64``; views of one sample have the same."""
        return self._positions

    def _words(self, size: Any, each: int = 1, **bounds: Any) -> np.ndarray:
        """Return ``(n, *size, each) uint64`` words that were not drawn before, if `bounds` fit them."""
        shape = _shape(size)
        for name, bound in bounds.items():
            _check_broadcast(name, bound, (len(self._rows), *shape))
        count = math.prod(shape) * each
        columns = np.arange(self._drawn, self._drawn + count, dtype=np.int64)
        self._drawn += count
        words = self._rows[:, None] ^ words_at(self._key ^ _MASK, columns)[None, :]
        return mix64(words).reshape(len(self._rows), *shape, each)

    def random(self, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return floats in [0, 1): ``(n, *size) float64``."""
        return unit_floats(self._words(size)[..., 0])

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return floats in [low, high): ``(n, *size) float64``.

        Raises:
            ArgumentError: a bound does not broadcast to ``(n, *size)``.
        """
        words = self._words(size, low=low, high=high)
        low, high = np.asarray(low), np.asarray(high)
        return np.asarray(low + (high - low) * unit_floats(words[..., 0]))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return normal deviates by the Box-Muller transform (1958): ``(n, *size) float64``.

        Raises:
            ArgumentError: `loc` or `scale` does not broadcast to ``(n, *size)``.
        """
        u = unit_floats(self._words(size, each=2, loc=loc, scale=scale))
        radius = np.sqrt(-2.0 * np.log1p(-u[..., 0]))
        return np.asarray(np.asarray(loc) + np.asarray(scale) * (radius * np.cos(2.0 * np.pi * u[..., 1])))

    def integers(self, low: int, high: int | None = None, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return integers in [low, high), or in [0, low) without `high`: ``(n, *size) int64``.

        The range is one for all. A value's chance departs from equal by less than (high - low) / 2^64 of itself.

        Raises:
            ArgumentError: the range is empty.
            ArgumentTypeError: `low` or `high` is an array, or no whole number.
        """
        for name, own in (("low", np.shape(np.asarray(low))), ("high", np.shape(np.asarray(high)))):
            if own:
                raise ArgumentTypeError(
                    f"integers has one range for all samples, and {name} is of shape {own}; for a range a sample take "
                    f"low + numpy.floor(rng.random() * (high - low)).astype(int)"
                )
        if high is None:
            low, high = 0, low
        low, high = checks.integer("low", low), checks.integer("high", high)
        if high <= low:
            raise ArgumentError(f"integers needs low < high, not [{low}, {high}); the range is empty")
        if low < -(2**63) or high > 2**63 or high - low > 2**63:
            raise ArgumentError(f"integers must fit int64 and span at most 2^63, not [{low}, {high})")
        return low + _high_product(self._words(size)[..., 0], high - low).astype(np.int64)

    def random_bool(self, p: Any = 0.5, size: int | tuple[int, ...] = ()) -> np.ndarray:
        """Return True with probability `p`: ``(n, *size) bool``.

        Raises:
            ArgumentError: `p` is no probability, or does not broadcast to ``(n, *size)``.
        """
        chances = np.asarray(p)
        if chances.dtype.kind not in "biuf":
            raise ArgumentTypeError(f"p must be a probability between 0 and 1, not {p!r}")
        bad = ~((chances >= 0.0) & (chances <= 1.0))
        if bad.any():
            raise ArgumentError(f"p must be a probability between 0 and 1, not {chances[bad].flat[0]}")
        return np.asarray(unit_floats(self._words(size, p=chances)[..., 0]) < chances)

    def choice(self, a: Any, size: int | tuple[int, ...] = (), p: Any = None) -> np.ndarray:
        """Return items of `a` (an array, or an int n for 0..n-1), with replacement: ``(n, *size)``.

        Args:
            a: What to choose from, along its first axis.
            size: Shape of the choices of each sample.
            p: Weights of the items, not negative, not all 0; equal without.
        """
        items = np.arange(checks.positive_int("a", a)) if np.ndim(a) == 0 else np.asarray(a)
        if len(items) == 0:
            raise ArgumentError("choice needs at least one item to choose from; a is empty")
        if p is None:
            return np.asarray(items[self.integers(len(items), size=size)])
        cdf = cumulative_weights("p", p, len(items))
        return np.asarray(items[cdf.searchsorted(self.uniform(size=size), side="right")])

    def generators(self) -> Iterator[np.random.Generator]:
        """Return an iterator of one NumPy generator a sample, each keyed as its row is, others for each call."""
        times, self._times = self._times, self._times + 1
        return self._generators(times)

    def _generators(self, times: int) -> Iterator[np.random.Generator]:
        for position, view in zip(self._positions.tolist(), self._views.tolist(), strict=True):
            more = ("again", view, times) if view or times else ()
            yield generator("row", self._key, position, *more)


def _shape(size: Any) -> tuple[int, ...]:
    """Return ``size=``, a whole number or several, as a tuple."""
    several = isinstance(size, (tuple, list)) or (isinstance(size, np.ndarray) and size.ndim == 1)
    shape = tuple([checks.integer("size", n) for n in size]) if several else (checks.integer("size", size),)
    if min(shape, default=0) < 0:
        raise ArgumentError(f"size must not be negative, and is {size!r}; it is the shape of the draws of each sample")
    return shape


def _check_broadcast(name: str, bound: Any, shape: tuple[int, ...]) -> None:
    """Refuse a bound of draws that is not made of numbers, or does not broadcast to their shape."""
    array = np.asarray(bound)
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"{name} must be a number, or an array of numbers, not {bound!r:.100}")
    own = array.shape
    if len(own) > len(shape) or any(n not in (1, wanted) for n, wanted in zip(own[::-1], shape[::-1], strict=False)):
        raise ArgumentError(
            f"{name} must broadcast to (samples, *size), which is {shape}, and is of shape {own}; for one value a "
            f"sample shape it {(shape[0], *[1] * (len(shape) - 1))}"
        )


def _high_product(words: np.ndarray, bound: int) -> np.ndarray:
    """Return ``words * bound >> 64`` (Lemire, "Fast random integer generation in an interval", 2019)."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low_bound, high_bound = np.uint64(bound & 0xFFFFFFFF), np.uint64(bound >> 32)
    low, high = words & mask, words >> half
    middle: np.ndarray = high * low_bound + (low * low_bound >> half)
    if not high_bound:
        return middle >> half
    carry: np.ndarray = (middle & mask) + low * high_bound
    product: np.ndarray = high * high_bound + (middle >> half) + (carry >> half)
    return product


def check_weights(name: str, weights: np.ndarray, start: int = 0) -> None:
    """Raise :class:`ArgumentError` if one of `weights`, the first of which is number `start`, cannot be one."""
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ArgumentError(
            f"{name} must be finite and not negative, but {name}[{start + first}] is {weights[first]}; replace it by 0 "
            f"to leave the sample out"
        )


def cumulative_weights(name: str, weights: Any, length: int | None = None) -> np.ndarray:
    """Return the cumulative distribution of `weights`, ending in exactly 1: ``(n,) float64``.

    Raises:
        ArgumentError: a weight is negative, infinite or NaN, all are 0, or their number is not `length`.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 1 or (length is not None and len(weights) != length):
        wanted = "one-dimensional" if length is None else f"{length} numbers"
        raise ArgumentError(f"{name} must be {wanted}, not of shape {weights.shape}")
    check_weights(name, weights)
    with np.errstate(over="ignore"):
        total = weights.sum()
    if total == np.inf:
        return cumulative_weights(name, weights / weights.max(), length)
    if total == 0.0:
        raise ArgumentError(f"{name} should not sum to 0; at least one must be above 0")
    cdf: np.ndarray = (weights / total).cumsum()
    cdf /= cdf[-1]
    return cdf


@contextlib.contextmanager
def globals_seeded(key: BatchKey) -> Iterator[None]:
    """Seed the global generators, those of ``random`` and ``numpy.random``, for one batch; put them back after it.

    For the code of users that draws from them, which then draws the same for a batch whoever makes it. It is not for
    threads, which share them.
    """
    before = random.getstate(), np.random.get_state(legacy=False)
    seed_globals(key)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def seed_globals(key: BatchKey) -> None:
    """Seed the generators of ``random`` and ``numpy.random`` by the key of a batch."""
    seed = digest("global", key.seed, key.epoch, key.batch, key.start)
    random.seed(int.from_bytes(seed, "little"))
    np.random.seed(np.frombuffer(seed, "<u4"))  # one word of 32 bits would come again within some 10^5 batches


def copy_of(rng: Any) -> Any:
    """Return a generator in the state of `rng` that shares nothing with it."""
    if rng is np.random:
        twin = np.random.RandomState()
        twin.set_state(np.random.get_state())
        return twin
    return copy.deepcopy(rng)


def state_of(rng: Any) -> dict[str, Any]:
    """Return the state of a generator of NumPy's, or of ``numpy.random`` itself, as nested dicts.

    Raises:
        ArgumentTypeError: it is a generator of another kind.
    """
    if isinstance(rng, np.random.Generator):
        return dict(rng.bit_generator.state)
    if rng is np.random or isinstance(rng, np.random.RandomState):
        return dict(rng.get_state(legacy=False))
    raise ArgumentTypeError(f"the state of a {type(rng).__name__} cannot be saved; shuffle by NumPy's generators")


def put_state(rng: Any, state: dict[str, Any]) -> None:
    """Put a generator in a state that :func:`state_of` returned.

    Raises:
        ValueError: the state is that of a generator of another kind, or of none.
    """
    _check_form(state_of(rng), state)
    try:
        if isinstance(rng, np.random.Generator):
            rng.bit_generator.state = state
        else:
            rng.set_state(state)
    except (TypeError, KeyError, OverflowError, AttributeError) as error:
        raise ValueError(f"no state of a generator: {error}") from error


def _check_form(own: Any, state: Any) -> None:
    """Refuse a state that has not the form of a generator's own.

    NumPy looks at names and kinds only: with a position beyond its array, it reads memory that is not the generator's.
    """
    if isinstance(own, dict):
        if not isinstance(state, dict) or own.keys() != state.keys():
            raise ValueError(f"its parts are not {', '.join(own)}")
        for name, part in own.items():
            _check_form(part, state[name])
        for place, array in (("pos", "key"), ("buffer_pos", "buffer")):
            if place in own and not 0 <= state[place] <= len(state[array]):
                raise ValueError(f"its {place} is out of range")
    elif isinstance(own, np.ndarray):
        if not isinstance(state, np.ndarray) or (state.dtype, state.shape) != (own.dtype, own.shape):
            raise ValueError(f"an array of it is not {own.dtype} of shape {own.shape}")
    elif type(state) is not type(own) or (isinstance(own, str) and state != own):
        raise ValueError(f"one of its values is not {own!r:.40}, or like it")


def seed_from_state(rng: Any) -> int:
    """Return a seed that depends on the state of `rng`, from which nothing is drawn."""
    state = rng.bit_generator.state if isinstance(rng, np.random.Generator) else rng.get_state()
    return word("state", repr(_plain(state)))


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return [(name, _plain(part)) for name, part in sorted(state.items())]
    if isinstance(state, (tuple, list)):
        return [_plain(part) for part in state]
    return state.tobytes().hex() if isinstance(state, np.ndarray) else state


def uniform_draws(rng: Any, size: int) -> np.ndarray:
    """Return `size` floats in [0, 1) as ``rng.choice(..., p=...)`` would draw them."""
    return rng.random(size) if isinstance(rng, np.random.Generator) else rng.random_sample(size)


def seed_draw(rng: Any) -> int:
    """Return a seed of 53 bits: one float in [0, 1), drawn from `rng`, without its point."""
    return int(uniform_draws(rng, 1)[0] * (1 << 53))


def check_rng(shuffle: Any) -> Any:
    """Return the generator that `shuffle` names: True is NumPy's global state.

    Raises:
        ArgumentTypeError: `shuffle` is no generator.
    """
    if shuffle is True or shuffle is np.random:
        return np.random
    if isinstance(shuffle, np.random.Generator) or all(hasattr(shuffle, m) for m in ("permutation", "random_sample")):
        return shuffle
    raise ArgumentTypeError(
        f"shuffle must be None, True, an int seed, a numpy.random.RandomState or a numpy.random.Generator, "
        f"not {shuffle!r} of type {type(shuffle).__name__}"
    )
