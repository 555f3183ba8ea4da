"""Sources over what people have: folders and tables of images, annotated images, files of rows; standard data sets."""

from typing import TYPE_CHECKING

from ..lazy_names import on_first_use
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
    "StandardSet",
    "Stl10",
    "Svhn",
    "cifar10",
    "cifar100",
    "emnist",
    "fashion_mnist",
    "from_coco",
    "from_csv",
    "from_file",
    "from_folder",
    "from_pairs",
    "from_table",
    "from_voc",
    "from_yolo",
    "imagenette",
    "kmnist",
    "mnist",
    "stl10",
    "svhn",
    "usps",
]

if TYPE_CHECKING:
    from .standard.sets import (
        StandardSet,
        Stl10,
        Svhn,
        cifar10,
        cifar100,
        emnist,
        fashion_mnist,
        imagenette,
        kmnist,
        mnist,
        stl10,
        svhn,
        usps,
    )
else:  # few programs need them, and they import tarfile and zipfile
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".standard.sets": [
                "StandardSet", "Stl10", "Svhn", "cifar10", "cifar100", "emnist", "fashion_mnist", "imagenette",
                "kmnist", "mnist", "stl10", "svhn", "usps",
            ],
        },
    )  # fmt: skip
