"""Warnings that point at the consumer's own line, from any depth of the library.

:func:`warn_consumer` never raises: its caller goes on. If warnings are turned into errors (``-W error``), they are
shown instead.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


def warn_consumer(message: str, category: type[Warning]) -> None:
    """Warn on behalf of the code that called the library."""
    level = consumer_level()
    try:
        warnings.warn(message, category, stacklevel=level)
    except category:
        frame = sys._getframe(level - 1)
        warnings.showwarning(category(message), category, frame.f_code.co_filename, frame.f_lineno)


def consumer_level() -> int:
    """Return the ``stacklevel`` for a warning of the caller to point at the code that called the library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level
