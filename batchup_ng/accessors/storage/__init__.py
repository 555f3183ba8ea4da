"""Rows in files that other programs wrote, one format a file."""

from .lmdb import LmdbArray, LmdbRows
from .npy import NpyRows, NpzRows
from .safetensors import SafetensorsRows
from .tar import TarShards
from .text import TextLines

__all__ = ["LmdbArray", "LmdbRows", "NpyRows", "NpzRows", "SafetensorsRows", "TarShards", "TextLines"]
