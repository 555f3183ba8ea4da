"""Displays for a user: sheets of samples, tables of columns, traces, bars of epochs, and explanations of waits."""

from __future__ import annotations

from .explain import explain
from .progress import progress
from .sheet import ContactSheet, show
from .table import ColumnSummary, Summary, summary
from .trace import trace

__all__ = ["ColumnSummary", "ContactSheet", "Summary", "explain", "progress", "show", "summary", "trace"]
