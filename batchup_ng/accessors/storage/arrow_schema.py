"""One column in the schema of a file that Arrow reads: its place, its type, the names of its classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...errors import ArgumentError
from .arrow_types import pyarrow


def class_names(metadata: Any, column: Sequence[str]) -> tuple[str, ...]:
    """Return the class names that Hugging Face's `datasets` keeps for a column, a path of fields, in the metadata.

    >>> told = {"info": {"features": {"y": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    >>> class_names({b"huggingface": json.dumps(told).encode()}, ["y"])
    ('cat', 'dog')
    """
    try:
        feature = json.loads(metadata[b"huggingface"])["info"]["features"]
        for name in column:
            feature = feature[name]
        while "feature" in feature:  # the entries of a list
            feature = feature["feature"]
        names = feature["names"] if feature["_type"] == "ClassLabel" else ()
        return tuple(names) if all(type(name) is str for name in names) else ()
    except (ValueError, LookupError, TypeError, RecursionError):  # there are none, or another program wrote them
        return ()


def field_path(schema: Any, column: str, path: str) -> tuple[list[str], Any]:
    """Return the names of a field, from the outermost to its own, and its storage type.

    Raises:
        ArgumentError: there is no field of that name, or there are several.
    """
    pa = pyarrow()
    kind = pa.struct(list(schema))
    names = [column] if column in schema.names else column.split(".")
    for name in names:
        at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if at < 0:
            listed = ", ".join(map(repr, schema.names[:20]))
            raise ArgumentError(f"column must be one of the columns of {path!r}, not {column!r}; it has {listed}")
        kind = kind[at].type
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
    return names, kind
