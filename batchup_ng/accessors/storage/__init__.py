"""Rows in files that other programs wrote, one format a file."""

from .arrow import ArrowRows
from .file_bytes import FileBytes
from .hdf5 import Hdf5Rows, Hdf5Values
from .lmdb import LmdbArray, LmdbRows
from .npy import NpyRows, NpzRows
from .parquet import ParquetRows
from .safetensors import SafetensorsRows
from .tar import TarShards
from .text import TextLines
from .zarr import ZarrRows

__all__ = [
    "ArrowRows",
    "FileBytes",
    "Hdf5Rows",
    "Hdf5Values",
    "LmdbArray",
    "LmdbRows",
    "NpyRows",
    "NpzRows",
    "ParquetRows",
    "SafetensorsRows",
    "TarShards",
    "TextLines",
    "ZarrRows",
]
