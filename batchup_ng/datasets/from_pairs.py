"""A source over images with masks of classes in files of the same names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..accessors.annotated_images import AnnotatedImages
from ..accessors.mask_files import MaskFiles
from ..accessors.packed_paths import PackedPaths
from ..errors import ArgumentError, ArgumentTypeError
from .annotated import ADVICE_ON_ANNOTATED_OPTIONS, files_below, folder, lines_of
from .files import FilesDataSource, FilesReport, named
from .from_folder import IMAGE_EXTENSIONS


@validation.known_names(ADVICE_ON_ANNOTATED_OPTIONS)
def from_pairs(
    images: str | os.PathLike[str], masks: str | os.PathLike[str], *, suffixes: tuple[str, str] = ("", ""),
    names: Iterable[str] | str | os.PathLike[str] | None = None, mask_dtype: Any = np.uint8, missing: str = "error",
) -> FilesDataSource:  # fmt: skip
    """Return a source of images with masks for segmentation: ``images/a.jpg`` with ``masks/a.png``.

    Batches are dicts. Images and masks keep their own size, so both are lists with an item for each image:

    - ``"image"``: ``(height, width, 3) uint8``.
    - ``"mask"``: ``(height, width)`` of `mask_dtype`: the numbers in the file, which are palette numbers or grey
      levels. Colours of a palette do not count. Grey levels of 1, 2 or 4 bits are 0 to 1, 3 or 15. Masks are lossless
      files: PNG, GIF, BMP, PGM or TIFF.
    - ``"image_id"``: the path of the image below its folder, without ending and suffix.

    A pair has the same path below the two folders, without the endings. Pairs are sorted by it. Both folders may be the
    same if the suffixes differ, and one may lie in the other. Images and masks are turned upright by their EXIF
    orientation. The function lists the folders and opens no file. To resize images and masks together, map an
    operation::

        chain = augment.compose(augment.resize(256), augment.flip(), masks="mask")
        train = bu.from_pairs("images", "masks").map(chain, rng="sample")

    Args:
        images: The folder of the images.
        masks: The folder of the masks.
        suffixes: Ends of the names of images and of masks, before the endings. Others are not read. For Cityscapes:
            ``("_leftImg8bit", "_gtFine_labelIds")``.
        names: The pairs to read and their order, as in ``"image_id"``: a list, or a text file with one a line, such as
            ``"VOC2012/ImageSets/Segmentation/train.txt"``.
        mask_dtype: An integer dtype that holds all numbers in the masks.
        missing: Action on images without a mask, and masks without an image: ``"error"``, or ``"skip"``, which leaves
            them out and lists them in ``source.report``.

    Raises:
        ArgumentError: there is no such folder, no pair, or no pair of a name in `names`; an image or a mask is alone,
            or two files have the same name but another ending. If a mask is a JPEG, counts 0 as white (PBM, some TIFF),
            has colours, has numbers that `mask_dtype` cannot hold, or is not as high and wide as its image, the pair
            fails when it is read, with a :class:`~batchup_ng.SampleReadError`.
        ArgumentTypeError: `mask_dtype` is no integer dtype, or `suffixes` no pair of texts.
    """
    dtype = _integers(mask_dtype)
    if not isinstance(suffixes, (tuple, list)) or [type(each) for each in suffixes] != [str, str]:
        raise ArgumentTypeError(
            f"suffixes must be two texts, of images and of masks, not {suffixes!r}; pass ('', '_mask')"
        )
    validation.one_of("missing", missing, ("error", "skip"))
    pictures, labels = _by_name("images", images, suffixes, masks), _by_name("masks", masks, suffixes[::-1], images)
    alone = {
        "an image without a mask": [pictures[name] for name in sorted(set(pictures).difference(labels))],
        "a mask without an image": [labels[name] for name in sorted(set(labels).difference(pictures))],
    }
    ids = sorted(set(pictures).intersection(labels))
    if names is not None:
        ids, alone = _chosen(names, set(ids)), {}
    if not ids:
        raise ArgumentError(
            f"images must hold an image with the name of a mask, and none of the {len(pictures):,} in "
            f"{os.fspath(images)!r} has one in {os.fspath(masks)!r}; pass suffixes= if their names end otherwise"
        )
    skipped = {why: PackedPaths(paths) for why, paths in alone.items() if paths}
    if skipped and missing == "error":
        told = "; ".join(f"{why}: {named(paths)}" for why, paths in skipped.items())
        raise ArgumentError(
            f"missing: each image must have a mask, and each mask an image, but there is {told}; add the others, or "
            f"pass missing='skip' or names="
        )
    report = FilesReport(os.fspath(images), len(ids), {}, skipped, unit="image")
    of_classes = MaskFiles([labels[name] for name in ids], dtype)
    columns = {
        "image": AnnotatedImages([pictures[name] for name in ids], of_classes),
        "mask": of_classes,
        "image_id": ids,
    }
    return FilesDataSource(list(columns.values()), report, {}, tuple(columns))


def _integers(dtype: Any) -> np.dtype[Any]:
    """Return an integer dtype."""
    try:
        known: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        known = np.dtype(object)
    if known.kind not in "iu":
        raise ArgumentTypeError(f"mask_dtype must be an integer dtype, not {dtype!r}; pass 'uint8' or 'int32'")
    return known


def _by_name(argument: str, root: Any, suffixes: Sequence[str], other: Any) -> dict[str, str]:
    """Return the files below a folder by their path there, without ending and suffix.

    Args:
        argument: The name of the argument, for errors.
        root: The folder.
        suffixes: The ends of the names of its files, and of the files of the `other` folder, which may be the same, or
            lie in this one.
        other: The other folder.
    """
    own, others = suffixes
    root = folder(argument, root)
    way = os.path.relpath(os.path.realpath(other), os.path.realpath(root))
    shared, within = way == os.curdir, os.path.join(way, "")
    found: dict[str, str] = {}
    for stem, path in files_below(root, IMAGE_EXTENSIONS):
        of_other = stem.startswith(within) or (shared and len(others) > len(own) and stem.endswith(others))
        if of_other or not stem.endswith(own):
            continue
        name = stem.removesuffix(own)
        if name in found:
            raise ArgumentError(f"{argument} must have one file of a name, not {found[name]!r}, {path!r}; move one")
        found[name] = path
    return found


def _chosen(names: Any, known: set[str]) -> list[str]:
    """Return the names that the user chose."""
    if not isinstance(names, (str, os.PathLike, Iterable)):
        raise ArgumentTypeError(f"names must be names of pairs, or a file with one a line, not {names!r}; pass a list")
    chosen = list(lines_of(names).values() if isinstance(names, (str, os.PathLike)) else names)
    if absent := [name for name in chosen if name not in known]:
        raise ArgumentError(
            f"names must be names of pairs, and {absent[:10]} are not: an image or a mask is missing; names have no "
            f"ending"
        )
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ArgumentError(f"names must name each pair once, and at least one, not {chosen!r:.100}")
    return chosen
