"""Displays for a user: sheets of samples, tables, traces, bars of epochs, explanations; figures for a monitor."""

from __future__ import annotations

from .explain import explain
from .openmetrics import openmetrics
from .progress import progress
from .sheet import ContactSheet, show
from .table import ColumnSummary, Summary, summary
from .trace import trace

__all__ = ["ColumnSummary", "ContactSheet", "Summary", "explain", "openmetrics", "progress", "show", "summary", "trace"]
