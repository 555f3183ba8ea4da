"""Messages for the log of the program: the logger ``batchup_ng`` of the module ``logging``.

The library does not import ``logging``, which takes some milliseconds. A program without it has no handler for them.
"""

from __future__ import annotations

import sys
import traceback

from .error_context import raise_if_of_signal_handler

NAME = "batchup_ng"


def note(message: str, *args: object) -> None:
    """Log a message of level INFO, with arguments for its ``%`` placeholders.

    An exception of a handler is printed and costs nothing else. Call it without a lock that a handler could want.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return
    try:
        logging.getLogger(NAME).info(message, *args)
    except Exception as error:
        raise_if_of_signal_handler(error)
        traceback.print_exc()
