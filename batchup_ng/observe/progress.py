"""A bar in the terminal for each epoch: how far it is, how fast, and how much of the time the loop waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .. import validation
from ..data_source.epoch.iterator_views import IteratorView
from ..display import progress_bar
from ..errors import ArgumentTypeError
from ..loader import Loader

SHOWN_EVERY = 0.5
"""Seconds after which the share of the wait in the bar is made new."""


@validation.known_names({})
def progress(batches: Any, bar: Any = None) -> Any:
    """Return an object that iterates like `batches` and shows a bar of tqdm for each epoch.

    The bar shows the number of batches, their rate, the time that is left, and the share of the time that the loop
    waited in ``next``. After a resume it begins where the epoch goes on.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; or an iterator of one epoch.
        bar: A function like ``tqdm.tqdm``, which is called with ``total``, ``initial``, ``desc`` and ``unit``. Default:
            ``tqdm.auto.tqdm`` (``pip install 'batchup_ng[progress]'``).

    Raises:
        ArgumentTypeError: `batches` is neither of these, or `bar` is no function.
        ImportError: tqdm is not installed.

    Example::

        with bu.Loader(source, 32) as loader:
            for x, y in bu.progress(loader):
                step(x, y)
    """
    if bar is None:
        bar = progress_bar()
        if bar is None:
            raise ImportError("progress needs tqdm: pip install 'batchup_ng[progress]'")
    if not callable(bar):
        raise ArgumentTypeError(f"bar must be a function like tqdm.tqdm, not {bar!r:.80}")
    if isinstance(batches, Loader):
        return batches.view(lambda iterator: ProgressIterator(iterator, bar, _n_of(batches)))
    if isinstance(batches, Iterator):
        return ProgressIterator(batches, bar)
    raise ArgumentTypeError(
        f"batches must be a Loader or an iterator of batches, not a {type(batches).__name__}; pass what your loop "
        f"iterates over"
    )


def _n_of(loader: Loader) -> int | None:
    """Return the number of batches of a whole epoch; None if it is not known."""
    try:
        return loader.batches_per_epoch
    except TypeError:
        return None


class ProgressIterator(IteratorView):
    """An iterator of one epoch that moves a bar with each batch. `total` is the number of batches of a whole epoch."""

    def __init__(self, iterator: Any, bar: Any, total: int | None = None) -> None:
        super().__init__(iterator)
        try:
            left: int | None = len(iterator)
        except TypeError:
            left = None
        total = left if total is None else total
        done = 0 if total is None or left is None else total - left
        self._bar = bar(total=total, initial=done, desc=f"epoch {getattr(iterator, 'epoch', 0)}", unit=" batches")
        self._began = self._shown = self._asked = time.monotonic()
        self._waited = 0.0

    def _begin(self) -> None:
        self._asked = time.monotonic()

    def _received(self, batch: Any) -> Any:
        now = time.monotonic()
        self._waited += now - self._asked
        self._bar.update(1)
        if now - self._shown >= SHOWN_EVERY:
            self._shown = now
            self._show_wait(now)
        return batch

    def _show_wait(self, now: float) -> None:
        """Write the share of the wait to the bar, which shows it when it is drawn next."""
        show = getattr(self._bar, "set_postfix_str", None)
        if show is not None:
            show(f"waited {self._waited / max(now - self._began, 1e-9):.0%}", refresh=False)

    def _failed(self) -> None:
        self._show_wait(time.monotonic())
        self._bar.close()

    def close(self) -> None:
        """Close the iterator and the bar."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
        self._bar.close()

    def break_off(self, by: str) -> None:
        """End the epoch of a loader: see ``BatchIterator.break_off``."""
        self._iterator.break_off(by)
        self._bar.close()
