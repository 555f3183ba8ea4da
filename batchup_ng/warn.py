"""Warnings that point at the consumer's own line, however deep in the library they are given.

They never raise: what is warned of goes on. Where warnings are turned into errors (``-W error``) they are shown.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


def warn_consumer(message: str, category: type[Warning]) -> None:
    """Warn on behalf of the code that called the library."""
    level = 1
    frame = sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    try:
        warnings.warn(message, category, stacklevel=level)
    except category:
        warnings.showwarning(category(message), category, frame.f_code.co_filename, frame.f_lineno)
