"""All exceptions that batchup_ng raises; ``docs/api/base.md`` draws their tree.

Each error is also an instance of a built-in exception, as in BatchUp. An exception of a ``work_stream`` task arrives
unchanged; if it comes from another process, its cause is a :class:`RemoteTraceback`. An exception in the making of a
batch arrives as a :class:`BatchError` that is also an instance of its own type: BatchUp's programs catch their own
exceptions, ``except ZeroDivisionError``, and ours catch :class:`BatchError`. Only a class that derives from both is
caught by both, and the user's class is not known before, so :func:`_class_for`, and nothing else, makes it at run time.
The constructor of the built-in base builds the instance, because a user's class may require any arguments. If no such
class can be made, the error is a plain :class:`BatchError`.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import pickle
import types
from collections.abc import Sequence
from typing import Any


class BatchupError(Exception):
    """Base of every error that batchup_ng itself raises."""


class ArgumentError(BatchupError, ValueError):
    """An argument has the right type but breaks a rule."""


class ArgumentTypeError(BatchupError, TypeError):
    """An argument is of the wrong kind, or an option does not exist."""


class MapResultError(ArgumentError, ArgumentTypeError):
    """A map returned something other than a batch, or another number of samples; no sample is to blame for that."""


class MapCallError(ArgumentError, ArgumentTypeError):
    """A map does not take the columns of the batch, or lacks an option for one; no sample is to blame for that."""

    refused: Any = None
    """For the library: the ``id`` of the function, its signature in words, the number of columns, and the remedy."""


class StateError(BatchupError, ValueError):
    """A saved state cannot be resumed from: it is damaged, or belongs to another source, seed or version."""


class LedgerError(BatchupError, ValueError):
    """The ledger of a run is damaged or of another run, or does not know a step."""


class SerializationError(ArgumentTypeError):
    """Something cannot be pickled and so cannot reach a worker process."""


class InOrderNotSupported(BatchupError, NotImplementedError):
    """A sampler that only draws at random was asked for samples in order; pass ``shuffle=``."""


class SampleReadError(BatchupError, OSError):
    """A stored sample is missing, damaged or not of the requested kind.

    Args:
        message: What is wrong, naming the file.
        source: The path, or another name of the sample's place, exactly as it was given.
    """

    def __init__(self, message: str, source: object = None) -> None:
        super().__init__(message)
        self.source = source


class WriteError(BatchupError, OSError):
    """A file could not be written, for example because a disk is full. ``errno`` is the system's, if it gave one.

    The part written before is kept, and the same call continues after it.
    """


class DownloadError(BatchupError, OSError):
    """A file of a data set could not be downloaded from any of its mirrors.

    The part that arrived is kept, and the same call continues after it.
    """


class BatchError(BatchupError):
    """A batch could not be made. The error is also an instance of the type of the original exception.

    Its text is the original's text, followed by the place of the error.

    Attributes:
        row: The row of the sample that failed: an int, or a nest of them; None if no single row is to blame.
        rows: The rows of the whole batch, as the plan gives them.
        position: The sample's position in the epoch, or None.
        source: The path or key of the sample, if known.
        op: Name of the map that raised the exception; None if no map did.
        epoch: Number of the epoch.
        batch: Number of the batch in its epoch.
        traceback: The traceback of the original exception, as text.
        error: The original exception, if there is one.
    """

    row: Any = None
    rows: Any = None
    position: int | None = None
    source: Any = None
    op: str | None = None
    epoch: int | None = None
    batch: int | None = None
    traceback: str = ""
    error: BaseException | None = None
    _text: str = ""
    _kind: type[BaseException] | None = None

    def __str__(self) -> str:
        return self._text or (str(self.args[0]) if len(self.args) == 1 else super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __setattr__(self, name: str, value: Any) -> None:
        BaseException.__setattr__(self, name, value)  # regardless of the original's class

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind, args, state = self._kind, self.args, state_of(self)
        try:
            pickle.loads(pickle.dumps((kind, args, state)))
        except Exception:  # the original cannot be pickled; these attributes can
            kind, args, state = None, (self._text,), {name: state[name] for name in _ALWAYS_PICKLED & state.keys()}
        return _built, (kind, args, state)


_ALWAYS_PICKLED = frozenset({"row", "rows", "position", "source", "op", "epoch", "batch", "traceback", "_text"})
"""Attributes of a :class:`BatchError` that can always be pickled."""


def batch_error(original: BaseException, text: str, **attributes: Any) -> BatchError:
    """Return a :class:`BatchError` with this text and these attributes, of the type of `original` too if possible."""
    kind: type[BaseException] | None = type(original)
    if isinstance(original, BatchError):
        kind = original._kind
    elif isinstance(original, (StopIteration, StopAsyncIteration)):
        kind = RuntimeError
    state = {"_text": text, "error": original, **attributes}
    if isinstance(original, SyntaxError):
        state["msg"] = text  # Python prints this instead
    try:
        made = _built(kind, original.args, {**state_of(original), **state})
        str(made), repr(made)
    except Exception:
        made = _built(None, (text,), state)
    return made


def _built(kind: Any, args: tuple[Any, ...], state: dict[str, Any]) -> BatchError:
    """Return an error of the class for `kind` with these attributes; no constructor of the user's is called."""
    cls = BatchError if kind is None or not issubclass(kind, Exception) else _class_for(kind)
    made: BatchError = without_init(cls, args)
    set_state(made, {**state, "_kind": None if cls is BatchError else kind})
    return made


