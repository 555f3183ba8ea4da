"""The standard data sets as sources."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...accessors.storage.npy import NpyRows
from ...data_source.array import ArrayDataSource
from ...error_context import raise_if_of_signal_handler
from ...errors import ArgumentError, SampleReadError
from ...graph.arrays import ArraysNode
from ...validation import known_names
from ..files import NAMED_COLUMNS, FilesDataSource
from ..from_folder import from_folder
from . import class_names, table
from .converting import CONVERSIONS, PARTS
from .fetching import in_words
from .keeping import PathLike, folder_of, kept, root_of

Progress: TypeAlias = "bool | Callable[..., Any]"

PLACES = {name: place for place, name in enumerate(NAMED_COLUMNS)}
"""The names of the columns of a batch."""

IMAGENETTE_SIZES = {160: "160", 320: "320", None: "full"}

ADVICE = {
    "root": "the folder of all data sets is path=",
    "download": "a set that is not there is downloaded",
    "train": "the result has both parts, as .train and .test",
    **dict.fromkeys(
        ["transform", "target_transform"], "map the batches: mnist().train.map(fn), or augment: bu.augment"
    ),
    **dict.fromkeys(["n_val", "n_val_folds"], "choose rows: train.subset(range(50_000)), train.subset(set.folds[0])"),
    **dict.fromkeys(["val_lower", "val_upper"], "images are uint8: ImageArrayUInt8ToFloat32, or augment.Normalize"),
}
"""Remedies for options of BatchUp and torchvision."""


class LabelRows(NpyRows):
    """The numbers of classes in an ``.npy`` file, with the names of the classes.

    Attributes:
        class_names: The names in the order of the numbers.
    """

    takes_urls = False

    def __init__(self, path: str, class_names: Sequence[str]) -> None:
        self.class_names = tuple(class_names)
        super().__init__(path)


@dataclass(frozen=True, eq=False)
class StandardSet:
    """A standard data set on this machine.

    Attributes:
        name: The name of its folder: ``"mnist"``, ``"emnist-letters"``.
        folder: The folder with its files.
        train: The training part. Batches are ``(images, labels)``; the columns are called ``"image"`` and ``"label"``.
        test: The test part.
        classes: The names of the classes in the order of their numbers.
    """

    name: str
    folder: str
    train: ArrayDataSource
    test: ArrayDataSource
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        parts = {name: part for name, part in vars(self).items() if isinstance(part, ArrayDataSource)}
        lengths = ", ".join(f"{name}: {len(part.data[0]):,}" for name, part in parts.items())
        return f"<{self.name}: {lengths} samples of {len(self.classes)} classes>"


@dataclass(frozen=True, repr=False, eq=False)
class Svhn(StandardSet):
    """SVHN.

    Attributes:
        extra: The additional training part; None if it was not asked for.
    """

    extra: ArrayDataSource | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Stl10(StandardSet):
    """STL-10.

    Attributes:
        unlabeled: The images without labels. Batches are ``(images,)``.
        folds: The rows of `train` in each of the predefined folds: ``(10, 1000) int64``.
    """

    unlabeled: ArrayDataSource
    folds: np.ndarray


@known_names(ADVICE)
def mnist(path: PathLike = None, *, progress: Progress = True) -> StandardSet:
    """Return MNIST: ``images: (n, 28, 28) uint8``, ``labels: (n,) int64``; 60,000 training and 10,000 test samples.

    The first call downloads the files and converts them to ``.npy`` files. Later calls make no request. Nothing is read
    until batches are made. All functions for standard data sets work like this one.

    Args:
        path: The folder of all data sets. Default: the environment variable ``BATCHUP_NG_DATA``, or
            ``pooch.os_cache("batchup_ng")``.
        progress: Whether to show a bar for each download in a terminal if tqdm is installed; or a function like
            ``tqdm.tqdm``.

    Raises:
        DownloadError: no mirror has sent a file. The same call continues the download.
        ImportError: pooch is needed and not installed (extra ``datasets``).
        SampleReadError: a file is damaged.
        WriteError: the folder cannot be written to, or the disk is full. The same call continues.
    """
    return _of_arrays("mnist", path, progress, class_names.DIGITS)


@known_names(ADVICE)
def fashion_mnist(path: PathLike = None, *, progress: Progress = True) -> StandardSet:
    """Return Fashion-MNIST, 10 kinds of clothes: shapes, dtypes and numbers of samples are as in :func:`mnist`."""
    return _of_arrays("fashion_mnist", path, progress, class_names.FASHION)


@known_names(ADVICE)
def kmnist(path: PathLike = None, *, progress: Progress = True) -> StandardSet:
    """Return Kuzushiji-MNIST, 10 cursive characters: shapes, dtypes and numbers of samples are as in :func:`mnist`."""
    return _of_arrays("kmnist", path, progress, class_names.KUZUSHIJI)


@known_names(ADVICE)
def emnist(path: PathLike = None, *, split: str = "balanced", progress: Progress = True) -> StandardSet:
    """Return a split of EMNIST, digits and letters: ``images: (n, 28, 28) uint8``, ``labels: (n,) int64``.

    The images are upright; in the files, rows and columns are exchanged. The labels of ``"letters"`` are 0 to 25; in
    the files, 1 to 26. The archive of 562 MB is kept for the other splits.

    Args:
        path: As for :func:`mnist`.
        split: ``"balanced"`` (47 classes), ``"byclass"`` (62), ``"bymerge"`` (47), ``"digits"``, ``"letters"`` (26) or
            ``"mnist"``.
        progress: As for :func:`mnist`.

    Raises:
        ArgumentError: there is no such split.
    """
    if split not in class_names.EMNIST:
        raise ArgumentError(f"split must be one of {', '.join(class_names.EMNIST)}, not {split!r:.80}")
    return _of_arrays(f"emnist-{split}", path, progress, class_names.EMNIST[split])


@known_names(ADVICE)
def cifar10(path: PathLike = None, *, progress: Progress = True) -> StandardSet:
    """Return CIFAR-10: ``images: (n, 32, 32, 3) uint8``, ``labels: (n,) int64``; 50,000 and 10,000 samples."""
    return _of_arrays("cifar10", path, progress, class_names.CIFAR10)


@known_names(ADVICE)
def cifar100(path: PathLike = None, *, coarse: bool = False, progress: Progress = True) -> StandardSet:
    """Return CIFAR-100: ``images: (n, 32, 32, 3) uint8``, ``labels: (n,) int64``; 50,000 and 10,000 samples.

    Args:
        path: As for :func:`mnist`.
        coarse: Whether the labels are the 20 superclasses instead of the 100 classes.
        progress: As for :func:`mnist`.
    """
    names = class_names.CIFAR100_COARSE if coarse else class_names.CIFAR100
    return _of_arrays("cifar100", path, progress, names, "coarse_label" if coarse else "label")


@known_names(ADVICE)
def svhn(path: PathLike = None, *, extra: bool = False, progress: Progress = True) -> Svhn:
    """Return the cropped digits of SVHN: ``images: (n, 32, 32, 3) uint8``, ``labels: (n,) int64``.

    There are 73,257 training, 26,032 test and 531,131 extra samples. Digit 0 has label 0; in the files, 10.

    Args:
        path: As for :func:`mnist`.
        extra: Whether to fetch the extra samples too: 1.3 GB. Their conversion needs 2 GB of memory.
        progress: As for :func:`mnist`.

    Raises:
        ImportError: SciPy, which reads the files, is not installed (extra ``datasets``).
    """
    base = _of_arrays("svhn", path, progress, class_names.DIGITS)
    more = _part(kept("svhn-extra", path, progress), "extra", class_names.DIGITS) if extra else None
    return Svhn(**vars(base), extra=more)


@known_names(ADVICE)
def stl10(path: PathLike = None, *, progress: Progress = True) -> Stl10:
    """Return STL-10: ``images: (n, 96, 96, 3) uint8``, ``labels: (n,) int64``.

    There are 5,000 training, 8,000 test and 100,000 unlabeled samples. Labels are 0 to 9; in the files, 1 to 10. The
    download has 2.6 GB, the folder 3.1 GB; both must have room while the set is made.
    """
    base = _of_arrays("stl10", path, progress, class_names.STL10)
    with _remedy(base.folder):
        folds = np.load(os.path.join(base.folder, "folds.npy"), allow_pickle=False)
    return Stl10(**vars(base), unlabeled=_part(base.folder, "unlabeled", None), folds=folds)


@known_names(ADVICE)
def usps(path: PathLike = None, *, progress: Progress = True) -> StandardSet:
    """Return USPS: ``images: (n, 16, 16) uint8``, ``labels: (n,) int64``; 7,291 training and 2,007 test samples.

    The values -1 to 1 of the files become 0 to 255, rounded down, as in torchvision.
    """
    return _of_arrays("usps", path, progress, class_names.DIGITS)


@known_names(ADVICE)
def imagenette(
    path: PathLike = None, *, size: int | None = 160, image_size: int | tuple[int, int] | None = None,
    progress: Progress = True,
) -> StandardSet:  # fmt: skip
    """Return Imagenette 2, 10 classes of ImageNet: JPEG files, read as by :func:`~batchup_ng.from_folder`.

    There are 9,469 training samples and 3,925 in ``test``, which the archive calls ``val``.

    Args:
        path: As for :func:`mnist`.
        size: Pixels of the shorter side in the files: 160 or 320; None for the full size.
        image_size: Size of the images in batches, as `size` of :class:`~batchup_ng.ImageFiles`. None for the size of
            each file; ``train.with_images(size=...)`` sets it later.
        progress: As for :func:`mnist`.

    Raises:
        ArgumentError: there is no such size.
    """
    if size not in IMAGENETTE_SIZES:
        raise ArgumentError(
            f"size must be 160, 320 or None, not {size!r:.80}: pixels of the files; image_size is for batches"
        )
    name = f"imagenette-{IMAGENETTE_SIZES[size]}"
    folder = kept(name, path, progress)
    classes = tuple(class_names.IMAGENETTE.values())
    train, test = (_of_images(os.path.join(folder, part), image_size, classes) for part in PARTS)
    return StandardSet(name, folder, train, test, classes)


def fetch(name: str, path: PathLike = None, progress: Progress = True) -> str:
    """Download and convert a data set if it is not there; return its folder. For the command line."""
    return kept(name, path, progress)


def listing(path: PathLike = None) -> str:
    """Return a table of all data sets: name, bytes of the download, folder if it is there. For the command line."""
    width = max(map(len, CONVERSIONS))
    lines = [f"in {root_of(path)}"]
    for name, (download, _) in CONVERSIONS.items():
        folder = folder_of(name, path)
        state = "there" if os.path.isdir(folder) else f"download of {in_words(table.FILES[download])}"
        lines.append(f"{name:{width}}  {state}")
    return "\n".join(lines)


def _of_arrays(
    name: str, path: PathLike, progress: Progress, classes: tuple[str, ...], label: str = "label"
) -> StandardSet:
    folder = kept(name, path, progress)
    train, test = (_part(folder, part, classes, label) for part in PARTS)
    return StandardSet(name, folder, train, test, classes)


def _part(folder: str, part: str, classes: tuple[str, ...] | None, label: str = "label") -> ArrayDataSource:
    """Return the source of a part."""
    with _remedy(folder):
        columns: list[Any] = [NpyRows(os.path.join(folder, f"{part}_image.npy"))]
        if classes is not None:
            columns.append(LabelRows(os.path.join(folder, f"{part}_{label}.npy"), classes))
        source = ArrayDataSource(columns)
    places = {name: place for name, place in PLACES.items() if place < len(columns)}
    source._show(ArraysNode(source.data, None, source.sampler, places=places))
    return source


def _of_images(folder: str, size: Any, classes: tuple[str, ...]) -> FilesDataSource:
    """Return the source of a folder of images whose subfolders are WordNet IDs, with readable class names."""
    found = from_folder(folder, size, class_names=list(class_names.IMAGENETTE))
    counts = dict(zip(classes, found.report.class_counts.values(), strict=True))
    return FilesDataSource(found.data, dataclasses.replace(found.report, class_counts=counts), PLACES)


@contextlib.contextmanager
def _remedy(folder: str) -> Iterator[None]:
    """Add the remedy to the error of a damaged file."""
    try:
        yield
    except (SampleReadError, FileNotFoundError, ValueError) as error:
        raise_if_of_signal_handler(error)
        told = f"{error}; remove the folder {folder!r} to have it made again"
        raise SampleReadError(told, getattr(error, "source", folder)) from error
