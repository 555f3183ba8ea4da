"""The frameworks around PyTorch take a loader's data set: their epochs are its epochs, and they resume in mid-epoch."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from tests.messages import raises

torch = pytest.importorskip("torch", reason="torch is not installed")

from batchup_ng.frameworks.torch import as_dataset  # noqa: E402  # after the skip

N, SIZE, EPOCHS = 20, 6, 3
PER_EPOCH = 4


def loader() -> bu.Loader:
    return bu.Loader({"x": np.arange(N, dtype=np.float32)}, SIZE, shuffle=1, pool="serial")


@pytest.fixture(scope="module")
def expected() -> list[list[float]]:
    """Every batch of three epochs."""
    with loader() as batches:
        return [batch["x"].tolist() for _ in range(EPOCHS) for batch in batches]


@pytest.fixture(autouse=True)
def theirs_stays_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pass over their warnings, and give torch a place for the folder that it makes."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("dispatch", [None, False])
def test_accelerate_in_one_process(dispatch: bool | None, expected: list[list[float]]) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    how = accelerate.DataLoaderConfiguration(dispatch_batches=dispatch)
    with loader() as batches:
        plain = torch.utils.data.DataLoader(as_dataset(batches), batch_size=None)
        prepared = accelerate.Accelerator(cpu=True, dataloader_config=how).prepare(plain)
        assert len(prepared) == PER_EPOCH
        assert [batch["x"].tolist() for _ in range(EPOCHS) for batch in prepared] == expected
        prepared.set_epoch(1)
        rest = accelerate.skip_first_batches(prepared, 3)
        assert [batch["x"].tolist() for batch in rest] == expected[PER_EPOCH + 3 : 2 * PER_EPOCH]


def stopped_at(dataloader: Any, batches: int) -> tuple[list[list[float]], Any]:
    """Return what a ``DataLoader`` with states gives, up to so many batches, and its state then."""
    seen: list[list[float]] = []
    while True:
        for batch in dataloader:
            seen.append(batch["x"].tolist())
            if len(seen) == batches:
                return seen, json.loads(json.dumps(dataloader.state_dict()))


class AsStatefulDataLoader:
    """Calls a data set as torchdata's ``StatefulDataLoader`` does, which is not installed everywhere."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.iterator = dataset, None

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = iter(self.dataset)
        iterator, self.now, self.iterator = self.iterator, self.iterator, None
        return iterator

    def state_dict(self) -> Any:
        return {"dataset": self.dataset.state_dict(), "iterator": self.now.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.dataset.load_state_dict(state["dataset"])
        self.iterator = iter(self.dataset)
        self.iterator.load_state_dict(state["iterator"])


def with_torchdata(dataset: Any) -> Any:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    return torchdata.StatefulDataLoader(dataset, batch_size=None)


def with_accelerate(dataset: Any) -> Any:
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    how = accelerate.DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=False)
    plain = torch.utils.data.DataLoader(dataset, batch_size=None)
    return accelerate.Accelerator(cpu=True, dataloader_config=how).prepare(plain)


