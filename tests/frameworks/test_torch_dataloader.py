"""A ``DataLoader`` of PyTorch's gives the same from our pools as by itself, and its faults are told."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.testing.comparison import digest_of, layout_of
from batchup_ng.work_pool import AbstractWorkerPool
from batchup_ng.work_pool.processes import trial_copy
from tests.messages import raises, warns
from tests.work_pool.processes.serialization_helpers import wait_until

from .strikes import Interrupt, Strike, struck_at_each_line, taken

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils import data  # noqa: E402  # behind the skip

from batchup_ng.frameworks import torch_choice, torch_dataloader  # noqa: E402
from batchup_ng.frameworks.torch_dataloader import from_dataloader  # noqa: E402
from batchup_ng.work_pool.processes.trial_copy import CopyToTry  # noqa: E402

N = 23
Point = collections.namedtuple("Point", ["x", "label"])  # what PyTorch's own documentation has


class Samples(data.Dataset):
    """A map-style data set of samples that a function makes of their numbers."""

    def __init__(self, make: Callable[[int], Any], n: int = N) -> None:
        self.make, self.n = make, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class AtOnce(Samples):
    """One that is asked for all samples of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.make(index), len(indices)) for index in indices]


def tensors(index: int) -> Any:
    return torch.full((2, 3), float(index)), index


def nested(index: int) -> Any:
    return {"pair": (torch.tensor([index]), [np.float32(index), {"name": f"sample {index}"}]), "n": 0.5 * index}


def ragged(index: int) -> Any:
    return torch.arange(index % 5 + 1), index


def padded(samples: list[Any]) -> Any:
    rows, labels = zip(*samples, strict=True)
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True), torch.tensor(labels)


def columns(*dtypes: Any) -> Any:
    return data.TensorDataset(*[torch.arange(6 * N).reshape(N, 2, 3).to(dtype) for dtype in dtypes])


def generator(seed: int = 5) -> Any:
    return torch.Generator().manual_seed(seed)


def weighted(**options: Any) -> Any:
    return data.WeightedRandomSampler(torch.arange(1.0, N + 1), N, **options)


class EvenFirst(data.Sampler[list[int]]):
    """A batch sampler of the user's, of batches of different sizes."""

    def __iter__(self) -> Iterator[list[int]]:
        yield list(range(0, N, 2))
        yield from ([i] for i in torch.randperm(N).tolist() if i % 2)

    def __len__(self) -> int:
        return 1 + N // 2


def loader(dataset: Any, *args: Any, **options: Any) -> Callable[[], Any]:
    """Return what makes a ``DataLoader``, each time with samplers of its own, where they are given as functions."""
    return lambda: data.DataLoader(dataset, *args, **{k: v() if k in LATER else v for k, v in options.items()})


