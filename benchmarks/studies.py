"""The registry of studies: the comparisons and table columns of each ``python -m benchmarks NAME``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial

from benchmarks.formats import FORMATS
from benchmarks.peers import adapters, augmentations, cached, devices, ray_cluster, tf_cache
from benchmarks.peers.torch_dataloader import VARIANTS as DATALOADERS
from benchmarks.plan import Part, Study, unchanged
from benchmarks.records import Epoch, Outcome, Reading, figure, first_batch, per_batch, rate
from benchmarks.report import formats
from benchmarks.report.columns import Column, first_cell, number, with_range
from benchmarks.workloads import KINDS
from benchmarks.workloads.base import Workload
from benchmarks.workloads.storage import stored

MEGA, MILLI, MICRO, PERCENT = 1e-6, 1e3, 1e6, 100.0
"""Factors from bytes or a rate, seconds, and shares to the unit of a column."""

GIGABYTES = rate("bytes", 1e-9)
BATCHES = rate("batches")
BARE = ("plain", "plain-threads", "plain-processes")
DECODERS = (
    "plain-threads", "plain-turbo", "plain-fast", "ours-pillow", "ours-turbo", "ours-fast", "ours-fast-processes",
    "torch-workers", "torch-opencv", "tf-data", "batchup-threads",
)  # fmt: skip
WORKERS = ("ours-threads", "ours-processes", "torch-workers", "torch-getitems")


def throughput(
    name: str, title: str, unit: str, reading: Reading, epochs: int = 1, usual: tuple[str, ...] = (), rows: int = 0
) -> Study:
    """Return a study of a workload at full speed, with `epochs` epochs per turn."""
    columns = (
        *with_range(f"{unit}, median", reading),
        Column("batches/s", BATCHES),
        Column("first epoch, s", lambda epoch: epoch.seconds, first_cell),
        Column("first batch, ms", first_batch(MILLI), first_cell),
        Column("CPU of all processes, µs a batch", per_batch("cpu_seconds", MICRO)),
    )
    part = Part(
        name=name, title=title, kind=name.replace("-", "_"), unit=unit, reading=reading, columns=columns, usual=usual,
        adapt=partial(with_rows, rows=rows) if rows else unchanged,
    )  # fmt: skip
    return Study(name=name, title=f"{name}: {title}", parts=(replace(part, settings={"epochs": epochs}),))


def with_rows(workload: Workload, rows: int) -> Workload:
    """Return the workload in batches of `rows` rows."""
    return replace(workload, batch_size=rows)


SIZES = {1: "49 kB", 2: "98 kB", 21: "1.0 MB", 64: "3.1 MB", 213: "10 MB", 1365: "67 MB"}
"""Rows of a batch, with its bytes.

