"""Displays for a user: a contact sheet of samples, a table of columns, a trace of batches."""

from __future__ import annotations

from .sheet import ContactSheet, show
from .table import ColumnSummary, Summary, summary
from .trace import trace

__all__ = ["ColumnSummary", "ContactSheet", "Summary", "show", "summary", "trace"]
