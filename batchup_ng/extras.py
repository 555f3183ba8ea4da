"""The libraries that extras of this package install."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def library(module: str, needs: str, extra: str) -> Any:
    """Import a library that is no dependency, and return its module.

    Args:
        module: The name of the module.
        needs: What needs it, in words: ``"HDF5 files need h5py"``.
        extra: The extra that installs it.

    Raises:
        ImportError: it is not installed, or cannot be imported. The message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{needs}: pip install 'batchup_ng[{extra}]' ({error})") from error
