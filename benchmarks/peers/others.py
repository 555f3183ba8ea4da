"""Grain, SPDL and ``tf.data`` over data in memory and JPEG files, each as its guides use it.

Grain's worker processes read one sample at a time and stay for all epochs. SPDL's threads read whole batches, whose
rows the program draws. ``tf.data`` shuffles row numbers and gathers the rows of a batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from benchmarks.peers.base import Feed, Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload, shuffled


class Other(Feed):
    """The data, and what runs for all epochs. The library is imported before the clock starts."""

    library: ClassVar[str]

    def __init__(self, workload: Workload, workers: int) -> None:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import_module(self.library)
        self.workload, self.workers, self.data = workload, workers, open_data(workload)
        self.running: Any = None

    def close(self) -> None:
        self.running = None


class Grain(Other):
    """An iterator over all epochs, with worker processes.

    By default each process also has 16 threads, which read 500 elements ahead, here batches: in the turns of all other
    variants they would make gigabytes of later epochs. Its guide says to take none for data in memory.
    """

    library = "grain"
    reads_on = True

    def epoch(self, number: int) -> Iterator[Batch]:
        import grain  # type: ignore[import-not-found]  # seldom installed
        from absl import flags

        if self.running is None:
            flags.FLAGS.mark_as_parsed()  # this program has none
            rows = grain.MapDataset.source(range(self.workload.samples)).shuffle(seed=7).map(self.data.sample)
            read = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
            batches = rows.batch(self.workload.batch_size).repeat().to_iter_dataset(read)
            self.running = iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=self.workers)))
        return islice(self.running, -(-self.workload.samples // self.workload.batch_size))


class Spdl(Other):
    """A pipeline of threads for each epoch."""

    library = "spdl.pipeline"

    def epoch(self, number: int) -> Iterator[Batch]:
        from spdl.pipeline import PipelineBuilder  # type: ignore[import-not-found]  # seldom installed

        built = PipelineBuilder().add_source(shuffled(self.workload, number))
        built = built.pipe(self.data.batch, concurrency=self.workers, output_order="input").add_sink(4)
        pipeline = built.build(num_threads=self.workers, max_failures=0)
        with pipeline.auto_stop():
            yield from pipeline


class TfData(Other):
    """Tensors in memory. Each batch is gathered from them."""

    library = "tensorflow"

    def epoch(self, number: int) -> Iterator[Batch]:
        import tensorflow as tf

        if self.running is None:
            columns = [tf.constant(np.asarray(column)) for column in self.data.columns]
            samples = self.workload.samples
            rows = tf.data.Dataset.range(samples).shuffle(samples, seed=7).batch(self.workload.batch_size)
            options = tf.data.Options()
            options.threading.private_threadpool_size = self.workers
            gather = partial(_gather, columns)
            read = rows.map(gather, num_parallel_calls=self.workers)
            self.running = read.prefetch(tf.data.AUTOTUNE).with_options(options)
        return iter(self.running.as_numpy_iterator())


def _gather(columns: list[Any], rows: Any) -> tuple[Any, ...]:
    """Return the rows of each tensor."""
    import tensorflow as tf

    return tuple(tf.gather(column, rows) for column in columns)


make = partial(Variant, workloads=("arrays", "empty", "images"))
VARIANTS = (
    make(name="grain-processes", family="grain", open=Grain, needs=("grain",), copies=3),
    make(name="spdl-threads", family="spdl", open=Spdl, needs=("spdl",)),
    make(name="tf-data-gather", family="tensorflow", open=TfData, needs=("tensorflow",), copies=2,
         workloads=("arrays", "empty")),
)  # fmt: skip
