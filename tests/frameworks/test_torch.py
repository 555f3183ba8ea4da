"""Tensors of PyTorch: whose memory they are, what they are made of, and a loader as a data set of torch."""

from __future__ import annotations

import collections
import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch.iterator_views import MappedIterator
from batchup_ng.errors import ArgumentError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.frameworks.framework_contract import FrameworkContract
from tests.frameworks.handover_helpers import port_for_later
from tests.frameworks.poison import BATCH_SIZE, WIDTH, kept_late, numbered_rows, poisoned_leases
from tests.messages import raises, warns

torch = pytest.importorskip("torch", reason="torch is not installed")

from batchup_ng.frameworks.torch import PinnedMemory, as_dataset, to_torch  # noqa: E402  # after the skip

KINDS = ["serial", "threads", "processes"]
HERE = Path(__file__).resolve().parent
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def loader_of(data: Any, batch_size: int, kind: str, pools: list[AbstractWorkerPool], **options: Any) -> bu.Loader:
    pool = "serial" if kind == "serial" else pools[KINDS.index(kind) - 1]
    return bu.Loader(data, batch_size, pool=pool, **options)


def rows_of(batches: Any) -> list[list[int]]:
    return [batch[-1].tolist() for batch in batches]


def numpy_of(tensor: Any) -> np.ndarray:
    return np.asarray(tensor)


class TestToTorch(FrameworkContract):
    """Tensors on the CPU."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return to_torch(loader)

    def arrays(self, batch: Any) -> Any:
        if isinstance(batch, dict):
            return {name: tensor.cpu().numpy() for name, tensor in batch.items()}
        return tuple([tensor.cpu().numpy() for tensor in batch])


class TestDataset(TestToTorch):
    """A data set in a loader of torch."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return torch.utils.data.DataLoader(as_dataset(loader), batch_size=None)


