"""Rows in files that other programs wrote, one format a file."""

from .npy import NpyRows, NpzRows

__all__ = ["NpyRows", "NpzRows"]
