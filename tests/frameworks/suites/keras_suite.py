"""The tests of ``frameworks/keras.py`` on one backend, which ``test_keras.py`` runs in a process of its own for each.

A model whose steps tell what they are given runs without being compiled, so that the backends call them alike.
"""

from __future__ import annotations

import contextlib
import doctest
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, StateError
from batchup_ng.frameworks import keras as of_keras
from batchup_ng.frameworks.keras import KeepState, endless, to_keras
from batchup_ng.work_pool import AbstractWorkerPool
from tests.frameworks.framework_contract import FrameworkContract
from tests.frameworks.poison import BATCH_SIZE, kept_late, numbered_rows, poisoned_leases
from tests.messages import raises, warns

# Of Keras' own variables, when Keras makes arrays of them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

N, SIZE = 22, 4
X = np.arange(N, dtype=np.float32)[:, None]
SOURCE = bu.ArrayDataSource([X, X])


def as_numpy(tensor: Any) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(tensor))


def values(tensor: Any) -> list[int]:
    return [int(value) for value in as_numpy(tensor)[:, 0]]


def telling(tell: Any, units: int = 1) -> Any:
    """Return a model that is not built yet, whose every step calls `tell` with the batch that it is given."""
    model = keras.Sequential([keras.layers.Dense(units)])
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"], run_eagerly=True)

    def telling_first(step: Any) -> Any:
        def told(*args: Any) -> Any:
            tell(args[-1])  # before it stands the state, with JAX
            return step(*args)

        return told

    for name in ("train_step", "test_step", "predict_step"):
        setattr(model, name, telling_first(getattr(model, name)))
    return model


@pytest.fixture
def seen() -> list[Any]:
    """What the steps of `model` were given: the values of x of each batch."""
    return []


@pytest.fixture
def model(seen: list[Any]) -> Any:
    return telling(lambda batch: seen.append(values(keras.utils.unpack_x_y_sample_weight(batch)[0])))


def epochs(*numbers: int, shuffle: Any = 7) -> list[list[int]]:
    """Return the values of all batches of epochs of SOURCE."""
    iterators = (SOURCE.batch_iterator(SIZE, shuffle=shuffle, epoch=number) for number in numbers)
    return [values(x) for iterator in iterators for x, _ in iterator]


@pytest.fixture(params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Any:
    return {"serial": bu.SerialPool(), "threads": pools[0], "processes": pools[1]}[request.param]


@pytest.fixture
def loader(pools: list[AbstractWorkerPool]) -> Iterator[bu.Loader]:
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool=pools[0], buffer=3) as loader:
        yield loader


