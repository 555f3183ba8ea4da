"""Writers of rows in the file formats of other programs, one format a file."""

from .conversion import Converted, convert

__all__ = ["Converted", "convert"]
