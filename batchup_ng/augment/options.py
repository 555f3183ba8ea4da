"""Names of options in other libraries, and remedies for options that do not exist here."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ..validation import known_names

RENAMED_OPTIONS = {
    **dict.fromkeys(["degrees", "angle", "rotation"], "rotate"),
    **dict.fromkeys(["translate_percent", "translation"], "translate"),
    **dict.fromkeys(["prob", "probability"], "p"),
    **dict.fromkeys(["value", "fill_value", "fillcolor", "cval"], "fill"),
    **dict.fromkeys(["height", "width", "shape"], "size"),
    "data_format": "layout",
}
"""Names in torchvision, Albumentations and Keras for options that exist here."""

ADVICE_ON_AUGMENT_OPTIONS = {
    **dict.fromkeys(["seed", "generator", "rng"], "its numbers come from source.map(operation, rng='sample')"),
    **dict.fromkeys(["interpolation", "resample", "antialias"], "its reference says how it interpolates"),
    **dict.fromkeys(["inplace", "in_place"], "leave it out: it writes in place where nobody else has the images"),
    **dict.fromkeys(["padding_mode", "border_mode"], "the border has one colour, fill="),
    **dict.fromkeys(["kernel_size", "blur_limit"], "the kernel follows from sigma="),
    **dict.fromkeys(["num_ops", "num_operations"], "pass their number as n="),
    **dict.fromkeys(["bboxes", "bbox_params", "format"], "pass boxes= and box_format= to compose"),
    **dict.fromkeys(["labels", "label_fields"], "pass box_labels= or keypoint_labels= to compose"),
    "keypoint_params": "pass keypoints= to compose",
    "always_apply": "pass p=1.0",
    "max_pixel_value": "leave it out: uint8 is divided by 255, float32 is not",
    "num_output_channels": "leave it out: there are 3",
}
"""Remedies for other options of these libraries."""

Class = TypeVar("Class", bound=type)


def names_checked(operation: Class) -> Class:
    """Make an operation, a dataclass, refuse options that it does not have, with the remedy."""
    init: Any = operation.__init__  # type: ignore[misc]  # made by the decorator below this one
    known = inspect.signature(init).parameters
    renamed = {name: f"pass it as {ours}=" for name, ours in RENAMED_OPTIONS.items() if ours in known}
    operation.__init__ = known_names({**ADVICE_ON_AUGMENT_OPTIONS, **renamed})(init)  # type: ignore[misc]
    return operation
