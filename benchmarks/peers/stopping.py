"""Loaders that are stopped: their epoch goes on from a saved state, or a blow hits one of their workers.

They deliver the rows of the workload ``numbered`` in an order that a seed fixes. webdataset and Hugging Face's read
their shards in order: from a state of the latter's shuffle, ``load_state_dict`` fails (datasets 5.2.0).

``torch-skip``, ``webdataset-skip`` and ``ray-data-skip`` have no state: they read the epoch again and throw away what
was delivered. ``torch-sampler`` and ``spdl-sampler`` have none either, but their programs keep the order of the epoch
and hand over the rest of it.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Feed, Variant
from benchmarks.peers.ray_cluster import Ray
from benchmarks.peers.torch_loader import Samples
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload

SEED, SHARDS = 7, 8


class Stopped(Feed):
    """A loader of the numbered rows. This one has no state, and skips batches.

    A subclass makes an iterator of batches in `begin`, and perhaps has a state of its own.
    """

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload, self.workers, self.size = workload, workers, workload.batch_size
        self.data = open_data(workload)
        self.order = np.random.default_rng(SEED).permutation(workload.samples)
        self.running: Any = None  # the loader or iterator of the epoch

    def begin(self) -> Iterator[Any]:
        """Make the loader, and return its iterator. A batch is an array of rows, or holds one as its first part."""
        raise NotImplementedError

    def epoch(self, number: int) -> Iterator[Batch]:
        return ((np.asarray(batch[0] if isinstance(batch, (tuple, list)) else batch),) for batch in self.begin())

    def state(self, taken: int) -> Any:
        """Return what is saved after so many batches."""
        return taken

    def resume(self, state: Any) -> Iterator[Batch]:
        """Return the batches after a state."""
        batches = self.epoch(0)
        for _ in islice(batches, state):
            pass
        return batches

    def close(self) -> None:
        if hasattr(self.running, "close"):
            self.running.close()
        self.running = None


class Ours(Stopped):
    """A ``Loader`` of ours with a pool."""

    def __init__(self, workload: Workload, workers: int, pool: str) -> None:
        super().__init__(workload, workers)
        self.pool = pool

    def begin(self) -> Iterator[Any]:
        import batchup_ng as bu

        if self.running is None:
            source = bu.ArrayDataSource(list(self.data.columns)).map(self.data.map)
            self.running = bu.Loader(source, self.size, shuffle=SEED, pool=self.pool, workers=self.workers)
        return iter(self.running)

    def state(self, taken: int) -> Any:
        return self.running.state_dict()

    def resume(self, state: Any) -> Iterator[Batch]:
        self.begin()
        self.running.load_state_dict(state)
        return self.epoch(0)


class Torch(Stopped):
    """PyTorch's loader."""

    start = 0

    def begin(self) -> Iterator[Any]:
        import torch.utils.data

        loader: Any = torch.utils.data.DataLoader
        sampler = self.order[self.start :].tolist()
        data = Samples(self.data, self.workload.samples)
        self.running = iter(loader(data, self.size, sampler=sampler, num_workers=self.workers))
        return iter(self.running)


class Sampler(Torch):
    """PyTorch's loader with the rest of the order."""

    def resume(self, state: Any) -> Iterator[Batch]:
        self.start = state * self.size
        return self.epoch(0)


class Stateful(Stopped):
    """``StatefulDataLoader`` of torchdata, which draws the order itself."""

    def make(self) -> Any:
        """Return the loader."""
        import torch
        from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-not-found]

        generator, data = torch.Generator().manual_seed(SEED), Samples(self.data, self.workload.samples)
        return StatefulDataLoader(data, self.size, shuffle=True, generator=generator, num_workers=self.workers)

    def begin(self) -> Iterator[Any]:
        if self.running is None:
            self.running = self.make()
        return iter(self.running)

    def state(self, taken: int) -> Any:
        return self.running.state_dict()

    def resume(self, state: Any) -> Iterator[Batch]:
        self.running = self.make()
        self.running.load_state_dict(state)
        return self.epoch(0)