class TestContract(FrameworkContract):
    """Iterating over the data set by hand, as what adapts layers does."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return to_keras(loader)

    def arrays(self, batch: Any) -> Any:
        return batch


def test_the_examples_in_docstrings() -> None:
    assert doctest.testmod(of_keras) == (0, 7)


# -- fit, evaluate, predict ----------------------------------------------------------------------------------------


def test_each_epoch_of_fit_is_the_next_of_the_loader(pool: Any, model: Any, seen: list[Any]) -> None:
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool=pool, start_epoch=2) as loader:
        model.fit(to_keras(loader), epochs=3, shuffle=False, verbose=0)
        assert loader.epoch == 5
    assert seen == epochs(2, 3, 4)


def test_fit_may_shuffle_the_numbers_of_the_batches(loader: bu.Loader, model: Any, seen: list[Any]) -> None:
    with warns(UserWarning) as told:
        model.fit(to_keras(loader), epochs=4, verbose=0)
    assert [warning.category for warning in told].count(UserWarning) == 1
    assert loader.epoch == 4
    shuffled = [seen[start : start + 6] for start in range(0, 24, 6)]
    assert [sorted(epoch) for epoch in shuffled] == [sorted(epochs(number)) for number in range(4)]
    assert shuffled != [epochs(number) for number in range(4)]


def test_shuffled_numbers_that_begin_with_0_are_no_epoch_that_was_cut(loader: bu.Loader) -> None:
    data = to_keras(loader)
    assert data.num_batches == 6
    for index in (0, 5, 1, 2, 4, 3):
        assert values(data[index][0]) == epochs(0)[index]
    with warns(UserWarning) as told:
        data.on_epoch_end()
    assert len(told) == 1
    assert loader.epoch == 1


@pytest.mark.filterwarnings("ignore:Keras shuffled the numbers:UserWarning")
@pytest.mark.parametrize("order", [(2, 5, 1, 0, 4, 3), (2, 3, 4, 5, 1, 0), (0, 2, 1, 3, 5, 4), (5, 2, 3, 4, 1, 0)])
def test_shuffled_numbers_may_begin_where_the_first_look_at_the_batches_ended(
    loader: bu.Loader, order: tuple[int, ...]
) -> None:
    """Keras takes batches 0 and 1 for their shapes; the order of its epoch may begin with 2."""
    data = to_keras(loader)
    for epoch in (0, 1):
        assert data.num_batches == 6
        for index in (0, 1) if epoch == 0 else ():
            assert values(data[index][0]) == epochs(0)[index]
        assert data.num_batches == 6
        for index in order:
            assert values(data[index][0]) == epochs(epoch)[index]
        data.on_epoch_end()
        assert loader.epoch == epoch + 1


def test_batches_are_made_ahead() -> None:
    made: list[int] = []
    handed: list[int] = []
    building = [True]
    one_more = threading.Condition()

    def note(x: np.ndarray) -> Any:
        with one_more:
            if x[0] == 0 and len(made) < 20:  # with TensorFlow, Keras looks at two batches; the worker makes some more
                made.clear()
            made.append(int(x[0]))
            one_more.notify()
        return x[:, None], x[:, None]

    def tell(batch: Any) -> None:
        handed.append(values(batch[0])[0])
        with one_more:
            if building:
                return
            ahead = one_more.wait_for(lambda: len(made) >= min(20, len(handed) + 2), timeout=60)
        assert ahead, f"{made} made when {handed} were handed out"

    def begun(*args: Any) -> None:
        building.clear()
        handed.clear()

    source = bu.ArrayDataSource([np.arange(20, dtype=np.float32)]).map(note)
    with bu.Loader(source, 1, pool="threads", workers=1, buffer=4) as loader:
        model = telling(tell)
        model.fit(X, X, verbose=0)  # builds it; otherwise Keras asks for a batch more
        callback = keras.callbacks.LambdaCallback(on_epoch_begin=begun)
        model.fit(to_keras(loader), shuffle=False, callbacks=[callback], verbose=0)
    assert made[:20] == handed == list(range(20))


def test_the_next_epoch_is_made_ahead_if_its_order_is_known() -> None:
    made: list[int] = []
    one_more = threading.Condition()

    def note(x: np.ndarray) -> Any:
        with one_more:
            made.append(int(x[0]))
            one_more.notify()
        return (x[:, None],)

    source = bu.ArrayDataSource([np.arange(20, dtype=np.float32)]).map(note)
    with bu.Loader(source, 1, pool="threads", workers=1, buffer=4) as loader:
        telling(lambda batch: None).predict(to_keras(loader), verbose=0)
        with one_more:
            assert one_more.wait_for(lambda: made[-4:] == [0, 1, 2, 3], timeout=60), made
        assert loader.epoch == 1


def test_evaluate_and_predict_twice(pool: Any, model: Any, seen: list[Any]) -> None:
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool=pool) as loader:
        dataset = to_keras(loader)
        for _ in range(2):
            model.evaluate(dataset, verbose=0)
        outputs = [model.predict(dataset, verbose=0) for _ in range(2)]
    assert seen == epochs(0, 1, 2, 3)
    weight, bias = (float(as_numpy(part).item()) for part in model.weights)
    for number, output in enumerate(outputs, start=2):
        inputs = np.concatenate(epochs(number))
        np.testing.assert_allclose(output[:, 0], inputs * weight + bias, rtol=1e-5, atol=1e-6)


def test_validation_from_the_same_pool(pools: list[AbstractWorkerPool], model: Any, seen: list[Any]) -> None:
    with (
        bu.Loader(SOURCE, SIZE, shuffle=7, pool=pools[0]) as train,
        bu.Loader(SOURCE, SIZE, pool=pools[0]) as test,
    ):
        model.fit(to_keras(train), epochs=2, validation_data=to_keras(test), shuffle=False, verbose=0)
        assert (train.epoch, test.epoch) == (2, 2)
        in_order = epochs(0, shuffle=None)
        assert seen == epochs(0) + in_order + epochs(1) + in_order
        seen.clear()
        both = to_keras(train)
        model.fit(both, epochs=2, validation_data=both, shuffle=False, verbose=0)
        assert seen == epochs(2, 3, 4, 5)


def test_an_epoch_of_fit_with_fewer_steps(loader: bu.Loader, model: Any, seen: list[Any]) -> None:
    model.fit(to_keras(loader), epochs=4, steps_per_epoch=3, shuffle=False, verbose=0)
    assert seen == epochs(0, 1)


def test_a_state_in_mid_epoch_is_refused() -> None:
    x = np.arange(40, dtype=np.float32)[:, None]
    with bu.Loader([x, x], 4, shuffle=1, pool="serial") as loader:
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state)
        dataset = to_keras(loader)
        assert dataset.num_batches == 10
        with raises(StateError):
            dataset[0]
        assert len([1 for _, _ in zip(range(9), endless(loader), strict=False)]) == 9



def test_a_training_that_stops_in_mid_epoch_begins_the_epoch_again(
    loader: bu.Loader, model: Any, seen: list[Any]
) -> None:
    def stop(batch: int, logs: Any) -> None:
        model.stop_training = batch == 2

    dataset = to_keras(loader)
    model.fit(dataset, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stop)], shuffle=False, verbose=0)
    assert seen == epochs(0)[:3]
    seen.clear()
    model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    assert seen == epochs(0, 1)


def test_a_training_goes_on_from_the_state_after_an_epoch(loader: bu.Loader, model: Any, seen: list[Any]) -> None:
    states: list[str] = []

    def save(*args: Any) -> None:
        states.append(json.dumps(loader.state_dict()))

    callback = keras.callbacks.LambdaCallback(on_epoch_end=save)
    model.fit(to_keras(loader), epochs=2, callbacks=[callback], shuffle=False, verbose=0)
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool="serial") as again:
        again.load_state_dict(json.loads(states[0]))
        seen.clear()
        model.fit(to_keras(again), epochs=3, initial_epoch=1, shuffle=False, verbose=0)
    assert seen == epochs(1, 2)


class Killed(BaseException):
    """Stands for the end of the program."""


class Kills(keras.callbacks.Callback):
    """Ends `fit` at a step, or between two callbacks at the end of an epoch."""

    def __init__(self, epoch: int, step: int | None) -> None:
        super().__init__()
        self.at = epoch, step
        self.epoch = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise Killed

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch, None) == self.at:
            raise Killed


def trained(folder: Path, seen: list[Any], place: int = 2, at: Any = (-1, 0), **options: Any) -> tuple[int, Any]:
    """Run a program that can be killed, in full or up to a kill. `place` is that of the kill among the callbacks."""
    model = telling(lambda batch: seen.append(values(keras.utils.unpack_x_y_sample_weight(batch)[0])))
    model.build((None, 1))
    with bu.Loader(SOURCE, SIZE, shuffle=options.pop("order", 7), pool="serial", start_epoch=3) as loader:
        callbacks = [keras.callbacks.BackupAndRestore(folder / "model"), bu.KeepState(loader, folder / "loader.json")]
        callbacks.insert(place, Kills(*at))
        fit: dict[str, Any] = {"epochs": 3, "callbacks": callbacks, "shuffle": False, "verbose": 0, **options}
        with contextlib.suppress(Killed):
            model.fit(to_keras(loader), **fit)
        return loader.epoch, model


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_training_that_was_killed_goes_on_with_the_epochs_that_it_has_not_finished(
    place: int, seen: list[Any], tmp_path: Path
) -> None:
    trained(tmp_path, seen, place, (1, 2))  # in mid-epoch
    assert seen == epochs(3) + epochs(4)[:3]
    seen.clear()
    trained(tmp_path, seen, place, (1, None))  # between the callbacks of the same epoch
    assert seen == epochs(4)
    seen.clear()
    assert trained(tmp_path, seen)[0] == 6
    assert seen == (epochs(4, 5) if place == 0 else epochs(5))  # whether Keras' own callback was before the kill
    assert not list(tmp_path.iterdir())


PROGRAM = """
import os, signal, sys
import keras
import numpy as np
import batchup_ng as bu
from batchup_ng.frameworks.keras import to_keras

