"""Array-likes over storage, one format a file."""

from .base import Accessor, gather
from .crops import CenterCrop, RandomResizedCrop
from .image_bytes import ImageBytes
from .image_files import ImageFiles
from .map_style import MapStyle
from .uint8_to_float32 import ImageArrayUInt8ToFloat32

__all__ = [
    "Accessor",
    "CenterCrop",
    "ImageArrayUInt8ToFloat32",
    "ImageBytes",
    "ImageFiles",
    "MapStyle",
    "RandomResizedCrop",
    "gather",
]
