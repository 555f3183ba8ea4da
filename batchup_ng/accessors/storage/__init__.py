"""Rows in files that other programs wrote, one format a file."""

from .npy import NpyRows, NpzRows
from .tar import TarShards
from .text import TextLines

__all__ = ["NpyRows", "NpzRows", "TarShards", "TextLines"]
