"""Displays for a user: a contact sheet of samples, a table of columns, a trace of batches, what a loop waits for."""

from __future__ import annotations

from .explain import explain
from .sheet import ContactSheet, show
from .table import ColumnSummary, Summary, summary
from .trace import trace

__all__ = ["ColumnSummary", "ContactSheet", "Summary", "explain", "show", "summary", "trace"]
