"""Hands batches over to Keras 3, on any backend.

``fit``, ``evaluate`` and ``predict`` take a ``PyDataset`` and ask it for batches by number. ``fit`` shuffles these
numbers unless it gets ``shuffle=False``. To build a model, Keras asks for one or two batches before an epoch. A
``PyDataset`` may let threads of Keras ask. Such threads make batches ahead while Keras builds a model, and hand these
out again in the first epoch, in place of others (seen with Keras 3.15, backends torch and jax). So this data set allows
no such threads: the loader's pool makes the batches ahead, in the order of Keras' requests.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..loader import Loader

try:
    import keras
except ImportError as error:
    raise ImportError("batchup_ng.frameworks.keras needs Keras 3: pip install 'batchup_ng[keras]'") from error

__all__ = ["endless", "to_keras"]

ADVICE_ON_KERAS_OPTIONS = {
    "workers": "the loader's workers make the batches: Loader(data, batch_size, workers=...)",
    "use_multiprocessing": "choose it by the loader's pool: Loader(data, batch_size, pool='processes')",
    "max_queue_size": "pass the number of batches that are made ahead to the loader as buffer=",
    "shuffle": "pass a seed to the loader as shuffle=",
}
"""Remedies for options of Keras' data sets."""


@validation.known_names(ADVICE_ON_KERAS_OPTIONS)
def to_keras(loader: Loader) -> Any:
    """Return a ``keras.utils.PyDataset`` of the batches of a loader, for ``fit``, ``evaluate`` and ``predict``.

    Each pass of Keras over it is the next epoch of the loader, with its own order if the loader has ``shuffle=``. Item
    i is always batch i of the epoch, ``loader.batch(i)``. ``fit`` shuffles these numbers; pass it ``shuffle=False`` for
    the loader's own order.

    The loader counts the epochs: to resume a training, save ``loader.state_dict()`` between two epochs. If Keras does
    not finish an epoch, for example while it builds a model, that epoch begins again.

    Args:
        loader: Its batches have a form that Keras takes: ``(x, y)``, ``(x, y, sample_weight)``, ``(x,)``, or dicts. A
            loader from ``loader.map`` or :func:`~batchup_ng.watch` keeps their effect.

    Raises:
        ArgumentTypeError: the source only streams, a generator draws its order, or an epoch has no end. For these,
            pass :func:`endless` to Keras.

    >>> import numpy as np, batchup_ng as bu
    >>> x = np.arange(6.0)[:, None]
    >>> network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> network.compile("sgd", "mse")
    >>> with bu.Loader((x, 2 * x), 2, shuffle=1) as loader:
    ...     history = network.fit(to_keras(loader), epochs=3, verbose=0)
    ...     print(loader.epoch)
    3
    """
    _check(loader)
    remedy = "; pass endless(loader) to fit, with steps_per_epoch="
    try:
        len(loader)
        loader.batches([])
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}{remedy}") from error
    return LoaderDataset(loader)


def endless(loader: Loader) -> Iterator[Any]:
    """Yield the batches of a loader, epoch after epoch, for ``fit(endless(loader), steps_per_epoch=...)``.

    The order is the loader's, for any source. The workers continue into the next epoch without a pause. A state loaded
    into the loader may be from the middle of an epoch. Keras first takes two batches to learn their shapes, and trains
    on them later, so states are ahead of the training. Keras takes only a generator here, and Python ends a generator
    that raises an exception: after one, call this function again.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader((np.zeros((5, 1)), np.zeros(5)), 2) as loader:
    ...     batches = endless(loader)
    ...     print([len(next(batches)[0]) for _ in range(2 * len(loader))])
    [2, 2, 1, 2, 2, 1]
    """
    _check(loader)
    return _endless(loader)


def _endless(loader: Loader) -> Iterator[Any]:
    while True:
        yield from loader


def _check(loader: Any) -> None:
    if not isinstance(loader, Loader):
        raise ArgumentTypeError(
            f"loader must be a Loader, not a {type(loader).__name__}; make one of data: Loader(data, batch_size)"
        )