class HuggingFace(Stateful):
    """An ``IterableDataset`` of Hugging Face's in a ``StatefulDataLoader``, as its guide on states shows."""

    def make(self) -> Any:
        import datasets  # type: ignore[import-untyped]  # ships no types
        from torchdata.stateful_dataloader import StatefulDataLoader

        table = datasets.Dataset.from_dict({"row": self.data.columns[0]}).to_iterable_dataset(num_shards=SHARDS)
        rows = table.map(self.read).with_format("torch")
        return StatefulDataLoader(rows, self.size, num_workers=self.workers, collate_fn=self.stacked)

    def read(self, sample: dict[str, int]) -> dict[str, int]:
        """Read one sample."""
        return {"row": int(self.data.sample(sample["row"])[0])}

    def stacked(self, samples: list[dict[str, Any]]) -> Any:
        """Return the rows of a batch."""
        return np.array([int(sample["row"]) for sample in samples])


class LitData(Stateful):
    """litdata's loader over a copy in its own format."""

    def make(self) -> Any:
        from litdata import StreamingDataLoader, StreamingDataset  # type: ignore[import-not-found]  # seldom installed
        from litdata.streaming.writer import BinaryWriter  # type: ignore[import-not-found]

        folder = Path(self.workload.folder, "litdata")
        if not folder.exists():
            folder.mkdir()
            writer = BinaryWriter(str(folder), chunk_size=self.workload.samples // SHARDS)
            for row in range(self.workload.samples):
                writer[row] = row
            writer.done()
            writer.merge()
        rows = StreamingDataset(str(folder), shuffle=True, seed=SEED, transform=self.read)
        return StreamingDataLoader(rows, batch_size=self.size, num_workers=self.workers)

    def read(self, row: Any, *rest: Any) -> Any:
        """Read one sample."""
        return int(self.data.sample(int(row))[0])


class Grain(Stopped):
    """Grain's ``MapDataset`` with worker processes."""

    def begin(self) -> Iterator[Any]:
        import grain  # type: ignore[import-not-found]  # seldom installed
        from absl import flags

        flags.FLAGS.mark_as_parsed()  # this program has none

        rows = grain.MapDataset.source(range(self.workload.samples)).shuffle(seed=SEED)
        batches = rows.map(partial(_sample, self.data)).batch(self.size).to_iter_dataset()
        self.running = iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=self.workers)))
        return self.running  # type: ignore[no-any-return]

    def state(self, taken: int) -> Any:
        return self.running.get_state()

    def resume(self, state: Any) -> Iterator[Batch]:
        self.begin()
        self.running.set_state(state)
        return ((batch,) for batch in self.running)


class WebData(Stopped):
    """A ``WebLoader`` over tar shards, in order."""

    def begin(self) -> Iterator[Any]:
        from webdataset import WebDataset, WebLoader  # type: ignore[import-untyped]  # ships no types

        folder = Path(self.workload.folder, "tars")
        if not folder.exists():
            folder.mkdir()
            for shard, rows in enumerate(np.array_split(np.arange(self.workload.samples), SHARDS)):
                with tarfile.open(folder / f"{shard}.tar", "w") as tar:
                    for row in rows.tolist():
                        member = tarfile.TarInfo(f"{row:06}.cls")
                        member.size = len(content := str(row).encode())
                        tar.addfile(member, io.BytesIO(content))
        data = WebDataset(sorted(map(str, folder.glob("*.tar"))), shardshuffle=False)
        batches = data.decode().to_tuple("cls").map(self.read).batched(self.size)
        self.running = iter(WebLoader(batches, batch_size=None, num_workers=self.workers))
        return self.running  # type: ignore[no-any-return]

    def read(self, sample: tuple[int]) -> Any:
        """Read one sample."""
        return self.data.sample(sample[0])