@cuda
class TestCuda(TestToTorch):
    """Tensors on a GPU."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return to_torch(loader, device="cuda")


# -- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_the_memory_of_the_array(kind: str, pools: list[AbstractWorkerPool]) -> None:
    images = np.arange(40 * 3 * 64 * 64, dtype=np.int32).reshape(40, 64, 64, 3)
    addresses: list[list[int]] = []

    def note(arrays: Any) -> Any:  # no map: a thread of a pool may still hold a column, which costs a copy after a map
        addresses.append([array.ctypes.data for array in arrays])
        return arrays

    with loader_of([images, np.arange(40)], 8, kind, pools, shuffle=1) as loader:
        noted = loader.view(lambda iterator: MappedIterator(iterator, note))
        for number, (x, y) in enumerate(to_torch(noted, channels_first=True)):
            assert [x.data_ptr(), y.data_ptr()] == addresses[number]
            assert x.shape == (8, 3, 64, 64)
            assert x.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(x, torch.from_numpy(images[y]).permute(0, 3, 1, 2))
    assert len(addresses) == 5


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", KINDS)
def test_no_tensor_changes_while_it_is_referenced(kind: str, pools: list[AbstractWorkerPool], in_full: bool) -> None:
    rows = numbered_rows(width=10 * WIDTH if in_full else WIDTH)
    with poisoned_leases() as sizes, loader_of(rows, BATCH_SIZE, kind, pools, shuffle=1) as loader:
        batches = to_torch(loader)
        done = [kept_late(batches, numpy_of) for _ in range(10_000 // len(loader))]
    assert [sum(counts) for counts in zip(*done, strict=True)] == [10_000, 0]
    assert len(sizes) > 7500


def test_gradients_and_views_keep_the_memory_that_they_need(pools: list[AbstractWorkerPool]) -> None:
    weights = torch.ones(1, requires_grad=True)
    with poisoned_leases() as sizes, loader_of(numbered_rows(80), BATCH_SIZE, "threads", pools) as loader:
        losses = [((x * weights).mean(), y.sum()) for x, y in to_torch(loader)]
        views = [(x[1:, 5], y) for x, y in to_torch(loader)]
        while losses:
            loss, y = losses.pop()
            # Backward reads x again, which nothing but the graph of this loss keeps.
            (gradient,) = torch.autograd.grad(loss, weights)
            assert gradient.item() == pytest.approx(y.item() / BATCH_SIZE, rel=1e-5)
        assert all(torch.equal(view, y[1:].float()) for view, y in views)
    assert len(sizes) >= 18  # the first epoch's batches, but for the last of them


# -- values --------------------------------------------------------------------------------------------------------


def one(batch: Any, **options: Any) -> Any:
    """Return what becomes of one batch; a warning is an error."""
    (made,) = to_torch(iter([batch]), **options)
    return made


DTYPES = ["?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", ">i2", ">f4", ">i8", ">c8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_keep_their_dtype_and_values(dtype: str) -> None:
    array = (np.arange(12) % 2).reshape(3, 4).astype(dtype)
    (tensor,) = one((array,))
    assert tensor.numpy().dtype == np.dtype(dtype).newbyteorder("=")
    assert tensor.tolist() == array.tolist()


Pair = collections.namedtuple("Pair", ["left", "right"])


def test_the_containers_of_a_batch_are_kept() -> None:
    texts, things = np.array(["a", "b"]), np.array([{}, None], object)
    days, ragged = np.array(["2026-01-01", "2026-01-02"], "M8[D]"), [np.zeros(2, np.float32), np.zeros((3, 1))]
    pair = Pair(np.zeros(2), (np.ones(2, np.int16), texts))
    batch = {"pair": pair, "rest": [things, days, "word", 5], "ragged": ragged}
    made = one(batch)
    assert type(made) is dict
    assert list(made) == list(batch)
    assert type(made["pair"]) is Pair
    assert torch.equal(made["pair"].left, torch.zeros(2, dtype=torch.float64))
    assert torch.equal(made["pair"].right[0], torch.ones(2, dtype=torch.int16))
    assert made["pair"].right[1] is texts
    assert made["rest"][0] is things
    assert made["rest"][1] is days
    assert made["rest"][2:] == ["word", 5]
    assert [(type(part), part.shape) for part in made["ragged"]] == [(torch.Tensor, (2,)), (torch.Tensor, (3, 1))]


def test_arrays_that_torch_cannot_share_are_copied_without_a_warning() -> None:
    table = np.zeros(4, [("name", "S3"), ("x", "f4")])
    table["x"] = range(4)
    read_only = np.arange(4.0)
    read_only.flags.writeable = False
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            field, fixed, backwards, empty = one((table["x"], read_only, np.arange(4)[::-1], np.zeros((0, 3))[::-1]))
    finally:
        torch.set_warn_always(False)
    fixed += 1
    assert read_only.tolist() == [0, 1, 2, 3]
    assert (field.tolist(), fixed.tolist(), backwards.tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4], [3, 2, 1, 0])
    assert empty.shape == (0, 3)


def test_a_dtype_is_for_floating_point_alone() -> None:
    arrays = (np.ones((2, 3)), np.ones(2, np.uint8), np.arange(2), np.ones(2, np.float16), np.ones(2, np.complex64))
    for device in (None, "meta"):
        dtypes = [tensor.dtype for tensor in one(arrays, dtype=torch.bfloat16, device=device)]
        assert dtypes == [torch.bfloat16, torch.uint8, torch.int64, torch.bfloat16, torch.complex64]


def test_tensors_in_a_batch_are_handed_over_too() -> None:
    images = torch.zeros(2, 5, 4, 3)
    x, text = one((images, "text"), channels_first=True)
    assert (x.data_ptr(), x.shape, text) == (images.data_ptr(), (2, 3, 5, 4), "text")
    assert one({"x": images}, device="meta", dtype=torch.float16)["x"].dtype == torch.float16


@pytest.mark.parametrize("device", [None, "meta"])
def test_images_are_named_where_other_arrays_have_four_axes(device: Any) -> None:
    images, boxes = np.zeros((3, 8, 6, 3), np.uint8), np.zeros((3, 5, 7, 4), np.float32)
    turned, same = (3, 3, 8, 6), (3, 5, 7, 4)

    def shapes(batch: Any, channels_first: Any) -> Any:
        made = one(batch, channels_first=channels_first, device=device)
        return {k: v.shape for k, v in made.items()} if isinstance(made, dict) else [each.shape for each in made]

    assert shapes((images, boxes), [0]) == [turned, same]
    assert shapes([boxes, images], (1,)) == [same, turned]
    assert shapes({"x": images, "boxes": boxes}, ["x"]) == {"x": turned, "boxes": same}
    assert shapes(({"a": images}["a"], boxes[0]), True) == [turned, boxes[0].shape]
    assert shapes((images, boxes), []) == shapes((images, boxes), False) == [images.shape, same]
    assert shapes((images, images), [0, 1]) == [turned, turned]
    with raises(bu.ArgumentError):
        shapes((images, boxes), True)
    for wrong in ([2], ["x"], [-1]):
        with raises(bu.ArgumentError):
            shapes((images, boxes), wrong)
    for wrong in ("x", 0, [True], {"x"}):
        with raises(bu.ArgumentTypeError):
            to_torch(iter([]), channels_first=wrong)


def test_channels_first_needs_an_image_each_named_once() -> None:
    for grey in (np.zeros((3, 8, 8), np.uint8), np.arange(3)):
        with raises(bu.ArgumentError):
            one((grey, np.arange(3)), channels_first=True)
    for twice in ([0, 0], ["x", "x"]):
        with raises(bu.ArgumentError):
            to_torch(iter([]), channels_first=twice)


def test_a_mask_is_not_dropped() -> None:
    masked = np.ma.masked_array([1.0, 2, 3], mask=[0, 1, 0])
    with raises(bu.ArgumentTypeError):
        to_torch((masked,))
    with (
        bu.Loader([np.arange(4.0)], 2, pool="serial") as loader,
        raises(bu.ArgumentTypeError),
    ):
        next(iter(to_torch(loader.map(lambda x: (np.ma.masked_less(x, 2),)))))


def test_channels_that_are_first_already_are_not_moved_again() -> None:
    planes = np.zeros((2, 3, 8, 6), np.float32)
    with raises(bu.ArgumentError):
        one((planes,), channels_first=True)
    assert one((planes,), channels_first=[0])[0].shape == (2, 6, 3, 8)
    for shape in ((2, 3, 4, 8), (2, 3, 8, 4), (2, 5, 8, 8), (2, 2, 8, 8)):
        (made,) = one((np.zeros(shape, np.uint8),), channels_first=True)
        assert made.shape == (2, shape[3], shape[1], shape[2])


# -- on a device: that without memory stands for those that batches are copied to on a thread ------------------------


def test_where_torch_is_missing_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    file = Path(inspect.getfile(inspect.unwrap(to_torch)))
    spec: Any = importlib.util.spec_from_file_location("batchup_ng.frameworks.torch_again", file)
    with raises(ImportError):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# -- a data set of torch -------------------------------------------------------------------------------------------


def test_a_dataset_hands_out_the_epochs_of_its_loader(pools: list[AbstractWorkerPool]) -> None:
    data = [np.arange(20.0), np.arange(20)]
    with loader_of(data, 6, "threads", pools, shuffle=5) as loader:
        expected = [rows_of(loader) for _ in range(3)]
    with loader_of(data, 6, "threads", pools, shuffle=5) as loader:
        dataset = as_dataset(loader, dtype=torch.float32)
        batches = torch.utils.data.DataLoader(dataset, batch_size=None)
        assert isinstance(dataset, torch.utils.data.IterableDataset)
        assert len(batches) == len(dataset) == 4
        iter(dataset), iter(batches)  # as Lightning does, to see whether that works
        assert [rows_of(batches), rows_of(dataset)] == expected[:2]
        assert dataset.epoch == 2
        dataset.set_epoch(1)
        assert rows_of(batches) == expected[1]
        assert next(iter(batches))[0].dtype == torch.float32


@pytest.mark.parametrize("n_taken", [1, 3, 4])
def test_a_dataset_goes_on_where_its_state_was_taken(n_taken: int, pools: list[AbstractWorkerPool]) -> None:
    data = [np.arange(20)]
    with loader_of(data, 6, "serial", pools, shuffle=5) as loader:
        expected = [rows_of(loader) for _ in range(2)]
        loader.set_epoch(0)
        dataset = as_dataset(loader)
        iterator = iter(dataset)
        assert rows_of(next(iterator) for _ in range(n_taken)) == expected[0][:n_taken]
        state = dataset.state_dict()
    for number in (None, 0 if n_taken < 4 else 1):  # frameworks that count epochs say which, others do not
        with loader_of(data, 6, "serial", pools, shuffle=5) as loader:
            dataset = as_dataset(loader)
            dataset.load_state_dict(state)
            if number is not None:
                dataset.set_epoch(number)
            assert len(dataset) == 4
            assert rows_of(dataset) == (expected[0][n_taken:] or expected[1])


def test_a_dataset_cannot_be_sent_to_a_worker_of_torch(pools: list[AbstractWorkerPool]) -> None:
    dataset = as_dataset(loader_of([np.arange(20)], 6, "serial", pools))
    with raises(bu.ArgumentError):
        pickle.dumps(dataset)
    with raises(bu.ArgumentTypeError):
        as_dataset([np.arange(3)])  # type: ignore[arg-type]


@pytest.mark.thorough  # torch takes five seconds to end a worker that met an error
def test_a_worker_of_torch_that_was_forked_says_what_to_do(pools: list[AbstractWorkerPool]) -> None:
    with loader_of([np.arange(20)], 6, "serial", pools) as loader:
        options = {"batch_size": None, "num_workers": 1, "multiprocessing_context": "fork"}
        with raises(bu.ArgumentError):
            list(torch.utils.data.DataLoader(as_dataset(loader), **options))


# -- several processes ---------------------------------------------------------------------------------------------


def of_two_processes(program: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Return the JSON that each of two processes prints last, the environment of which tells nothing of ranks."""
    hidden = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    plain = {name: value for name, value in os.environ.items() if name not in hidden}
    plain["PYTHONPATH"] = str(HERE.parents[1])
    command = [sys.executable, str(HERE / "programs" / program), *arguments]
    programs = []
    try:
        for rank in range(2):
            mine = {name: value.format(rank=rank) for name, value in environment.items()}
            with_rank = [each.format(rank=rank) for each in command]
            programs.append(subprocess.Popen(with_rank, stdout=subprocess.PIPE, env={**plain, **mine}))
        return [json.loads(program.communicate(timeout=400)[0].splitlines()[-1]) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()


@pytest.mark.parametrize("adapter", [to_torch, as_dataset])
def test_ranks_of_torchrun_are_refused_all_of_the_data(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with bu.Loader([np.arange(4)], 2, pool="serial") as loader, raises(ArgumentError):
        iter(adapter(loader))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes of a gloo group print."""
    return of_two_processes("gloo_rank.py", str(tmp_path_factory.mktemp("gloo") / "group"), "{rank}")


@pytest.mark.in_turn
def test_ranks_are_those_of_the_process_group(ranks: list[dict[str, Any]]) -> None:
    assert [told["shard"] for told in ranks] == [[0, 2], [1, 2]]
    for epoch in range(2):
        rows = [told["epochs"][epoch] for told in ranks]
        assert [len(batches) for batches in rows] == [3, 3]
        assert sorted(row for batches in rows for batch in batches for row in batch) == list(range(24))
    assert ranks[0]["epochs"][0] != ranks[0]["epochs"][1]
    assert ranks[0]["resumed"] == ranks[0]["epochs"][0][1:]


@pytest.mark.in_turn
def test_ranks_draw_by_the_losses_of_all_of_them(tmp_path: Path) -> None:
    first, second = of_two_processes("feedback_rank.py", str(tmp_path / "group"), "{rank}")
    assert first["ranks"] == [0, 1]
    assert first["whole"] == second["whole"]
    for whole, *own in zip(first["whole"], first["own"], second["own"], strict=True):
        assert sorted([*own[0], *own[1]]) == sorted(whole)
    alone, *of_ranks = first["chances"]
    assert max(alone) > 2 * min(alone)
    assert of_ranks + second["chances"] == [alone] * 5


def shared_out(found: list[Any]) -> bool:
    """Return whether each row of 24 comes once in each epoch, in one of two processes."""
    return all(sorted([*first, *second]) == list(range(24)) for first, second in zip(*found, strict=True))


@pytest.mark.parametrize(
    "way",
    [
        "dataset",
        "DataLoader of the dataset",
        "dataloader",
        "dataloader in order",
        "tensors",
        "tensors of a dict",
        "tensors of a view",
        "tensors of epochs",
        "epochs as tensors",
        "dataset of tensors",
    ],
)
def test_ranks_that_would_train_on_the_same_data_are_refused(ranks: list[dict[str, Any]], way: str) -> None:
    for told in ranks:
        error, warned = told["ways"][way]
        assert "all of the data" in error
        assert "shard=None" in error
        assert all(text.startswith("this loader has no shard=") for text in warned)


def test_a_group_may_begin_after_an_epoch(ranks: list[dict[str, Any]]) -> None:
    for told in ranks:
        alone, later = told["begun later"]
        assert alone == 24
        assert "shard='auto'" in later


@pytest.mark.parametrize(
    "way",
    [
        "dataset, shard='auto'",
        "dataset, shard=(rank, 2)",
        "dataloader, sharded",
        "dataloader, sharded, shard=None",
        "tensors, shard='auto'",
        "tensors of an iterator, shard='auto'",
    ],
)
def test_ranks_with_parts_of_their_own_share_the_data_out(ranks: list[dict[str, Any]], way: str) -> None:
    assert shared_out([told["ways"][way][0] for told in ranks])
    assert [told["ways"][way][1] for told in ranks] == [[], []]


def test_tensors_are_refused_as_a_dataset_is(ranks: list[dict[str, Any]]) -> None:
    for told in ranks:
        assert told["ways"]["tensors"] == told["ways"]["dataset"]
        assert told["ways"]["tensors, shard=None"] == told["ways"]["dataset, shard=None"]


def test_nothing_is_said_of_a_generator(ranks: list[dict[str, Any]]) -> None:
    for told in ranks:
        assert told["ways"]["tensors of a generator"] == [[[0, 1, 2, 3] * 6] * 2, []]


@pytest.mark.parametrize(
    "way",
    [
        "dataset, shard=None",
        "dataloader, shard=None",
        "dataloader, own sampler",
        "tensors, shard=None",
        "tensors of an iterator",
        "tensors of a pool's",
        "dataset of tensors, shard=None",
    ],
)
def test_all_of_the_data_in_each_rank_is_warned_of_once(ranks: list[dict[str, Any]], way: str) -> None:
    for told in ranks:
        epochs, warned = told["ways"][way]
        assert [sorted(epoch) for epoch in epochs] == [list(range(24))] * 2
        assert len(warned) == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("library", "refused"),
    [
        ("accelerate", ["prepared DataLoader of a shard", "prepared dataset", "dataloader", "base_dataloader"]),
        ("pytorch_lightning", ["dataset", "DataLoader of a dataset", "dataloader"]),
    ],
)
def test_trainers_of_two_processes_share_out_the_data_or_say_what_to_do(
    library: str, refused: list[str], tmp_path: Path
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    of_torchrun = {"RANK": "{rank}", "LOCAL_RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port_for_later()), "TORCHELASTIC_RUN_ID": "a test"}
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    found = of_two_processes(
        "trainer_rank.py", library, **of_torchrun, **meeting, **compiled, GROUP_RANK="0", ACCELERATE_USE_CPU="1"
    )
    for way in found[0]:
        told = [each[way] for each in found]
        if way in refused:
            assert all(isinstance(each, str) and "process" in each for each in told), (way, told)
        else:
            assert shared_out(told), (way, told)


# -- a GPU; but for the first test, where there is one --------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device, for which memory can be pinned")
def test_where_no_memory_can_be_pinned_it_is_said_once() -> None:
    pinned, tensor = PinnedMemory(), torch.zeros(3)
    with warns(RuntimeWarning) as warned:
        assert [pinned.copy(tensor, torch.float16) is tensor for _ in range(3)] == [True, True, True]
    assert len(warned) == 1


@cuda
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_no_tensor_changes_while_it_is_referenced(
    kind: str, pools: list[AbstractWorkerPool], in_full: bool
) -> None:
    with poisoned_leases() as sizes, loader_of(numbered_rows(), BATCH_SIZE, kind, pools, shuffle=1) as loader:
        batches = to_torch(loader, device="cuda")
        for _ in range(40 if in_full else 4):
            assert kept_late(batches, lambda tensor: tensor.cpu().numpy()) == (250, 0)
    assert len(sizes) >= 4 * 200


@cuda
def test_on_a_gpu_tensors_are_shaped_and_typed_as_on_the_cpu(pools: list[AbstractWorkerPool]) -> None:
    images = np.random.default_rng(1).random((24, 32, 32, 3))
    data = {"x": images, "y": np.arange(24), "name": np.array([f"row {row}" for row in range(24)])}
    with loader_of(data, 8, "threads", pools) as loader:
        options = {"channels_first": True, "dtype": torch.float32}
        expected = list(to_torch(loader, **options))
        for one_batch, batch in zip(expected, to_torch(loader, device="cuda", **options), strict=True):
            assert batch["x"].is_cuda
            assert batch["x"].stride() == one_batch["x"].stride()
            assert torch.equal(batch["x"].cpu(), one_batch["x"])
            assert torch.equal(batch["y"].cpu(), one_batch["y"])
            assert batch["name"].tolist() == one_batch["name"].tolist()


@cuda
def test_on_a_gpu_steps_see_their_own_batch_on_whatever_stream(pools: list[AbstractWorkerPool]) -> None:
    sums = []
    with loader_of(numbered_rows(), BATCH_SIZE, "threads", pools, shuffle=1) as loader:
        with torch.cuda.stream(torch.cuda.Stream()):
            for x, y in to_torch(loader, device="cuda"):
                torch.cuda._sleep(200_000)  # cycles: the stream is behind this thread, which lets go of x
                sums.append((x.mean(1), y))
        torch.cuda.synchronize()
    assert all(torch.equal(mean.round().long(), y) for mean, y in sums)


def test_a_misspelt_option_is_refused_by_name() -> None:
    for call in (to_torch, as_dataset):
        with raises(bu.ArgumentTypeError):
            call(bu.Loader([np.arange(3)], 2), devise="cpu")


@pytest.mark.parametrize("always_ahead", [False, True])
def test_a_profile_has_a_range_for_each_wait(
    always_ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # a profile makes that folder

    def ranges(profile: Any) -> int:
        return sum(event.count for event in profile.key_averages() if event.key == "batchup_ng.next")

    device = "meta" if always_ahead else None  # not the CPU: a thread converts
    with bu.Loader([np.arange(10.0)], 4, pool="serial") as loader:
        batches = to_torch(loader, device=device)
        assert len(list(batches)) == 3
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            assert len(list(batches)) == 3
    assert ranges(profile) == 4  # the last one ends the epoch