def without_init(cls: type[BaseException], args: tuple[Any, ...]) -> Any:
    """Return an instance of `cls` with these arguments, made by its built-in base type."""
    # The first base will do, except for types such as MemoryError with a constructor of their own but no layout.
    for base in [each for each in cls.__mro__ if not each.__flags__ & MADE_BY_PYTHON]:
        for given in (args, ()):  # a group needs its arguments, others may refuse them
            with contextlib.suppress(TypeError):
                made: Any = base.__new__(cls, *given)
                BaseException.__setattr__(made, "args", args)
                return made
    raise TypeError(f"no instance of {cls.__name__} can be made")


def set_state(error: BaseException, state: dict[str, Any]) -> None:
    """Give `error` the attributes that :func:`state_of` returned, except those that cannot be set."""
    for name, value in state.items():
        with contextlib.suppress(AttributeError, TypeError):
            if getattr(error, name, ...) is not value:  # an OSError prints a second file even if it was set to None
                BaseException.__setattr__(error, name, value)  # its class may refuse, if it is a frozen dataclass


MADE_BY_PYTHON = 1 << 9
"""Flag of types that are not built in: Py_TPFLAGS_HEAPTYPE."""


class _MadeClass(type):
    """The type of the classes that :func:`_class_for` makes: a pickle stores the original's class instead of them.

    PyTorch's workers, for example, send the class of an exception.
    """

    _kind: type[BaseException]


@functools.lru_cache(maxsize=256)
def _class_for(kind: Any) -> type[BatchError]:
    """Return the class of errors that are both batch errors and of `kind`; :class:`BatchError` if there can be none."""
    try:
        own: Any = type(kind)
        made: type[BatchError] = types.new_class(
            f"BatchError[{kind.__name__}]", (BatchError, kind), {"metaclass": _with_type_of(own)}
        )
        made.__module__ = BatchError.__module__
        made._kind = kind
    except Exception:
        return BatchError
    return made


@functools.lru_cache(maxsize=256)
def _with_type_of(metaclass: Any) -> type[_MadeClass]:
    """Return the type of the classes made for exceptions of this metaclass, which is mostly ``type``."""
    made = _MadeClass if metaclass is type else types.new_class("MadeClass", (_MadeClass, metaclass))
    copyreg.pickle(made, lambda each: (_class_for, (each._kind,)))  # type: ignore[arg-type, return-value, unused-ignore]
    return made


