"""Hands batches over to PyTorch: tensors on the CPU without a copy, tensors on a device ahead of the step.

Ownership on the way to a GPU. The thread of an :class:`~.ahead.AheadIterator` copies a batch into pinned memory of
torch's caching host allocator, starts the transfer on its own stream and records an event after it. None of these steps
waits for the GPU. Torch reuses pinned memory only after the transfer from it. The consumer's thread makes its current
stream wait for the event. It also records the use of the tensors with torch's allocator, which then reuses their memory
only after the steps that read them are done.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import validation
from ..batch import refuse_masked
from ..data_source.epoch.iterator_views import IteratorView
from ..errors import ArgumentError, ArgumentTypeError, StateError
from ..loader import Loader
from .ahead import AheadIterator
from .handover import handed_over, is_batch
from .torch_dataloader import from_dataloader
from .torch_ranks import TORCH_RANKS

try:
    import torch
except ImportError as error:
    raise ImportError("batchup_ng.frameworks.torch needs PyTorch: pip install 'batchup_ng[torch]'") from error

__all__ = ["as_dataset", "from_dataloader", "to_torch"]


RANGE = "batchup_ng.next"
"""The name of a wait for a batch in a profile of PyTorch."""


@validation.known_names({})
def to_torch(batches: Any, device: Any = None, channels_first: Any = False, dtype: Any = None) -> Any:
    """Return `batches` with tensors in place of arrays.

    On the CPU a tensor is the array's own memory. No later batch is written to that memory as long as the tensor, or a
    view of it, lives. On a device, batches are copied ahead: while one is in use, the next are in transfer or have
    arrived. A thread does this work, so two or three batches are alive in addition to those in the buffer. On the CPU,
    a thread works only if a pool is ahead of a loop whose steps take 1 ms or more; otherwise ``next`` makes the
    tensors.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; a source that a pool works for; an iterator, of
            which you use only the result from now on; or one batch, which gives a batch.
        device: The device of the tensors; None for the CPU. ``"cuda"`` is the device that is current when an epoch
            begins.
        channels_first: The images, ``(n, h, w, c)``, that become ``(n, c, h, w)``: a list of names or places in the
            batch, such as ``["image"]`` or ``[0]``. True: the array of four axes; several in a batch are an error. The
            results are views. Torch calls this memory format ``channels_last`` and computes convolutions on it without
            a copy.
        dtype: The dtype of floating-point tensors. Others, such as labels or images of bytes, keep their dtype, as in
            ``Module.to``. Turn bytes into numbers on the device, ``x.float() / 255``: a quarter of the transfer.

    Raises:
        ArgumentError: in ``next``: `channels_first` fits no array of the batch, or True fits several, or an image whose
            channels are first already. When an epoch of a loader begins: ``shard="auto"`` would find several processes,
            and the loader has no ``shard=``.
        ArgumentTypeError: `batches` is none of these, or `channels_first` is neither a bool nor such a list.

    In a program of several processes a loader needs ``shard=``, as for :func:`as_dataset`. With ``shard=None``, or an
    iterator of a source that has no ``shard=``, a warning says once that each process gets all of the data.

    Tuples, dicts and lists are kept, with tensors in them. Strings, objects and dates stay unchanged. Arrays that are
    read-only or of foreign byte order are copied, because tensors are neither.

    >>> import numpy as np, batchup_ng as bu
    >>> with bu.Loader([np.zeros((5, 8, 6, 3), np.uint8), np.arange(5)], 4) as loader:
    ...     for x, y in to_torch(loader, channels_first=True):
    ...         print(x.shape, x.dtype, y)
    torch.Size([4, 3, 8, 6]) torch.uint8 tensor([0, 1, 2, 3])
    torch.Size([1, 3, 8, 6]) torch.uint8 tensor([4])
    """
    place = torch.device("cpu" if device is None else device)
    tensors: Callable[[Any], Any] = partial(_map, _tensor)
    if _checked(channels_first):
        tensors = partial(_with_channels_first, which=channels_first)
    if is_batch(batches):
        return _map(lambda leaf: _moved(leaf, place, dtype), tensors(batches))
    if place.type == "cuda":
        return handed_over(batches, lambda iterator: _cuda_iterator(iterator, tensors, place, dtype), TORCH_RANKS)
    convert = tensors
    if place.type != "cpu" or dtype is not None:
        convert = lambda batch: _map(lambda leaf: _moved(leaf, place, dtype), tensors(batch))  # noqa: E731
    ahead = place.type != "cpu"
    options: dict[str, Any] = {"always": ahead, "waiting": _in_range, "copies": _is_moved if ahead else None}
    return handed_over(batches, lambda iterator: AheadIterator(iterator, convert, **options), TORCH_RANKS)


@validation.known_names({})
def as_dataset(loader: Loader, device: Any = None, channels_first: Any = False, dtype: Any = None) -> LoaderDataset:
    """Return `loader` as a ``torch.utils.data.IterableDataset`` whose items are whole batches.

    Pass it to ``DataLoader(dataset, batch_size=None)``, or to Lightning's ``fit``, whose checkpoints then include its
    state. Hugging Face's ``Trainer`` takes it from ``get_train_dataloader``. With several processes the loader needs
    ``shard="auto"``. The exception is ``accelerator.prepare(DataLoader(dataset, batch_size=None))``: there process 0
    reads for all processes, and the loader has no ``shard=``.

    Args:
        loader: Each iteration over the data set is its next epoch.
        device: As in :func:`to_torch`, like the other arguments.

    Raises:
        ArgumentError: when an epoch begins: ``shard="auto"`` would find several processes, and ``shard=`` of the loader
            does not fit. ``shard=None`` gives each process all of the data, with a warning.
    """
    if not isinstance(loader, Loader):
        raise ArgumentTypeError(f"loader must be a batchup_ng.Loader, not a {type(loader).__name__}; wrap it in one")
    return LoaderDataset(to_torch(loader, device, channels_first, dtype))


class LoaderDataset(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc, unused-ignore]  # Any without torch
    """The epochs of a loader for the frameworks around PyTorch.

    These count batches and never ask for one after the last: an epoch that was saved after its last batch is over.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._latest: weakref.ref[DatasetIterator] | None = None

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise ArgumentError(_NOT_IN_WORKERS)
        iterator = DatasetIterator(self._loader)
        self._latest = weakref.ref(iterator)
        return iterator

    @property
    def loader(self) -> Loader:
        """The loader, as the data set hands its batches over."""
        return self._loader

    @property
    def batch_sampler(self) -> Any:
        """The object that gets the number of each epoch from Lightning, by ``batch_sampler.sampler.set_epoch``.

        From a checkpoint of the end of an epoch, Lightning loads no loader state. The number is then all there is.
        """
        return SimpleNamespace(sampler=SimpleNamespace(set_epoch=self._not_before))

    def _not_before(self, epoch: int) -> None:
        """Skip the epochs before `epoch`. An epoch that has begun continues; a loader that is further stays there."""
        if epoch > self._loader.upcoming_epoch:
            self._loader.set_epoch(epoch)
            latest = None if self._latest is None else self._latest()
            if latest is not None:  # Lightning makes the iterator before it sets the number
                latest.begin()

    def __len__(self) -> int:
        """Return the number of batches in an epoch, not how many are left."""
        return self._loader._batches_in(self._loader.upcoming_epoch, skipped=())  # Lightning asks once for all epochs

    @property
    def epoch(self) -> int:
        """The number of the epoch under way; if there is none, of the next."""
        return self._loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch `epoch` with the next iteration. If a state in the middle of it was loaded, continue there."""
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: see :meth:`~batchup_ng.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Continue from `state` in the next iteration: see :meth:`~batchup_ng.Loader.load_state_dict`.

        Raises:
            StateError: as there; or the state is from within an epoch with other batches. Trainers would cut it short.
        """
        self._check_count(state)
        self._loader.load_state_dict(state)

    def _check_count(self, state: Any) -> None:
        """Refuse a state from within an epoch whose batches differ from those that a trainer counts."""
        saved = state.get("batches") if isinstance(state, Mapping) else None
        if not isinstance(saved, Mapping) or not saved.get("samples"):
            return
        try:
            own = self._loader.state_dict()["batches"] or {}
        except StateError:  # a stream or a drawn order: the loader itself checks the state that it loads
            return
        for name, words in _CUT.items():
            if name in own and name in saved and own[name] != saved[name]:
                raise StateError(
                    f"this state is from within an epoch with {words}={saved[name]!r}, and here it is {own[name]!r}; "
                    f"Lightning goes on counting batches from where it was and would leave out the rest of an epoch: "
                    f"resume with the same, or load the state into the loader itself and begin fit() without ckpt_path="
                )

    def __reduce__(self) -> Any:
        raise ArgumentError(_NOT_IN_WORKERS)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._loader!r}>"


