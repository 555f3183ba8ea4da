"""Hands batches over to Keras 3, on any backend.

``fit``, ``evaluate`` and ``predict`` take a ``PyDataset`` and ask it for batches by number. ``fit`` shuffles these
numbers unless it gets ``shuffle=False``. To build a model, Keras asks for one or two batches before an epoch. A
``PyDataset`` may let threads of Keras ask. Such threads make batches ahead while Keras builds a model, and hand these
out again in the first epoch, in place of others (seen with Keras 3.15, backends torch and jax). So this data set allows
no such threads: the loader's pool makes the batches ahead, if Keras asks for them in order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from .. import validation
from ..data_source.epoch.iterator_views import results_given
from ..errors import ArgumentError, ArgumentTypeError, StateError
from ..loader import Loader
from ..warn import warn_consumer

try:
    import keras
except ImportError as error:
    raise ImportError("batchup_ng.frameworks.keras needs Keras 3: pip install 'batchup_ng[keras]'") from error

from .keras_state import KeepState
from .ranks import RankCheck

__all__ = ["KeepState", "endless", "to_keras"]

ADVICE_ON_KERAS_OPTIONS = {
    "workers": "the loader's workers make the batches: Loader(data, batch_size, workers=...)",
    "use_multiprocessing": "choose it by the loader's pool: Loader(data, batch_size, pool='processes')",
    "max_queue_size": "pass the number of batches that are made ahead to the loader as buffer=",
    "shuffle": "pass a seed to the loader as shuffle=",
    "steps_per_epoch": "pass it to fit, which then needs endless(loader): to_keras ends with each epoch of the loader",
}
"""Remedies for options of Keras' data sets."""


def _rank_and_world() -> tuple[int, int] | None:
    """Return the rank and the number of processes of Keras' distribution; None if it has one process."""
    distribution = keras.distribution.distribution()
    if not getattr(distribution, "_is_multi_process", False):
        return None
    world = getattr(distribution, "_num_processes", None) or distribution._num_process  # the name in older releases
    return distribution._process_id, world


KERAS_RANKS = RankCheck("keras.distribution", _rank_and_world)


@validation.known_names(ADVICE_ON_KERAS_OPTIONS)
def to_keras(loader: Loader) -> Any:
    """Return a ``keras.utils.PyDataset`` of the batches of a loader, for ``fit``, ``evaluate`` and ``predict``.

    Each pass of Keras over it is the next epoch of the loader, with its own order if the loader has ``shuffle=``. Item
    i is always batch i of the epoch, ``loader.batch(i)``. Pass ``shuffle=False`` to ``fit``: otherwise Keras asks for
    the batches in an order that it does not publish, so no batch is made ahead, and a warning says so.

    The loader counts the epochs: to resume a training, give ``fit`` the callback :class:`KeepState`, or save
    ``loader.state_dict()`` between two epochs. ``BackupAndRestore`` and ``initial_epoch=`` alone do not move the
    loader, which begins with its epoch 0 again: Keras does not tell a data set the number of its epoch. If Keras does
    not finish an epoch, for example while it builds a model, that epoch begins again.

    ``fit(steps_per_epoch=k)`` is right if k divides the number of batches. Otherwise an epoch of Keras ends early where
    an epoch of the loader ends, and a warning says so (with TensorFlow only Keras' own): pass :func:`endless`.

    Args:
        loader: Its batches have a form that Keras takes: ``(x, y)``, ``(x, y, sample_weight)``, ``(x,)``. `x` may be a
            dict of inputs by their names. Keras takes a batch that is a dict for `x` alone, so dicts ``{"x": ..., "y":
            ...}`` need ``loader.map(lambda x, y: (x, y))``. A loader from ``loader.map`` or
            :func:`~batchup_ng.watch` keeps their effect.

    Raises:
        ArgumentTypeError: the source only streams, a generator draws its order, or an epoch has no end. For these,
            pass :func:`endless` to Keras.
        ArgumentError: when Keras asks for a batch: ``shard="auto"`` would find several processes, and the loader has no
            ``shard=``. The loader has a :func:`~batchup_ng.ledger`, which would miss the batches.

    >>> import numpy as np, batchup_ng as bu
    >>> x = np.arange(6.0)[:, None]
    >>> network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> network.compile("sgd", "mse")
    >>> with bu.Loader((x, 2 * x), 2, shuffle=1) as loader:
    ...     history = network.fit(to_keras(loader), epochs=3, shuffle=False, verbose=0)
    ...     print(loader.epoch)
    3
    """
    _check(loader)
    _refuse_ledger(loader)
    remedy = "; pass endless(loader) to fit, with steps_per_epoch="
    try:
        len(loader)
        loader.batches([])
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}{remedy}") from error
    return LoaderDataset(loader.view(results_given))


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
    yield from loader.view(results_given).epochs(None)


def _check(loader: Any) -> None:
    if not isinstance(loader, Loader):
        raise ArgumentTypeError(
            f"loader must be a Loader, not a {type(loader).__name__}; make one of data: Loader(data, batch_size)"
        )


def _refuse_ledger(loader: Loader) -> None:
    steps = loader._shared.steps
    if steps is not None and steps.ledger is not None:
        raise ArgumentError(
            "the ledger of this loader would not know the batches that Keras asks for by their numbers; pass "
            "endless(loader) to fit, with steps_per_epoch=, or leave the ledger out"
        )