@pytest.mark.parametrize("make", [AsStatefulDataLoader, with_torchdata, with_accelerate])
@pytest.mark.parametrize("saved", [1, 3, PER_EPOCH, PER_EPOCH + 1, 2 * PER_EPOCH - 1])
def test_a_stateful_dataloader_resumes(make: Any, saved: int, expected: list[list[float]]) -> None:
    with loader() as batches:
        seen, state = stopped_at(make(as_dataset(batches)), saved)
    with loader() as batches:
        again = make(as_dataset(batches))
        again.load_state_dict(state)
        rest = []
        for epoch in range(saved // PER_EPOCH, EPOCHS):
            if hasattr(again, "set_epoch"):  # Accelerate counts the epochs of a program from 0, unless it is told
                again.set_epoch(epoch)
            rest += [batch["x"].tolist() for batch in again]
    assert seen + rest == expected


class Weight(torch.nn.Module):
    """A network of one weight, that notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.given: list[list[float]] = []

    def forward(self, x: Any) -> dict[str, Any]:
        self.given.append(x.tolist())
        return {"loss": (self.weight * x).mean()}


def with_lightning(checkpoint: Path | None = None, **options: Any) -> list[list[float]]:
    """Return what Lightning gives a network."""
    lightning = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = Weight()

        def training_step(self, batch: Any, number: int) -> Any:
            return self.network(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    module = Module()
    with loader() as batches:
        lightning.Trainer(**{"max_epochs": EPOCHS, **quiet, **options}).fit(
            module, as_dataset(batches), ckpt_path=checkpoint
        )
    return module.network.given


@pytest.mark.thorough
@pytest.mark.parametrize("saved", [2, PER_EPOCH, PER_EPOCH + 1, 2 * PER_EPOCH])
def test_lightning_resumes_behind_any_batch(saved: int, expected: list[list[float]], tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning is not installed")
    save = lightning.callbacks.ModelCheckpoint(tmp_path, filename="saved", every_n_train_steps=saved)
    assert with_lightning(max_steps=saved + 1, callbacks=save) == expected[: saved + 1]
    assert with_lightning(tmp_path / "saved.ckpt", enable_checkpointing=False) == expected[saved:]


@pytest.mark.thorough
@pytest.mark.parametrize("done", [1, 2])
def test_lightning_goes_on_after_an_epoch_that_it_saved_at_its_end(
    done: int, expected: list[list[float]], tmp_path: Path
) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning is not installed")
    save = lightning.callbacks.ModelCheckpoint(tmp_path, filename="saved")  # at the end of each epoch, its default
    assert with_lightning(max_epochs=done, callbacks=save) == expected[: done * PER_EPOCH]
    assert with_lightning(tmp_path / "saved.ckpt", enable_checkpointing=False) == expected[done * PER_EPOCH :]


def test_a_data_set_that_is_told_of_epochs_by_lightning_never_goes_back(expected: list[list[float]]) -> None:
    def rest(dataset: Any, batches: Any) -> list[list[float]]:
        found = [batch["x"].tolist() for batch in batches]
        return found + [batch["x"].tolist() for _ in range(EPOCHS - dataset.epoch) for batch in dataset]

    for number, first in [(0, 0), (1, PER_EPOCH), (2, 2 * PER_EPOCH)]:
        with loader() as batches:
            dataset = as_dataset(batches)
            asked = iter(dataset)  # by Lightning, before it tells the number
            dataset.batch_sampler.sampler.set_epoch(number)
            assert rest(dataset, asked) == expected[first:]
    for number in (0, 1):
        with loader() as batches:
            dataset = as_dataset(batches)
            for _ in dataset:
                pass
            next(iter(dataset))
            dataset.load_state_dict(dataset.state_dict())
            asked = iter(dataset)
            dataset.batch_sampler.sampler.set_epoch(number)
            assert rest(dataset, asked) == expected[PER_EPOCH + 1 :]


@pytest.mark.parametrize("options", [{"drop_last": True}, {}])
@pytest.mark.parametrize("taken", [1, PER_EPOCH])
def test_a_data_set_refuses_a_state_after_which_trainers_would_miscount(options: dict[str, Any], taken: int) -> None:
    with loader() as batches:
        begun = iter(batches)
        for _ in range(taken):
            next(begun)
        state = batches.state_dict()
    data, size = {"x": np.arange(N, dtype=np.float32)}, SIZE if options else 4
    with bu.Loader(data, size, shuffle=1, pool="serial", **options) as other:
        with raises(bu.StateError):
            as_dataset(other).load_state_dict(state)
        assert not other.in_mid_epoch
        other.load_state_dict(state)  # a loop of the user's own counts nothing


@pytest.mark.thorough
@pytest.mark.parametrize("saved", [2, PER_EPOCH, PER_EPOCH + 1])
def test_hugging_face_resumes_behind_any_batch(saved: int, expected: list[list[float]], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed, which Trainer needs")

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return as_dataset(batches)

    class SaveLoader(transformers.TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            batches.save_state(tmp_path / f"checkpoint-{state.global_step}" / "loader.json")

    def given(**options: Any) -> list[list[float]]:
        quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
        saving = {"save_steps": saved, "save_total_limit": 1, "ignore_data_skip": True}
        arguments = transformers.TrainingArguments(tmp_path, num_train_epochs=EPOCHS, **quiet, **saving, **options)
        module = Weight()
        trainer = Trainer(module, arguments, callbacks=[SaveLoader()])
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint.exists() else None)
        return module.given

    checkpoint = tmp_path / f"checkpoint-{saved}"
    with loader() as batches:
        assert given(max_steps=saved) == expected[:saved]
    with loader() as batches:
        batches.load_state(checkpoint / "loader.json")
        assert given() == expected[saved:]


@pytest.mark.thorough
def test_hugging_face_trains_with_its_own_loader_on_our_pool(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed, which Trainer needs")
    from batchup_ng.frameworks.torch import from_dataloader

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            theirs = super().get_train_dataloader()
            return from_dataloader(theirs, pool="serial") if ours else theirs

    def given() -> list[list[float]]:
        quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
        sizes = {"num_train_epochs": 2, "per_device_train_batch_size": SIZE, "save_strategy": "no"}
        module = Weight()
        data = [{"x": torch.tensor(float(number))} for number in range(N)]
        Trainer(module, transformers.TrainingArguments(tmp_path, **sizes, **quiet), train_dataset=data).train()
        return module.given

    ours = False
    expected = given()
    ours = True
    assert given() == expected
    assert sorted(n for batch in expected[:PER_EPOCH] for n in batch) == list(range(N))


@pytest.mark.thorough
def test_a_loader_that_accelerate_has_prepared_runs_on_our_pool() -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from batchup_ng.frameworks.torch import from_dataloader

    plain = torch.utils.data.DataLoader(torch.arange(N), SIZE, shuffle=True)
    prepared = accelerate.Accelerator(cpu=True).prepare(plain)
    with from_dataloader(prepared, pool="serial") as loader:
        epochs = [[n for batch in loader for n in batch.tolist()] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(N))] * 2
    assert epochs[0] != epochs[1]
