"""Hands batches over to Keras 3, whatever its backend.

``fit``, ``evaluate`` and ``predict`` take a ``PyDataset``. It is asked for batches by their numbers, which ``fit``
shuffles unless it is told not to, for one or two before an epoch to build a model, and by threads of Keras' own if it
says so. These hand the batches that they made ahead while a model was built out again in its first epoch, in the place
of others (seen with Keras 3.15, backends torch and jax). So the data set has no such threads: the pool of the loader
makes the batches ahead, in the order in which Keras is about to ask.
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

OF_KERAS = {
    "workers": "the loader's workers make the batches: Loader(data, batch_size, workers=...)",
    "use_multiprocessing": "choose it by the loader's pool: Loader(data, batch_size, pool='processes')",
    "max_queue_size": "pass the number of batches that are made ahead to the loader as buffer=",
    "shuffle": "pass a seed to the loader as shuffle=",
}
"""What to do instead of options of Keras' data sets."""


@validation.known_names(OF_KERAS)
def to_keras(loader: Loader) -> Any:
    """Return a ``keras.utils.PyDataset`` of the batches of a loader, for ``fit``, ``evaluate`` and ``predict``.

    Each time that Keras goes through it is the next epoch of the loader, with an order of its own if the loader has
    ``shuffle=``. Its item i is batch i of the epoch, ``loader.batch(i)``, whoever asks for it. ``fit`` shuffles these
    numbers; pass it ``shuffle=False`` for the order of the loader itself.

    The epoch is the loader's: ``loader.state_dict()`` between two epochs is where a training goes on. An epoch that was
    not gone through to its end, as that in which a model is built, is begun again.

    Args:
        loader: Its batches are what Keras takes: ``(x, y)``, ``(x, y, sample_weight)``, ``(x,)``, or dicts. What
            ``loader.map`` or :func:`~batchup_ng.watch` made is applied.

    Raises:
        ArgumentTypeError: the source only streams, its order is drawn from a generator, or an epoch has no end; Keras
            takes those by :func:`endless`.

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
    """Yield the batches of one epoch of a loader after the other, for ``fit(endless(loader), steps_per_epoch=...)``.

    The order is the loader's, whatever its source is, the workers go on from one epoch to the next without a pause, and
    a state that was loaded into the loader may be of the middle of an epoch. Keras takes two batches first, to learn
    their shapes, which it trains on later; hence states are ahead of the training. Keras takes nothing but a generator
    here, and Python ends a generator that raises an exception: after one, call this again.

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
    """Going once through the batches of an epoch, which are made ahead."""

    def __init__(self, loader: Loader, order: Sequence[int]) -> None:
        self.order = order  # Keras' own object
        self.numbers = list(order)
        self.epoch = loader.epoch
        self.ahead = loader.batches(self.numbers, self.epoch)
        self.asked = 0  # for how many batches

    def is_next(self, index: int) -> bool:
        return self.numbers[self.asked : self.asked + 1] == [index]

    @property
    def whole(self) -> bool:
        return self.asked == len(self.numbers)


class LoaderDataset(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """The batches of a loader by their numbers.

    Who calls what: Keras goes through the numbers from one generator, on the consumer's thread or, with TensorFlow, on
    one of ``tf.data``, where a generator that was given up may ask once more while the next one does.
    """

    workers = property(lambda self: 0)
    """No threads or processes of Keras, see the top of the file; so it cannot be set."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._lock = threading.Lock()
        self._pass: Pass | None = None  # under way; or the next, of which nothing was asked for yet

    def __len__(self) -> int:
        return self._loader.batches_per_epoch

    def __iter__(self) -> Any:
        return iter(self._loader)  # what adapts a layer to the data, say, iterates

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
        """Refuse ``auto_shard_dataset``: Keras asks for every n-th batch then, and no epoch would be gone through."""
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
        """Count the epoch, if Keras went through it; Keras calls this before it begins with the first, too."""
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
        """If the epoch is at its end, go on to the next, whose batches are made at once if their order is known."""
        done = self._pass
        if done is not None and done.whole:
            done.ahead.close()
            self._loader.set_epoch(done.epoch + 1)
            in_order = range(len(done.numbers))
            self._pass = Pass(self._loader, in_order) if done.numbers == list(in_order) else None


def _order_of_keras() -> Sequence[int] | None:
    """Return the numbers of the batches that the generator of Keras that asks for one goes through, in their order.

    Keras tells nobody in what order ``fit`` is about to ask, so it is read where it stands: in a variable of the
    generator, whose every new one is another object. Without it each batch would be made when it is asked for.
    """
    frame = sys._getframe(2)
    return frame.f_locals.get("indices") if frame.f_code.co_name == "_finite_generator" else None
