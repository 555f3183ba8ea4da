"""The graph of a source with other options of decoding for its images.

Each accessor of images is copied with other options, and the copy shares its paths or bytes. The nodes over the arrays,
and all nodes above them, are copied too. They keep their rows, samplers and functions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..accessors.annotations import refuse_annotations
from ..accessors.cached import Cached
from ..accessors.own_rows import PICTURE_ADVICE, PictureRows
from ..accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32
from ..columns import Places, column_names
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.node import Node, nodes_of
from ..validation import NOT_GIVEN, known_names
from .faces import shown

if TYPE_CHECKING:
    from .planned import PlannedDataSource
    from .source import AbstractDataSource


@known_names(PICTURE_ADVICE)
def with_images(
    source: AbstractDataSource, *, on: Any = None, size: Any = NOT_GIVEN, mode: Any = NOT_GIVEN, dtype: Any = NOT_GIVEN,
    resize: Any = NOT_GIVEN, crop: Any = NOT_GIVEN, decoder: Any = NOT_GIVEN, max_pixels: Any = NOT_GIVEN,
    truncated: Any = NOT_GIVEN,
) -> PlannedDataSource:  # fmt: skip
    """Return a source with the same samples whose images are decoded with other options.

    So one folder serves training and validation: after ``train, val = source.split([0.9, 0.1], 1)``,
    ``train.with_images(crop="random")`` and ``val.with_images(crop="center")`` share no sample. Options that are
    left out stay as they are. Rows, samplers, maps and the order of the samples do not change, so a saved state
    remains valid. Paths and encoded images are shared, not copied.

    Args:
        on: The columns of images to change: a name, a place from 0, or a list. Default: all that are read by
            :class:`~batchup_ng.ImageFiles` or :class:`~batchup_ng.ImageBytes`.
        size: This and the other options are as for :class:`~batchup_ng.ImageFiles`, which also checks them.

    Raises:
        ArgumentError: no column has images; they are cached; an option has an invalid value; `crop` would draw
            for several columns on their own, without `on`; there is no column `on`, or a map makes it; or `size` or
            `crop` would not move the columns ``"boxes"``, ``"bbox"``, ``"bboxes"``, ``"mask"``, ``"masks"`` or
            ``"keypoints"``.
        ArgumentTypeError: no option is given, or one is of a wrong kind; or a pool or a custom source reads the
            images.
    """
    given = {"size": size, "mode": mode, "dtype": dtype, "resize": resize, "crop": crop, "decoder": decoder}
    given |= {"max_pixels": max_pixels, "truncated": truncated}
    options = {name: value for name, value in given.items() if value is not NOT_GIVEN}
    return shown(with_image_options(source.node, on, options))


def with_image_options(node: Node, on: Any, options: Mapping[str, Any]) -> Node:
    """Return `node` over images that are decoded with other options."""
    if not options:
        raise ArgumentTypeError("with_images must be given an option to change, such as crop='random'")
    for option in ("size", "crop"):
        if options.get(option) is not None:
            refuse_annotations(option, _named_columns(node))
    chosen = None if on is None else [id(column) for name in column_names("on", on) for column in _columns(node, name)]
    made = _remade(node, chosen, options, {})
    if made is node:
        arrays = [each for each in nodes_of(node) if isinstance(each, ArraysNode)]
        held = [type(column).__name__ for each in arrays for column in each.data]
        where = "" if on is None else f" on={on!r}"
        raise ArgumentError(
            f"with_images{where} needs a column of ImageFiles or ImageBytes, and the columns of this source are "
            f"{', '.join(held) or 'made by functions'}; set the options where the images are made"
        )
    return made


def _remade(
    node: Node, chosen: list[int] | None, options: Mapping[str, Any], done: dict[int, tuple[Node, Node]]
) -> Node:
    """Return `node` over images with other options; the same node if it has no such images.

    `done` has each node that was visited, with its result, because a node may be in several places of a graph.
    """
    if id(node) not in done:
        if isinstance(node, ArraysNode):
            done[id(node)] = node, _with_options(node, chosen, options)
        else:
            before = node.children()
            after = [_remade(child, chosen, options, done) for child in before]
            same = all(new is old for new, old in zip(after, before, strict=True))
            done[id(node)] = node, node if same else node.with_children(after)
    return done[id(node)][1]


def _named_columns(node: Node) -> dict[str, Any]:
    """Return the arrays and accessors below `node` by their names, without those that its batches lack."""
    form = node.form()
    shown = form.names if isinstance(form, Places) else form
    found: dict[str, Any] = {}
    for each in nodes_of(node):
        if isinstance(each, ArraysNode):
            places = each.places or {} if each.names is None else {name: at for at, name in enumerate(each.names)}
            found |= {name: each.data[at] for name, at in places.items() if shown is None or name in shown}
    return found


def _columns(node: Node, name: Any) -> list[Any]:
    """Return the arrays and accessors that a column of the batches of `node` is read from."""
    try:
        narrow = node.only([name])
    except ArgumentError as error:
        raise ArgumentError(f"on: {error}") from None
    if narrow is None:
        raise ArgumentError(
            f"on must be a column that can be read alone, and a {node.name} makes {name!r} out of others; call "
            f"with_images before the map"
        )
    return [column for each in nodes_of(narrow) if isinstance(each, ArraysNode) for column in each.data]


def _with_options(node: ArraysNode, chosen: list[int] | None, options: Mapping[str, Any]) -> ArraysNode:
    """Return a node over arrays with other options for its images; the same node if there are none to change."""
    columns = [_changed(column, options) if chosen is None or id(column) in chosen else None for column in node.data]
    n_changed = sum(column is not None for column in columns)
    if not n_changed:
        return node
    if node.own.reader is not None:
        raise ArgumentTypeError(
            f"a {node.name} reads its rows by its own samples_by_indices_nomapping, which with_images cannot change; "
            f"set the options there"
        )
    made = node.with_data([old if new is None else new for old, new in zip(node.data, columns, strict=True)])
    if chosen is None and n_changed > 1 and any(getattr(column, "draws", False) for column in columns):
        raise ArgumentError(
            f"crop= would cut another part at random out of each of the {n_changed} columns of images; name those to "
            f"change by on=, or crop them alike by augment.random_resized_crop"
        )
    return made


def _changed(column: Any, options: Mapping[str, Any]) -> Any:
    """Return an accessor of images with other options, or None if the column holds no images."""
    if isinstance(column, PictureRows):
        return column.with_options(**options)
    if type(column) is ImageArrayUInt8ToFloat32:
        inside = _changed(column.arr_u8, options)
        if inside is None:
            return None
        made = copy.copy(column)
        made.arr_u8 = inside
        return made
    if type(column) is Cached and _changed(column.accessor, options) is not None:
        raise ArgumentError(
            "with_images must come before cache(), which keeps images as they were decoded; call with_images on the "
            "source, then cache()"
        )
    return None