X = np.arange(22, dtype=np.float32)[:, None]
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
steps = iter(range(int(sys.argv[1])))

def told(batch, logs):
    print(train.epoch, batch, flush=True)
    if next(steps, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)

with bu.Loader([X, X], 4, shuffle=7, pool="processes", workers=1) as train:
    callbacks = [keras.callbacks.BackupAndRestore("model"), bu.KeepState(train, "loader.json"),
                 keras.callbacks.LambdaCallback(on_train_batch_end=told)]
    model.fit(to_keras(train), epochs=3, callbacks=callbacks, shuffle=False, verbose=0)
"""


@pytest.mark.thorough
def test_a_program_that_is_killed_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    told = []
    for steps in (8, 1000):
        command = [sys.executable, "-c", PROGRAM, str(steps)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        told.append([(int(line.split()[0]), int(line.split()[1])) for line in done.stdout.splitlines()])
    assert done.returncode == 0, done.stderr
    assert told[0] == [(0, step) for step in range(6)] + [(1, step) for step in range(3)]
    assert told[1] == [(epoch, step) for epoch in (1, 2) for step in range(6)]


def test_a_drawn_seed_goes_on_too(seen: list[Any], tmp_path: Path) -> None:
    trained(tmp_path, seen, at=(1, 2), order=True)
    (seed,) = [json.loads((tmp_path / "loader.json").read_text())["loader"]["seed"]]
    seen.clear()
    trained(tmp_path, seen, order=True)
    assert seen == epochs(4, 5, shuffle=seed)


def test_fit_twice_goes_on_with_the_loader(loader: bu.Loader, model: Any, seen: list[Any], tmp_path: Path) -> None:
    keep = KeepState(loader, tmp_path / "loader.json", delete_checkpoint=False)
    for _ in range(2):
        model.fit(to_keras(loader), epochs=2, callbacks=[keep], shuffle=False, verbose=0)
    assert seen == epochs(0, 1, 2, 3)
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool="serial") as again:
        keep = KeepState(again, tmp_path / "loader.json")
        with raises(ArgumentError):
            model.fit(to_keras(again), epochs=6, initial_epoch=4, callbacks=[keep], shuffle=False, verbose=0)
        model.fit(to_keras(again), epochs=3, initial_epoch=2, callbacks=[keep], shuffle=False, verbose=0)
    assert seen[24:] == epochs(4)


@pytest.mark.parametrize("start", [0, 2])
def test_without_a_file_the_loader_begins_with_the_epoch_of_fit(
    start: int, model: Any, seen: list[Any], tmp_path: Path
) -> None:
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool="serial", start_epoch=start) as loader:
        keep = KeepState(loader, tmp_path / "loader.json", delete_checkpoint=False)
        model.fit(to_keras(loader), epochs=4, initial_epoch=2, callbacks=[keep], shuffle=False, verbose=0)
        assert loader.epoch == 4
    assert seen == epochs(2, 3)
    kept = json.loads((tmp_path / "loader.json").read_text())
    assert (kept["epochs"], kept["loader"]["epoch"]) == (4, 4)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_training_that_was_killed_at_the_end_of_its_first_epoch_goes_on(
    place: int, seen: list[Any], tmp_path: Path
) -> None:
    trained(tmp_path, seen, place, (0, None))
    seen.clear()
    assert trained(tmp_path, seen)[0] == 6
    assert seen == (epochs(3, 4, 5) if place == 0 else epochs(4, 5))  # whether Keras' own callback was before the kill


class Stops(keras.callbacks.Callback):
    """Ends `fit` after its first step, as ``TerminateOnNaN`` does."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = True


