"""A source in the form to write: encoded images, named columns, and an identity to compare."""

from __future__ import annotations

import copy
import math
import operator
from typing import Any

import numpy as np

from ..accessors.annotated_images import AnnotatedImages
from ..accessors.contents import column_facts, value_facts
from ..accessors.encoded_pictures import EncodedPictures
from ..accessors.pictures import Pictures
from ..data_source import AbstractDataSource
from ..data_source.epoch.state import digest, identity
from ..data_source.faces import shown
from ..datasets.files import FilesNode
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.node import nodes_of
from ..graph.rearranged import ConcatNode, SubsetNode
from ..graph.rounds import TakeNode
from ..memory.paging import file_name
from ..validation import integer, positive_int

REARRANGING_NODES = (SubsetNode, TakeNode)
"""Nodes that return rows of another one, ``source``, unchanged."""

IDENTITY_SAMPLE_ROWS = 64
"""Rows of an array that are read to identify it."""


def prepared(source: AbstractDataSource, size: int | None, quality: int | None) -> AbstractDataSource:
    """Return a source in the form to write; refuse a source that cannot be written."""
    if not source.is_random_access:
        raise ArgumentTypeError(
            "source must have random access, or what is killed could not go on, and this one only streams; write its "
            "batches to arrays or files first"
        )
    if source.num_samples() in (None, math.inf):
        raise ArgumentError("source must have a number of samples that is known; bound it with batchup_ng.take")
    node = source.node
    if node.traits.resizes:
        raise ArgumentError(
            "source must have one row a sample, and a map of it has resizes=True, or a filter lazy=True; write without "
            "it"
        )
    if size is not None:
        positive_int("size", size)
    if quality is not None and not 1 <= integer("quality", quality) <= 100:
        raise ArgumentError(f"quality must be 1 to 100, not {quality}")
    encoded = with_encoded_pictures(node, size, quality)
    if encoded is not node:
        return shown(encoded)
    if size is not None or quality is not None:
        raise ArgumentError(
            "size= and quality= are for pictures without a size of their own and without a map behind them, and source "
            "has none; leave them out, or size= of ImageFiles, ImageBytes or from_folder"
        )
    return source


def with_encoded_pictures(node: Any, size: int | None, quality: int | None) -> Any:
    """Return a node whose images without a size of their own are encoded; the same node if it has none.

    Images that are passed to a map are not changed.
    """
    if type(node) in (ArraysNode, FilesNode):
        if not any(map(_is_encoded, node.data)):
            return node
        if size is not None and any(isinstance(one, AnnotatedImages) for one in node.data):
            raise ArgumentError(
                "size must be left out for images with boxes, masks or keypoints, which would not be made smaller; "
                "write the images as they are, and resize all together when they are read"
            )
        return node.with_data([EncodedPictures(one, size, quality) if _is_encoded(one) else one for one in node.data])
    made: Any = copy.copy(node)
    if type(node) in REARRANGING_NODES:
        made.source = with_encoded_pictures(made.source, size, quality)
        return node if made.source is node.source else made
    if isinstance(node, ConcatNode):
        made.sources = [with_encoded_pictures(each, size, quality) for each in made.sources]
        return node if all(map(operator.is_, made.sources, node.sources)) else made
    return node


def _is_encoded(column: Any) -> bool:
    return isinstance(column, Pictures) and not column.have_size


def names_of(source: AbstractDataSource) -> tuple[str, ...]:
    """Return the names of the columns of files and labels, also of standard data sets; empty for any other source."""
    nodes = nodes_of(source.node)
    rearranged = (*REARRANGING_NODES, ConcatNode, FilesNode)
    known = [type(node) in rearranged or (type(node) is ArraysNode and bool(node.places)) for node in nodes]
    unnamed = all(known) and all(getattr(node, "names", None) is None for node in nodes)
    return ("image", "label") if unnamed else ()


def contents_of(source: AbstractDataSource) -> dict[str, str]:
    """Return the identity of a source: its graph, and the known facts about its data."""
    arrays = [node for node in nodes_of(source.node) if isinstance(node, ArraysNode)]
    return {
        "source": identity(source.node)[0],
        "data": digest([[_told(column) for column in node.data] for node in arrays]),
    }


def _told(column: Any) -> Any:
    """Return the known facts about a column: for an array its form, file and some rows; else its contents.

    A class without ``fingerprint()`` counts by its name and length.
    """
    told = [type(column).__name__, len(column)]
    if isinstance(column, np.ndarray):
        rows = np.unique(np.linspace(0, max(0, len(column) - 1), IDENTITY_SAMPLE_ROWS).astype(np.int64))[: len(column)]
        return [*told, str(column.dtype), column.shape, file_name(column), value_facts(np.asarray(column[rows]))]
    try:
        return [*told, column_facts(column)]
    except ArgumentTypeError:
        return told
