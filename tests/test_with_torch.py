"""PyTorch beside every pool: trained weights, tensors as data and results, its generator, collate functions."""

from __future__ import annotations

import functools
import importlib
import json
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.contents import value_facts
from batchup_ng.errors import ArgumentError, ArgumentTypeError, MapResultError
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.comparison import digest_of, layout_of
from tests.messages import raises

KINDS = ["loop", "serial", "threads", "processes"]


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Any]]:
    """All pools; that of processes has one worker, which imports PyTorch once for all tests."""
    pytest.importorskip("torch", reason="torch is not installed")
    with bu.SerialPool() as serial, bu.WorkerThreadPool(2) as threads, bu.WorkerProcessPool(1) as processes:
        assert processes.work_stream(iter([(imported, ("torch",))])).retrieve()  # and the worker stays for all tests
        yield {"serial": serial, "threads": threads, "processes": processes}


def imported(name: str) -> bool:
    """Import a module where this runs."""
    return bool(importlib.import_module(name))


def over(source: Any, kind: str, made: dict[str, Any]) -> Any:
    return source if kind == "loop" else made[kind].parallel_data_source(source)


def same(source: Any, made: dict[str, Any], size: int = 8) -> list[Any]:
    """Return the batches of a loop, which those of each pool must equal: values, types, layout."""
    expected = list(source.batch_iterator(size, shuffle=3))
    for kind in KINDS[1:]:
        got = list(over(source, kind, made).batch_iterator(size, shuffle=3))
        assert [layout_of(batch) for batch in got] == [layout_of(batch) for batch in expected], kind
        assert [digest_of(batch) for batch in got] == [digest_of(batch) for batch in expected], kind
    return expected


def network(torch: Any) -> Any:
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3), torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(16, 5),
    )  # fmt: skip


def trained(batches: Any) -> list[int]:
    """Return digests of the weights of a small network after eight steps."""
    import torch

    net = network(torch)
    steps = 0
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weights in net.parameters():
                weights -= 0.1 * weights.grad
        steps += 1
    assert steps == 8
    return [digest_of(weights.detach()) for weights in net.parameters()]


@pytest.mark.in_turn
def test_a_network_ends_with_the_same_weights_from_every_pool(made: dict[str, Any]) -> None:
    images = np.random.default_rng(1).random((128, 20, 20, 3), np.float32)
    source = bu.ArrayDataSource([images, np.arange(128) % 5]).map(lambda x, y: (x.transpose(0, 3, 1, 2), y))
    weights = {kind: trained(over(source, kind, made).batch_iterator(16, shuffle=7)) for kind in KINDS}
    assert len(set(map(str, weights.values()))) == 1, weights