def test_another_loader_is_noticed_after_an_epoch(loader: bu.Loader, model: Any, tmp_path: Path) -> None:
    path = tmp_path / "loader.json"
    with bu.Loader(SOURCE, SIZE, shuffle=8, pool="serial") as other, raises(ArgumentError):
        model.fit(to_keras(loader), epochs=3, callbacks=[KeepState(other, path)], shuffle=False, verbose=0)
    path.unlink()
    model.fit(to_keras(loader), epochs=3, callbacks=[KeepState(loader, path), Stops()], shuffle=False, verbose=0)
    assert not path.exists()


def test_where_a_state_cannot_be_kept(loader: bu.Loader, model: Any, tmp_path: Path) -> None:
    with raises(ArgumentTypeError):
        KeepState([X], tmp_path)
    with raises(ArgumentError):
        KeepState(loader, tmp_path / "missing" / "loader.json")
    path = tmp_path / "loader.json"
    for data, steps in ((to_keras(loader), 4), (endless(loader), 4), (endless(loader), 6)):
        with raises(ArgumentError):
            model.fit(data, steps_per_epoch=steps, callbacks=[KeepState(loader, path)], shuffle=False, verbose=0)
    loader.set_epoch(1)
    with raises(ArgumentError):
        keep = KeepState(loader, path)
        model.fit(to_keras(loader), epochs=3, initial_epoch=2, callbacks=[keep], shuffle=False, verbose=0)
    for text, kind in (("{}", bu.StateError), ('{"epochs": 0, "loader": {}}', bu.StateError)):
        path.write_text(text)
        with raises(kind):
            model.fit(to_keras(loader), callbacks=[KeepState(loader, path)], shuffle=False, verbose=0)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="a thread of tf.data asks for batches")
