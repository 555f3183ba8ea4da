"""Explains the waits of a loop: measurements, a model, a verdict, advice and a report."""

from __future__ import annotations

from .advice import Advice
from .explanation import Explanation
from .verdict import Verdict

__all__ = ["Advice", "Explanation", "Verdict"]
