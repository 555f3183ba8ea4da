"""JPEG files decoded by other libraries than Pillow: in bare threads, by us, in workers of torch, by ``tf.data``.

``turbo`` decodes by simplejpeg and resizes by Pillow, antialiased. ``fast`` decodes by simplejpeg, reduced by 2, 4 or 8
if the image stays large enough, and resizes by OpenCV. ``opencv`` does the same without reducing, as most programs do.
``tf-cache-*`` decodes once: the decoder, then its own ``cache()``, then the shuffle, as in its guides.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.peers.base import OURS, Feed, Variant
from benchmarks.peers.ours import in_processes, in_threads
from benchmarks.peers.plain import Threads
from benchmarks.peers.torch_loader import torch_loader
from benchmarks.workloads import images, open_data
from benchmarks.workloads.base import Batch, Workload


class TfData(Feed):
    """``tf.data`` as in its guides: shuffled paths, decoded and resized in parallel, batched, prefetched.

    Its filter is bilinear, not antialiased. Pixels are rounded to bytes, as in the other variants.

    Args:
        workload: The data.
        workers: Its threads.
        ratio: Divisor of the sides, applied by the decoder.
        cache: Where it keeps decoded images: ``memory``, or ``file`` for files in its own folder; empty for none.
    """

    def __init__(self, workload: Workload, workers: int, ratio: int = 1, cache: str = "") -> None:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        pictures, labels = open_data(workload).columns

        def load(path: Any, label: Any) -> Any:
            decoded = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, ratio=ratio)
            return tf.cast(tf.round(tf.image.resize(decoded, images.SIZE)), tf.uint8), label

        shuffle = partial(tf.data.Dataset.shuffle, buffer_size=len(pictures), seed=7, reshuffle_each_iteration=True)
        samples = tf.data.Dataset.from_tensor_slices((pictures.paths, labels))
        samples = (samples if cache else shuffle(samples)).map(load, num_parallel_calls=tf.data.AUTOTUNE)
        if cache:
            self.folder = tempfile.TemporaryDirectory()
            samples = shuffle(samples.cache(f"{self.folder.name}/cache" if cache == "file" else ""))
        options = tf.data.Options()
        options.threading.private_threadpool_size = workers
        self.batches = samples.batch(workload.batch_size).prefetch(tf.data.AUTOTUNE).with_options(options)

    def epoch(self, number: int) -> Iterator[Batch]:
        return iter(self.batches.as_numpy_iterator())


def by(workload: Workload, workers: int, *, how: str, feed: Callable[[Workload, int], Feed]) -> Feed:
    """Return a feed with a decoder."""
    return feed(images.decoded(workload, how), workers)


make = partial(Variant, workloads=("images", "images_large"), usual=False)
ours = partial(make, family=OURS)
theirs = partial(make, family="tensorflow", needs=("tensorflow",), open=TfData)
FAST = {"column": {"resize": "fast"}}
VARIANTS = (
    make(name="plain-turbo", family="plain", open=partial(by, how="turbo", feed=Threads), needs=("simplejpeg",)),
    make(name="plain-fast", family="plain", open=partial(by, how="reduced", feed=Threads), needs=("simplejpeg", "cv2")),
    ours(name="ours-pillow", open=partial(in_threads, column={"decoder": "pillow"})),
    ours(name="ours-turbo", open=in_threads, needs=("simplejpeg",)),
    ours(name="ours-fast", open=partial(in_threads, **FAST), needs=("simplejpeg", "cv2")),
    ours(name="ours-fast-processes", open=partial(in_processes, **FAST), needs=("simplejpeg", "cv2")),
    make(name="torch-opencv", family="torch", needs=("torch", "simplejpeg", "cv2"),
         open=partial(by, how="opencv", feed=torch_loader)),
    theirs(name="tf-data"),
    theirs(name="tf-data-reduced", open=partial(TfData, ratio=8), workloads=("images_large",)),
    theirs(name="tf-cache-memory", open=partial(TfData, cache="memory"), workloads=("images",), copies=2),
    theirs(name="tf-cache-file", open=partial(TfData, cache="file"), workloads=("images",), copies=2),
)  # fmt: skip
