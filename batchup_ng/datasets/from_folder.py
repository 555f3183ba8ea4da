"""A source over the images in a folder. Its subfolders are the classes."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from ..accessors.image_files import ImageFiles
from ..accessors.packed_paths import PackedPaths
from ..errors import ArgumentError, ArgumentTypeError
from ..validation import known_names, path_text
from .exclusion import excluded_paths, unmatched_paths
from .files import (
    ADVICE_ON_IMAGE_OPTIONS,
    NAMED_COLUMNS,
    FilesDataSource,
    FilesReport,
    Reader,
    checked_class_names,
    opened,
)

IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".jpe", ".jfif", ".apng", ".ppm", ".pgm",
    ".pbm", ".pnm", ".pfm", ".jp2", ".j2k", ".jpc", ".jpf", ".jpx", ".j2c", ".avif", ".avifs",
)  # fmt: skip
"""Endings of the images that :class:`~batchup_ng.ImageFiles` reads, from Pillow."""

MOST_WAYS = 1000
"""Maximum number of ways to one folder in a class. Each gives its images once more, and links may double the ways at
every level."""


@known_names(ADVICE_ON_IMAGE_OPTIONS)
def from_folder(
    root: str | os.PathLike[str], size: int | tuple[int, int] | None = None, *,
    class_names: Sequence[str] | None = None, exclude: str | os.PathLike[str] | Iterable[str] | None = None,
    extensions: str | Sequence[str] = IMAGE_EXTENSIONS, images: Reader = ImageFiles,
) -> FilesDataSource:  # fmt: skip
    """Return a source of the images below a folder, ``(images, labels)``. Each subfolder is a class.

    The classes are sorted by name and numbered from 0, ``labels: (n,) int64``. ``source.class_names`` has their names,
    and ``source.report`` a :class:`~batchup_ng.FilesReport`. A class includes the files in all folders below it. The
    order is as in torchvision's ``ImageFolder``: by class, by folder, by name. A class without images keeps its number.
    If the folder has no subfolders, the batch has only images, ``(images,)``.

    The report lists what is left out: names that begin with a dot (and the contents of such folders), names with
    another ending, files in `root` itself if there are classes, the exclusion list, entries that are neither file nor
    folder (a broken link, a pipe), and links to a folder that contains them. Other links are followed. If several ways
    lead to a folder, each gives its images once. This function opens no file and does not check sizes. A file that
    cannot be read fails when it is read; ``python -m batchup_ng inspect`` finds it before.

    Args:
        root: The folder. If it is relative, the paths in errors are relative too.
        size: Size of the images, as for :class:`~batchup_ng.ImageFiles`.
        class_names: The classes in the order of their numbers, such as those that the network was trained with. A class
            without a folder is no error. A folder that is not in the list is an error.
        exclude: Paths of images or of such lists, absolute or relative to the current folder; or a CSV file from
            :func:`~batchup_ng.write_errors`, whose relative paths are relative to its own folder. None leaves nothing
            out. A path that is no image here gives a :class:`~batchup_ng.SampleWarning`.
        extensions: Endings of the files to take, in lower case. They also match upper case.
        images: Makes the accessor. It is called with a sequence of paths, and with `size` if that is not None:
            ``functools.partial(ImageFiles, mode="L")``.

    Raises:
        ArgumentError: there is no such folder or no image in it, a folder is not in `class_names`, no path in
            `exclude` is an image here, or a class has more than 1,000 ways to one folder through links.
        OSError: a folder cannot be listed.
    """
    if isinstance(root, (list, tuple)):
        raise ArgumentTypeError(
            "root must be the path of one folder, not a list; read a list of files by ImageFiles(paths, size), and a "
            "table of files by from_table"
        )
    root = path_text("root", root)
    if not os.path.isdir(root):
        seen = "expand ~ by os.path.expanduser" if root.startswith("~") else f"seen from {os.getcwd()!r}"
        raise ArgumentError(f"root must be a folder that exists, not {root!r}; {seen}")
    walk = Walk(extensions if isinstance(extensions, str) else tuple(extensions), excluded_paths(exclude))
    folders, loose = walk.listed(root, (os.path.realpath(root),))
    if folders and loose:
        walk.skipped["in no class"] = [os.path.join(root, name) for name in loose]
    groups = (sorted(walk.below(path, way)) for _, path, way in folders) if folders else iter([[(root, loose)]])
    counts: list[int] = []
    paths = PackedPaths.of_folders(walk.kept(groups, counts))
    if not len(paths):
        why = ", ".join(f"{len(those)} {reason}" for reason, those in walk.skipped.items()) or "it is empty"
        raise ArgumentError(f"root must hold pictures, and {root!r} has none; left out: {why}")
    names = [name for name, _, _ in folders]
    classes = checked_class_names(names if class_names is None else class_names) if folders else ()
    if unknown := sorted(set(names).difference(classes)):
        raise ArgumentError(f"class_names must name every folder of {root!r}, and lacks {unknown}; add or move them")
    by_name = dict.fromkeys(classes, 0) | dict(zip(names, counts, strict=False))
    numbers = {name: number for number, name in enumerate(classes)}
    labels = [np.repeat(np.array([numbers[name] for name in names], np.int64), counts)] if folders else []
    skipped = {why: PackedPaths(those) for why, those in walk.skipped.items()}
    unmatched = PackedPaths(unmatched_paths(exclude, walk.excluded, skipped.get("excluded", ())))
    report = FilesReport(root, len(paths), by_name, skipped, unmatched=unmatched)
    columns = [opened(images, paths, size), *labels]
    return FilesDataSource(columns, report, {name: place for place, name in enumerate(NAMED_COLUMNS[: len(columns)])})


Folder: TypeAlias = "tuple[str, str, tuple[str, ...]]"
"""Name, path, and the real paths of all folders on the way to it, its own last."""


class Walk:
    """A walk over a tree of folders. It collects the paths that it leaves out, by the reason."""

    def __init__(self, extensions: str | tuple[str, ...], excluded: dict[str, set[str]]) -> None:
        self.extensions = extensions
        self.excluded = excluded
        self.skipped: collections.defaultdict[str, list[str]] = collections.defaultdict(list)

    def kept(self, groups: Iterable[list[tuple[str, list[str]]]], counts: list[int]) -> Iterator[tuple[str, list[str]]]:
        """Yield the prefix of each folder's paths, and its names that are not excluded.

        `counts` receives the number of names in each group.
        """
        for group in groups:
            counts.append(0)
            for path, names in group:
                out = self.excluded.get(os.path.abspath(path), set()) if self.excluded else set()
                if out.intersection(names):
                    self.skipped["excluded"] += [os.path.join(path, name) for name in names if name in out]
                    names = [name for name in names if name not in out]
                counts[-1] += len(names)
                yield os.path.join(path, ""), names

    def below(self, path: str, way: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
        """Yield a folder and each folder below it, with the sorted names of the files to take.

        Raises:
            ArgumentError: more than :data:`MOST_WAYS` ways lead to one folder, through links.
        """
        todo, ways = [(path, way)], collections.Counter[str]()
        while todo:
            path, way = todo.pop()
            ways[way[-1]] += 1
            if ways[way[-1]] > MOST_WAYS:
                raise ArgumentError(
                    f"root must have at most {MOST_WAYS:,} ways to one folder through links, and {way[-1]!r} has more, "
                    f"such as {path!r}; remove some of the links on this way"
                )
            folders, names = self.listed(path, way)
            yield path, names
            todo += [(inner, inner_way) for _, inner, inner_way in folders]

    def listed(self, path: str, way: tuple[str, ...]) -> tuple[list[Folder], list[str]]:
        """Return the subfolders of a folder and the names of the files to take, both sorted."""
        folders: list[Folder] = []
        names: list[str] = []
        endings, skipped = self.extensions, self.skipped
        with os.scandir(path) as entries:
            for entry in entries:  # except for links, scandir has the type already
                name = entry.name
                try:
                    if name[0] == ".":
                        skipped["hidden"].append(entry.path)
                    elif entry.is_file():
                        if name.endswith(endings) or name.lower().endswith(endings):
                            names.append(name)
                        else:
                            skipped["no picture by its name"].append(entry.path)
                    elif entry.is_dir():
                        own = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(way[-1], name)
                        if own in way:
                            skipped["a link to a folder that it lies in"].append(entry.path)
                        else:
                            folders.append((name, entry.path, (*way, own)))
                    else:
                        skipped["neither file nor folder"].append(entry.path)
                except OSError:  # a link to itself
                    skipped["neither file nor folder"].append(entry.path)
        names.sort()
        folders.sort()
        return folders, names
