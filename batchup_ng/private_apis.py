"""Private parts of NumPy, cloudpickle and torch.distributed. No other module uses any. A test names their versions."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

GLOBAL_RNG = np.random.mtrand._rand
"""The generator behind NumPy's functions: of ``numpy.random.seed`` and the others."""

MT19937_BYTES = 2500
"""Size of the state of NumPy's Mersenne Twister: 624 words of 32 bits, and the number of the next one, 4 bytes."""


@functools.cache
def _is_state_as_known() -> bool:
    """Return whether the memory of a Mersenne Twister holds its words and the number of the next one, and no more."""
    import ctypes

    bits = np.random.MT19937(0)
    state, size = bits.state["state"], MT19937_BYTES
    return ctypes.string_at(bits.ctypes.state_address, size) == state["key"].tobytes() + struct.pack("=i", state["pos"])


def memory_of(bits: Any) -> Any:
    """Return the state of a bit generator as an array of bytes that shares its memory; None if it has another form.

    It is valid as long as the generator lives. ``bits.state`` takes some 30 µs to read or to set, this array 0.4 µs.
    """
    if type(bits) is not np.random.MT19937 or not _is_state_as_known():
        return None
    import ctypes

    return (ctypes.c_char * MT19937_BYTES).from_address(bits.ctypes.state_address)


CLASS_SETSTATE = ("cloudpickle.cloudpickle", "_class_setstate")
"""Module and name of the function by which a pickle sets the attributes of a class sent by value."""


def goes_by_name(obj: Any) -> bool:
    """Return whether a worker finds `obj` by its name, by cloudpickle's rule for functions."""
    from cloudpickle import cloudpickle

    found = cloudpickle._lookup_module_and_qualname(obj)
    return found is not None and not cloudpickle._is_registered_pickle_by_value(found[0])


def classes_by_value() -> frozenset[type]:
    """Return the classes that this process has sent or received by value."""
    from cloudpickle import cloudpickle

    return frozenset(cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS)


def set_class_state(kind: type, state: Any) -> None:
    """Set the attributes of a class that was received by value."""
    from cloudpickle import cloudpickle

    cloudpickle._class_setstate(kind, state)


def store_of_torch(distributed: Any) -> Any:
    """Return the store by which the processes of ``torch.distributed`` made their group."""
    return distributed.distributed_c10d._get_default_store()
