"""Rows in files that other programs wrote, one format a file."""

from typing import TYPE_CHECKING

from ...lazy_names import on_first_use

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

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".arrow": ["ArrowRows"],
            ".file_bytes": ["FileBytes"],
            ".hdf5": ["Hdf5Rows", "Hdf5Values"],
            ".lmdb": ["LmdbArray", "LmdbRows"],
            ".npy": ["NpyRows", "NpzRows"],
            ".parquet": ["ParquetRows"],
            ".safetensors": ["SafetensorsRows"],
            ".tar": ["TarShards"],
            ".text": ["TextLines"],
            ".zarr": ["ZarrRows"],
        },
    )
