"""Operations on generators with a state: NumPy's, a user's, the global ones."""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError
from ..private_apis import GLOBAL_RNG, memory_of
from .hashing import digest, word
from .keys import BatchKey


def check_rng(shuffle: Any) -> Any:
    """Return the generator that `shuffle` names: NumPy's global state for True. Refuse anything but a generator."""
    if shuffle is True or shuffle is np.random:
        return GLOBAL_RNG
    if isinstance(shuffle, np.random.Generator) or all(hasattr(shuffle, m) for m in ("permutation", "random_sample")):
        return shuffle
    raise ArgumentTypeError(
        f"shuffle must be None, True, an int seed, 'blocks', ('blocks', seed), ('blocks', seed, groups), a "
        f"numpy.random.RandomState or a numpy.random.Generator, not {shuffle!r} of type {type(shuffle).__name__}"
    )


def uniform_draws(rng: Any, size: int) -> np.ndarray:
    """Return `size` floats in [0, 1) as ``rng.choice(..., p=...)`` would draw them."""
    return rng.random(size) if isinstance(rng, np.random.Generator) else rng.random_sample(size)


def seed_draw(rng: Any) -> int:
    """Return a seed of 53 bits: one float in [0, 1), drawn from `rng`, without its point."""
    return int(uniform_draws(rng, 1)[0] * (1 << 53))


def seed_from_state(rng: Any) -> int:
    """Return a seed that depends on the state of `rng`. Draw nothing from `rng`."""
    state = rng.bit_generator.state if isinstance(rng, np.random.Generator) else rng.get_state()
    return word("state", repr(_plain(state)))


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return [(name, _plain(part)) for name, part in sorted(state.items())]
    if isinstance(state, (tuple, list)):
        return [_plain(part) for part in state]
    return state.tobytes().hex() if isinstance(state, np.ndarray) else state


_random: Any = np.random  # whose types leave out set_bit_generator


class _KeptNumpy:
    """The state of NumPy's global generator, to be put back. It is found without ``get_state``, which takes long."""

    def __init__(self) -> None:
        self._bits = _random.get_bit_generator()
        self._memory = memory_of(self._bits)
        self._state: Any = np.random.get_state(legacy=False) if self._memory is None else None
        self._words = b"" if self._memory is None else self._memory.raw
        self._normal: list[float] = []
        self._words_then = b""

    def look_for_normal(self) -> None:
        """Find out whether the next normal number is there already, since they are made in pairs. This may draw."""
        if self._memory is not None:
            self._normal.extend(map(np.random.standard_normal, (None,)))  # in one step: a signal comes before or after
            self._words_then = self._memory.raw

    def put_back(self) -> None:
        """Put the state back, after :meth:`look_for_normal` or before. A call that was interrupted may be repeated."""
        if self._memory is None:
            _random.set_bit_generator(self._bits)
            np.random.set_state(self._state)
        elif self._normal:  # otherwise nothing was drawn yet
            self._words_then = self._words_then or self._memory.raw
            had_normal = self._words_then == self._words
            _random.set_bit_generator(self._bits)  # the present normal number is forgotten
            self._memory.raw = self._words
            if had_normal:
                state = np.random.get_state(legacy=False)
                np.random.set_state({**state, "has_gauss": 1, "gauss": self._normal[0]})


class globals_kept:
    """A context that restores the global generators at its end.

    With the `key` of a batch, it first seeds them by the key: the user's code then draws the same numbers for the batch
    in every process. Not for threads, which share these generators. It is no generator function, because these write to
    exceptions that pass through, and some exceptions (frozen dataclasses) refuse that.
    """

    def __init__(self, key: BatchKey | None = None) -> None:
        self._key = key

    def __enter__(self) -> None:
        self._python, self._numpy = random.getstate(), _KeptNumpy()
        self._torch = torch_generator()
        self._torch_state = self._torch and self._torch.get_state()
        try:
            self._numpy.look_for_normal()
            if self._key is None:
                self._numpy.put_back()
            else:
                seed_globals(self._key)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            self._put_back()
        except BaseException:  # an interrupt
            self._put_back()
            raise

    def _put_back(self) -> None:
        random.setstate(self._python)
        self._numpy.put_back()
        if self._torch is not None:
            self._torch.set_state(self._torch_state)


def seed_globals(key: BatchKey) -> None:
    """Seed the generators of ``random`` and ``numpy.random``, and PyTorch's CPU generator, by the key of a batch."""
    seed = digest("global", key.seed, key.epoch, key.batch, key.first())
    # random and NumPy have the same algorithm: from the same words they would draw the same numbers.
    random.seed(int.from_bytes(seed, "big"))
    np.random.seed(np.frombuffer(seed, "<u4"))  # one word of 32 bits would repeat within some 10^5 batches
    torch = torch_generator()
    if torch is not None:
        torch.manual_seed(int.from_bytes(seed[:8], "little") >> 1)


def globals_state() -> list[Any]:
    """Return where the global generators are, to be compared: another state if something was drawn since."""
    torch = torch_generator()
    drawn = None if torch is None else torch.get_state().numpy().tobytes()
    return [random.getstate(), pickle.dumps(np.random.get_state(legacy=False)), drawn]


def torch_generator() -> Any:
    """Return PyTorch's global CPU generator; None if PyTorch is not imported."""
    return getattr(sys.modules.get("torch"), "default_generator", None)
