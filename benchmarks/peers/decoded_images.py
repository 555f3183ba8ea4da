"""JPEG files decoded by other libraries than Pillow: in bare threads, by us, in workers of torch, by tf.data.

``turbo`` decodes by simplejpeg and resizes by Pillow, antialiased. ``fast`` decodes by simplejpeg, reduced by 2, 4 or 8
if the image stays large enough, and resizes by OpenCV. ``opencv`` does the same without reducing, as most programs do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.peers.base import OURS, Feed, Variant
from benchmarks.peers.ours import OurFeed
from benchmarks.peers.plain_threads import Threads
from benchmarks.peers.torch_loader import TorchFeed
from benchmarks.workloads import images, open_data
from benchmarks.workloads.base import Batch, Workload


class OurImages(OurFeed):
    """Ours, with options of ``ImageFiles``."""

    def __init__(self, workload: Workload, workers: int, pool: str, **options: Any) -> None:
        super().__init__(workload, workers, pool)
        import batchup_ng as bu

        pictures, labels = open_data(workload).columns
        self.source = bu.ArrayDataSource([bu.ImageFiles(pictures.paths, pictures.size, **options), labels])


class TfData:
    """``tf.data`` as in its guides: shuffled paths, decoded and resized in parallel, batched, prefetched.

    Its filter is bilinear, not antialiased. Pixels are rounded to bytes, as in the other variants.
    """

    def __init__(self, workload: Workload, workers: int, ratio: int = 1) -> None:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        pictures, labels = open_data(workload).columns

        def load(path: Any, label: Any) -> Any:
            decoded = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, ratio=ratio)
            return tf.cast(tf.round(tf.image.resize(decoded, pictures.size)), tf.uint8), label

        paths = tf.data.Dataset.from_tensor_slices((pictures.paths, labels))
        load_all = partial(tf.data.Dataset.map, map_func=load, num_parallel_calls=tf.data.AUTOTUNE)
        shuffle = partial(tf.data.Dataset.shuffle, buffer_size=len(pictures), seed=7, reshuffle_each_iteration=True)
        batches = self.samples(paths, load_all, shuffle).batch(workload.batch_size)
        options = tf.data.Options()
        options.threading.private_threadpool_size = workers
        self.batches = batches.prefetch(tf.data.AUTOTUNE).with_options(options)

    def samples(self, paths: Any, load_all: Callable[[Any], Any], shuffle: Callable[[Any], Any]) -> Any:
        """Return the data set of the images, in another order each time."""
        return load_all(shuffle(paths))

    def epoch(self, number: int) -> Iterator[Batch]:
        return iter(self.batches.as_numpy_iterator())

    def close(self) -> None:
        """Do nothing: its threads end with the iterator."""


def by(how: Callable[..., None], feed: Callable[[Workload, int], Feed]) -> Callable[[Workload, int], Feed]:
    """Return a feed with this decoder."""
    return lambda workload, workers: feed(images.decoded(workload, how), workers)


TURBO, OPENCV = ("simplejpeg",), ("simplejpeg", "cv2")
ours = partial(OurImages, pool="WorkerThreadPool")
in_processes = partial(OurImages, pool="WorkerProcessPool")
make = partial(Variant, module=__name__, workloads=("images", "images_large"), usual=False)
VARIANTS = (
    make(name="plain-turbo", family="plain", open=by(images.by_turbo, Threads), needs=TURBO),
    make(name="plain-fast", family="plain", open=by(images.reduced, Threads), needs=OPENCV),
    make(name="ours-pillow", family=OURS, open=partial(ours, decoder="pillow"), needs=("batchup_ng",)),
    make(name="ours-turbo", family=OURS, open=ours, needs=("batchup_ng", *TURBO)),
    make(name="ours-fast", family=OURS, open=partial(ours, resize="fast"), needs=("batchup_ng", *OPENCV)),
    make(name="ours-fast-processes", family=OURS, open=partial(in_processes, resize="fast"),
         needs=("batchup_ng", *OPENCV)),
    make(name="torch-opencv", family="torch", open=by(images.by_opencv, TorchFeed), needs=("torch", *OPENCV)),
    make(name="tf-data", family="tensorflow", open=TfData, needs=("tensorflow",)),
    make(name="tf-data-reduced", family="tensorflow", open=partial(TfData, ratio=8), needs=("tensorflow",),
         workloads=("images_large",)),
)  # fmt: skip
