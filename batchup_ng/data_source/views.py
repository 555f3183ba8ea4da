"""Several views of each sample, such as two augmented copies of an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import validation
from ..errors import ArgumentTypeError
from ..graph.views import ViewsNode

if TYPE_CHECKING:
    from .planned import PlannedDataSource
    from .source import AbstractDataSource

ELSEWHERE = {"rng": "leave it out: functions that take rng= get a SampleRng, with rows of its own for each view"}

OF_ONE_IMAGE = ("albumentations", "torchvision")
"""Libraries whose transforms ``batchup_ng.augment`` has operations for, of the same name."""


@validation.known_names(ELSEWHERE)
def views(
    source: AbstractDataSource, *views: int | Callable[..., Any], on: Any = None, out: Any = None
) -> PlannedDataSource:
    """Return a source with several views of each sample in place of its image: one for each function.

    A number before a function says how many views it makes. ``source.views(2, augment)`` makes two augmented copies, as
    in contrastive learning; ``source.views(weak, strong)`` one of each, as in FixMatch; ``source.views(2, large, 6,
    small)`` eight, as in DINO. Images are read and decoded once.

    In tuples, the views stand in place of their column: ``(view, view, label)``. In dicts they are ``"image_1"``,
    ``"image_2"``, ...; the column ``"image"`` is gone.

    Args:
        *views: Functions, each perhaps after a number. They are called by place with the columns `on` of a batch, as by
            :meth:`map`, and return as many columns. If they take ``rng=``, they get a
            :class:`~batchup_ng.randomness.SampleRng`. Its rows are a function of (seed, epoch, position in the epoch,
            node, number of the view). The first view draws as ``map(fn, on=on, rng="sample")`` would; further views do
            not change it. A function may write to its columns: each of your functions gets a copy of its own.
        on: The columns that the functions take: a name, a place from 0, or a list of them. Views of each stand in its
            place. Default: the column ``"image"`` if there is one, else the first column.
        out: Names of the views if batches are dicts: one for each view. If `on` names several columns, the names for
            the first column come first. Default: the name of the column with ``"_1"``, ``"_2"``, ...

    Raises:
        ArgumentTypeError: an argument is neither a function nor a number before a function.
        ArgumentError: a number is below 1; there is no such column, or a view would have the name of another column;
            or one function without ``rng=`` makes several views, which would be equal.
        MapCallError, MapResultError: when a batch is made: as for :meth:`map`.

    >>> import numpy as np, batchup_ng as bu
    >>> pairs = bu.ArrayDataSource({"image": np.zeros((3, 2, 2)), "label": np.arange(3)}).views(
    ...     lambda images: images, lambda images, rng: images + rng.normal(size=(2, 2)))
    >>> {name: column.shape for name, column in pairs[:].items()}
    {'image_1': (3, 2, 2), 'image_2': (3, 2, 2), 'label': (3,)}
    """
    return source._followed_by(ViewsNode(source.node, _functions(views), on=on, out=out))


def _functions(given: tuple[Any, ...]) -> list[Callable[..., Any]]:
    """Return the function of each view."""
    fns: list[Callable[..., Any]] = []
    number = None
    for place, each in enumerate(given):
        library = type(each).__module__.partition(".")[0]
        if library in OF_ONE_IMAGE:
            raise ArgumentTypeError(
                f"views[{place}] must be a function of a batch, not {type(each).__name__} of {library}, which takes "
                f"one image; pass augment.{library}(transform)"
            )
        if callable(each) and not isinstance(each, type):
            fns += [each] * (1 if number is None else number)
            number = None
        elif number is None and hasattr(each, "__index__"):
            number = validation.positive_int(f"views[{place}]", each)
        else:
            kind = f"the class {each.__name__}" if isinstance(each, type) else f"{each!r:.80}"
            remedy = f"{each.__name__}(...)" if isinstance(each, type) else "views(2, fn) or views(weak, strong)"
            raise ArgumentTypeError(
                f"views[{place}] must be a function, perhaps after the number of its views, not {kind}; pass {remedy}"
            )
    if number is not None or not fns:
        raise ArgumentTypeError(f"views must end with a function, and are {given}; pass views(2, fn)")
    return fns
