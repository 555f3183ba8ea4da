"""The keys of rows of LMDB."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.accessors.storage.lmdb_keys import PackedKeys, numbered


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=20))
def test_packed_keys_are_those_that_were_given(keys: list[bytes]) -> None:
    packed = pickle.loads(pickle.dumps(PackedKeys(keys)))
    assert packed.of(np.arange(len(packed))) == keys
    assert packed.fingerprint() == PackedKeys(iter(keys)).fingerprint()
    assert not keys or packed.fingerprint() != PackedKeys(keys[1:]).fingerprint()


@given(
    st.sampled_from(["", "a", "img_", "a7-", "x/y.", "{}", "ü"]),
    st.integers(1, 9),
    st.integers(0, 10**9),
    st.integers(1, 1000),
)
def test_numbers_of_one_width_are_recognised(prefix: str, width: int, first: int, count: int) -> None:
    keys = [f"{prefix}{number:0{width}d}".encode() for number in (first, first + count - 1)]
    found = numbered(keys[0], keys[1], count)
    if prefix in ("{}", "ü") or len(keys[0]) != len(keys[1]):
        assert found is None
    else:
        assert found is not None
        assert len(found) == count
        assert found.of(np.array([0, count - 1])) == keys
    assert numbered(keys[0], keys[1], count + 1) is None
