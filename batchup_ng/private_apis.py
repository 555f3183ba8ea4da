"""Private parts of NumPy, cloudpickle and torch.distributed. No other module uses any. A test names their versions."""

from __future__ import annotations

from typing import Any

import numpy as np

GLOBAL_RNG = np.random.mtrand._rand
"""The generator behind NumPy's functions: of ``numpy.random.seed`` and the others."""

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