def state_of(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an exception, including those in slots (the ``errno`` of an OSError)."""
    state = {}
    for kind in type(error).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)) and name[:2] != "__":
                with contextlib.suppress(Exception):
                    state[name] = getattr(error, name)
    state.pop("args", None)
    return {**state, **getattr(error, "__dict__", {})}


class SampleTimeout(BatchupError, TimeoutError, RuntimeError):
    """Making a sample, or its batch, took longer than its time limit.

    It is also a ``RuntimeError``, like the timeout of PyTorch's ``DataLoader``.
    """


class TooManyErrors(BatchupError, RuntimeError):
    """More samples of an epoch failed than the error policy allows.

    Args:
        message: How many failed, and the limit.
        errors: A :class:`BatchError` for each.
    """

    def __init__(self, message: str, errors: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.errors = list(errors)


class ReentrantIteration(BatchupError, RuntimeError):
    """A map or generator asked an iterator or stream for its next item while making an item for it. Or it runs on a
    thread of a pool, and asked for an item that the same pool makes.
    """


class PoolClosed(BatchupError, RuntimeError):
    """A pool, stream or iterator was used after it was closed."""


class WorkerDied(BatchupError, RuntimeError):
    """A worker process ended while it still had work to do."""


class PoolBroken(WorkerDied):
    """No worker process of a pool stays alive: none can be started, or all end before they have done anything.

    No task or sample is to blame. The pool is as if new: its next use starts worker processes again.
    """


class ClusterError(BatchupError, RuntimeError):
    """A cluster cannot do its task: it has no room, or a node lacks a file or library, or has a different one.

    No task or sample is to blame; the text names the node and the remedy.
    """


class RankTimeout(BatchupError, TimeoutError):
    """Other ranks of a training did not take part in a call of all ranks within its time limit."""


class AccountingError(BatchupError, RuntimeError):
    """The batches delivered in an epoch are not the planned ones: a bug of the library."""


class NotReproducible(BatchupError, AssertionError):
    """A source gave other batches when they were made in another way.

    Args:
        message: The difference, its place, whose fault it is, and the remedy.

    Attributes:
        setting: The setting of the run with the different batches.
        epoch: Number of the epoch.
        batch: Number of the batch; None if the order of the rows differs.
        row: Number of the sample in its batch, or None.
        leaf: Path to the array in the batch, such as ``"[0]"``, or None.
        culprit: Name of the map's function, accessor, source or sampler that differs first.
    """

    def __init__(
        self, message: str, setting: str = "", epoch: int | None = None, batch: int | None = None,
        row: int | None = None, leaf: str | None = None, culprit: str = "",
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.setting, self.epoch, self.batch = setting, epoch, batch
        self.row, self.leaf, self.culprit = row, leaf, culprit


class StallWarning(RuntimeWarning):
    """The consumer has waited unusually long for a result."""


class WorkerWarning(RuntimeWarning):
    """A pool goes on with fewer worker processes than it should have."""


class SharedMemoryWarning(RuntimeWarning):
    """There is not enough shared memory for batches; they come over a socket instead, which is slower."""


class BufferWarning(RuntimeWarning):
    """Fewer batches are made ahead than was asked for, because they are large and memory is limited."""


class CacheWarning(RuntimeWarning):
    """Rows are read more than once: there is no room for all rows of an accessor, for all chunks that are mixed, or for
    the answer of a filter, or its file is damaged; or ranks share an order by blocks.
    """


class SampleWarning(RuntimeWarning):
    """The error policy left out or replaced samples, or a batch was made at a later try; an exclusion list has paths
    that match no file; or a batch was padded of which all rows are empty lists."""


class RepeatedEpochWarning(RuntimeWarning):
    """Two epochs in a row have the same order and random numbers, because neither was given a number."""


class NoEpochLeftWarning(RuntimeWarning):
    """``loader.epochs(n)`` yields nothing, because the loader has begun its first `n` epochs already."""


class RemoteTraceback(Exception):
    """The text of a traceback from another process: the cause of an exception from there.

    Args:
        text: The traceback.
        op: Name of the map that raised the exception; not every exception carries it along.
    """

    def __init__(self, text: str, op: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.op = op

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
