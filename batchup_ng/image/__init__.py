"""The contents of BatchUp's ``batchup.image``, at the same import paths."""

from . import utils

__all__ = ["utils"]