The number of rows varies, on the same data. If the bytes of a sample varied instead, every batch would have 64 samples,
and loaders that fetch one sample at a time would have that cost in every small batch. So 64 kB lies between one row and
two; 1, 10 and 64 MB are the nearest numbers of rows above, in binary megabytes.
"""


def sizes(rows: int, size: str) -> Part:
    """Return a part: the ``arrays`` workload in batches of `rows` rows, several short epochs per turn."""
    return Part(
        name=f"{rows} rows", title=f"{rows:,} row{'s' if rows > 1 else ''}, {size}", kind="arrays", unit="GB/s",
        reading=GIGABYTES, columns=(), usual=(*BARE, "ours-serial", *WORKERS), adapt=partial(with_rows, rows=rows),
        settings={"epochs": 3 if rows > 2 else 1},
    )  # fmt: skip


STARTERS = ("ours-processes", "ours-spawn", "torch-getitems", "torch-forkserver", "torch-spawn", "batchup-processes")
STARTUP = Part(
    name="memory",
    title="Data in memory, as one array",
    kind="arrays",
    unit="s to the first batch",
    reading=first_batch(),
    less_is_better=True,
    columns=(
        *with_range("first batch, s", first_batch()),
        Column("another pool, s", figure("again_seconds")),
        Column("next epoch's first, ms", figure("next_first_batch_seconds", MILLI)),
        Column("private to a worker, MB", figure("worker_private_bytes", MEGA)),
        Column("all processes grew by, MB", figure("growth_bytes", MEGA)),
        Column("one plain copy of the data, s", figure("copy_seconds")),
    ),
    usual=(*STARTERS, "torch-tensors"),
    trial="startup",
    fresh=True,
)


def mapped(workload: Workload) -> Workload:
    """Return the workload with arrays that stay in their file."""
    return replace(workload, mapped=True)


EMPTY = Part(
    name="empty",
    title="Batches of 64 samples of 4 bytes, a map that does nothing",
    kind="empty",
    unit="batches/s",
    reading=BATCHES,
    columns=(
        *with_range("batches/s, median", BATCHES),
        Column("µs a batch", lambda epoch: MICRO * epoch.seconds / epoch.batches),
        Column("CPU of the consumer's process, µs a batch", per_batch("consumer_cpu_seconds", MICRO)),
        Column("of all processes", per_batch("cpu_seconds", MICRO)),
    ),
)


EPOCH_2 = Part(
    name="cached",
    title="JPEG files decoded to 224x224 RGB, kept from the first epoch on; rates of later epochs",
    kind="images",
    unit="images/s",
    reading=rate("samples"),
    columns=(
        *with_range("images/s, median", rate("samples")),
        Column("GB/s", GIGABYTES),
        Column("first epoch, s", lambda epoch: epoch.seconds, first_cell),
        Column("PSS, MB", figure("pss", MEGA)),
    ),
    usual=(*(variant.name for variant in cached.VARIANTS), "tf-data", *(variant.name for variant in tf_cache.VARIANTS)),
    settings={"epochs": 5},
)


def cpu_per_gigabyte(epoch: Epoch) -> float:
    """Return user and system seconds of all processes per delivered gigabyte."""
    return epoch.figures["cpu_seconds"] / (epoch.bytes * 1e-9)


def cpu(rows: int, *more: str) -> Part:
    """Return a part: CPU time of the ``arrays`` workload in batches of `rows` rows, ten short epochs per turn."""
    columns = (
        *with_range("CPU s a GB, median", cpu_per_gigabyte),
        Column("GB/s", GIGABYTES),
        Column("CPUs busy", lambda epoch: epoch.figures["cpu_seconds"] / epoch.seconds),
    )
    return Part(
        name=f"cpu {rows} rows", title=f"CPU time of the arrays workload, all processes, {rows:,} rows a batch",
        kind="arrays", unit="CPU s/GB", reading=cpu_per_gigabyte, less_is_better=True, columns=columns,
        usual=(*BARE, *more, *WORKERS[:2]), adapt=partial(with_rows, rows=rows), settings={"epochs": 10},
    )  # fmt: skip


STEP = Column("the consumer's step, ms", figure("step_seconds", MILLI))
CONSUMED = {"arrays": "arrays in memory", "images": "JPEG files", "python": "pure-Python work"}


def slow(kind: str, title: str) -> Part:
    """Return a part: the waiting share of a consumer that sleeps long."""
    waited = figure("waited_later")
    columns = (
        Column("a batch at full speed, ms", figure("pace_seconds", MILLI)),
        STEP,
        *with_range("waits, %", figure("waited_later", PERCENT)),
        Column("with the first batch, %", figure("waited", PERCENT)),
    )
    return Part(
        name=f"slow-{kind}", title=f"A consumer that sleeps for the time of two batches: {title}", kind=kind,
        unit="share waited after the first batch", reading=waited, less_is_better=True, columns=columns,
        usual=WORKERS, trial="consumer",
    )  # fmt: skip


def busy(kind: str, title: str) -> Part:
    """Return a part: speed and batches of a consumer whose step keeps the interpreter busy for about 20 ms."""
    columns = (STEP, *with_range("of its speed alone, %", figure("alone", PERCENT)), *with_range("batches/s", BATCHES))
    return Part(
        name=f"busy-{kind}", title=f"A consumer that runs 20 ms of Python on each batch: {title}", kind=kind,
        unit="batches/s", reading=BATCHES, columns=columns, usual=("ours-serial", "ours-one-process", *WORKERS),
        trial="consumer", settings={"loops": 300_000},
    )  # fmt: skip


def handed_over(kind: str, rows: int, title: str) -> Part:
    """Return a part: with each adapter, the waiting share of a consumer that asks for nine tenths of the rate."""
    return replace(
        slow(kind, ""), name=f"adapters-{kind}", title=f"A consumer at 90 % of the pipeline's rate: {title}",
        usual=tuple(variant.name for variant in adapters.VARIANTS), adapt=partial(with_rows, rows=rows),
        settings={"load": 0.9},
    )  # fmt: skip


def no_gpu() -> str:
    """Return why no GPU can be measured. Another process checks: this one must not load CUDA."""
    look = [sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"]
    return "" if subprocess.run(look, capture_output=True, check=False).returncode == 0 else "there is no CUDA device"


def on_device(kind: str, title: str) -> Part:
    """Return a part: steps per second of a network on a device, and the waits of the device."""
    columns = (
        *with_range("steps/s, median", BATCHES),
        Column("images/s", rate("samples")),
        Column("a step, ms", figure("step_seconds", MILLI)),
        Column("busy, %", figure("busy", PERCENT)),
        Column("gaps, ms", figure("gap_seconds", MILLI)),
        Column("longest gap, ms", figure("longest_gap_seconds", MILLI)),
        Column("CPU of all processes, ms a step", per_batch("cpu_seconds", MILLI)),
    )
    return Part(
        name=f"gpu-{kind}", title=title, kind=kind, unit="steps/s", reading=BATCHES, columns=columns,
        usual=tuple(variant.name for variant in devices.VARIANTS), adapt=partial(with_rows, rows=128),
        trial="training", settings={"steps": 60, "warm": 5, "width": 64},
    )  # fmt: skip


def half_way(outcome: Outcome, reading: Reading) -> str:
    """Return the reading after half of the epochs, when buffers have reached their full size."""
    return number(reading(outcome.rounds[len(outcome.rounds) // 2]))


def furthest(outcome: Outcome, reading: Reading) -> str:
    """Return the largest difference of a later epoch from the middle one, up or down."""
    middle, *later = map(reading, outcome.rounds[len(outcome.rounds) // 2 :])
    return number(max((value - middle for value in later), key=abs, default=0.0))


MEMORY = Part(
    name="fifty",
    title="Images in memory, fifty epochs",
    kind="arrays",
    unit="MB (PSS)",
    reading=figure("pss", MEGA),
    less_is_better=True,
    columns=tuple(
        column
        for title, reading in (("PSS, MB", figure("pss", MEGA)), ("descriptors", figure("descriptors")))
        for column in (Column(title, reading, half_way), Column("furthest from it later", reading, furthest))
    ),
    usual=("ours-serial", "ours-threads", "ours-one-process", "ours-processes", "torch-getitems"),
)
ORDER = Part(
    name="rows",
    title="Row numbers alone",
    kind="order",
    unit="s to the first batch",
    reading=first_batch(),
    less_is_better=True,
    columns=(
        *with_range("first batch, ms", first_batch(MILLI)),
        Column("whole epoch, s", lambda epoch: epoch.seconds),
        Column("rows a second, M", rate("samples", 1e-6)),
        Column("memory grew by, MB", figure("growth_bytes", MEGA)),
    ),
    usual=("plain", "ours-serial", "batchup-serial"),
    fresh=True,
)
RAY = {
    "arrays": ("Arrays in memory", "GB/s", GIGABYTES, 2),
    "images": ("JPEG files decoded to 224x224 RGB", "images/s", rate("samples"), 1),
    "empty": ("Batches of 64 samples of 4 bytes, a map that does nothing", "batches/s", BATCHES, 1),
}
"""Workloads for Ray: the title, the main figure, the epochs per turn."""


def on_ray(kind: str, title: str, unit: str, reading: Reading, epochs: int) -> Part:
    """Return a part: the rate of actors on this machine, and the time to the first batch, including Ray's start."""
    columns = (
        *with_range(f"{unit}, median", reading),
        Column("ms a batch", lambda epoch: MILLI * epoch.seconds / epoch.batches),
        Column("first batch, s", first_batch()),
        Column("of that Ray's start, s", figure("connect_seconds")),
        Column("CPU of all processes, ms a batch", per_batch("cpu_seconds", MILLI)),
    )
    usual = ("ours-processes", *(variant.name for variant in ray_cluster.VARIANTS if kind in variant.workloads))
    return Part(
        name=f"ray-{kind}", title=title, kind=kind, unit=unit, reading=reading, columns=columns, usual=usual,
        settings={"epochs": epochs}, trial="started", fresh=True,
    )  # fmt: skip