def test_steps_that_do_not_fit_into_an_epoch_are_warned_of(loader: bu.Loader, model: Any, seen: list[Any]) -> None:
    model.build((None, 1))
    model.fit(to_keras(loader), epochs=4, steps_per_epoch=3, shuffle=False, verbose=0)
    assert seen == epochs(0, 1)
    with warns(UserWarning):
        model.fit(to_keras(loader), epochs=2, steps_per_epoch=4, shuffle=False, verbose=0)
    assert seen[12:] == epochs(2)


def test_maps_of_the_loader_are_applied_and_it_can_be_watched(loader: bu.Loader, model: Any, seen: list[Any]) -> None:
    waits: list[bu.EpochWait] = []
    doubled = bu.watch(loader.map(lambda x, y: (2 * x, y)), waits.append)
    model.fit(to_keras(doubled), epochs=3, shuffle=False, verbose=0)
    assert seen == [[2 * value for value in batch] for batch in epochs(0, 1, 2)]
    assert [(wait.epoch, wait.batches) for wait in waits] == [(0, 6), (1, 6), (2, 6)]


def test_item_i_is_batch_i_whoever_asks(loader: bu.Loader) -> None:
    dataset = to_keras(loader)
    assert len(dataset) == dataset.num_batches == 6
    numbers = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 5)).tolist()
    for epoch in range(2):
        loader.set_epoch(epoch)
        with ThreadPoolExecutor(4) as threads:
            found = [values(x) for x, _ in threads.map(dataset.__getitem__, numbers)]
        assert found == [epochs(epoch)[number] for number in numbers]


def test_a_pass_that_was_begun_gives_nothing_to_another_epoch(loader: bu.Loader) -> None:
    dataset = to_keras(loader)
    assert dataset.num_batches == 6
    dataset[0], dataset[1]
    loader.set_epoch(3)
    assert [values(dataset[number][0]) for number in (2, 3)] == epochs(3)[2:4]


# -- what a batch may be -------------------------------------------------------------------------------------------


def test_weights_of_samples_and_of_classes(pools: list[AbstractWorkerPool]) -> None:
    y = np.array([0, 1, 1, 0, 1, 0], np.int32)
    weights = np.where(y, 3, 1).astype(np.float32)
    given: list[Any] = []
    model = telling(lambda batch: given.extend(as_numpy(batch[2]).tolist()))
    x = np.zeros((6, 1), np.float32)
    with bu.Loader([x, y, weights], 4, pool=pools[0]) as weighed, bu.Loader([x, y], 4, pool=pools[0]) as plain:
        model.fit(to_keras(weighed), shuffle=False, verbose=0)
        model.fit(to_keras(plain), class_weight={0: 1.0, 1: 3.0}, shuffle=False, verbose=0)
    assert given == 2 * weights.tolist()


