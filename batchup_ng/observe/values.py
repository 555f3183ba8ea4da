"""Values of a sample as arrays and as words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..display import printable
from ..error_context import raise_if_of_signal_handler
from ..graph.node import Classes
from ..tensors import is_any_tensor

MOST_NUMBERS = 8
"""The most numbers of an array that are words. More are drawn."""

MOST_CHARS = 2000
"""The most characters of a text that are looked at."""


def array_of(value: Any) -> np.ndarray | None:
    """Return a value as an array of numbers, also a tensor of any device, or a picture of Pillow's; None if it is
    none.
    """
    if is_any_tensor(value):
        value = value.detach().cpu()
        value = value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    elif getattr(value, "mode", None) in ("P", "CMYK", "YCbCr", "HSV", "LAB") and hasattr(value, "convert"):
        value = value.convert("RGB")
    elif isinstance(value, (str, bytes, dict, type(None))):
        return None
    try:
        array = np.asarray(value)
    except Exception as error:  # lists of different lengths, an object whose __array__ fails
        raise_if_of_signal_handler(error)
        return None
    return array if array.dtype.kind in "biufc" else None


def shortened(text: str, most: int) -> str:
    """Return a text with at most so many characters, without its end if it is longer.

    >>> shortened("a long text", 7), shortened("short", 7)
    ('a long…', 'short')
    """
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def file_in_words(name: str, most: int) -> str:
    """Return the name of a sample in at most so many characters: of a path the file, of a longer name the end.

    >>> file_in_words("/data/cat/0001.jpg", 20), file_in_words("/data/a very long name.jpg", 12)
    ('0001.jpg', '…ng name.jpg')
    """
    text = printable(name)
    if ", " not in text:
        text = text.rpartition("/")[2] or text
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def number_in_words(value: Any) -> str:
    """Return a number in few digits.

    >>> number_in_words(np.float32(0.1)), number_in_words(np.int64(70000)), number_in_words(True)
    ('0.1', '70000', 'True')
    """
    number = value.item() if hasattr(value, "item") else value
    return f"{number:.4g}" if isinstance(number, (float, complex)) else str(number)


def in_words(value: Any) -> str:
    """Return any value in one line, without characters that a terminal or a figure would interpret."""
    array = array_of(value)
    if array is not None:
        if array.ndim == 0:
            return number_in_words(array[()])
        if 0 < array.size <= MOST_NUMBERS and array.ndim == 1:
            return f"[{' '.join(map(number_in_words, array))}]"
        return f"{array.dtype} {array.shape}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    try:
        text = value if isinstance(value, str) else str(value) if isinstance(value, np.generic) else repr(value)
    except Exception as error:
        raise_if_of_signal_handler(error)
        return type(value).__name__
    return printable(str(text[:MOST_CHARS]))


def numbered(number: int, names: Sequence[str], most: int) -> str:
    """Return the number of a class with its name, cut to `most` characters; the number alone if that is its name.

    >>> numbered(1, ["cat", "dog"], 9), numbered(1, ["0", "1"], 9), numbered(7, [], 9)
    ('1 (dog)', '1', '7')
    """
    name = names[number] if 0 <= number < len(names) else str(number)
    return str(number) if name == str(number) else f"{number} ({shortened(printable(name), most)})"


def class_in_words(value: Any, classes: Classes) -> str:
    """Return a label with the name of its class; of the shares of all classes the largest three.

    >>> class_in_words(1, Classes(("cat", "dog"), None))
    '1 (dog)'
    >>> class_in_words(np.array([0.25, 0.75]), Classes(("cat", "dog"), None))
    'dog 0.75, cat 0.25'
    """
    names, array = classes.names, array_of(value)
    if array is not None and array.ndim == 0 and array.dtype.kind in "iu" and 0 <= array < len(names):
        return numbered(int(array), names, MOST_CHARS)
    if array is not None and array.shape == (len(names),):
        shares = [(float(array[place]), place) for place in np.argsort(-array, kind="stable")[:3] if array[place]]
        return ", ".join(f"{printable(names[place])} {share:.3g}" for share, place in shares) or "no class"
    return in_words(value)