LOADED = {
    "digits": ("TensorDataset, 60,000 pictures of 784 bytes", 256, 5),
    "arrays": ("TensorDataset, 20,000 pictures of 49 kB", 64, 1),
    "python": ("Python-heavy samples", 64, 1),
    "images": ("JPEG files", 64, 1),
    "table": ("A table of Hugging Face's", 64, 1),
}
"""Workloads for PyTorch: the title, the rows of a batch, the epochs per turn."""


def loaded(kind: str, title: str, rows: int, epochs: int) -> Part:
    """Return a part: the rate of a ``DataLoader`` alone and on our pools, and the time to its first batch."""
    samples = rate("samples")
    usual = tuple(variant.name for variant in DATALOADERS if kind in variant.workloads)
    columns = (*with_range("samples/s, median", samples), Column("first batch, ms", first_batch(MILLI), first_cell))
    return Part(
        name=f"dataloader-{kind}", title=title, kind=kind, unit="samples/s", reading=samples, columns=columns,
        usual=usual, adapt=partial(with_rows, rows=rows), settings={"epochs": epochs},
    )  # fmt: skip


def augmented(place: int, about: augmentations.Operation) -> Part:
    """Return a part: one operation on batches of images in memory, in all libraries."""
    samples = rate("samples")
    milliseconds = Column("ms a batch", lambda epoch: MILLI * epoch.seconds / epoch.batches)
    who = [variant.name for variant in augmentations.VARIANTS]
    return Part(
        name=about.name, title=about.title, kind="photographs", unit="images/s", reading=samples,
        columns=(milliseconds, *with_range("images/s", samples)), trial="operation",
        usual=tuple(name for name in who if not (about.whole and name == "torchvision-images")),
        adapt=lambda workload: replace(workload, detail={"operation": place}),
    )  # fmt: skip