def test_batches_with_names_and_nested_ones(pools: list[AbstractWorkerPool]) -> None:
    inputs = {name: keras.Input((1,), name=name) for name in "ab"}
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs["a"] + inputs["b"]))
    model.compile("sgd", "mse")
    named = bu.ArrayDataSource({"a": X, "b": X, "y": X})
    with bu.Loader(named.map(lambda a, b, y: ({"a": a, "b": b}, y)), SIZE, pool=pools[0]) as loader:
        history = model.fit(to_keras(loader), epochs=2, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 2
    with bu.Loader(bu.ArrayDataSource({"a": X, "b": X}), SIZE, pool=pools[0]) as loader:
        assert model.predict(to_keras(loader), verbose=0).shape == (N, 1)


# -- errors --------------------------------------------------------------------------------------------------------


def test_a_loader_of_dicts_is_mapped_to_pairs(model: Any, seen: list[Any]) -> None:
    with bu.Loader({"x": X, "y": X}, SIZE, pool="serial") as loader:
        model.fit(to_keras(loader.map(lambda x, y: (x, y))), shuffle=False, verbose=0)
    assert [value for batch in seen for value in batch] == list(range(N))


def test_an_error_of_a_sample_reaches_the_caller_of_fit(tmp_path: Path, pool: Any) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(12)]
    for path in paths:
        Image.new("L", (1, 1)).save(path)
    paths[9].write_bytes(b"no picture")
    source = bu.ArrayDataSource([bu.ImageFiles(paths, size=(1, 1), mode="L")]).map(
        lambda x: (x[:, 0].astype(np.float32), x[:, 0].astype(np.float32))
    )
    with bu.Loader(source, 2, pool=pool) as loader:
        dataset = to_keras(loader)
        for shuffle in (False, True):
            model = telling(lambda batch: None)
            with raises(Exception) as caught:
                model.fit(dataset, epochs=2, shuffle=shuffle, verbose=0)
            assert str(paths[9]) in str(caught.value)
        Image.new("L", (1, 1)).save(paths[9])
        model = telling(lambda batch: None)  # a new one: with JAX, Keras leaves a model without its variables
        model.fit(dataset, shuffle=False, verbose=0)
        assert loader.epoch == 1


def test_what_it_cannot_be_made_of(pools: list[AbstractWorkerPool]) -> None:
    stream = bu.CallableDataSource(lambda batch_size, **_: iter([(np.zeros((1, 1)),)]))
    drawn = bu.Loader(SOURCE, SIZE, shuffle=np.random.RandomState(1), pool=pools[0])
    for loader in (bu.Loader(stream, 1, pool=pools[0]), drawn):
        with loader, raises(ArgumentTypeError):
            to_keras(loader)
    for make in (to_keras, endless):
        with raises(ArgumentTypeError):
            make([X])


def test_a_ledger_refuses_batches_by_number(loader: bu.Loader, model: Any, tmp_path: Path) -> None:
    batches = to_keras(loader)
    bu.ledger(loader, tmp_path / "run.json")
    with raises(ArgumentError):
        to_keras(loader)
    with raises(ArgumentError):
        model.fit(batches, shuffle=False, verbose=0)
    assert not (tmp_path / "run.json").exists()
    model.fit(endless(loader), steps_per_epoch=len(loader), shuffle=False, verbose=0)
    assert (tmp_path / "run.json").exists()


def test_steps_are_counted_over_passes_of_keras() -> None:
    with bu.Loader(SOURCE, SIZE, shuffle=3, pool="serial") as loader, bu.Loader(SOURCE, SIZE, shuffle=3) as plain:
        loader.skip([2])
        batches = to_keras(loader)
        assert batches.num_batches == 5
        for number in range(5):
            batches[number]
        batches.on_epoch_end()
        assert loader.state_dict()["steps"]["step"] == 5
        loader.skip([5])  # the first of epoch 1
        expected = [values(x) for x, _ in plain.batches(range(1, 6), epoch=1)]
        assert [values(x) for x, _ in loader] == expected


def test_workers_are_those_of_the_loader(loader: bu.Loader) -> None:
    with raises(ArgumentTypeError):
        to_keras(loader, workers=4)
    with raises(AttributeError):
        to_keras(loader).workers = 4


