"""Base classes of accessors that load on first use, by which modules that are always loaded recognise them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class OwnRows:
    """An accessor of the library that reads its rows without code of the user's."""

    spreads_reads: ClassVar[bool] = False
    """Whether idle threads help to read a batch."""


class PictureRows(OwnRows, ABC):
    """Images that are decoded when they are read."""

    spreads_reads = True
    encoded: Any = None
    """The list or accessor of the encoded images; None if they are in files."""

    @abstractmethod
    def with_options(self, **options: Any) -> Any:
        """Return an accessor of the same encoded images with other options. Those left out stay as they are."""


PICTURE_ADVICE = {
    **dict.fromkeys(["resample", "interpolation"], "pass the filter as resize="),
    **dict.fromkeys(["transform", "transforms"], "apply it by a map of the source: source.map(...), .map_samples(...)"),
}
"""Advice for options of other libraries."""
