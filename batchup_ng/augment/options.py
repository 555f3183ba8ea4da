"""The names of options: what other libraries call them, and what to do instead of options that are none of ours."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ..validation import known_names

RENAMED = {
    **dict.fromkeys(["degrees", "angle", "rotation"], "rotate"),
    **dict.fromkeys(["translate_percent", "translation"], "translate"),
    **dict.fromkeys(["prob", "probability"], "p"),
    **dict.fromkeys(["value", "fill_value", "fillcolor", "cval"], "fill"),
    **dict.fromkeys(["height", "width", "shape"], "size"),
    "data_format": "layout",
}
"""Names that torchvision, Albumentations and Keras have for options of ours."""

OF_OTHERS = {
    **dict.fromkeys(["seed", "generator", "rng"], "its numbers come from source.map(operation, rng='sample')"),
    **dict.fromkeys(["interpolation", "resample", "antialias"], "its reference says how it interpolates"),
    **dict.fromkeys(["inplace", "in_place"], "leave it out: it writes in place where nobody else has the images"),
    **dict.fromkeys(["padding_mode", "border_mode"], "the border has one colour, fill="),
    **dict.fromkeys(["kernel_size", "blur_limit"], "the kernel follows from sigma="),
    **dict.fromkeys(["num_ops", "num_operations"], "pass their number as n="),
    "always_apply": "pass p=1.0",
    "max_pixel_value": "leave it out: uint8 is divided by 255, float32 is not",
    "num_output_channels": "leave it out: there are 3",
}
"""What to do instead of other options of theirs."""

Class = TypeVar("Class", bound=type)


def names_checked(operation: Class) -> Class:
    """Let an operation, a dataclass, refuse options that it does not have, with the remedy."""
    init: Any = operation.__init__  # type: ignore[misc]  # its own, which the decorator below it made
    known = inspect.signature(init).parameters
    renamed = {name: f"pass it as {ours}=" for name, ours in RENAMED.items() if ours in known}
    operation.__init__ = known_names({**OF_OTHERS, **renamed})(init)  # type: ignore[misc]
    return operation