LIBRARIES = {
    "tar-blocks": ("webdataset", "litdata"), "tar-contiguous": ("webdataset", "litdata"), "arrow-random": ("datasets",),
    "arrow-contiguous": ("datasets",), "parquet-contiguous": ("datasets-stream",),
}  # fmt: skip
"""Variants that can read the files of only some parts, and litdata, which has a copy in its own format."""


def file_of(kind: str, order: str) -> Part:
    """Return a part: the time of a batch of a file in an order; two epochs per turn, or one if epochs are slow."""
    form, name = FORMATS[kind], f"{kind}-{order}"
    own = ("plain-blocks", "ours-serial", *WORKERS[:2]) if order == "blocks" else ("plain", "ours-serial", *WORKERS[:3])
    return Part(
        name=name, title=f"{form.title}, {formats.ORDERS[order]}", kind="storage", unit="ms a batch",
        reading=lambda epoch: MILLI * epoch.seconds / epoch.batches, less_is_better=True, columns=(),
        usual=(*own, *LIBRARIES.get(name, ())), adapt=partial(stored, name=kind, order=order), needs=form.needs,
        settings={"epochs": 1 if form.drawn else 2},
    )  # fmt: skip


ALL = (
    throughput("arrays", "shuffled batches of uint8 images in RAM", "GB/s", GIGABYTES, epochs=5),
    throughput("images", "JPEG files decoded to 224x224 RGB", "images/s", rate("samples"), usual=DECODERS),
    throughput(
        "images-large",
        "JPEG files of 12 megapixels decoded to 224x224 RGB",
        "images/s",
        rate("samples"),
        usual=(*(name for name in DECODERS if not name.startswith("batchup")), "tf-data-reduced"),
        rows=16,
    ),
    Study(name="images-epoch-2", title="images-epoch-2: decode once, train many epochs", parts=(EPOCH_2,)),
    throughput("python", "pure-Python work on each sample", "samples/s", rate("samples")),
    Study(
        name="sizes",
        title="sizes: the arrays workload by the bytes of a batch",
        parts=tuple(sizes(rows, size) for rows, size in SIZES.items()),
        across=True,
    ),
    Study(
        name="startup",
        title="startup: from nothing to the first batch",
        rounds=3,
        parts=(
            replace(STARTUP, name="new", title="Next to no data: a new pool", kind="empty", usual=STARTERS),
            STARTUP,
            replace(STARTUP, name="mapped", title="Data in a mapped `.npy` file", usual=STARTERS, adapt=mapped),
        ),
    ),
    Study(
        name="overhead",
        title="overhead: what a batch costs beside its work",
        parts=(EMPTY, cpu(64, "ours-serial", *WORKERS[2:], "batchup-threads"), cpu(213), cpu(1365)),
    ),
    Study(
        name="consumer",
        title="consumer: how loader and training loop get on",
        rounds=3,
        parts=tuple(part(kind, title) for part in (slow, busy) for kind, title in CONSUMED.items()),
    ),
    Study(
        name="adapters",
        title="adapters: a loader handed over to frameworks",
        parts=(
            handed_over("remote", 8, "a storage far away, by threads"),
            handed_over("images", 8, "JPEG files, by threads"),
            handed_over("python", 8, "pure-Python work, by processes"),
        ),
    ),
    Study(
        name="gpu",
        title="gpu: a network like ResNet-50, in bfloat16, at 224x224",
        parts=(on_device("decoded", "Fed from decoded arrays"), on_device("images", "Fed from JPEG files")),
        lack=no_gpu,
    ),
    Study(name="memory", title="memory: all processes, epoch after epoch", rounds=49, parts=(MEMORY,)),
    Study(
        name="dataloader",
        title="dataloader: a `DataLoader` of PyTorch's, by itself and by `from_dataloader`",
        parts=tuple(loaded(kind, *about) for kind, about in LOADED.items()),
    ),
    Study(
        name="augment",
        title="augment: operations on batches of 64 images, 224x224x3, by one thread",
        parts=tuple(augmented(*each) for each in enumerate(augmentations.OPERATIONS)),
        rounds=7,
    ),
    Study(
        name="ray",
        title="ray: actors of Ray's on one machine",
        rounds=3,
        parts=tuple(on_ray(kind, *about) for kind, about in RAY.items()),
    ),
    Study(
        name="storage",
        title="storage: files of several formats, in the page cache",
        parts=tuple(
            file_of(kind, order)
            for kind, form in FORMATS.items()
            for order in formats.ORDERS
            if form.chunk or order != "blocks"
        ),
        tables=formats.tables,
    ),
    Study(name="order", title="order: shuffling 10⁸ rows", rounds=3, parts=(ORDER,)),
)
_named = {part.kind for study in ALL for part in study.parts}
_rest = [throughput(kind, "epochs at full speed", "samples/s", rate("samples")) for kind in KINDS if kind not in _named]
STUDIES = {study.name: study for study in (*ALL, *_rest)}
