"""What is computed of floats has the same bits whatever instructions a processor has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from batchup_ng.randomness.portable_math import NUMBERS_AT_A_TIME, cos_of_turns, minus_log, normal_deviates

PROGRAM = """
import hashlib
import numpy as np
from batchup_ng import sampling
from batchup_ng.randomness import OrderKey, SampleRng

places, key = np.arange(3000), OrderKey(3, 1)
weights = np.random.RandomState(0).random_sample(3000)
draws = SampleRng(5, places)
made = {
    "normal": draws.normal(size=9),
    "uniform": draws.uniform(-1, 3, size=9),
    "choice": draws.choice(3000, p=weights),
    "drawn": sampling.WeightedSampler(weights).rows_at(places, key),
    "in turn": sampling.WeightedSampler(weights, replacement=False).rows_at(places, key),
    "spread": sampling.StratifiedSampler(places % 7).rows_at(places, key),
    "mixed": sampling.MixtureSampler([9] * 30, weights[:30]).rows_at(places, key),
}
for name, array in made.items():
    print(name, hashlib.sha256(array.tobytes()).hexdigest())
"""


def test_draws_and_orders_are_the_same_without_the_instructions_of_this_processor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    core: Any = getattr(np, "_core", None) or np.core
    optional = core._multiarray_umath.__cpu_dispatch__
    if not optional:
        pytest.skip("NumPy has no code here for processors with more instructions")
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(optional)}
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, check=True, timeout=600, capture_output=True, text=True, env=environment)
    exec(PROGRAM, {})
    assert capsys.readouterr().out == done.stdout


def test_the_logarithm_and_the_cosine_are_those() -> None:
    drawn = np.random.RandomState(0).random_sample(100_000)
    near = [0.7071067811865475, 0.7071067811865476, *(2.0 ** -np.arange(1, 54)), *(1 - np.arange(1, 1000) * 2.0**-53)]
    x = np.concatenate([drawn, np.arange(0, 1, 1 / 64), near])
    wide = x.astype(np.longdouble)
    np.testing.assert_allclose(minus_log(1.0 - x), -np.log(1 - wide), rtol=1e-15, atol=0)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    np.testing.assert_allclose(cos_of_turns(x), np.cos(2 * pi * wide), rtol=0, atol=2.5e-16)
    assert cos_of_turns(np.arange(4) / 4).tolist() == [1, 0, -1, 0]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (1,), (NUMBERS_AT_A_TIME + 1,), (2, NUMBERS_AT_A_TIME, 2)])
def test_deviates_are_those_of_their_own_pair(shape: tuple[int, ...]) -> None:
    first, second = np.random.RandomState(1).random_sample((2, *shape))
    drawn = normal_deviates(first, second)
    np.testing.assert_allclose(drawn, np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second), rtol=0, atol=1e-14)
    if drawn.size:
        last = normal_deviates(first.reshape(-1)[-1:], second.reshape(-1)[-1:])
        assert last[0] == drawn.reshape(-1)[-1]
        assert not normal_deviates(first * 0, second).any()
