"""Sources over what people have: folders and tables of images, annotated images, files of rows."""

from .files import FilesDataSource, FilesReport
from .from_coco import from_coco
from .from_csv import from_csv
from .from_file import from_file
from .from_folder import from_folder
from .from_pairs import from_pairs
from .from_table import from_table
from .from_voc import from_voc
from .from_yolo import from_yolo

__all__ = [
    "FilesDataSource",
    "FilesReport",
    "from_coco",
    "from_csv",
    "from_file",
    "from_folder",
    "from_pairs",
    "from_table",
    "from_voc",
    "from_yolo",
]
