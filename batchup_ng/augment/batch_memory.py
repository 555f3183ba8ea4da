"""Memory for new batches of images and masks."""

from __future__ import annotations

import numpy as np

from ..memory.leases import BufferPool

BATCH_MEMORY = BufferPool(max_free=8, max_bytes=1 << 28)
"""Memory for new batches. It is reused when a batch is gone, because fresh memory costs more than most changes."""


def copied(images: np.ndarray) -> np.ndarray:
    """Return a copy in writable memory."""
    out = BATCH_MEMORY.empty(images.shape, images.dtype)
    out[...] = images
    return out
