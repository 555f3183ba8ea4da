"""What systems offer, under one set of names: ``from ..platforms import system``, then ``system.pread(...)``.

:mod:`.unix` is for Linux and macOS, :mod:`.windows` for Windows. Both define the same names, and import no other part
of the package. If a module needs a call that only some systems have, the call goes here.
"""

import sys

if sys.platform == "win32":
    from . import windows as system
else:
    from . import unix as system

__all__ = ["system"]