class DatasetIterator(IteratorView):
    """One epoch of a loader. Its states are the loader's states, for the ``StatefulDataLoader`` of torchdata."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(iter(loader))
        self._loader = loader

    def begin(self) -> None:
        """Begin the epoch that is now the loader's next."""
        self._iterator = iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: see :meth:`~batchup_ng.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Continue from `state`: see :meth:`~batchup_ng.Loader.load_state_dict`."""
        self._loader.load_state_dict(state)
        self.begin()


_CUT = {"batch_size": "batch_size", "drop_last": "drop_last", "world": "the number of processes"}
"""Options that set the number of batches in an epoch: the key in a state, and the words for a message."""

_NOT_IN_WORKERS = (
    "this data set hands out batches that the workers of its Loader make, so that no other process can; pass "
    "num_workers=0 to torch's DataLoader, and workers= to the Loader"
)


# -- from arrays to tensors ----------------------------------------------------------------------------------------


def _map(fn: Callable[[Any], Any], value: Any) -> Any:
    """Return `value` with `fn` applied to the arrays and tensors in it."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return fn(value)
    if isinstance(value, (tuple, list)):
        return _like(value, [_map(fn, part) for part in value])
    if isinstance(value, Mapping):
        return {name: _map(fn, part) for name, part in value.items()}
    return value


def _tensor(value: Any) -> Any:
    """Return an array of numbers as a tensor, on its own memory if torch can use it; return others unchanged."""
    if isinstance(value, np.ndarray):
        refuse_masked("an array of this batch", value)
        if value.dtype.kind not in "biufc":
            return value
        if not value.flags.carray or not value.dtype.isnative:  # arrays from pools are contiguous, aligned, writable
            value = _shareable(value)
        value = torch.from_numpy(value)
    return value


CHANNELS = (1, 3, 4)
"""Numbers of channels of an image. One of them in the second axis, and more in the two after it: they are first."""


def _checked(channels_first: Any) -> bool:
    """Return whether `channels_first` asks for any image."""
    if isinstance(channels_first, bool):
        return channels_first
    if isinstance(channels_first, (list, tuple)) and all(type(each) in (int, str) for each in channels_first):
        if len(set(channels_first)) < len(channels_first):
            raise ArgumentError(f"channels_first names an image twice: {channels_first!r:.80}; name it once")
        return bool(channels_first)
    raise ArgumentTypeError(
        f"channels_first must be a bool or a list of names or places of images, such as ['image'] or [0], not "
        f"{channels_first!r:.80}"
    )


def _with_channels_first(batch: Any, which: Any) -> Any:
    """Return a batch as tensors, with its images as ``(n, c, h, w)``."""
    turned: list[tuple[int, ...]] = []

    def turn(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.ndim != 4:
            return leaf
        turned.append(tuple(leaf.shape))
        if which is True and leaf.shape[1] in CHANNELS and min(leaf.shape[2:]) > max(CHANNELS):
            raise ArgumentError(
                f"channels_first=True moves the last axis of {tuple(leaf.shape)} to the second place, and the channels "
                f"seem to be there already, as after normalize(layout='NCHW'); leave channels_first out, or name the "
                f"images that you mean, channels_first=['image'] or [0]"
            )
        return leaf.permute(0, 3, 1, 2)

    batch = _map(_tensor, batch)
    if which is True:
        batch = _map(turn, batch)
        if len(turned) > 1:
            shapes = " and ".join(map(str, turned))
            raise ArgumentError(
                f"channels_first=True is for batches with one array of four axes, and this has several: {shapes}; name "
                f"the images, channels_first=['image'], or their places, channels_first=[0]"
            )
        if not turned:
            raise ArgumentError(
                "channels_first=True is for batches with an array of four axes, (n, h, w, c), and this has none; leave "
                "it out, or give grey images an axis by a map, x[..., None]"
            )
        return batch
    parts = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(batch if _has_places(batch) else [batch]))
    for name in which:
        before = len(turned)
        parts[name] = _map(turn, parts.get(name))
        if len(turned) == before:
            raise ArgumentError(f"channels_first names {name!r}, which is no array of four axes, (n, h, w, c)")
    if isinstance(batch, Mapping):
        return parts
    return _like(batch, list(parts.values())) if _has_places(batch) else parts[0]


def _has_places(batch: Any) -> bool:
    return isinstance(batch, (tuple, list))


def _like(value: Any, parts: list[Any]) -> Any:
    """Return the parts in a container of the type of `value`."""
    if isinstance(value, list):
        return parts
    return value._make(parts) if hasattr(value, "_make") else tuple(parts)


def _shareable(array: np.ndarray) -> np.ndarray:
    """Return an array, or a copy if no tensor can use its memory."""
    odd = any(stride < 0 or stride % array.itemsize for stride in array.strides)
    if odd or not array.flags.behaved or not array.dtype.isnative:  # behaved: aligned and writable
        return array.astype(array.dtype.newbyteorder("="), order="C")
    return array


def _moved(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Return a tensor on `device`; return anything else unchanged."""
    return value.to(device, _dtype(value, dtype)) if isinstance(value, torch.Tensor) else value


def _is_moved(value: Any) -> bool:
    """Return whether an array or tensor in main memory goes to another device."""
    return isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc")


def _dtype(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


# -- to a GPU ------------------------------------------------------------------------------------------------------


def _cuda_iterator(iterator: Any, tensors: Callable[[Any], Any], device: torch.device, dtype: Any) -> AheadIterator:
    """Return an iterator of batches that are copied to a GPU ahead of the consumer."""
    if device.index is None:  # fixed now: each thread has its own current device
        device = torch.device("cuda", torch.cuda.current_device())
    transfer = CudaTransfer(tensors, device, dtype)
    return AheadIterator(iterator, transfer.send, receive=transfer.receive, waiting=_in_range, copies=_is_moved)


def _in_range(wait: Callable[[int], Any], number: int) -> Any:
    """Wait for a batch, in a range of PyTorch's profiler if one runs, also one that emits ranges of NVTX."""
    if not torch.autograd._profiler_enabled():
        return wait(number)
    with torch.profiler.record_function(RANGE):
        return wait(number)


class CudaTransfer:
    """Copies batches to a GPU on its own stream: one thread sends, another receives, in the same order.

    Args:
        tensors: Turns the arrays of a batch into tensors on the CPU.
        device: The GPU, with its number.
        dtype: The dtype of floating-point tensors.
    """

    def __init__(self, tensors: Callable[[Any], Any], device: torch.device, dtype: torch.dtype | None) -> None:
        self._tensors = tensors
        self._device = device
        self._dtype = dtype
        self._pinned = PinnedMemory()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]

    def send(self, batch: Any) -> tuple[Any, torch.cuda.Event]:
        """Start the copy of a batch. Return the tensors on the device, and the event of their arrival."""
        with torch.cuda.stream(self._stream):
            return _map(self._sent, self._tensors(batch)), self._stream.record_event()

    def receive(self, sent: tuple[Any, torch.cuda.Event]) -> Any:
        """Return the tensors. Later work of this thread on the device waits for them."""
        batch, event = sent
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        return _map(partial(_used_on, stream=stream), batch)

    def _sent(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        dtype = _dtype(value, self._dtype)
        staged = self._pinned.copy(value, dtype)
        return staged.to(self._device, dtype, non_blocking=staged is not value)


class PinnedMemory:
    """Copies tensors to pinned memory, as long as torch can pin any."""

    def __init__(self) -> None:
        self._there_is = True

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return a pinned copy of a tensor. If none can be pinned or it is on a device, return the tensor itself."""
        if not self._there_is or tensor.device.type != "cpu":
            return tensor
        try:
            pinned = torch.empty_like(tensor, dtype=dtype, pin_memory=True)
        except RuntimeError as error:
            self._there_is = False
            why = str(error).partition("\n")[0]
            warnings.warn(
                f"batches go to the device from pageable memory, which takes longer: none can be pinned ({why})",
                RuntimeWarning,
                stacklevel=2,
            )
            return tensor
        return pinned.copy_(tensor)  # without the interpreter's lock


def _used_on(value: Any, stream: torch.cuda.Stream) -> Any:
    if isinstance(value, torch.Tensor):
        value.record_stream(stream)
    return value
