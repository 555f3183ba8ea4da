"""Writes the downloaded files of a standard data set as ``.npy`` files, or as folders of images.

A conversion gets the paths of the files, in the order of the table, and an empty folder. It writes
``PART_COLUMN.npy``: ``train_image.npy``, ``train_label.npy``. The caller moves the folder to its place when it is
complete, so a conversion may stop anywhere.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import class_names
from .parsing import (
    BLOCK_BYTES,
    checked_labels,
    cifar_rows,
    exactly,
    fold_rows,
    idx_rows,
    matlab_arrays,
    raw_rows,
    reading,
    tar_members,
    usps_rows,
    wanted_members,
    whole,
    zip_member,
)

Conversion: TypeAlias = Callable[[Sequence[str], str], None]
"""Called with the paths of the files and the folder of the results."""

PARTS = ("train", "test")


def write_rows(folder: str, name: str, dtype: Any, shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> None:
    """Write ``name.npy`` from blocks of rows."""
    with open(os.path.join(folder, f"{name}.npy"), "xb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        n = 0
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).data)
            n += len(block)
        assert n == shape[0]


def write_array(folder: str, name: str, array: np.ndarray) -> None:
    """Write ``name.npy``, without a copy of the whole array in another order."""
    step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    blocks = (array[start : start + step] for start in range(0, len(array), step))
    write_rows(folder, name, array.dtype, array.shape, blocks)


def convert_idx(paths: Sequence[str], folder: str, classes: Sequence[str]) -> None:
    """MNIST and its relatives: images and labels of the training part, then of the test part."""
    for part, images, labels in zip(PARTS, paths[::2], paths[1::2], strict=True):
        with reading(images), gzip.open(images) as stream:
            rows = idx_rows(stream, (28, 28))
            write_rows(folder, f"{part}_image", np.uint8, rows.shape, rows.blocks)
        with reading(labels), gzip.open(labels) as stream:
            numbers = checked_labels(whole(idx_rows(stream, ())), rows.shape[0], len(classes))
        write_array(folder, f"{part}_label", numbers)


def convert_emnist(paths: Sequence[str], folder: str, split: str) -> None:
    """A split of EMNIST, whose images lie in the file with rows and columns exchanged."""
    (path,) = paths
    classes, first = class_names.EMNIST[split], 1 if split == "letters" else 0
    for part in PARTS:
        prefix = f"gzip/emnist-{split}-{part}"
        with reading(path):
            with zip_member(path, f"{prefix}-images-idx3-ubyte.gz") as stream:
                rows = idx_rows(stream, (28, 28))
                upright = (block.transpose(0, 2, 1) for block in rows.blocks)
                write_rows(folder, f"{part}_image", np.uint8, rows.shape, upright)
            with zip_member(path, f"{prefix}-labels-idx1-ubyte.gz") as stream:
                numbers = checked_labels(whole(idx_rows(stream, ())), rows.shape[0], len(classes), first)
            write_array(folder, f"{part}_label", numbers)


def convert_cifar(
    paths: Sequence[str], folder: str, members: Mapping[str, Sequence[str]], labels: Mapping[str, int]
) -> None:
    """CIFAR-10 or CIFAR-100.

    Args:
        paths: The archive.
        folder: Where to write.
        members: The files of each part in the archive, in their order.
        labels: The columns of labels in the order of their bytes, with their numbers of classes.
    """
    (path,) = paths
    with reading(path):
        wanted = [name for names in members.values() for name in names]
        contents = {name: exactly(stream, size) for name, stream, size in wanted_members(path, wanted)}
        for part, names in members.items():
            parsed = [cifar_rows(contents[name], len(labels)) for name in names]
            images, numbers = (np.concatenate(columns) for columns in zip(*parsed, strict=True))
            write_array(folder, f"{part}_image", images)
            for column, (label, n_classes) in enumerate(labels.items()):
                write_array(folder, f"{part}_{label}", checked_labels(numbers[:, column], len(images), n_classes))


def convert_svhn(paths: Sequence[str], folder: str, parts: Sequence[str]) -> None:
    """The cropped digits of SVHN. Digit 0 has label 10 in the files."""
    for part, path in zip(parts, paths, strict=True):
        with reading(path):
            images, labels = matlab_arrays(path)
            numbers = checked_labels(labels, images.shape[3], 10, 1)
        write_array(folder, f"{part}_image", images.transpose(3, 0, 1, 2))
        write_array(folder, f"{part}_label", (numbers + 1) % 10)
        del images


def convert_stl10(paths: Sequence[str], folder: str) -> None:
    """STL-10, whose images lie in the file plane by plane and column by column."""
    (path,) = paths
    inside = "stl10_binary/"
    small = [f"{inside}{name}" for name in ("train_y.bin", "test_y.bin", "fold_indices.txt")]
    large = {f"{inside}{part}_X.bin": part for part in (*PARTS, "unlabeled")}
    contents, counts = {}, {}
    with reading(path):
        for name, stream, size in wanted_members(path, [*small, *large]):
            if name in small:
                contents[name] = exactly(stream, size)
                continue
            rows = raw_rows(stream, size, (3, 96, 96))
            counts[large[name]] = n = rows.shape[0]
            upright = (block.transpose(0, 3, 2, 1) for block in rows.blocks)
            write_rows(folder, f"{large[name]}_image", np.uint8, (n, 96, 96, 3), upright)
        for part in PARTS:
            labels = np.frombuffer(contents[f"{inside}{part}_y.bin"], np.uint8)
            write_array(folder, f"{part}_label", checked_labels(labels, counts[part], len(class_names.STL10), 1))
        write_array(folder, "folds", fold_rows(contents[f"{inside}fold_indices.txt"], counts["train"]))


def convert_usps(paths: Sequence[str], folder: str) -> None:
    """USPS."""
    for part, path in zip(PARTS, paths, strict=True):
        with reading(path):
            images, labels = usps_rows(_unpacked(path).splitlines())
            numbers = checked_labels(labels, len(images), 10, 1)
        write_array(folder, f"{part}_image", images)
        write_array(folder, f"{part}_label", numbers)


def _unpacked(path: str) -> bytes:
    with open(path, "rb") as file:
        packed = file.read()
    try:
        return bz2.decompress(packed)
    except OSError as error:
        raise ValueError(str(error)) from error


IMAGENETTE_MEMBER = re.compile(r"imagenette2(?:-\d+)?/(train|val)/(n\d{8})/([\w-]+\.JPEG)", re.ASCII)
"""The images of Imagenette in its archive. Nothing else is extracted."""


def convert_imagenette(paths: Sequence[str], folder: str) -> None:
    """Imagenette: a folder of images for each class, named by its WordNet ID as in the archive."""
    (path,) = paths
    found: set[str] = set()
    with reading(path):
        for part in PARTS:
            for name in class_names.IMAGENETTE:
                os.makedirs(os.path.join(folder, part, name))
        for name, stream, _ in tar_members(path):
            match = IMAGENETTE_MEMBER.fullmatch(name)
            if match is None:
                if ".." in name.split("/") or name.startswith("/"):
                    raise ValueError(f"it has a file {name!r}, which would lie outside of the folder")
                continue
            if match[2] not in class_names.IMAGENETTE:
                raise ValueError(f"it has a folder {match[2]!r}, which is no class of Imagenette")
            part = "train" if match[1] == "train" else "test"
            target = os.path.join(folder, part, match[2], match[3])
            if target in found:
                raise ValueError(f"it has {name!r} twice")
            found.add(target)
            with open(target, "xb") as file:
                shutil.copyfileobj(stream, file)
        for part in PARTS:
            if not any(os.listdir(os.path.join(folder, part, name)) for name in class_names.IMAGENETTE):
                raise ValueError("it lacks images of 'train' or 'val'")


def _conversions() -> Iterator[tuple[str, str, Conversion]]:
    """Yield the name of each set, of the download that it is made of, and its conversion."""
    for name, classes in (
        ("mnist", class_names.DIGITS), ("fashion_mnist", class_names.FASHION), ("kmnist", class_names.KUZUSHIJI)
    ):  # fmt: skip
        yield name, name, functools.partial(convert_idx, classes=classes)
    for split in class_names.EMNIST:
        yield f"emnist-{split}", "emnist", functools.partial(convert_emnist, split=split)
    inside = "cifar-10-batches-bin/"
    members = {"train": [f"{inside}data_batch_{i}.bin" for i in range(1, 6)], "test": [f"{inside}test_batch.bin"]}
    yield "cifar10", "cifar10", functools.partial(convert_cifar, members=members, labels={"label": 10})
    members = {part: [f"cifar-100-binary/{part}.bin"] for part in PARTS}
    labels = {"coarse_label": len(class_names.CIFAR100_COARSE), "label": len(class_names.CIFAR100)}
    yield "cifar100", "cifar100", functools.partial(convert_cifar, members=members, labels=labels)
    yield "svhn", "svhn", functools.partial(convert_svhn, parts=PARTS)
    yield "svhn-extra", "svhn-extra", functools.partial(convert_svhn, parts=("extra",))
    yield "stl10", "stl10", convert_stl10
    yield "usps", "usps", convert_usps
    for size in ("160", "320", "full"):
        yield f"imagenette-{size}", f"imagenette-{size}", convert_imagenette


CONVERSIONS = {name: (download, conversion) for name, download, conversion in _conversions()}
"""The download and the conversion of each set, by the name of its folder."""
