"""Array-likes over storage, one format a file."""

from typing import TYPE_CHECKING

from ..lazy_names import on_first_use
from .base import Accessor, gather
from .cached import Cached
from .map_style import MapStyle
from .ragged import Ragged
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
    "TokenBlocks",
    "ZarrRows",
    "gather",
]

if TYPE_CHECKING:
    from .crops import CenterCrop, RandomResizedCrop
    from .image_bytes import ImageBytes
    from .image_files import ImageFiles
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
    from .token_blocks import TokenBlocks
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".crops": ["CenterCrop", "RandomResizedCrop"],
            ".image_bytes": ["ImageBytes"],
            ".image_files": ["ImageFiles"],
            ".storage": [
                "ArrowRows", "FileBytes", "Hdf5Rows", "Hdf5Values", "LmdbArray", "LmdbRows", "NpyRows", "NpzRows",
                "ParquetRows", "SafetensorsRows", "TarShards", "TextLines", "ZarrRows",
            ],
            ".token_blocks": ["TokenBlocks"],
        },
    )
