"""The operation that pastes objects of one image into another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .annotation_columns import AnnotationColumns
from .annotations import Annotations, Boxes
from .base import Operation
from .joining import joined_boxes, joined_rows
from .mixing import check_same_size
from .options import names_checked
from .parts import Part
from .ranges import number

REMEDY = "compose(copy_paste(), boxes='boxes', box_labels=['labels', 'masks'], masks='masks')"


@names_checked
@dataclass(frozen=True)
class copy_paste(Operation):
    """Pastes objects of a companion into each image (Ghiasi et al., Simple Copy-Paste, arXiv:2012.07177).

    Map it with ``companions=1``, in ``compose`` with boxes and a mask for each box: ``compose(copy_paste(),
    boxes="boxes", box_labels=["labels", "masks"], masks="masks")``. The pixels under the masks of the chosen objects
    replace those of the image, and of its other masks. Boxes, masks and rows of labels of these objects come after
    those of the image. The masks of objects that are partly covered lose these pixels, and their boxes become the
    smallest ones around what is left. Objects that are covered whole are dropped, or by ``compose(min_visibility=)``.

    All images have one size. The paper scales and crops both images before: ``source.map(compose(letterbox(640),
    affine(scale=(0.5, 2.0)), ...))``.

    Args:
        objects: The probability that an object of the companion is pasted.
        p: The probability that an image is changed.

    Raises:
        ArgumentError: there are no masks of boxes, or several columns of them, or keypoints; in a call: the images
            differ in size.
    """

    _: KW_ONLY
    objects: float = 0.5
    p: float = 1.0
    in_place = True
    companion_counts = (1,)

    def __post_init__(self) -> None:
        number("objects", self.objects, 0.0, 1.0)
        number("p", self.p, 0.0, 1.0)

    def check_annotations(self, columns: AnnotationColumns) -> None:
        of_boxes = [column for column in columns.names("masks") if column in columns.names("box_labels")]
        if columns.names("keypoints"):
            raise ArgumentError("copy_paste must not be in a chain with keypoints, which it may hide; leave it out")
        if len(of_boxes) != 1:
            raise ArgumentError(f"copy_paste needs one column with a mask for each box, not {of_boxes}; pass {REMEDY}")

    def draw(self, rng: Any) -> Any:
        return list(rng.generators())

    def join(self, own: Part, others: Sequence[Part], drawn: Any) -> Part:
        ((images, labels, annotations), ((partners, _, theirs),)) = own, others
        assert annotations is not None
        assert theirs is not None
        check_same_size(self, images, partners)
        (key,) = annotations.of_boxes
        chosen = [_chosen(rng, len(masks), self) for rng, masks in zip(drawn, theirs.masks[key], strict=True)]
        covered = [(masks[which] != 0).any(axis=0) for masks, which in zip(theirs.masks[key], chosen, strict=True)]
        for image, partner, under in zip(images, partners, covered, strict=True):
            image[under] = partner[under]
        return Part(images, labels, _pasted(annotations, theirs, key, chosen, covered))


def _chosen(rng: np.random.Generator, n: int, operation: copy_paste) -> np.ndarray:
    """Return which of the `n` objects of a companion are pasted: ``(n,) bool``."""
    changed = rng.random() < operation.p
    return np.asarray(changed & (rng.random(n) < operation.objects))


def _pasted(
    own: Annotations, theirs: Annotations, key: Any, chosen: list[np.ndarray], covered: list[np.ndarray]
) -> Annotations:
    """Return the annotations of images after the `chosen` objects were pasted, which cover some pixels."""
    assert own.boxes is not None
    assert theirs.boxes is not None
    pasted = _boxes_like(theirs.boxes)
    theirs = dataclasses.replace(
        theirs, boxes=pasted, labels=_copies(theirs.labels), masks=_copies(theirs.masks)
    )
    theirs.take_boxes(np.flatnonzero(np.concatenate([np.zeros(0, bool), *chosen])))
    rest: list[np.ndarray] = []
    boxes = _boxes_like(own.boxes)
    for i, (given, under) in enumerate(zip(own.masks[key], covered, strict=True)):
        left = given.copy()
        left[:, under] = 0
        rest.append(left)
        _shrink(boxes, np.flatnonzero(boxes.image == i), given, left)
    masks: dict[Any, Any] = dict(own.masks)
    for other in [name for name in own.masks if name != key]:
        pairs = zip(own.masks[other], theirs.masks[other], covered, strict=True)
        made = [np.where(under.reshape(*under.shape, *[1] * (one.ndim - 2)), two, one) for one, two, under in pairs]
        masks[other] = np.stack(made) if made else own.masks[other]
    masks |= joined_rows([{key: rest}, {key: theirs.masks[key]}])
    labels = joined_rows([own.labels, theirs.labels])
    return dataclasses.replace(own, boxes=joined_boxes([boxes, pasted]), labels=labels, masks=masks)


def _shrink(boxes: Boxes, places: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
    """Put boxes at `places` around what is left of their masks, if that is less than before."""
    for place, mask, left in zip(places.tolist(), before != 0, after != 0, strict=True):
        n, n_left = np.count_nonzero(mask), np.count_nonzero(left)
        if n_left == n:
            continue
        boxes.visible[place] *= n_left / n
        down, across = np.flatnonzero(left.any(axis=1)), np.flatnonzero(left.any(axis=0))
        if n_left:
            boxes.corners[place] = across[0], down[0], across[-1] + 1, down[-1] + 1


def _boxes_like(boxes: Boxes) -> Boxes:
    """Return a copy whose arrays may be written to."""
    made = object.__new__(Boxes)
    made.corners, made.image, made.visible = boxes.corners.copy(), boxes.image, boxes.visible.copy()
    return made


def _copies(columns: dict[Any, Any]) -> dict[Any, Any]:
    """Return columns whose lists may be written to."""
    return {key: list(column) if type(column) is list else column for key, column in columns.items()}
