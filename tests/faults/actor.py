"""The program in which a scene is played: calls one function, writes down what it returned or raised.

    python -m tests.faults.actor module:function '{"argument": 1}' [threads]

The result goes to the file that the environment names. What the scene leaves in this very process (threads,
descriptors, children) counts as a failure of the scene.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from batchup_ng.work_pool import prefetch_buffer

from ..left import Left, left_since

PATIENCE = 120.0
"""Seconds within which what a scene used must be gone; it is gone at once, unless the machine is busy."""


prefetch_buffer.STALL_SECONDS = 3600.0  # a busy machine is no fault; the scenes of the warning set their own


def main(name: str, arguments: str, *may_leave: str) -> int:
    """Play the scene; return the exit code.

    Args:
        name: Module and function.
        arguments: Of the function, as JSON.
        may_leave: Kinds of things that the scene may leave in this process.
    """
    module, function = name.split(":")
    scene = getattr(importlib.import_module(module), function)
    before = Left()
    try:
        value = scene(**json.loads(arguments))
        left = left_since(before, PATIENCE, *may_leave)
        outcome: dict[str, Any] = {"failed": f"it left behind: {left}"} if left else {"value": value}
    except BaseException:
        outcome = {"failed": traceback.format_exc()[-20_000:]}
    Path(os.environ["BATCHUP_NG_RESULT"]).write_text(json.dumps(outcome))
    return 1 if "failed" in outcome else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
