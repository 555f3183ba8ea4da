"""``tf.data`` that decodes once: the decoder, then its own ``cache()``, then the shuffle, as in its guides."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers.base import Variant
from benchmarks.peers.decoded_images import TfData
from benchmarks.workloads.base import Workload


class TfCached(TfData):
    """A pipeline that keeps images in memory, or in files of its own folder."""

    def __init__(self, workload: Workload, workers: int, in_files: bool = False) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.name = f"{self.folder.name}/cache" if in_files else ""
        super().__init__(workload, workers)

    def samples(self, paths: Any, load_all: Callable[[Any], Any], shuffle: Callable[[Any], Any]) -> Any:
        return shuffle(load_all(paths).cache(self.name))

    def close(self) -> None:
        self.folder.cleanup()


make = partial(
    Variant, module=__name__, family="tensorflow", needs=("tensorflow",), copies=2, workloads=("images",), usual=False
)
VARIANTS = (
    make(name="tf-cache-memory", open=TfCached),
    make(name="tf-cache-file", open=partial(TfCached, in_files=True)),
)
