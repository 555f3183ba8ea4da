"""A source over images with boxes in text files, as YOLO networks are trained on."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..accessors.image_decoding import upright_size
from ..accessors.storage.open_file import regular
from ..augment.boxes import box_convert
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError
from .annotated import ADVICE_ON_ANNOTATED_OPTIONS, Objects, by_stem, folder, lines_of
from .files import FilesDataSource, checked_class_names, named
from .from_folder import IMAGE_EXTENSIONS

MAX_PIXELS = 89_478_485
"""Most pixels of an image, as for ``ImageFiles``."""

LISTS_OF_CLASSES = ("data.yaml", "dataset.yaml", "classes.txt", "obj.names")
"""Names of files with the names of the classes, in the order in which they are looked for."""

OTHER_LABELS = (
    "; polygons, keypoints and confidences are not read here: keep the first five numbers of a line with keypoints or "
    "a confidence, write the box around a polygon, or pass COCO JSON to from_coco(masks=True, keypoints=True)"
)
"""The remedy for labels of other tasks."""

ROUNDING = 1e-3
"""By how much a share may exceed 1."""


@validation.known_names(ADVICE_ON_ANNOTATED_OPTIONS)
def from_yolo(
    root: str | os.PathLike[str], split: str | None = None, *,
    class_names: Sequence[str] | str | os.PathLike[str] | None = None,
) -> FilesDataSource:  # fmt: skip
    """Return a source of images with boxes in text files: ``images/a.jpg`` with ``labels/a.txt``.

    A line of a label file is an object: ``class x y width height``, the number of its class, from 0, and its centre and
    size as shares of the width and height of the upright image. Lines with more numbers, for segmentation and pose, are
    refused. Batches are dicts. Images keep their own size, so they and the annotations are lists with an item for each
    image:

    - ``"image"``: ``(height, width, 3) uint8``.
    - ``"boxes"``: ``(k, 4) float32``, left, top, right, bottom, in pixels of the upright image.
    - ``"labels"``: ``(k,) int64``, the numbers in the files. ``source.class_names`` has the names.
    - ``"image_id"``: the path of the image below its folder, without its ending.

    As in Ultralytics, an image without a label file, or with an empty one, has no objects. A label file without an
    image is left out; ``source.report`` lists these. Boxes are cut to their image; an object whose box has no area
    there is left out and listed, too. Images are sorted by ``"image_id"``, and may lie in folders below.

    The function reads all label files, and the header of each image, which has the size that shares are of: about 1 ms
    an image with 7 boxes, on a local disk. Images are decoded later. :func:`from_coco` shows how to resize them with
    their boxes.

    Args:
        root: The folder with ``images`` and ``labels``.
        split: The part to read: ``"train"`` for ``images/train`` and ``labels/train``, or ``train/images`` and
            ``train/labels``. None for all images in ``images``.
        class_names: The names of the classes in the order of their numbers, or a file with them: YAML with ``names``
            (needs PyYAML: extra ``images``), or text with one a line. Default: ``data.yaml``, ``dataset.yaml``,
            ``classes.txt`` or ``obj.names`` in `root`, or ``classes.txt`` among the labels. Only ``names`` of a YAML
            file count, not ``path``, ``train`` or ``val``.

    Raises:
        ArgumentError: there is no such folder, no image, no label file, or no list of classes; two images differ only
            in their endings; a line of a label file has not five numbers, a class without a name, or shares that are
            not from 0 to 1; the header of an image cannot be read. The error names the file and the line.
        ArgumentTypeError: ``names`` are no texts.
        ModuleNotFoundError: PyYAML is not installed, and the classes are in a YAML file.
        OSError: a file cannot be read.
    """
    pictures, texts = _folders(os.fspath(root), split)
    found = by_stem("root", pictures, IMAGE_EXTENSIONS)
    if not found:
        raise ArgumentError(f"root must hold images, and {pictures!r} has none; pass another folder or split")
    labels_of = by_stem("root", texts, ".txt")
    if "classes" not in found:
        labels_of.pop("classes", None)  # the names of the classes
    ids = sorted(found)
    paths = [found[stem] for stem in ids]
    unused = [labels_of[stem] for stem in sorted(set(labels_of).difference(ids))]
    if len(unused) == len(labels_of):
        raise ArgumentError(
            f"root must hold a label file for an image, and none of the {len(labels_of):,} in {texts!r} has the name "
            f"of one in {pictures!r}; pass another folder or split"
        )
    names = _class_names(os.fspath(root), texts, class_names)
    image, labels, shares, lines = [], [], [], []
    for row, stem in enumerate(ids):
        if stem in labels_of:
            for number, line in lines_of(labels_of[stem]).items():
                label, share = _object(line, number, labels_of[stem], len(names))
                image.append(row)
                labels.append(label)
                shares.append(share)
                lines.append(number)
    sizes = _sizes(paths)
    rows = np.array(image, np.int64)
    corners = box_convert(np.array(shares, np.float64).reshape(-1, 4), "cxcywh", "xyxy")
    objects = Objects(corners * sizes[rows][:, [1, 0, 1, 0]], image, sizes)
    return objects.source(
        pictures, paths, ids, sizes, labels, names, {},
        lambda place: f"line {lines[place]} of {labels_of[ids[image[place]]]}",
        {"a label file without an image": unused} if unused else {},
    )  # fmt: skip


def _folders(root: str, split: str | None) -> tuple[str, str]:
    """Return the folders of images and of label files."""
    if os.path.isfile(root):
        raise ArgumentError(f"root must be the folder with images and labels, not the file {root!r}; pass its folder")
    images = os.path.join(root, "images")
    parts = [name for name in _subfolders(root) if os.path.isdir(os.path.join(root, name, "images"))]
    if split is None:
        if parts and not os.path.isdir(images):
            raise ArgumentError(
                f"split must be given, one of {', '.join(map(repr, parts))}, for {root!r} has no folder 'images'"
            )
        return folder("root", root, "images"), folder("root", root, "labels")
    if split in parts:
        return folder("root", root, split, "images"), folder("root", root, split, "labels")
    if not os.path.isdir(os.path.join(images, split)) and (known := [*parts, *_subfolders(images)]):
        validation.one_of("split", split, known)
    return folder("split", root, "images", split), folder("split", root, "labels", split)


def _subfolders(root: str) -> list[str]:
    """Return the names of the folders in a folder, sorted; none if it does not exist."""
    names = os.listdir(root) if os.path.isdir(root) else []
    return sorted(name for name in names if os.path.isdir(os.path.join(root, name)))


def _object(line: str, number: int, path: str, n_classes: int) -> tuple[int, list[float]]:
    """Return the class and the shares of a line."""
    where, fields = f"root: line {number} of {path!r}", line.split()
    if len(fields) != 5:
        more = OTHER_LABELS if len(fields) > 5 else ""
        raise ArgumentError(
            f"{where} must have five numbers, class x y width height, not {len(fields)}: {line!r:.100}{more}"
        )
    try:
        label, *shares = map(float, fields)
    except ValueError:
        raise ArgumentError(f"{where} must have five numbers, class x y width height, not {line!r:.100}") from None
    if not (label.is_integer() and 0 <= label < n_classes):
        raise ArgumentError(f"{where} must begin with a class from 0 to {n_classes - 1}, not {fields[0]!r:.100}")
    if not all(math.isfinite(each) and 0 <= each <= 1 + ROUNDING for each in shares):
        raise ArgumentError(
            f"{where} must have a centre, width and height from 0 to 1, not {line!r:.100}; divide pixels by the width "
            f"and height of the image"
        )
    return int(label), shares


def _sizes(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of each upright image, by its header: ``(n, 2) int64``."""
    sizes, broken, reasons = np.zeros((len(paths), 2), np.int64), [], []
    for row, path in enumerate(paths):
        try:
            regular(path)
            with open(path, "rb") as file:
                sizes[row] = upright_size(file, MAX_PIXELS)
        except Exception as error:  # Pillow may raise anything for a broken file
            raise_if_of_signal_handler(error)
            broken.append(path)
            reasons.append(str(error))
    if broken:
        raise ArgumentError(
            f"root must hold images that can be read, and the headers of {named(broken)} cannot ({reasons[0]:.200}); "
            f"replace or remove these files"
        )
    return sizes