LATER = ("sampler", "batch_sampler", "generator")
PAIRS, NESTED = Samples(tensors), Samples(nested)
ORDERS = {
    "in order": loader(PAIRS, 4),
    "of one": loader(PAIRS),
    "drop_last": loader(PAIRS, 4, drop_last=True),
    "larger than all": loader(PAIRS, 40, shuffle=True),
    "dropped to nothing": loader(PAIRS, 40, drop_last=True),
    "shuffled": loader(PAIRS, 4, shuffle=True),
    "shuffled by a generator": loader(PAIRS, 4, shuffle=True, generator=generator),
    "shuffled, drop_last": loader(PAIRS, 5, shuffle=True, drop_last=True),
    "with replacement": loader(PAIRS, 4, sampler=lambda: data.RandomSampler(PAIRS, True, 50)),
    "with replacement by the loader's generator": lambda: (
        lambda g: data.DataLoader(PAIRS, 4, sampler=data.RandomSampler(PAIRS, True, 50, g), generator=g)
    )(generator()),
    "weighted": loader(PAIRS, 4, sampler=weighted),
    "weighted, without replacement": loader(PAIRS, 4, sampler=lambda: weighted(replacement=False)),
    "weighted by a generator": loader(PAIRS, 4, sampler=lambda: weighted(generator=generator(9))),
    "some of them, shuffled": loader(PAIRS, 4, sampler=lambda: data.SubsetRandomSampler(range(3, 15))),
    "a list as sampler": loader(PAIRS, 4, sampler=lambda: [7, -1, 7, 0, 3]),
    "a batch sampler": loader(
        PAIRS, batch_sampler=lambda: data.BatchSampler(data.RandomSampler(PAIRS, generator=generator(2)), 3, True)
    ),
    "a batch sampler of the user's": loader(PAIRS, batch_sampler=EvenFirst),
    "lists of lists as batch sampler": loader(PAIRS, batch_sampler=lambda: [[1, 2], [0], [5, 4, 3]]),
    "a shard": loader(PAIRS, 4, sampler=lambda: data.DistributedSampler(PAIRS, 3, 1, seed=4)),
}
SAMPLES = {
    "nested": loader(NESTED, 4, shuffle=True),
    "numbers": loader(Samples(float), 4),
    "strings": loader(Samples(str), 4),
    "arrays": loader(Samples(lambda i: np.full((2, 2), i, np.uint8)), 4),
    "dicts": loader(Samples(lambda i: {"x": torch.tensor(i), "b": bytes([i])}), 4, shuffle=True),
    "named tuples": loader(Samples(lambda i: Point(torch.tensor([i]), i)), 4),
    "bfloat16": loader(Samples(lambda i: torch.full((9000,), i, dtype=torch.bfloat16)), 4),
    "transposed": loader(Samples(lambda i: torch.arange(6.0).reshape(2, 3).T + i), 4),
    "all at once": loader(AtOnce(tensors), 4, shuffle=True),
    "a list of numbers": loader(list(range(N)), 4),
    "one at a time": loader(NESTED, None, shuffle=True),
    "one at a time, of bulk": loader(
        columns(torch.float32), None, sampler=lambda: data.BatchSampler(data.SequentialSampler(PAIRS), 4, False)
    ),
    "collate: padding": loader(Samples(ragged), 4, shuffle=True, collate_fn=padded),
    "collate: as they are": loader(NESTED, 4, collate_fn=list),
    "collate: names with a mark": loader(PAIRS, 4, collate_fn=lambda samples: {"\0list 0": str(len(samples))}),
    "collate: tensors by such names": loader(
        PAIRS, 4, collate_fn=lambda samples: {"\0dict ": samples[0][0], "\0tuple 1": samples[-1][0]}
    ),
    "collate: arrays by such names": loader(
        PAIRS, 4, collate_fn=lambda samples: {"\0": samples[0][0].numpy(), "\0list 1": None}
    ),
    "collate: an object": loader(PAIRS, 4, collate_fn=lambda samples: collections.Counter(i for _, i in samples)),
}
ARRAYS = {
    "columns": loader(columns(torch.float32, torch.int64), 4, shuffle=True),
    "columns of one": loader(columns(torch.uint8)),
    "columns of odd kinds": loader(columns(torch.bool, torch.bfloat16, torch.complex64), 4),
    "columns of scalars": loader(data.TensorDataset(torch.arange(N), torch.rand(N).double()), 4, shuffle=True),
    "columns without elements": loader(data.TensorDataset(torch.zeros(N, 0)), 4),
    "large columns": loader(data.TensorDataset(torch.rand(N, 20_000)), 4, shuffle=True),
    "transposed columns": loader(data.TensorDataset(torch.rand(5, N).T), 4),
    "columns with gradients": loader(data.TensorDataset(torch.rand(N, 2, requires_grad=True)), 4),
    "rows in pairs": loader(columns(torch.int32), batch_sampler=lambda: [[[0, 1], [2, 3]], [[4, 5]]]),
    "negative rows": loader(columns(torch.float32), 2, sampler=lambda: [-1, 0, -N]),
    "a subset": loader(data.Subset(columns(torch.int32), [5, 3, -1, 8]), 2, shuffle=True),
    "a subset of a subset": loader(data.Subset(data.Subset(columns(torch.int32), range(9)), [5, 3, 8]), 2),
    "columns, own collate": loader(columns(torch.int32), 4, collate_fn=len),
    "rows of several types": loader(columns(torch.int32), 2, sampler=lambda: [True, True, np.int64(2), 3]),
    "concatenated": loader(columns(torch.int32) + columns(torch.int32), 7, shuffle=True),
    "stacked": loader(data.StackDataset(a=columns(torch.int32), b=PAIRS), 4, shuffle=True),
}
SETTINGS = {**ORDERS, **SAMPLES, **ARRAYS}


def told(batches: Any) -> list[Any]:
    """Return what the batches are: layout, bytes."""
    return [(layout_of(batch), digest_of(batch)) for batch in batches]


def epochs(made: Any, n: int = 2) -> list[list[Any]]:
    """Return what `n` iterations give, after which the generators have drawn as much."""
    torch.manual_seed(3)
    return [*[told(made) for _ in range(n)], [torch.rand(2).tolist()]]


