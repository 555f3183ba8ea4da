"""batchup_ng's loader with the adapters of frameworks. Another framework takes a line in ``ADAPTERS``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Variant
from benchmarks.peers.ours import SEED, OurFeed
from benchmarks.peers.torch_loader import as_it_is
from benchmarks.workloads.base import Batch, Workload


def to(name: str, loader: Any, **options: Any) -> Any:
    """Return what the adapter ``to_<name>`` of batchup_ng makes of a loader."""
    module = import_module(f"batchup_ng.frameworks.{'tensorflow' if name == 'tf_dataset' else name}")
    return getattr(module, f"to_{name}")(loader, **options)


def to_jax(loader: Any) -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)  # otherwise 64-bit labels become 32-bit ones
    return to("jax", loader)


class FedByKeras:
    """The batches that Keras's ``fit`` gets on the backend jax, by Keras's own adapter, in the loader's order."""

    def __init__(self, loader: Any) -> None:
        os.environ["KERAS_BACKEND"] = "jax"
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

        self.adapter = PyDatasetAdapter(to("keras", loader), shuffle=False)

    def __iter__(self) -> Iterator[Batch]:
        self.adapter.on_epoch_begin()
        yield from self.adapter.get_jax_iterator()
        self.adapter.on_epoch_end()


class SeenByNumPy(tuple[Any, ...]):
    """TensorFlow tensors, converted to arrays on access; the waiting time does not include the conversion."""

    def __getitem__(self, place: Any) -> Any:
        return np.asarray(memoryview(super().__getitem__(place)))


class TensorFlow:
    """An iterable of TensorFlow tensors."""

    def __init__(self, name: str, loader: Any) -> None:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        self.batches = to(name, loader)

    def __iter__(self) -> Iterator[Batch]:
        return map(SeenByNumPy, self.batches)


ADAPTERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "numpy": ("numpy", as_it_is),
    "torch": ("torch", partial(to, "torch")),
    "jax": ("jax", to_jax),
    "keras": ("keras", FedByKeras),
    "tensorflow": ("tensorflow", partial(TensorFlow, "tensorflow")),
    "tf-data": ("tensorflow", partial(TensorFlow, "tf_dataset")),
}
"""The library of each adapter, and a function from a ``bu.Loader`` to an iterable; each iteration is an epoch.

A batch is a tuple or list of arrays with NumPy's ``ndim``, ``nbytes``, ``sum()`` and indexing. If the library's arrays
lack them, the function must map each batch to arrays that have them.
"""


class AdapterFeed(OurFeed):
    """A loader. Without a named pool, pure-Python work runs in processes, because it holds the interpreter lock."""

    def __init__(
        self, workload: Workload, workers: int, library: str, hand_over: Callable[[Any], Any], pool: str = ""
    ) -> None:
        super().__init__(workload, workers)
        import_module(library)
        self.hand_over = hand_over
        usual = "processes" if workload.kind == "python" else "threads"
        self.options: dict[str, Any] = {"pool": pool or usual, "workers": workers}

    def epoch(self, number: int) -> Iterator[Batch]:
        import batchup_ng as bu

        if self.feed is None:
            self.pool = bu.Loader(self.source, self.size, shuffle=SEED, **self.options)
            self.feed = self.hand_over(self.pool)
        self.pool.set_epoch(number)
        return iter(self.feed)


VARIANTS = tuple(
    Variant(
        name=f"ours-to-{name}", family=OURS, needs=(library,), copies=2, usual=False,
        open=partial(AdapterFeed, library=library, hand_over=hand_over),
    )
    for name, (library, hand_over) in ADAPTERS.items()
)  # fmt: skip
