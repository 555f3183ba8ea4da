"""BatchUp's import path for the accessor that reads bytes as floating point numbers."""

from ..accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32

__all__ = ["ImageArrayUInt8ToFloat32"]
