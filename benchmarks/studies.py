"""The registry of studies: the comparisons and table columns of each ``python -m benchmarks NAME``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from benchmarks.formats import FORMATS
from benchmarks.peers import adapters, augmentations, devices, ray_cluster, stopping
from benchmarks.peers.ours import CACHED
from benchmarks.peers.torch_loader import DATALOADERS
from benchmarks.plan import Part, Study
from benchmarks.records import Reading
from benchmarks.report import formats
from benchmarks.report.columns import Column, first_cell, furthest_cell, half_way_cell, most_cell, note_cell, with_range
from benchmarks.workloads import KINDS

MEGA, MILLI, MICRO, PERCENT = 1e-6, 1e3, 1e6, 100.0
"""Factors from bytes or a rate, seconds, and shares to the unit of a column."""

GIGABYTES = Reading("bytes", per="seconds", times=1e-9)
SAMPLES = Reading("samples", per="seconds")
BATCHES = Reading("batches", per="seconds")
FIRST_BATCH = Reading("first_batch_seconds")
FIRST_BATCH_MS = Reading("first_batch_seconds", times=MILLI)
BATCH_MS = Reading("seconds", per="batches", times=MILLI)
CPU_OF_GIGABYTE = Reading("cpu_seconds", per="bytes", times=1e9)
CPU_OF_BATCH_MS = Reading("cpu_seconds", per="batches", times=MILLI)
CPU_OF_BATCH_US = Reading("cpu_seconds", per="batches", times=MICRO)
PSS = Reading("pss", times=MEGA)
STEP_MS = Reading("step_seconds", times=MILLI)
GROWTH = Reading("growth_bytes", times=MEGA)
FIRST_EPOCH = Column("first epoch, s", Reading("seconds"), first_cell)

BARE = ("plain", "plain-threads", "plain-processes")
WORKERS = ("ours-threads", "ours-processes", "torch-workers", "torch-getitems")
DECODERS = (
    "plain-threads", "plain-turbo", "plain-fast", "ours-pillow", "ours-turbo", "ours-fast", "ours-fast-processes",
    "torch-workers", "torch-opencv", "tf-data", "grain-processes", "spdl-threads", "batchup-threads",
)  # fmt: skip


def throughput(
    name: str, title: str, unit: str, reading: Reading = SAMPLES, epochs: int = 1, usual: tuple[str, ...] = (),
    rows: int = 0,
) -> Study:  # fmt: skip
    """Return a study of a workload at full speed, with `epochs` epochs per turn."""
    columns = (
        *with_range(f"{unit}, median", reading),
        Column("batches/s", BATCHES),
        FIRST_EPOCH,
        Column("first batch, ms", FIRST_BATCH_MS, first_cell),
        Column("CPU of all processes, µs a batch", CPU_OF_BATCH_US),
    )
    part = Part(
        name=name, title=title, kind=name.replace("-", "_"), unit=unit, reading=reading, columns=columns, usual=usual,
        changes={"batch_size": rows} if rows else {}, settings={"epochs": epochs},
    )  # fmt: skip
    return Study(name=name, title=f"{name}: {title}", parts=(part,))


EPOCH_2 = Part(
    name="cached", title="JPEG files decoded to 224x224 RGB, kept from the first epoch on; rates of later epochs",
    kind="images", unit="images/s", reading=SAMPLES, settings={"epochs": 5},
    columns=(
        *with_range("images/s, median", SAMPLES), Column("GB/s", GIGABYTES), FIRST_EPOCH, Column("PSS, MB", PSS),
    ),
    usual=(*CACHED, "tf-data", "tf-cache-memory", "tf-cache-file"),
)  # fmt: skip

SIZES = {1: "49 kB", 2: "98 kB", 21: "1.0 MB", 64: "3.1 MB", 213: "10 MB", 1365: "67 MB"}
"""Rows of a batch, with its bytes.