class Pass:
    """One pass through the batches of an epoch. The loader makes them ahead if Keras asks for them in order."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.epoch = loader.epoch
        self.n_batches = loader.batches_per_epoch
        self.asked: set[int] = set()  # the numbers of the batches handed out
        self.due = 0  # the next number of a pass in order
        self.asked_by = 0  # the thread that asks
        self.cut_at = 0  # how many batches Keras took before it ended an epoch of its own in this pass
        self.ahead: Any = None

    def make_ahead(self) -> None:
        self.ahead = self._loader.batches(range(self.n_batches), self.epoch)

    def batch(self, index: int) -> Any:
        """Return batch `index` if it is made ahead, or None."""
        if index != self.due or (self.ahead is None and self.asked):
            return None
        if self.ahead is None:
            self.make_ahead()
        batch = next(self.ahead)
        self.due += 1
        self.asked_by = threading.get_ident()
        return batch

    def cut(self) -> None:
        """Note that Keras ended an epoch of its own, if it asks in order and from this thread.

        Another thread may be ahead of the steps, and numbers that were shuffled may begin with 0 too.
        """
        if not self.cut_at and self.due == len(self.asked) and self.asked_by == threading.get_ident():
            self.cut_at = self.due


class LoaderDataset(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """The batches of a loader by number.

    Keras goes through the numbers from one generator, on the consumer's thread or, with TensorFlow, on a thread of
    ``tf.data``. There, an abandoned generator may ask once more while the next one asks. Keras does not publish the
    order. A pass begins with the first number that Keras asks for after it read ``num_batches``, unless that number
    continues the pass under way. Only this first number decides: with TensorFlow, Keras takes batches 0 and 1 to learn
    their shapes, and the order that it shuffled may begin with 2.
    """

    workers = property(lambda self: 0)
    """No threads or processes of Keras: see the docstring of the module. It cannot be set."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._lock = threading.Lock()
        self._pass: Pass | None = None  # under way; or the next one, not yet begun
        self._may_begin = False
        self._warned = False

    def __len__(self) -> int:
        return self._loader.batches_per_epoch

    @property
    def num_batches(self) -> int:
        """The number of batches of an epoch, which Keras reads before each pass."""
        self._may_begin = True
        return len(self)

    def __iter__(self) -> Any:
        return iter(self._loader)  # code that adapts a layer to the data iterates, for example

    def __getitem__(self, index: int) -> Any:
        """Return batch `index` of the epoch.

        Raises:
            ArgumentError: several processes train, and Keras or nobody shards the batches; the loader has a ledger.
        """
        self._check_ranks()
        _refuse_ledger(self._loader)
        with self._lock:
            if self._may_begin:
                self._may_begin = False
                if self._pass is None or index == 0 or index != self._pass.due:
                    self._begin(index)
            under_way = self._pass
            if under_way is not None and under_way.epoch != self._loader.epoch:  # set by the user
                under_way = self._pass = None
            try:
                batch = None if under_way is None else under_way.batch(index)
            except BaseException:
                self._pass = None
                raise
        if batch is None:
            batch = self._loader.batch(index)
        if under_way is not None:
            under_way.asked.add(index)
        return batch

    def _check_ranks(self) -> None:
        """Refuse ``auto_shard_dataset``: with it, Keras asks for every n-th batch only, and finishes no epoch."""
        distribution = keras.distribution.distribution()
        parts = getattr(distribution, "_is_multi_process", False)
        if parts and getattr(distribution, "auto_shard_dataset", False):
            raise ArgumentError(
                "auto_shard_dataset of the distribution is True, so that Keras asks each process for every n-th batch "
                "and no epoch comes to its end; set distribution.auto_shard_dataset = False and make the loader with "
                "shard='auto'"
            )
        KERAS_RANKS.of_loader(self._loader)

    def on_epoch_end(self) -> None:
        """Count the epoch, if Keras finished it. Keras also calls this before the first epoch."""
        with self._lock:
            if self._pass is not None:
                self._pass.cut()
            self._count()

    def _begin(self, index: int) -> None:
        """Begin a pass with batch `index`: the pass made ahead, if it fits."""
        self._count()
        if self._loader.begins_in_mid_epoch:
            raise StateError(
                "the loaded state is in the middle of an epoch, and Keras asks for whole epochs, which would repeat "
                "samples; save states between epochs, as KeepState does, or train on endless(loader), which goes on"
            )
        made = self._pass
        if made is None or made.asked or made.epoch != self._loader.epoch or index != 0:
            self._pass = Pass(self._loader)

    def _count(self) -> None:
        """If the epoch is at its end, go to the next. If the pass was in order, begin to make the next batches."""
        done = self._pass
        if done is None or len(done.asked) < done.n_batches:
            return
        if done.ahead is not None:
            done.ahead.close()
        if done.n_batches % (done.cut_at or 1) and not self._warned:
            self._warned = True
            warn_consumer(
                f"fit(steps_per_epoch={done.cut_at}) ended an epoch after {done.n_batches % done.cut_at} steps, for an "
                f"epoch of the loader has {done.n_batches} batches and to_keras ends there; pass endless(loader) to "
                f"fit, which goes on into the next epoch, or steps_per_epoch= that divides {done.n_batches}",
                UserWarning,
            )
        self._loader.set_epoch(done.epoch + 1)
        if self._loader._shared.steps is not None:
            self._loader._shared.steps.passes(done.n_batches)
        self._pass = Pass(self._loader)
        if done.due == done.n_batches:
            self._pass.make_ahead()
        elif not self._warned:
            self._warned = True
            warn_consumer(
                "Keras shuffled the numbers of the batches and does not publish their order, so the loader made each "
                "batch only when Keras asked for it; pass shuffle=False to fit, and shuffle=<seed> to the loader",
                UserWarning,
            )