DTYPES = ["float32", "bfloat16", "uint8", "bool", "uint16", "uint32", "uint64", "float8_e4m3fn", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_are_data_and_results(dtype: str, made: dict[str, Any]) -> None:
    import torch

    numbers = torch.arange(40 * 60).reshape(40, 60) % 50
    tensor = numbers.to(torch.float32).to(getattr(torch, dtype))
    for data in (tensor, tensor[5:, ::2]):
        batches = same(bu.ArrayDataSource([data, np.arange(len(data))]), made)
        assert all(x.dtype == tensor.dtype and type(x) is torch.Tensor for x, _ in batches)
        for x, rows in batches:
            assert digest_of(x) == digest_of(data[rows])


def test_tensors_keep_their_strides(made: dict[str, Any]) -> None:
    import torch

    def last(x: np.ndarray, y: np.ndarray) -> Any:
        channels_last = torch.from_numpy(x).permute(0, 3, 1, 2)
        return channels_last, {"cut": channels_last[:, :2], "flat": torch.from_numpy(y[::-1].copy())}, torch.tensor(3.0)

    source = bu.ArrayDataSource([np.random.default_rng(1).random((20, 40, 40, 3)), np.arange(20)]).map(last)
    for x, _, scale in same(source, made):
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert not x.is_contiguous()
        assert scale.ndim == 0


def test_a_parameter_as_data_warns_of_nothing() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    # PyTorch warns of a read-only array once a process: asked to, it warns each time.
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            source = bu.ArrayDataSource([torch.nn.Parameter(torch.arange(6.0), requires_grad=False)])
            (batch,) = source.batch_iterator(6, shuffle=1)
    finally:
        torch.set_warn_always(always)
    assert sorted(batch[0].tolist()) == [0, 1, 2, 3, 4, 5]


def test_a_slice_of_a_large_tensor_travels_by_itself(made: dict[str, Any]) -> None:
    import torch

    table = torch.ones(300_000)
    source = bu.ArrayDataSource([np.arange(64)]).map(lambda x: (x, table[: len(x)]))
    iterator = made["processes"].parallel_data_source(source).batch_iterator(8)
    held = [part for _, part in iterator]
    assert all(part.untyped_storage().nbytes() == 32 for part in held)
    held[0] += 1
    assert table.max() == 1
    assert iterator.stats()["transport"]["message"] == 8


def test_large_tensors_come_in_slots_and_their_source_is_shared(made: dict[str, Any]) -> None:
    import torch

    source = bu.ArrayDataSource([torch.arange(64 * 30_000, dtype=torch.float32).reshape(64, -1)])
    iterator = made["processes"].parallel_data_source(source).batch_iterator(4)
    for number, (x,) in enumerate(iterator):
        assert x[0, 0] == number * 4 * 30_000
        x += 1  # it is the consumer's
    assert iterator.stats()["transport"]["socket"] <= 3  # the first, as long as their size is not known
    assert iterator.stats()["arrays"] == "shared"


def test_tensors_that_are_kept_are_copied(made: dict[str, Any]) -> None:
    import torch

    kept = torch.arange(8.0)
    memory = np.zeros(8)
    plain = bu.ArrayDataSource([np.arange(16)])
    source = plain.map(lambda x: (kept, kept.view(8), torch.from_numpy(memory), {"x": kept}))
    for kind in KINDS[:3]:
        for one, part, other, named in over(source, kind, made).batch_iterator(8):
            for tensor in (one, part, other, named["x"]):
                tensor += 1
    assert kept.tolist() == list(range(8))
    assert not memory.any()


class Augmenting:
    """A data set as torchvision's are: it draws from the global generators."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> Any:
        import torch

        return i, torch.rand(3), random.random(), torch.randint(100, (1,)).item()


def test_the_generator_of_torch_is_seeded_for_each_batch(made: dict[str, Any]) -> None:
    import torch

    source = bu.ArrayDataSource([bu.MapStyle(Augmenting())])
    before = torch.get_rng_state()
    expected = list(source.batch_iterator(5, shuffle=4))
    for kind in ("loop", "serial", "processes"):
        got = list(over(source, kind, made).batch_iterator(5, shuffle=4))
        assert digest_of(got) == digest_of(expected), kind
    assert torch.equal(torch.get_rng_state(), before)
    draws = np.concatenate([batch[1] for batch in expected])
    assert len(np.unique(draws)) == draws.size
    assert digest_of(list(source.batch_iterator(5, shuffle=4, epoch=1))) != digest_of(expected)
    assert_reproducible(source, pools=("serial",), batch_sizes=())


# -- collate -------------------------------------------------------------------------------------------------------


class Pictures:
    """Samples as dicts of tensors and text."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> Any:
        import torch

        return {"pixels": torch.full((3, 4), float(i)), "label": i % 3, "name": f"picture {i}"}


class Pairs(Pictures):
    """Samples as tuples."""

    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i)["pixels"], i


class Singles(Pictures):
    """Samples as tensors."""

    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i)["pixels"]


@pytest.mark.parametrize("data", [Pictures(), Pairs(), Singles()], ids=lambda data: type(data).__name__)
def test_torchs_collate_gives_what_its_loader_gives(data: Any, made: dict[str, Any]) -> None:
    import torch

    source = bu.ArrayDataSource([bu.MapStyle(data)]).collate(torch.utils.data.default_collate)
    ours = [digest_of([batch, layout_of(batch)]) for batch in source.batch_iterator(6)]
    theirs = [digest_of([batch, layout_of(batch)]) for batch in torch.utils.data.DataLoader(data, batch_size=6)]
    assert ours == theirs
    same(source, made)


def test_a_collate_function_of_ones_own_stacks_tensors(made: dict[str, Any]) -> None:
    import torch

    def stacked(samples: list[Any]) -> Any:
        assert all(type(sample) is tuple and type(sample[0]) is torch.Tensor for sample in samples)
        return torch.stack([x for x, _ in samples]), torch.tensor([i for _, i in samples])

    pairs = bu.ArrayDataSource([bu.MapStyle(Pairs())])
    for source in (pairs, bu.concat(pairs, pairs), bu.subset(pairs, [3, 1, 19]), bu.take(pairs, 7)):
        for x, i in same(source.collate(stacked), made):
            assert torch.equal(x[:, 0, 0].to(i.dtype), i)
    weights = np.arange(20) * 0.5
    beside = bu.ArrayDataSource([bu.MapStyle(Pairs()), weights], include_indices=True)
    (batch,) = beside.collate(lambda samples: samples).batch_iterator(20)
    assert [(int(row), i, w) for row, _, i, w in batch] == [(i, i, i * 0.5) for i in range(20)]