class Pass:
    """One pass through the batches of an epoch, which the loader makes ahead."""

    def __init__(self, loader: Loader, order: Sequence[int]) -> None:
        self.order = order  # Keras' own object
        self.numbers = list(order)
        self.epoch = loader.epoch
        self.ahead = loader.batches(self.numbers, self.epoch)
        self.asked = 0  # number of batches asked for

    def is_next(self, index: int) -> bool:
        return self.numbers[self.asked : self.asked + 1] == [index]

    @property
    def whole(self) -> bool:
        return self.asked == len(self.numbers)


class LoaderDataset(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """The batches of a loader by number.

    Keras goes through the numbers from one generator, on the consumer's thread or, with TensorFlow, on a thread of
    ``tf.data``. There, an abandoned generator may ask once more while the next one asks.
    """

    workers = property(lambda self: 0)
    """No threads or processes of Keras: see the docstring of the module. It cannot be set."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._lock = threading.Lock()
        self._pass: Pass | None = None  # under way; or the next one, not yet begun

    def __len__(self) -> int:
        return self._loader.batches_per_epoch

    def __iter__(self) -> Any:
        return iter(self._loader)  # code that adapts a layer to the data iterates, for example

    def __getitem__(self, index: int) -> Any:
        """Return batch `index` of the epoch.

        Raises:
            ArgumentError: several processes train, and Keras or nobody shards the batches.
        """
        self._check_ranks()
        order = _order_of_keras()
        if order is not None:
            with self._lock:
                if index == order[0] and (self._pass is None or self._pass.order is not order):
                    self._begin(order)
                if self._pass is not None and self._pass.order is order and self._pass.is_next(index):
                    return self._next(self._pass)
        return self._loader.batch(index)

    def _check_ranks(self) -> None:
        """Refuse ``auto_shard_dataset``: with it, Keras asks for every n-th batch only, and finishes no epoch."""
        distribution = keras.distribution.distribution()
        if not getattr(distribution, "_is_multi_process", False):
            return
        if getattr(distribution, "auto_shard_dataset", False):
            raise ArgumentError(
                "auto_shard_dataset of the distribution is True, so that Keras asks each process for every n-th batch "
                "and no epoch comes to its end; set distribution.auto_shard_dataset = False and make the loader with "
                "shard='auto'"
            )
        if not self._loader.shard_given:
            raise ArgumentError(
                "several processes train, and each would be given all of the data, for this loader has no shard=; make "
                "it with shard='auto', or with shard=None if that is meant"
            )

    def on_epoch_end(self) -> None:
        """Count the epoch, if Keras finished it. Keras also calls this before the first epoch."""
        with self._lock:
            self._count()

    def _begin(self, order: Sequence[int]) -> None:
        self._count()
        made, self._pass = self._pass, None
        if made is None or made.asked or made.numbers != list(order) or made.epoch != self._loader.epoch:
            made = Pass(self._loader, order)
        made.order = order
        self._pass = made

    def _next(self, under_way: Pass) -> Any:
        try:
            batch = next(under_way.ahead)
        except BaseException:
            self._pass = None
            raise
        under_way.asked += 1
        return batch

    def _count(self) -> None:
        """If the epoch is at its end, go to the next. If its order is known, begin to make its batches."""
        done = self._pass
        if done is not None and done.whole:
            done.ahead.close()
            self._loader.set_epoch(done.epoch + 1)
            in_order = range(len(done.numbers))
            self._pass = Pass(self._loader, in_order) if done.numbers == list(in_order) else None


def _order_of_keras() -> Sequence[int] | None:
    """Return the batch numbers, in order, of the generator of Keras that calls; None for any other caller.

    Keras does not publish the order of ``fit``. So this function reads it from a variable of the generator, which holds
    a new object for each pass. Without the order, each batch would be made on request.
    """
    frame = sys._getframe(2)
    return frame.f_locals.get("indices") if frame.f_code.co_name == "_finite_generator" else None
