"""Every exception that batchup_ng raises.

    BatchupError
    ├── ArgumentError        (ValueError)           an argument breaks a rule; nothing was started
    ├── ArgumentTypeError    (TypeError)            an argument is of a wrong kind, or an option is misspelt
    │   └── CannotTravel                            a source or function cannot be sent to another process
    ├── InOrderNotSupported  (NotImplementedError)  the sampler only draws at random; pass ``shuffle=``
    ├── MissingDependency    (ImportError)          an optional library is absent; names the extra to install
    ├── SampleReadError      (OSError)              a stored sample cannot be read; ``.source`` is its file
    ├── PoolClosed           (RuntimeError)         the pool or iterator was closed before it was used
    ├── WorkerLost           (RuntimeError)         a worker process ended with work outstanding
    └── LostSamples          (RuntimeError)         the books of an epoch do not balance: a bug, never data

Each is also an instance of the built-in exception in brackets, so that code written for BatchUp, which
caught ``ValueError`` and ``TypeError``, keeps working. An exception that a user's own function raises
arrives as it is, with a :class:`RemoteTraceback` as its cause when it was raised in another process.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BatchupError",
    "CannotTravel",
    "InOrderNotSupported",
    "LostSamples",
    "MissingDependency",
    "PoolClosed",
    "RemoteTraceback",
    "SampleReadError",
    "WorkerLost",
]


class BatchupError(Exception):
    """Base of every error that batchup_ng itself raises."""


class ArgumentError(BatchupError, ValueError):
    """An argument has the right type and a value that breaks a rule."""


class ArgumentTypeError(BatchupError, TypeError):
    """An argument is of a wrong kind, or an option does not exist."""


class CannotTravel(ArgumentTypeError):
    """Something cannot be pickled and so cannot reach a worker process."""


class InOrderNotSupported(BatchupError, NotImplementedError):
    """A sampler that only draws at random was asked for samples in order."""


class MissingDependency(BatchupError, ImportError):
    """An optional library is not installed.

    Args:
        library: The name of the library, as it is imported.
        extra: The extra of ``batchup_ng`` that installs it.
        purpose: What it was wanted for, to begin the message with.
    """

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the library {library!r}, which is not installed; "
            f"install it with: pip install 'batchup_ng[{extra}]'"
        )
        self.library = library
        self.extra = extra
        self._purpose = purpose

    def __reduce__(self) -> tuple[type[MissingDependency], tuple[str, str, str]]:
        return type(self), (self.library, self.extra, self._purpose)


class SampleReadError(BatchupError, OSError):
    """A stored sample is missing, damaged or not of the kind that was asked for.

    Args:
        message: What is wrong, naming the file.
        source: The path, or another name of where the sample lies, exactly as it was given.
    """

    def __init__(self, message: str, source: object = None) -> None:
        super().__init__(message)
        self.source = source

    def __reduce__(self) -> tuple[type[SampleReadError], tuple[str, object]]:
        return type(self), (str(self), self.source)


class PoolClosed(BatchupError, RuntimeError):
    """A pool, stream or iterator was used after it was closed."""


class WorkerLost(BatchupError, RuntimeError):
    """A worker process ended while it still had work to do."""


class LostSamples(BatchupError, RuntimeError):
    """The batches delivered in an epoch are not those that were planned."""


class RemoteTraceback(Exception):
    """The text of a traceback from another process: the cause of an exception that was raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