@pytest.mark.parametrize("kind", ["sparse", "meta", "bfloat16"])
def test_an_error_about_tensors_that_numpy_cannot_stack_names_the_map(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    plain = torch.eye(2)
    one = {"sparse": plain.to_sparse(), "meta": plain.to("meta"), "bfloat16": plain.bfloat16()}

    def tensors(x: Any) -> Any:
        return (one[kind],)

    source = bu.ArrayDataSource([np.arange(4)])
    for one_way in (source.map_samples(tensors), bu.SerialPool().parallel_data_source(source.map_samples(tensors))):
        with raises(bu.BatchError):
            next(one_way.batch_iterator(2))


def test_sparse_tensors_are_told_when_batches_are_compared() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with raises(TypeError):
        digest_of((torch.eye(2).to_sparse(),))


def test_samples_side_by_side_are_collated_as_the_data_sets_gave_them() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rows = bu.ArrayDataSource([bu.MapStyle(torch.arange(6.0, dtype=torch.bfloat16).reshape(3, 2))])
    numbers = bu.ArrayDataSource([bu.MapStyle([0, 1, 2])])
    for source in (rows.zip(numbers), bu.CompositeDataSource([rows, numbers]), bu.zip([rows, numbers], flatten=False)):
        (batch,) = source.collate(lambda samples: samples).batch_iterator(3)
        assert [(type(x), x.dtype, x.tolist(), type(i), i) for x, i in batch] == [
            (torch.Tensor, torch.bfloat16, [2.0 * i, 2.0 * i + 1], int, i) for i in range(3)
        ]


def test_the_collators_of_hugging_face(made: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i + 2 for i in range(30)}}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]")
    texts = [" ".join(f"w{k}" for k in range(i % 5 + 1)) for i in range(20)]
    data = [{**tokenizer(text), "label": i % 2} for i, text in enumerate(texts)]
    collator = transformers.DataCollatorWithPadding(tokenizer, return_tensors="pt")
    batches = same(bu.ArrayDataSource([bu.MapStyle(data)]).collate(collator), made)
    assert type(batches[0]) is transformers.BatchEncoding
    assert digest_of(batches[0]["input_ids"]) is not None
    assert batches[0]["input_ids"].shape == batches[0]["attention_mask"].shape
    numbers = [{"x": [float(i), 2.0], "label": i} for i in range(20)]
    source = bu.ArrayDataSource([bu.MapStyle(numbers)]).collate(transformers.default_data_collator)
    for batch in same(source, made):
        assert batch["x"][:, 0].tolist() == batch["labels"].tolist()


def unchanged(x: Any) -> Any:
    return (x,)


def test_tensors_that_are_joined_are_one_tensor_in_every_batch(made: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def of(tensor: Any) -> Any:
        return bu.ArrayDataSource([tensor])

    a, b = torch.arange(7), torch.arange(7) + 10
    joined = of(a).concat(of(b))
    for size in (6, 7, 8, 14):
        same(joined, made, size)
        batches = [batch[0] for batch in joined.batch_iterator(size)]
        assert {(type(batch), batch.dtype) for batch in batches} == {(torch.Tensor, torch.int64)}
        assert torch.equal(torch.cat(batches), torch.cat([a, b]))
    for other in (b.float(), np.arange(7), b[:, None]):
        with raises(ArgumentError):
            of(a).concat(of(other))
    with raises(ArgumentError):
        list(of(a).map(unchanged).concat(of(b.float()).map(unchanged)).batch_iterator(8))


@pytest.mark.parametrize("tuples", [False, True])
def test_tensors_beside_something_else_are_refused_when_parts_are_joined(tuples: bool, made: dict[str, Any]) -> None:
    x = np.arange(4, dtype="i4")
    source = bu.ArrayDataSource([x] if tuples else {"v": x})
    others = [copied, functools.partial(map, int), functools.partial(map, str)]
    tensors, *others = [source.map(functools.partial(as_column, fn), on=0 if tuples else "v") for fn in (None, *others)]
    for other in others:
        for joined in (tensors.concat(other), other.concat(tensors)):
            for batches in (joined.batch_iterator(3), made["threads"].parallel_data_source(joined).batch_iterator(3)):
                with raises(MapResultError):
                    list(batches)
    assert len(list(tensors.concat(tensors).batch_iterator(3))) == 3


def copied(x: np.ndarray) -> np.ndarray:
    return x.copy()


def as_column(fn: Any, x: np.ndarray) -> Any:
    """Return a tensor, or an array or list by a function of the array."""
    import torch

    if fn is None:
        return torch.from_numpy(x).float()
    return fn(x) if fn is copied else list(fn(x))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_are_refused_as_data() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for sparse in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        with raises(ArgumentTypeError):
            bu.ArrayDataSource([sparse])


def below(limit: Any) -> Any:
    return lambda x: x < limit


def test_tensors_count_by_their_contents() -> None:
    torch = pytest.importorskip("torch", reason="its tensors are what is compared")
    small = torch.arange(6).reshape(2, 3)
    made = [small.to(torch.bfloat16), small, small + 1]
    assert len({json.dumps(value_facts(each)) for each in made}) == 3
    assert value_facts(made[1].T.contiguous().T) == value_facts(made[1].clone())
    assert value_facts(below(made[1])) != value_facts(below(made[2]))


def test_tensors_of_samples_are_arrays_in_each_batch_and_can_be_joined() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = bu.ArrayDataSource([np.arange(9)]).map_samples(lambda i: (torch.full((int(i) % 3 + 1,), float(i)),))
    for each in (source, source.concat(source)):
        for seed in range(5):
            for (column,) in each.batch_iterator(3, shuffle=seed):
                for row in column:
                    assert isinstance(row, np.ndarray)
                    assert row.tolist() == [row[0]] * (int(row[0]) % 3 + 1)