def _class_names(root: str, texts: str, given: Any) -> tuple[str, ...]:
    """Return the names of the classes, out of a list or a file."""
    if given is None:
        places = [*[os.path.join(root, name) for name in LISTS_OF_CLASSES], os.path.join(texts, "classes.txt")]
        given = next(filter(os.path.isfile, places), None)
        if given is None:
            raise ArgumentError(
                f"class_names must be given, for {root!r} has none of {', '.join(LISTS_OF_CLASSES)}; pass a list of "
                f"names, or the path of such a file"
            )
    if not isinstance(given, (str, os.PathLike)):
        return checked_class_names(given)
    path = os.fspath(given)
    return checked_class_names(
        _names_in_yaml(path) if path.lower().endswith((".yaml", ".yml")) else list(lines_of(path).values())
    )


def _names_in_yaml(path: str) -> list[str]:
    """Return the names in a YAML file, a list or a mapping from numbers."""
    try:
        import yaml
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path!r} is read by PyYAML, which is not installed: pip install 'batchup_ng[images]'; class_names=[...] "
            f"needs nothing"
        ) from error
    with open(path, "rb") as file:
        try:
            content = yaml.safe_load(file)
        except yaml.YAMLError as error:
            told = " ".join(str(error).split())
            raise ArgumentError(f"class_names: {path!r} must be a YAML file: {told:.300}; correct it") from None
    names = content.get("names") if isinstance(content, Mapping) else None
    if isinstance(names, Mapping) and sorted(names) == list(range(len(names))):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list):
        raise ArgumentTypeError(
            f"class_names: 'names' of {path!r} must be a list, or a mapping from 0, 1, 2 and so on, not {names!r:.80}"
        )
    if odd := [name for name in names if type(name) not in (str, int)]:
        raise ArgumentTypeError(
            f"class_names: 'names' of {path!r} must be texts, and YAML reads {odd[:10]} otherwise; put them in quotes"
        )
    return [str(name) for name in names]
