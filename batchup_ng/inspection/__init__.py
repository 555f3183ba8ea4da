"""Descriptions of the contents of a path: the pages of ``python -m batchup_ng inspect PATH``."""

from .pictures import pictures_page, source_at
from .stored import stored_page

__all__ = ["pictures_page", "source_at", "stored_page"]
