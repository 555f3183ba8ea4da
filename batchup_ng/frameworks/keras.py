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
from ..errors import ArgumentTypeError
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
    their shapes, which it trains on later; hence states are ahead of the training.

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
        self._order: Sequence[int] | None = None  # of the epoch that Keras goes through, its object; None at its end
        self._epoch = 0  # its number
        self._asked = 0  # how many of its batches were asked for
        self._ahead: Any = None  # gives them, until the epoch is counted

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Any:
        return iter(self._loader)  # what adapts a layer to the data, say, iterates

    def __getitem__(self, index: int) -> Any:
        """Return batch `index` of the epoch."""
        order = _order_of_keras()
        if order is not None:
            with self._lock:
                if order is not self._order and index == order[0]:
                    self._begin(order)
                if self._ahead is not None and order is self._order and index == order[self._asked]:
                    return self._next()
        return self._loader.batch(index)

    def on_epoch_end(self) -> None:
        """Count the epoch, if Keras went through it; called too before it begins with the first."""
        with self._lock:
            self._count()

    def _begin(self, order: Sequence[int]) -> None:
        self._count()
        self._order, self._epoch = None, self._loader.epoch
        self._ahead = self._loader.batches(order, self._epoch)
        self._order, self._asked = order, 0

    def _next(self) -> Any:
        try:
            batch = next(self._ahead)
        except BaseException:
            self._order = self._ahead = None
            raise
        self._asked += 1
        if self._asked == len(self._order or ()):
            self._order = None
        return batch

    def _count(self) -> None:
        if self._ahead is not None and self._order is None:
            self._ahead.close()
            self._ahead = None
            self._loader.set_epoch(self._epoch + 1)


def _order_of_keras() -> Sequence[int] | None:
    """Return the numbers of the batches that the generator of Keras that asks for one goes through, in their order.

    Keras tells nobody in what order ``fit`` is about to ask, so it is read where it stands: in a variable of the
    generator, whose every new one is another object. Without it each batch would be made when it is asked for.
    """
    frame = sys._getframe(2)
    return frame.f_locals.get("indices") if frame.f_code.co_name == "_finite_generator" else None