The number of rows varies, on the same data. If the bytes of a sample varied instead, every batch would have 64 samples,
and loaders that fetch one sample at a time would have that cost in every small batch. So 64 kB lies between one row and
two; 1, 10 and 64 MB are the nearest numbers of rows above, in binary megabytes.
"""
BY_SIZE = tuple(
    Part(
        name=f"{rows} rows", title=f"{rows:,} row{'s' if rows > 1 else ''}, {size}", kind="arrays", unit="GB/s",
        reading=GIGABYTES, columns=(), usual=(*BARE, "ours-serial", *WORKERS[:2], "torch-getitems"),
        changes={"batch_size": rows}, settings={"epochs": 3 if rows > 2 else 1},
    )
    for rows, size in SIZES.items()
)  # fmt: skip

STARTERS = (
    "ours-processes", "ours-spawn", "torch-getitems", "torch-forkserver", "torch-spawn", "grain-processes",
    "batchup-processes",
)  # fmt: skip
STARTUP = Part(
    name="memory", title="Data in memory, as one array", kind="arrays", unit="s to the first batch",
    reading=FIRST_BATCH, less_is_better=True, trial="startup", fresh=True, usual=(*STARTERS, "torch-tensors"),
    columns=(
        *with_range("first batch, s", FIRST_BATCH),
        Column("another pool, s", Reading("again_seconds")),
        Column("next epoch's first, ms", Reading("next_first_batch_seconds", times=MILLI)),
        Column("private to a worker, MB", Reading("worker_private_bytes", times=MEGA)),
        Column("all processes grew by, MB", GROWTH),
        Column("one plain copy of the data, s", Reading("copy_seconds")),
    ),
)  # fmt: skip
STARTS = (
    replace(STARTUP, name="new", title="Next to no data: a new pool", kind="empty", usual=STARTERS),
    STARTUP,
    replace(
        STARTUP, name="mapped", title="Data in a mapped `.npy` file", usual=STARTERS[:4], changes={"mapped": True},
    ),
)

EMPTY = Part(
    name="empty", title="Batches of 64 samples of 4 bytes, a map that does nothing", kind="empty", unit="batches/s",
    reading=BATCHES,
    columns=(
        *with_range("batches/s, median", BATCHES),
        Column("µs a batch", Reading("seconds", per="batches", times=MICRO)),
        Column("CPU of the consumer's process, µs a batch", Reading("consumer_cpu_seconds", "batches", MICRO)),
        Column("of all processes", CPU_OF_BATCH_US),
    ),
)  # fmt: skip
CPU = tuple(
    Part(
        name=f"cpu {rows} rows", title=f"CPU time of the arrays workload, all processes, {rows:,} rows a batch",
        kind="arrays", unit="CPU s/GB", reading=CPU_OF_GIGABYTE, less_is_better=True, changes={"batch_size": rows},
        settings={"epochs": 10}, usual=(*BARE, *WORKERS[:2], *more),
        columns=(
            *with_range("CPU s a GB, median", CPU_OF_GIGABYTE),
            Column("GB/s", GIGABYTES),
            Column("CPUs busy", Reading("cpu_seconds", per="seconds")),
        ),
    )
    for rows, more in ((64, ("ours-serial", *WORKERS[2:], "batchup-threads")), (213, ()), (1365, ()))
)  # fmt: skip

SLEEPING = Part(
    name="", title="", kind="", unit="share waited after the first batch", reading=Reading("waited_later"),
    less_is_better=True, trial="consumer", usual=WORKERS,
    columns=(
        Column("a batch at full speed, ms", Reading("pace_seconds", times=MILLI)),
        Column("the consumer's step, ms", STEP_MS),
        *with_range("waits, %", Reading("waited_later", times=PERCENT)),
        Column("with the first batch, %", Reading("waited", times=PERCENT)),
    ),
)  # fmt: skip
BUSY = replace(
    SLEEPING, unit="batches/s", reading=BATCHES, less_is_better=False, settings={"loops": 300_000},
    usual=("ours-serial", "ours-one-process", *WORKERS),
    columns=(
        Column("the consumer's step, ms", STEP_MS),
        *with_range("of its speed alone, %", Reading("alone", times=PERCENT)),
        *with_range("batches/s", BATCHES),
    ),
)  # fmt: skip
CONSUMERS = tuple(
    replace(part, name=f"{name}-{kind}", title=f"{title}: {what}", kind=kind)
    for part, name, title in (
        (SLEEPING, "slow", "A consumer that sleeps for the time of two batches"),
        (BUSY, "busy", "A consumer that runs 20 ms of Python on each batch"),
    )
    for kind, what in (("arrays", "arrays in memory"), ("images", "JPEG files"), ("python", "pure-Python work"))
)
HANDED_OVER = tuple(
    replace(
        SLEEPING, name=f"adapters-{kind}", title=f"A consumer at 90 % of the pipeline's rate: {what}", kind=kind,
        usual=tuple(variant.name for variant in adapters.VARIANTS), changes={"batch_size": 8}, settings={"load": 0.9},
    )
    for kind, what in (
        ("remote", "a storage far away, by threads"), ("images", "JPEG files, by threads"),
        ("python", "pure-Python work, by processes"),
    )
)  # fmt: skip

ON_DEVICE = tuple(
    Part(
        name=f"gpu-{kind}", title=f"Fed from {what}", kind=kind, unit="steps/s", reading=BATCHES, trial="training",
        usual=tuple(variant.name for variant in devices.VARIANTS), changes={"batch_size": 128},
        settings={"steps": 60, "warm": 5, "width": 64},
        columns=(
            *with_range("steps/s, median", BATCHES),
            Column("images/s", SAMPLES),
            Column("a step, ms", STEP_MS),
            Column("busy, %", Reading("busy", times=PERCENT)),
            Column("gaps, ms", Reading("gap_seconds", times=MILLI)),
            Column("longest gap, ms", Reading("longest_gap_seconds", times=MILLI)),
            Column("CPU of all processes, ms a step", CPU_OF_BATCH_MS),
        ),
    )
    for kind, what in (("decoded", "decoded arrays"), ("images", "JPEG files"))
)  # fmt: skip


def no_gpu() -> str:
    """Return why no GPU can be measured. Another process checks: this one must not load CUDA."""
    look = [sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"]
    return "" if subprocess.run(look, capture_output=True, check=False).returncode == 0 else "there is no CUDA device"


MEMORY = Part(
    name="fifty", title="Images in memory, fifty epochs", kind="arrays", unit="MB (PSS)", reading=PSS,
    less_is_better=True,
    columns=tuple(
        column
        for title, reading in (("PSS, MB", PSS), ("descriptors", Reading("descriptors")))
        for column in (Column(title, reading, half_way_cell), Column("furthest from it later", reading, furthest_cell))
    ),
    usual=("ours-serial", "ours-threads", "ours-one-process", "ours-processes", "torch-getitems"),
)  # fmt: skip
ORDER = Part(
    name="rows", title="Row numbers alone", kind="order", unit="s to the first batch", reading=FIRST_BATCH,
    less_is_better=True, fresh=True, usual=("plain", "ours-serial", "batchup-serial"),
    columns=(
        *with_range("first batch, ms", FIRST_BATCH_MS),
        Column("whole epoch, s", Reading("seconds")),
        Column("rows a second, M", Reading("samples", per="seconds", times=1e-6)),
        Column("memory grew by, MB", GROWTH),
    ),
)  # fmt: skip

LOST, TWICE = Reading("lost"), Reading("twice")
STOPPED = Part(
    name="", title="", kind="numbered", unit="s to the first batch", reading=FIRST_BATCH, less_is_better=True,
    trial="resume", fresh=True, usual=tuple(each.name for each in stopping.VARIANTS),
    columns=(
        *with_range("first batch, s", FIRST_BATCH),
        Column("rows lost", LOST, most_cell),
        Column("rows twice", TWICE, most_cell),
        Column("state, bytes", Reading("state_bytes")),
    ),
)  # fmt: skip
RESUMED = tuple(
    replace(STOPPED, name=f"resume-{tenths}0", title=f"After {tenths}0 % of the epoch", settings={"share": tenths / 10})
    for tenths in (5, 9)
)
REACTION = Reading("reaction_seconds")
CRASHED = tuple(
    replace(
        STOPPED, name=f"crash-{blow}", title=title, unit="s until the loop knows", reading=REACTION, trial="crash",
        settings={"limit": 30.0}, changes={"detail": {"blow": blow, "row": 320}},
        usual=tuple(name for name in STOPPED.usual if blow != "kill" or name not in stopping.IN_THREADS),
        columns=(
            Column("how it ends", Reading("end"), note_cell), *with_range("s until the loop knows", REACTION),
            Column("rows lost", LOST, most_cell), Column("rows twice", TWICE, most_cell),
        ),
    )
    for blow, title in (
        ("kill", "A worker process is killed (SIGKILL)"), ("memory", "A worker raises MemoryError"),
        ("error", "A worker raises ValueError"),
    )
)  # fmt: skip

ON_RAY = tuple(
    Part(
        name=f"ray-{kind}", title=title, kind=kind, unit=unit, reading=reading, settings={"epochs": epochs},
        trial="started", fresh=True,
        usual=("ours-processes", *(each.name for each in ray_cluster.VARIANTS if kind in each.workloads)),
        columns=(
            *with_range(f"{unit}, median", reading),
            Column("ms a batch", BATCH_MS),
            Column("first batch, s", FIRST_BATCH),
            Column("of that Ray's start, s", Reading("connect_seconds")),
            Column("CPU of all processes, ms a batch", CPU_OF_BATCH_MS),
        ),
    )
    for kind, title, unit, reading, epochs in (
        ("arrays", "Arrays in memory", "GB/s", GIGABYTES, 2),
        ("images", "JPEG files decoded to 224x224 RGB", "images/s", SAMPLES, 1),
        ("empty", EMPTY.title, "batches/s", BATCHES, 1),
    )
)  # fmt: skip

LOADED = tuple(
    Part(
        name=f"dataloader-{kind}", title=title, kind=kind, unit="samples/s", reading=SAMPLES,
        columns=(*with_range("samples/s, median", SAMPLES), Column("first batch, ms", FIRST_BATCH_MS, first_cell)),
        usual=tuple(variant.name for variant in DATALOADERS if kind in variant.workloads),
        changes={"batch_size": rows}, settings={"epochs": epochs},
    )
    for kind, title, rows, epochs in (
        ("digits", "TensorDataset, 60,000 pictures of 784 bytes", 256, 5),
        ("arrays", "TensorDataset, 20,000 pictures of 49 kB", 64, 1),
        ("python", "Python-heavy samples", 64, 1),
        ("images", "JPEG files", 64, 1),
        ("table", "A table of Hugging Face's", 64, 1),
    )
)  # fmt: skip

AUGMENTED = tuple(
    Part(
        name=about.name, title=about.title, kind="photographs", unit="images/s", reading=SAMPLES, trial="operation",
        columns=(Column("ms a batch", BATCH_MS), *with_range("images/s", SAMPLES)),
        usual=("ours-augment", *(() if about.whole else ("torchvision-images",)), "torchvision-batch"),
        changes={"detail": {"operation": place}},
    )
    for place, about in enumerate(augmentations.OPERATIONS)
)  # fmt: skip

LIBRARIES = {
    "tar-blocks": ("webdataset", "litdata"), "tar-contiguous": ("webdataset", "litdata"), "arrow-random": ("datasets",),
    "arrow-contiguous": ("datasets",), "parquet-contiguous": ("datasets-stream",),
}  # fmt: skip
"""Variants that can read the files of only some parts, and litdata, which has a copy in its own format."""
BLOCKS, ANY = ("plain-blocks", "ours-serial", *WORKERS[:2]), ("plain", "ours-serial", *WORKERS[:3])
FILES = tuple(
    Part(
        name=f"{kind}-{order}", title=f"{form.title}, {how}", kind="storage", unit="ms a batch", reading=BATCH_MS,
        less_is_better=True, columns=(), needs=form.needs, changes={"order": order, "detail": {"format": kind}},
        usual=(*(BLOCKS if order == "blocks" else ANY), *LIBRARIES.get(f"{kind}-{order}", ())),
        settings={"epochs": 1 if form.drawn else 2},
    )
    for kind, form in FORMATS.items()
    for order, how in formats.ORDERS.items()
    if form.chunk or order != "blocks"
)  # fmt: skip

ALL = (
    throughput("arrays", "shuffled batches of uint8 images in RAM", "GB/s", GIGABYTES, epochs=5),
    throughput("images", "JPEG files decoded to 224x224 RGB", "images/s", usual=DECODERS),
    throughput("images-large", "JPEG files of 12 megapixels decoded to 224x224 RGB", "images/s", rows=16,
               usual=(*DECODERS[:-3], "tf-data-reduced")),
    Study(name="images-epoch-2", title="images-epoch-2: decode once, train many epochs", parts=(EPOCH_2,)),
    throughput("python", "pure-Python work on each sample", "samples/s"),
    Study(name="sizes", title="sizes: the arrays workload by the bytes of a batch", parts=BY_SIZE, across=True),
    Study(name="startup", title="startup: from nothing to the first batch", parts=STARTS, rounds=3),
    Study(name="overhead", title="overhead: what a batch costs beside its work", parts=(EMPTY, *CPU)),
    Study(name="consumer", title="consumer: how loader and training loop get on", parts=CONSUMERS, rounds=3),
    Study(name="adapters", title="adapters: a loader handed over to frameworks", parts=HANDED_OVER),
    Study(name="gpu", title="gpu: a network like ResNet-50, in bfloat16, at 224x224", parts=ON_DEVICE, lack=no_gpu),
    Study(name="memory", title="memory: all processes, epoch after epoch", parts=(MEMORY,), rounds=49),
    Study(name="dataloader", title="dataloader: a `DataLoader` of PyTorch's, by itself and by `from_dataloader`",
          parts=LOADED),
    Study(name="augment", title="augment: operations on batches of 64 images, 224x224x3, by one thread",
          parts=AUGMENTED, rounds=7),
    Study(name="ray", title="ray: actors of Ray's on one machine", parts=ON_RAY, rounds=3),
    Study(name="storage", title="storage: files of several formats, in the page cache", parts=FILES,
          tables=formats.tables),
    Study(name="resume", title="resume: from a state in mid-epoch to the next batch", parts=RESUMED, rounds=3),
    Study(name="crash", title="crash: a worker dies or fails in mid-epoch", parts=CRASHED, rounds=2),
    Study(name="order", title="order: shuffling 10⁸ rows", parts=(ORDER,), rounds=3),
)  # fmt: skip
NAMED = {part.kind for study in ALL for part in study.parts}
REST = [throughput(kind, "epochs at full speed", "samples/s") for kind in KINDS if kind not in NAMED]
STUDIES = {study.name: study for study in (*ALL, *REST)}
