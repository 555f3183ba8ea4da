"""A callback of Keras that keeps the epoch of a loader over a restart.

Keras counts the epochs of ``fit`` from ``initial_epoch``. After a restart ``BackupAndRestore`` sets this number, in
its ``on_train_begin``. Each epoch of Keras is one epoch of the loader. So the file pairs a number of Keras with a state
of the loader, and the first epoch of ``fit`` determines the loader's epoch. ``BackupAndRestore`` writes its own file at
another time. A kill between the two writes therefore costs nothing, in either order of the callbacks.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import keras

from .. import validation
from ..data_source.epoch.state_file import read_state, write_state
from ..errors import ArgumentError, ArgumentTypeError, StateError
from ..loader import Loader

MOST_EPOCHS_BACK = 2
"""Epochs that ``BackupAndRestore`` may be behind: one by a kill between both writes, one by ``double_checkpoint``."""


class KeepState(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """A callback for ``fit`` with ``to_keras(loader)``: a restarted program goes on with the loader's next epoch.

    Without it, ``BackupAndRestore`` restores the model and the number of the epoch, but a new loader begins with epoch
    0 again, whose batches the model has seen in that order. Use both::

        callbacks = [keras.callbacks.BackupAndRestore("backup"), bu.KeepState(loader, "loader.json")]
        model.fit(to_keras(loader), epochs=90, shuffle=False, callbacks=callbacks)

    When ``fit`` begins and after each epoch it writes the loader's state to the file, which a kill leaves whole. When
    ``fit`` begins, it moves the loader to the first epoch of Keras, which ``BackupAndRestore`` or ``initial_epoch=``
    sets. Without the file, a loader at epoch 0 moves to the epoch of that number. A loader that you moved yourself
    stays where it is: ``fit`` must begin with the same number, or with 0. An unfinished epoch begins again, as in
    Keras.

    Args:
        loader: The loader whose ``to_keras(loader)`` the model trains on.
        path: The file, in a folder that exists. Not in the folder of ``BackupAndRestore``, which deletes it.
        delete_checkpoint: Whether the end of ``fit`` deletes the file, as ``BackupAndRestore`` does with its own.

    Raises:
        ArgumentTypeError: `loader` is not a Loader.
        ArgumentError: the folder of `path` does not exist. When ``fit`` begins: it trains on ``endless(loader)`` or
            with ``steps_per_epoch=``, or its first epoch does not follow the epochs that the file counts, or without a
            file those of the loader. After an epoch: ``fit`` trains on another loader.
        StateError: when ``fit`` begins: the file holds no such state, or that of another loader.
    """

    @validation.known_names({})
    def __init__(self, loader: Loader, path: str | os.PathLike[str], *, delete_checkpoint: bool = True) -> None:
        super().__init__()
        if not isinstance(loader, Loader):
            raise ArgumentTypeError(
                f"loader must be a Loader, not a {type(loader).__name__}; pass the argument of to_keras"
            )
        self.loader = loader
        self.path = os.path.abspath(os.fspath(path))  # the program may go to another folder
        if not os.path.isdir(folder := os.path.dirname(self.path)):
            raise ArgumentError(f"path must be in a folder that exists, and {folder!r} is none; make it first")
        self.delete_checkpoint = validation.true_or_false("delete_checkpoint", delete_checkpoint)
        self._placed = False  # whether the loader is at the epoch that belongs to that of Keras
        self._begun = 0  # the loader's epoch under way

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that each epoch of ``fit`` is one epoch of the loader."""
        steps, n = self.params.get("steps"), self.loader.batches_per_epoch
        if steps != n:
            raise ArgumentError(
                f"steps_per_epoch must be left out with KeepState, not be {steps}, for an epoch of the loader has {n} "
                f"batches, and the state after {steps} of them would begin the epoch again"
            )
        if self.loader.in_mid_epoch:
            raise ArgumentError(
                "KeepState needs fit(to_keras(loader)), and this loader is in the middle of an epoch: endless(loader) "
                "or a loop of yours has begun it; call loader.set_epoch(n) for a loop that is over"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """In the first epoch of the program, move the loader to the epoch that belongs to it."""
        if not self._placed:
            if os.path.exists(self.path):
                self._load(epoch)
            else:
                self._begin(epoch)
        self._placed, self._begun = True, self.loader.epoch

    def _begin(self, epoch: int) -> None:
        """Move a loader without a file. Write the file now: a kill may come before the first epoch is counted here."""
        at = self.loader.epoch
        if at == 0:
            self.loader.set_epoch(epoch)
        elif epoch not in (0, at):
            raise ArgumentError(
                f"fit begins with epoch {epoch} and the loader with epoch {at}, and there is no file {self.path!r} "
                f"that counts both; call loader.set_epoch({epoch}), or pass initial_epoch={at} or 0"
            )
        self._write(epoch)

    def _load(self, epoch: int) -> None:
        kept = read_state(self.path)
        if not isinstance(kept, dict) or kept.keys() != {"epochs", "loader"} or type(kept["epochs"]) is not int:
            raise StateError(f"{self.path!r} was not written by KeepState; pass the path of another file, or remove it")
        done = kept["epochs"]
        if not done - MOST_EPOCHS_BACK <= epoch <= done + 1:
            raise ArgumentError(
                f"fit begins with epoch {epoch}, and {self.path!r} was written after {done} epochs; pass "
                f"initial_epoch={done}, let BackupAndRestore restore the model, or remove the file to begin anew"
            )
        self.loader.load_state_dict(kept["loader"])
        self.loader.set_epoch(self.loader.epoch + epoch - done)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the state of the loader, which is at the beginning of its next epoch."""
        if self.loader.epoch == self._begun and not self.model.stop_training:  # a callback may end it in mid-epoch
            raise ArgumentError(
                f"fit must train on the loader of KeepState, which is at the beginning of its epoch {self._begun} "
                f"after an epoch of fit; pass KeepState the loader of to_keras, and remove {self.path!r} if it is of "
                f"this fit"
            )
        self._write(epoch + 1)

    def _write(self, epochs: int) -> None:
        write_state(self.path, {"epochs": epochs, "loader": self.loader.state_dict()})

    def on_train_end(self, logs: Any = None) -> None:
        """Delete the file, if that is wanted."""
        if self.delete_checkpoint:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
