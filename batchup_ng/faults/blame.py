"""Which exceptions are a sample's fault, and which are errors of the program.

Bad data raise nearly anything: ``OSError``, ``ValueError``, ``KeyError``, ``RuntimeError`` (HDF5, PyTorch),
``SyntaxError`` (``ast.literal_eval``), or a class of a decoder that derives from ``Exception`` alone (``zlib.error``,
``struct.error``, ``lzma.LZMAError``, ``cv2.error``, Pillow's ``DecompressionBombError``). A list of these would lack
some, and the first such exception would end an epoch of hours. So the default lists the errors of the program, and any
other exception is a sample's fault. ``ErrorPolicy(types=...)`` lists the exceptions that are a sample's fault instead.

The type of an exception is looked at where it was raised. On its way to another process, an exception that cannot be
pickled becomes a :class:`~batchup_ng.errors.SerializationError`.
"""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError, ArgumentTypeError

OF_PROGRAM = (NameError, AttributeError, ImportError, MemoryError)
"""Exceptions that are errors of the program by default.

- ``NameError``, ``ImportError``: a misspelt name, a module that is not installed. No data can cause these.
- ``AttributeError``: nearly always a misspelt method or field. A function that returns None for a bad file, such as
  ``cv2.imread``, causes it too; a map that checks the result can raise ``ValueError`` instead.
- ``MemoryError``: a fault of the machine, which would make good samples fail one after the other.
"""


def of_program(error: BaseException, types: tuple[type[BaseException], ...] | None = None) -> bool:
    """Return whether an exception of a sample is an error of the program, which every policy raises.

    Args:
        error: The exception.
        types: The exceptions that are a sample's fault; None for all but :data:`OF_PROGRAM`.

    >>> of_program(NameError("flaot")), of_program(ValueError("not a JPEG"))
    (True, False)
    >>> of_program(ValueError("not a JPEG"), types=(OSError,))
    True
    """
    return isinstance(error, OF_PROGRAM) if types is None else not isinstance(error, types)


def checked_types(types: Any) -> tuple[type[BaseException], ...]:
    """Return the classes of ``ErrorPolicy(types=...)``: one, or a tuple or list of them.

    Raises:
        ArgumentError: there is none.
        ArgumentTypeError: an element is no class of exceptions.
    """
    listed = tuple(types) if isinstance(types, (tuple, list)) else (types,)
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ArgumentTypeError(
                f"types must be classes of exceptions, not {kind!r:.80}; pass types=(OSError, ValueError), or such"
            )
    if not listed:
        raise ArgumentError("types must be at least one class of exceptions, not empty; leave it out for the default")
    return listed
