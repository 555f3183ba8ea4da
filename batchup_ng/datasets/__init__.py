"""Sources over what people have: folders and tables of images, files of rows."""

from .files import FilesDataSource, FilesReport
from .from_csv import from_csv
from .from_file import from_file
from .from_folder import from_folder
from .from_table import from_table

__all__ = ["FilesDataSource", "FilesReport", "from_csv", "from_file", "from_folder", "from_table"]
