"""Array-likes over storage, one format a file."""

from .base import Accessor, gather
from .image_files import ImageFiles
from .map_style import MapStyle
from .uint8_to_float32 import ImageArrayUInt8ToFloat32

__all__ = ["Accessor", "ImageArrayUInt8ToFloat32", "ImageFiles", "MapStyle", "gather"]
