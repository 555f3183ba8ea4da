"""Rows written as files of other programs have them, one format a file."""

from .conversion import Converted, convert

__all__ = ["Converted", "convert"]
