"""Explains what a loop waits for: the evidence, a model of it, a verdict, advice, and a report of all that."""

from __future__ import annotations

from .advice import Advice
from .explanation import Explanation
from .verdict import Verdict

__all__ = ["Advice", "Explanation", "Verdict"]
