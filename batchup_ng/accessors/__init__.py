"""Array-likes over storage, one format a file."""

from .base import Accessor, gather
from .cached import Cached
from .crops import CenterCrop, RandomResizedCrop
from .image_bytes import ImageBytes
from .image_files import ImageFiles
from .map_style import MapStyle
from .ragged import Ragged
from .storage import (
    ArrowRows,
    FileBytes,
    Hdf5Rows,
    Hdf5Values,
    LmdbArray,
    LmdbRows,
    NpyRows,
    NpzRows,
    ParquetRows,
    SafetensorsRows,
    TarShards,
    TextLines,
    ZarrRows,
)
from .uint8_to_float32 import ImageArrayUInt8ToFloat32

__all__ = [
    "Accessor",
    "ArrowRows",
    "Cached",
    "CenterCrop",
    "FileBytes",
    "Hdf5Rows",
    "Hdf5Values",
    "ImageArrayUInt8ToFloat32",
    "ImageBytes",
    "ImageFiles",
    "LmdbArray",
    "LmdbRows",
    "MapStyle",
    "NpyRows",
    "NpzRows",
    "ParquetRows",
    "Ragged",
    "RandomResizedCrop",
    "SafetensorsRows",
    "TarShards",
    "TextLines",
    "ZarrRows",
    "gather",
]