class TfData(Stopped):
    """``tf.data``, whose iterator is saved by a checkpoint. Its workers are threads."""

    def begin(self) -> Iterator[Any]:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        def read(row: Any) -> Any:
            return np.int64(self.data.sample(int(row))[0])

        samples = self.workload.samples
        rows = tf.data.Dataset.range(samples).shuffle(samples, seed=SEED, reshuffle_each_iteration=False)
        rows = rows.map(lambda row: tf.numpy_function(read, [row], tf.int64), num_parallel_calls=self.workers)
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        self.running = iter(rows.batch(self.size).prefetch(2).with_options(options))
        return (batch.numpy() for batch in self.running)

    def state(self, taken: int) -> Any:
        import tensorflow as tf

        with tempfile.TemporaryDirectory() as folder:
            tf.train.Checkpoint(iterator=self.running).write(f"{folder}/state")
            return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def resume(self, state: Any) -> Iterator[Batch]:
        import tensorflow as tf

        batches = self.epoch(0)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in state.items():
                Path(folder, name).write_bytes(content)
            tf.train.Checkpoint(iterator=self.running).read(f"{folder}/state")
        return batches


class Spdl(Stopped):
    """A pipeline of SPDL over the rest of the order. Its workers are threads."""

    start = 0

    def begin(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder  # type: ignore[import-not-found]  # seldom installed

        rest = self.order[self.start :]
        batches = [rest[at : at + self.size] for at in range(0, len(rest), self.size)]
        built = PipelineBuilder().add_source(batches).pipe(self.read, concurrency=self.workers, output_order="input")
        pipeline = built.add_sink(2).build(num_threads=self.workers)
        with pipeline.auto_stop():
            yield from pipeline

    def read(self, rows: Any) -> Any:
        """Read one batch."""
        return self.data.map(rows)[0] if self.data.map else rows

    def resume(self, state: Any) -> Iterator[Batch]:
        self.start = state * self.size
        return self.epoch(0)


class RayData(Ray, Stopped):
    """Ray Data over the rows in the order of the epoch."""

    def __init__(self, workload: Workload, workers: int) -> None:
        Ray.__init__(self, workload, workers)
        Stopped.__init__(self, workload, workers)

    def begin(self) -> Iterator[Any]:
        self.connect()
        self.ray.data.DataContext.get_current().execution_options.preserve_order = True
        self.ray.data.DataContext.get_current().enable_progress_bars = False
        rows = self.ray.data.from_numpy(np.array_split(self.order, self.workload.samples // (4 * self.size)))
        read = rows.map_batches(partial(_read, self.data), batch_size=self.size)
        return (batch["data"] for batch in read.iter_batches(batch_size=self.size, prefetch_batches=2))


def _sample(data: Any, row: int) -> Any:
    """Read one sample of Grain."""
    return data.sample(row)[0]


def _read(data: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Read one batch of Ray Data."""
    return {"data": data.map(batch["data"])[0]}


make = partial(Variant, workloads=("numbered",), usual=False)
VARIANTS = (
    make(name="ours-loader-processes", family=OURS, open=partial(Ours, pool="processes")),
    make(name="ours-loader-threads", family=OURS, open=partial(Ours, pool="threads")),
    make(name="torch-skip", family="torch", open=Torch, needs=("torch",)),
    make(name="torch-sampler", family="torch", open=Sampler, needs=("torch",)),
    make(name="torchdata-stateful", family="torch", open=Stateful, needs=("torch", "torchdata")),
    make(name="tf-data-checkpoint", family="tensorflow", open=TfData, needs=("tensorflow",)),
    make(name="datasets-stateful", family="datasets", open=HuggingFace, needs=("datasets", "torchdata")),
    make(name="grain", family="grain", open=Grain, needs=("grain",)),
    make(name="litdata-stateful", family="litdata", open=LitData, needs=("litdata", "torch")),
    make(name="ray-data-skip", family="ray", open=RayData, needs=("ray",)),
    make(name="spdl-sampler", family="spdl", open=Spdl, needs=("spdl",)),
    make(name="webdataset-skip", family="webdataset", open=WebData, needs=("webdataset", "torch")),
)
IN_THREADS = ("ours-loader-threads", "tf-data-checkpoint", "spdl-sampler")
"""Variants whose workers are threads, so none can be killed."""