@pytest.fixture(params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Iterator[AbstractWorkerPool]:
    if request.param == "serial":
        with bu.SerialPool() as serial:
            yield serial
    else:
        yield pools[["threads", "processes"].index(request.param)]


# -- the same batches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", SETTINGS.values(), ids=SETTINGS)
def test_batches_are_those_of_torch(make: Callable[[], Any], pools: list[AbstractWorkerPool]) -> None:
    torch.manual_seed(1)
    expected = epochs(make())
    with bu.SerialPool() as serial:
        for pool in (serial, *pools):
            torch.manual_seed(1)
            assert epochs(from_dataloader(make(), pool=pool)) == expected, pool


@pytest.mark.in_turn
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("stay", [False, True])
def test_the_order_is_that_of_any_number_of_workers(workers: int, stay: bool, pools: list[AbstractWorkerPool]) -> None:
    if stay and not workers:
        pytest.skip("PyTorch has no workers that stay where it has none")
    options = {"num_workers": workers, "persistent_workers": stay, "shuffle": True}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more than there are CPUs
        expected = epochs(data.DataLoader(NESTED, 4, generator=generator(), **options), 3)
        made = data.DataLoader(NESTED, 4, generator=generator(), **options)
    assert epochs(from_dataloader(made, pool=pools[1]), 3) == expected


@given(
    n=st.integers(0, 40),
    size=st.integers(1, 12),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    kind=st.integers(0, 2),
)
def test_any_size(n: int, size: int, drop_last: bool, shuffle: bool, kind: int, pools: list[Any]) -> None:
    shuffle = shuffle and n > 0  # PyTorch's sampler refuses to shuffle nothing
    datasets = [Samples(tensors, n), data.TensorDataset(torch.arange(3 * n).reshape(n, 3)), list(range(n))]
    made = [data.DataLoader(datasets[kind], size, shuffle, drop_last=drop_last) for _ in range(2)]
    ours = from_dataloader(made[1], pool=pools[n % 2], buffer=1 + n % 3)
    assert len(ours) == len(made[0])
    assert epochs(ours) == epochs(made[0])


def test_a_distributed_sampler_is_told_the_epoch(pool: AbstractWorkerPool) -> None:
    def make() -> Any:
        return data.DataLoader(PAIRS, 4, sampler=data.DistributedSampler(PAIRS, 2, 1, seed=3))

    theirs, ours = make(), from_dataloader(make(), pool=pool)
    for epoch in (0, 1, 1, 5):
        theirs.sampler.set_epoch(epoch)
        ours.set_epoch(epoch)
        assert told(ours) == told(theirs)
    assert ours.sampler.epoch == 5
    from_dataloader(data.DataLoader(PAIRS, 4)).set_epoch(3)  # which has none to tell


def test_a_hugging_face_data_set(pools: list[AbstractWorkerPool], monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # or its progress bars would leave a thread behind
    table = {"x": [[float(i), 2.0] for i in range(N)], "label": list(range(N)), "text": [f"no. {i}" for i in range(N)]}
    made = data.DataLoader(datasets.Dataset.from_dict(table).with_format("torch"), 4, shuffle=True)
    expected = epochs(made)
    for pool in pools:
        assert epochs(from_dataloader(made, pool=pool)) == expected


class Pictures(data.Dataset):
    """What torchvision's data sets are like: pictures that transforms change at random."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        picture = torch.arange(48.0).reshape(3, 4, 4) + index
        if torch.rand(()) < 0.5:
            picture = picture.flip(-1)
        top, left = random.randint(0, 2), np.random.randint(0, 3)
        return picture[:, top : top + 2, left : left + 2] * torch.empty(()).uniform_(0.5, 1.5), index


def test_random_transforms_do_not_depend_on_the_workers(
    pools: list[AbstractWorkerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(**options: Any) -> Any:
        torch.manual_seed(4)
        states = random.getstate(), np.random.get_state()[1].tolist()
        with from_dataloader(data.DataLoader(Pictures(), 4, shuffle=True), **options) as made:
            found = [told(made) for _ in range(2)]
        assert (random.getstate(), np.random.get_state()[1].tolist()) == states
        return found, torch.rand(2).tolist()

    expected = seen(pool="serial")
    assert seen(pool=pools[1]) == expected
    assert seen() == expected
    monkeypatch.setattr(torch_choice, "SHORT_BATCH_SECONDS", 0.0)  # so that the first batches are those of the trial
    assert seen(workers=1) == expected
    assert expected[0][0] != expected[0][1]


def test_what_is_drawn_at_random_differs_from_batch_to_batch(pools: list[AbstractWorkerPool]) -> None:
    drawn = Samples(lambda index: (random.random(), np.random.rand(), torch.rand(())))
    for stay in (False, True):
        options = {"num_workers": 1, "persistent_workers": stay}
        made = from_dataloader(data.DataLoader(drawn, 4, **options), pool=pools[1])
        numbers = [float(number) for _ in range(2) for batch in made for part in batch for number in part]
        assert len(set(numbers)) == len(numbers) == 2 * 3 * N


def test_a_data_set_that_changes_between_epochs(pool: AbstractWorkerPool) -> None:
    changing = Samples(lambda index: index)
    changing.scale = np.ones(3)
    changing.make = lambda index: index * changing.scale[0]
    made = from_dataloader(data.DataLoader(changing, N), pool=pool)
    for factor in (1.0, 3.0):
        changing.scale[:] = factor
        assert [batch.tolist() for batch in made] == [[factor * i for i in range(N)]]


def test_tensors_that_are_replaced_between_epochs(pool: AbstractWorkerPool) -> None:
    dataset = columns(torch.float32)
    made = from_dataloader(data.DataLoader(dataset, 4), pool=pool)
    for factor in (1, 3):
        dataset.tensors = (factor * columns(torch.float32).tensors[0],)
        assert told(made) == told(data.DataLoader(dataset, 4))


# -- the object ----------------------------------------------------------------------------------------------------


def test_what_it_has_of_the_data_loader() -> None:
    made = data.DataLoader(PAIRS, 4, drop_last=True)
    with from_dataloader(made, pool="serial") as ours:
        assert (ours.dataset, ours.batch_size, ours.sampler, ours.drop_last) == (PAIRS, 4, made.sampler, True)
        assert len(ours) == len(iter(ours)) == 5
        assert repr(ours) == "<PooledDataLoader: Samples, batches of 4, by <SerialPool: open>>"
        with pytest.raises(AttributeError):
            ours.no_such_thing  # noqa: B018  # that it raises is what is tried
        with pytest.raises(TypeError):
            len(from_dataloader(data.DataLoader(PAIRS, sampler=iter([1]))))


def test_it_can_be_watched() -> None:
    waits: list[bu.EpochWait] = []
    with from_dataloader(data.DataLoader(PAIRS, 4), pool="serial") as ours:
        assert told(bu.watch(ours, waits.append)) == told(data.DataLoader(PAIRS, 4))
    assert [wait.batches for wait in waits] == [6]


def test_two_iterators_at_a_time(pool: AbstractWorkerPool) -> None:
    ours = from_dataloader(data.DataLoader(PAIRS, 4), pool=pool)
    assert [told([one, other]) for one, other in zip(ours, ours, strict=True)] == [told([b, b]) for b in ours]


def test_a_loop_that_is_left_early(pool: AbstractWorkerPool) -> None:
    made = [data.DataLoader(PAIRS, 4, shuffle=True, generator=generator()) for _ in range(2)]
    ours = from_dataloader(made[1], pool=pool, buffer=1)  # a sampler that is at its end has drawn once more
    for batches in (made[0], ours):
        for number, _ in enumerate(batches):
            if number == 2:
                break
    assert epochs(ours) == epochs(made[0])


def test_the_iterator_outlives_the_loader() -> None:
    batches = iter(from_dataloader(data.DataLoader(PAIRS, 4), pool="threads", workers=1))
    gc.collect()
    assert told(batches) == told(data.DataLoader(PAIRS, 4))


def test_close() -> None:
    ours = from_dataloader(data.DataLoader(PAIRS, 4), pool="threads")
    batches = iter(ours)
    next(batches)
    batches.close()
    batches.close()
    with pytest.raises(StopIteration):
        next(batches)
    ours.close()
    ours.close()
    with pytest.raises(bu.errors.PoolClosed):
        iter(ours)
    with bu.SerialPool() as mine:
        from_dataloader(data.DataLoader(PAIRS, 4), pool=mine).close()
        mine.check_open()


def test_no_more_is_drawn_than_the_buffer_takes() -> None:
    drawn = []
    ours = from_dataloader(
        data.DataLoader(PAIRS, sampler=(drawn.append(i) or i for i in range(N))), pool="serial", buffer=2
    )
    batches = iter(ours)
    next(batches)
    assert len(drawn) == 3


# -- the choice of a pool ------------------------------------------------------------------------------------------


def spin(index: int) -> int:
    return sum(range(20_000)) + index


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("dataset", "kind", "quick", "epoch"),
    [
        (columns(torch.float32), "SerialPool", 1000.0, 0.0),
        (PAIRS, "SerialPool", 1000.0, 0.0),
        (Samples(spin), "WorkerProcessPool", 0.0, 0.0),
        (Samples(spin), "SerialPool", 0.0, 1000.0),
    ],
    ids=["arrays", "tiny", "Python", "short"],
)
def test_auto_chooses_and_draws_nothing(
    dataset: Any, kind: str, quick: float, epoch: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_choice, "TINY_BATCH_SECONDS", quick)  # on a busy machine too
    monkeypatch.setattr(torch_choice, "SHORT_BATCH_SECONDS", quick)
    monkeypatch.setattr(torch_choice, "SHORT_EPOCH_SECONDS", epoch)

    def make() -> Any:
        return data.DataLoader(dataset, 8, shuffle=True)

    torch.manual_seed(1)
    expected = epochs(make())
    torch.manual_seed(1)
    with from_dataloader(make()) as ours:
        assert "to be chosen in the first epoch" in repr(ours)
        assert epochs(ours) == expected
        assert f"by <{kind}" in repr(ours)
        assert "chosen because a batch takes" in repr(ours)


class Doubles(data.Dataset):
    """A data set that changes its tensor in place, so slowly that processes suit it."""

    def __init__(self) -> None:
        self.rows = torch.ones(N, 5000)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        spin(index)
        return self.rows[index].mul_(2)


@pytest.mark.parametrize(("kind", "epoch"), [("SerialPool", 1000.0), ("WorkerProcessPool", 0.0)])
def test_auto_does_not_change_tensors_of_the_data_set(kind: str, epoch: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_choice, "SHORT_BATCH_SECONDS", 0.0)
    monkeypatch.setattr(torch_choice, "SHORT_EPOCH_SECONDS", epoch)
    expected = told(data.DataLoader(Doubles(), 2))
    with from_dataloader(data.DataLoader(Doubles(), 2)) as ours:
        assert told(ours) == expected
        assert f"by <{kind}" in repr(ours)


def test_auto_tries_no_data_set_whose_tensors_are_too_large_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_copy, "ROOM_TO_SPARE", 1e-9)
    with from_dataloader(data.DataLoader(Doubles(), 2)) as ours:
        assert told(ours) == told(data.DataLoader(Doubles(), 2))
        assert "by <SerialPool" in repr(ours)
        assert "too large to copy" in repr(ours)


def later(number: int) -> Any:
    """Return a draw that the first batches, those of the trial, do not make."""
    return (random.random() + np.random.rand() + float(torch.rand(()))) if number >= 12 else 0.0


def test_auto_seeds_batches_that_draw_later_than_the_trial() -> None:
    def seen(**options: Any) -> Any:
        torch.manual_seed(4)
        states = random.getstate(), np.random.get_state()[1].tolist()
        with from_dataloader(data.DataLoader(Samples(later), 1), **options) as made:
            found = told(made)
            assert "SerialPool" in repr(made)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == states
        return found, torch.rand(2).tolist()

    assert seen() == seen(pool="serial")


class Refilled(data.Dataset):
    """A data set that returns the same objects each time, filled anew."""

    def __init__(self, form: str, size: int, locked: bool) -> None:
        self.tensor, self.form = torch.zeros(size), form
        self.array, self.list, self.dict = np.zeros(size), [0.0], {"x": 0.0}
        if locked:
            self.lock = threading.Lock()  # cannot be pickled

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        self.tensor.fill_(index)
        self.array.fill(index)
        self.list[0] = self.dict["x"] = float(index)
        whole = {"tensor": self.tensor, "array": self.array, "list": self.list, "dict": self.dict}
        parts = {"views": (self.tensor[1:], self.array[:2]), "nested": {"a": [self.tensor], "b": Point(self.array, 1)}}
        return {**whole, **parts, "over the array": torch.from_numpy(self.array)}[self.form]

    def collated(self, samples: list[Any]) -> Any:
        return samples[-1]


FORMS = ["tensor", "array", "list", "dict", "views", "nested", "over the array"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_memory_that_is_filled_anew_for_each_batch(
    form: str, batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_choice, "SHORT_BATCH_SECONDS", 1000.0)  # serial, where it can be pickled
    for size in (4, 40_000):
        dataset = Refilled(form, size, locked=True)
        collate = None if batch_size is None else dataset.collated
        expected = told(data.DataLoader(dataset, batch_size, collate_fn=collate))
        assert len(set(expected)) == len(expected)
        for options in ({}, {"pool": "threads", "workers": 1}, {"pool": "serial"}):
            with from_dataloader(data.DataLoader(dataset, batch_size, collate_fn=collate), **options) as made:
                iterator = iter(made)
                first = next(iterator)
                if "WorkerThreadPool" in repr(made):
                    wait_until(lambda: iterator._buffer.ready() > 0)  # noqa: B023
                assert [*told([first]), *told(iterator)] == expected
        with from_dataloader(data.DataLoader(Refilled(form, size, locked=False), batch_size)) as made:
            assert told(made) == told(data.DataLoader(dataset, batch_size))


def test_batches_of_the_trial_in_memory_that_is_filled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_choice, "SHORT_BATCH_SECONDS", 0.0)
    monkeypatch.setattr(torch_choice, "SHORT_EPOCH_SECONDS", 0.0)
    tensor, numbers = torch.zeros(4), [0.0]
    for make in (tensor.fill_, lambda index: numbers.__setitem__(0, float(index)) or numbers):
        dataset = Samples(make)
        with from_dataloader(data.DataLoader(dataset, None), workers=1) as made:
            assert told(made) == told(data.DataLoader(dataset, None))
            assert "by <WorkerProcessPool" in repr(made)


def test_auto_where_nothing_can_be_tried(tmp_path: Any) -> None:
    class Locked(Samples):
        lock = property(lambda self: vars(self)["_lock"])

    locked = Locked(tensors)
    locked._lock = threading.Lock()
    with from_dataloader(data.DataLoader(locked, 4)) as ours:
        assert told(ours) == told(data.DataLoader(PAIRS, 4))
        assert "1 workers, open>, chosen because the data set cannot be pickled" in repr(ours)
    with from_dataloader(data.DataLoader(Samples(fails_at(-1, below=99)), 4)) as ours:
        with raises(LookupError):
            next(iter(ours))
        assert "no batch could be made to see" in repr(ours)
    with from_dataloader(data.DataLoader(Samples(tensors, 0), 4)) as ours:
        assert list(ours) == []


def test_a_data_set_that_cannot_travel_is_named() -> None:
    samples = Samples(tensors)
    samples.guard = threading.Lock()  # type: ignore[attr-defined]
    with (
        from_dataloader(data.DataLoader(samples, 4), pool="processes", workers=1) as ours,
        raises(bu.SerializationError),
    ):
        iter(ours)


# -- worker_init_fn ------------------------------------------------------------------------------------------------


def test_each_worker_process_begins_once(pools: list[AbstractWorkerPool], tmp_path: Any) -> None:
    def begin(number: int) -> None:
        with open(tmp_path / f"{os.getpid()}", "a") as file:
            file.write(f"{number} ")

    seen = Samples(lambda index: (os.getpid(), time.sleep(0.001))[0])
    made = from_dataloader(data.DataLoader(seen, 2, num_workers=2, worker_init_fn=begin), pool=pools[1])
    pids = {int(pid) for _ in range(2) for batch in made for pid in batch}
    found = {int(path.name): path.read_text().split() for path in tmp_path.iterdir()}
    assert found.keys() >= pids
    assert os.getpid() not in found
    assert sorted(number for numbers in found.values() for number in numbers) in (["0"], ["1"], ["0", "1"])


@pytest.mark.in_turn
def test_two_workers_that_live_never_have_the_same_number(tmp_path: Path) -> None:
    def begin(number: int) -> None:
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                os.close(os.dup(fd))  # at which the system drops the record locks that this process has on the file
        (tmp_path / f"{os.getpid()}").write_text(str(number))
        wait_until(lambda: len(os.listdir(tmp_path)) == 2)  # each of the two has a batch, then

    with bu.WorkerProcessPool(2) as pool:
        list(from_dataloader(data.DataLoader(Samples(range(8).__getitem__, 8), 1, worker_init_fn=begin), pool=pool))
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["0", "1"]


@pytest.mark.parametrize("sampler", [None, "generator"])
def test_a_strike_at_any_line_loses_no_batch_in_silence(pool: AbstractWorkerPool, sampler: Any, in_full: bool) -> None:
    """As the handler of a signal that raises, in a loop that goes on."""

    class Own(data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(N)

    def run() -> None:
        seen: list[Any] = []
        with from_dataloader(data.DataLoader(torch.arange(N), 4, sampler=sampler and Own()), pool=pool) as batches:
            try:
                iterator = iter(batches)
            except (Strike, Interrupt):
                iterator = iter(batches)
            ended = taken(iterator, torch.Tensor.tolist, seen)
            outcomes.append(ended)
            iterator.close()
        everything = [list(range(N))[start : start + 4] for start in range(0, N, 4)]
        assert seen == everything[: len(seen)]
        assert len(seen) == len(everything) or not ended

    outcomes: list[bool] = []
    files = {torch_dataloader.__file__}
    for _ in struck_at_each_line(run, files | ({__file__} if sampler else set()), 1 if in_full else 7):
        pass
    assert True in outcomes


@pytest.fixture
def struck_once() -> Iterator[Callable[[int], int]]:
    """A function of an index that raises a signal at index 5, once; the handler raises ``Strike``."""

    def handler(number: int, frame: Any) -> None:
        raise Strike

    def strike(index: int) -> int:
        if index == 5 and not struck:
            struck.append(True)
            signal.raise_signal(signal.SIGUSR1)
        return index

    struck: list[bool] = []
    before = signal.signal(signal.SIGUSR1, handler)
    yield strike
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_in_the_data_set_is_no_error_of_its_batch(struck_once: Callable[[int], int]) -> None:
    """With threads and processes the data set runs where no signal handler does."""
    with from_dataloader(data.DataLoader(Samples(struck_once), 4), pool="serial") as batches:
        iterator = iter(batches)
        assert next(iterator).tolist() == [0, 1, 2, 3]
        with pytest.raises(Strike):
            next(iterator)
        with raises(bu.PoolClosed):
            next(iterator)


@pytest.mark.parametrize("where", ["data set", "subset"])
def test_a_signal_while_a_pool_is_chosen_is_not_lost(
    where: str, struck_once: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Chosen(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return struck_once(super().__getitem__(index))

    def column(batch: Any) -> list[int]:
        return (batch if where == "data set" else batch[0]).tolist()

    subset = data.Subset(data.TensorDataset(torch.arange(N)), Chosen(range(N)))
    dataset = Samples(struck_once) if where == "data set" else subset
    with from_dataloader(data.DataLoader(dataset, 4)) as batches:
        # A copy would count strikes apart.
        monkeypatch.setattr(torch_choice, "copy_to_try", lambda fetch: CopyToTry(fetch, []))
        with pytest.raises(Strike):
            iter(batches)
        assert [index for batch in batches for index in column(batch)] == list(range(N))


def test_an_error_of_the_sampler_is_not_followed_by_the_end(pool: AbstractWorkerPool) -> None:
    class Fails(data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(8)
            raise ValueError("of the sampler")

    with from_dataloader(data.DataLoader(torch.arange(N), 4, sampler=Fails()), pool=pool) as batches:
        iterator = iter(batches)
        assert [len(next(iterator)) for _ in range(2)] == [4, 4]
        with raises(ValueError):
            next(iterator)
        with raises(bu.PoolClosed):
            next(iterator)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_travel(pool: AbstractWorkerPool) -> None:
    def nested_rows(index: int) -> Any:
        return torch.nested.nested_tensor([torch.arange(index + 1.0), torch.arange(2.0)])

    with from_dataloader(data.DataLoader(Samples(nested_rows, 4), None), pool=pool) as batches:
        assert [[row.tolist() for row in batch.unbind()] for batch in batches] == [
            [[float(n) for n in range(index + 1)], [0.0, 1.0]] for index in range(4)
        ]


def test_three_threads_share_an_epoch(pool: AbstractWorkerPool) -> None:
    with from_dataloader(data.DataLoader(torch.arange(200), 1), pool=pool) as batches:
        iterator = iter(batches)
        with ThreadPoolExecutor(3) as threads:
            found = [each.result() for each in [threads.submit(list, iterator) for _ in range(3)]]
    assert sorted(int(batch) for part in found for batch in part) == list(range(200))


def test_each_thread_begins_once_and_the_consumer_never(pool: AbstractWorkerPool, tmp_path: Any) -> None:
    begun = []
    if isinstance(pool, bu.WorkerProcessPool):
        pytest.skip("it has a test of its own")
    made = from_dataloader(data.DataLoader(PAIRS, 1, worker_init_fn=begun.append), pool=pool)
    list(made), list(made)
    assert begun == list(range(len(begun)))
    assert bool(begun) == (not pool.own_thread)
    assert len(begun) <= pool.at_once


def test_a_worker_that_could_not_begin_begins_again() -> None:
    begun = []

    def begin(number: int) -> None:
        begun.append(number)
        if len(begun) == 1:
            raise Unwanted("no beginning", number)

    made = data.DataLoader(PAIRS, 4, worker_init_fn=begin)
    with from_dataloader(made, pool="threads", workers=1) as ours:
        batches = iter(ours)
        with raises(Unwanted):
            next(batches)
        assert told(batches) == told(data.DataLoader(PAIRS, 4))[1:]
    assert begun == [0, 1]


@pytest.mark.in_turn
def test_auto_takes_processes_for_it() -> None:
    with from_dataloader(data.DataLoader(PAIRS, 4, num_workers=1, worker_init_fn=print)) as ours:
        assert told(ours) == told(data.DataLoader(PAIRS, 4))
        assert "by <WorkerProcessPool: 1 workers, open>, chosen because worker_init_fn" in repr(ours)


# -- faults --------------------------------------------------------------------------------------------------------


class Unwanted(LookupError):
    """An exception that is made of two arguments."""

    def __init__(self, what: str, index: int) -> None:
        super().__init__(f"{what} {index}")


def fails_at(bad: int, below: int = -1) -> Callable[[int], Any]:
    def make(index: int) -> Any:
        if index == bad or index < below:
            raise Unwanted("no sample", index)
        return tensors(index)

    return make


def test_an_exception_names_the_index(pool: AbstractWorkerPool) -> None:
    batches = iter(from_dataloader(data.DataLoader(Samples(fails_at(9)), 4), pool=pool))
    assert told([next(batches), next(batches)]) == told(data.DataLoader(PAIRS, 4))[:2]
    with raises(Unwanted) as raised:
        next(batches)
    assert (raised.value.row, raised.value.rows, raised.value.batch) == (9, [8, 9, 10, 11], 2)
    assert "in make" in raised.value.traceback
    assert told(batches) == told(data.DataLoader(PAIRS, 4))[3:]


def test_an_exception_of_the_collate_function(pool: AbstractWorkerPool) -> None:
    made = from_dataloader(data.DataLoader(Samples(ragged), 12, sampler=range(12)), pool=pool)
    with raises(RuntimeError):
        list(made)
    made = from_dataloader(data.DataLoader(AtOnce(fails_at(5)), 4), pool=pool)
    with raises(Unwanted):
        list(made)
    made = from_dataloader(data.DataLoader(Samples(fails_at(3)), None), pool=pool)
    with raises(Unwanted):
        list(made)


def test_true_among_the_rows_is_no_number() -> None:
    subset = data.Subset(columns(torch.int32), [True, False, 2])
    for made in (data.DataLoader(subset, 3), from_dataloader(data.DataLoader(subset, 3))):
        with raises(RuntimeError):
            next(iter(made))


def test_a_row_that_is_not_there(pool: AbstractWorkerPool) -> None:
    made = from_dataloader(data.DataLoader(columns(torch.float32), 2, sampler=[0, 1, 2, N]), pool=pool)
    with raises(IndexError):
        list(made)
    made = from_dataloader(data.DataLoader(columns(torch.float32), 2, sampler=[0, 0.5]), pool=pool)
    with raises((IndexError, TypeError)):
        list(made)


class Counts(torch.utils.data.Dataset[float]):
    """Writes to an array of its own, large enough to be shared with the copy on which a pool is chosen."""

    def __init__(self) -> None:
        self.seen = np.zeros(100_000)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        self.seen[index] += 1
        return float(self.seen[index])


def test_the_choice_of_a_pool_writes_nothing_to_the_data_set() -> None:
    with from_dataloader(torch.utils.data.DataLoader(Counts(), batch_size=4)) as loader:
        assert [batch.tolist() for batch in loader] == [[1.0] * 4] * 2


@pytest.mark.in_turn
def test_a_worker_that_is_killed_loses_nothing(tmp_path: Any) -> None:
    once = tmp_path / "once"

    def make(index: int) -> Any:
        if index == 9 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return tensors(index)

    with from_dataloader(data.DataLoader(Samples(make), 4), pool="processes", workers=1) as ours:
        assert told(ours) == told(data.DataLoader(PAIRS, 4))
        assert once.exists()


@pytest.mark.thorough
def test_a_batch_that_kills_workers_is_named() -> None:
    deadly = Samples(lambda index: os.kill(os.getpid(), signal.SIGKILL) if index == 9 else index)
    with from_dataloader(data.DataLoader(deadly, 4), pool="processes", workers=1) as ours:
        batches = iter(ours)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with raises(bu.errors.WorkerDied):
            next(batches)
        assert next(batches).tolist() == [12, 13, 14, 15]


@pytest.mark.in_turn
def test_a_batch_that_takes_too_long_is_named() -> None:
    ending = threading.Event()
    slow = Samples(lambda index: ending.wait(600) if index == 5 else index)
    with from_dataloader(data.DataLoader(slow, 2, timeout=5.0, num_workers=1), pool="threads") as ours:
        batches = iter(ours)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with raises(TimeoutError):
            next(batches)
        assert next(batches).tolist() == [6, 7]
        ending.set()


# -- pinned memory -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_pinning_without_a_device_warns_as_torch_does(pool: AbstractWorkerPool) -> None:
    with warns(UserWarning):
        expected = told(data.DataLoader(PAIRS, 4, pin_memory=True))
    with warns(UserWarning) as warned:
        assert told(from_dataloader(data.DataLoader(PAIRS, 4, pin_memory=True), pool=pool)) == expected
    assert warned[0].filename == __file__


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_batches(pool: AbstractWorkerPool) -> None:
    ours = from_dataloader(data.DataLoader(NESTED, 4, shuffle=True, pin_memory=True, generator=generator()), pool=pool)
    theirs = data.DataLoader(NESTED, 4, shuffle=True, pin_memory=True, generator=generator())
    for _ in range(2):
        assert told(ours) == told(theirs)
    first = next(iter(ours))
    assert first["pair"][0].is_pinned()
    assert first["n"].is_pinned()


# -- what is imported ----------------------------------------------------------------------------------------------


@pytest.mark.in_turn
def test_it_imports_no_other_framework() -> None:
    program = (
        "import sys, batchup_ng.frameworks.torch_dataloader; "
        "print([name for name in ('jax', 'tensorflow', 'keras', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_without_torch_it_names_the_extra() -> None:
    program = "import sys; sys.modules['torch'] = None; import batchup_ng.frameworks.torch_dataloader"
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=120, capture_output=True, text=True)
    assert "pip install 'batchup_ng[torch]'" in done.stderr.splitlines()[-1]


# -- what is refused -----------------------------------------------------------------------------------------------


class Streams(data.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        yield from range(N)


class OwnWay(data.DataLoader):
    def __iter__(self) -> Any:
        return iter([])


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (PAIRS, {}),
        (data.DataLoader(Streams()), {}),
        (OwnWay(PAIRS), {}),
        (data.DataLoader(PAIRS), {"pool": "process"}),
        (data.DataLoader(PAIRS), {"pool": "serial", "workers": 2}),
        (data.DataLoader(PAIRS), {"workers": 0}),
        (data.DataLoader(PAIRS), {"buffer": 0}),
        (data.DataLoader(PAIRS), {"timeout": -1}),
        (data.DataLoader(PAIRS), {"num_workers": 2}),
        (data.DataLoader(PAIRS), {"shuffle": True}),
    ],
)
def test_what_is_refused(given: Any, options: dict[str, Any]) -> None:
    with raises((bu.errors.ArgumentError, bu.errors.ArgumentTypeError)):
        from_dataloader(given, **options)