@pytest.mark.parametrize("shard", [(1, 2), None])
def test_keras_does_not_shard_what_the_loader_shards(
    shard: Any, pools: list[AbstractWorkerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras would ask a process for every second number; here, one process plays two."""
    distribution = keras.distribution.DataParallel(devices=["cpu:0"], auto_shard_dataset=True)
    distribution._num_processes, distribution._is_multi_process = 2, True
    monkeypatch.setattr(keras.distribution, "distribution", lambda: distribution)
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool=pools[0], shard=shard) as told:
        with raises(ArgumentError):
            to_keras(told)[0]
        distribution.auto_shard_dataset = False
        with warns(UserWarning) if shard is None else warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [len(to_keras(told)[0]) for _ in range(2)] == [2, 2]
        assert len(caught) == (shard is None), [each.message for each in caught]
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool=pools[0]) as told, raises(ArgumentError):
        to_keras(told)[0]


def test_ranks_of_torchrun_are_refused_all_of_the_data(loader: bu.Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with raises(ArgumentError):
        to_keras(loader)[0]


# -- endless -------------------------------------------------------------------------------------------------------


def test_endless_batches_are_those_of_one_epoch_after_the_other(pool: Any, model: Any, seen: list[Any]) -> None:
    with bu.Loader(SOURCE, SIZE, shuffle=7, pool=pool, start_epoch=1) as loader:
        model.fit(endless(loader), steps_per_epoch=len(loader), epochs=3, shuffle=False, verbose=0)
    assert seen == epochs(1, 2, 3)


def test_endless_batches_of_what_has_no_random_access(pools: list[AbstractWorkerPool]) -> None:
    def batches(batch_size: int, **_: Any) -> Any:
        return ((X[start : start + batch_size], X[start : start + batch_size]) for start in range(0, N, batch_size))

    with bu.Loader(bu.CallableDataSource(batches), SIZE, pool=pools[0]) as loader:
        found = [values(x) for x, _ in itertools.islice(endless(loader), 13)]
    assert found == (3 * epochs(0, shuffle=None))[:13]
    drawn = bu.Loader(SOURCE, SIZE, shuffle=np.random.RandomState(1), pool=pools[0])
    with drawn:
        found = [values(x) for x, _ in itertools.islice(endless(drawn), 12)]
    assert all(sorted(itertools.chain(*half)) == X[:, 0].tolist() for half in (found[:6], found[6:]))
    assert found[:6] != found[6:]


# -- memory --------------------------------------------------------------------------------------------------------


def given_to_fit(dataset: Any, n_epochs: int) -> Iterator[Any]:
    """Yield the batches that the steps of ``fit`` are given, as soon as they are."""
    given: queue.Queue[Any] = queue.Queue(2)

    def fit() -> None:
        try:
            telling(given.put).fit(dataset, epochs=n_epochs, shuffle=False, verbose=0)
        finally:
            given.put(None)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(fit)
        yield from iter(given.get, None)
        done.result()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_what_a_step_was_given_never_changes(kind: str, in_full: bool) -> None:
    n_epochs = 40 if in_full else 1
    with poisoned_leases() as poisoned, bu.Loader(numbered_rows(), BATCH_SIZE, shuffle=1, pool=kind) as loader:
        n_batches, n_changed = kept_late(given_to_fit(to_keras(loader), n_epochs), as_numpy)
    assert n_changed == 0
    assert n_batches == 250 * n_epochs
    assert len(poisoned) > 100 * n_epochs


@pytest.mark.filterwarnings("ignore:Keras shuffled the numbers")
def test_a_compiled_training_is_the_same_when_what_is_let_go_of_is_poisoned(in_full: bool) -> None:
    def weights() -> list[np.ndarray]:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4096,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-12), "mse")
        data = numbered_rows() if in_full else numbered_rows(400)
        with bu.Loader(data, BATCH_SIZE, shuffle=1, pool="processes") as loader:
            model.fit(to_keras(loader), epochs=40 if in_full else 1, verbose=0)
        return [as_numpy(part) for part in model.weights]

    expected = weights()
    with poisoned_leases() as poisoned:
        found = weights()
    np.testing.assert_array_equal(found[0], expected[0])
    assert len(poisoned) > 50
