"""The ledger says what is wrong, is written at changes alone, and no failure of it costs a batch."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.cli import main
from batchup_ng.time_machine import keeping, who
from batchup_ng.time_machine.ledger_file import Segment
from tests.frameworks.handover_helpers import ahead
from tests.messages import raises
from tests.time_machine.runs import SEED, N, loaders, noisy, print_of

PER_EPOCH = -(-N // 8)
PAGE = Path(__file__).parents[2] / "docs" / "bad_batch.md"


def kept(path: Path, world: int = 1, epochs: int = 1) -> list[Any]:
    """Keep the ledger of a run, and return its loaders."""
    ranks = loaders(noisy(), 8, world, path)
    for _ in range(epochs):
        for _ in zip(*ranks, strict=True):
            pass
    return ranks


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that ledgers write from now on."""
    found: list[str] = []
    write = keeping.replace_text

    def noted(path: Any, text: str) -> None:
        write(path, text)
        found.append(text)

    monkeypatch.setattr(keeping, "replace_text", noted)
    return found


def test_whole_epochs_are_one_segment(tmp_path: Path, writes: list[str]) -> None:
    ranks = kept(tmp_path / "run.json", 3, 4)
    assert len(writes) == 1
    for rank in ranks:
        rank.close()
    (segment,) = json.loads(writes[-1])["segments"]
    assert len(writes) == 2
    assert (segment["step"], segment["end"], segment["per_epoch"]) == (0, 4 * 13, 13)


def test_each_change_is_a_segment_and_nothing_else(tmp_path: Path, writes: list[str]) -> None:
    (loader,) = loaders(noisy(), 8, 1, tmp_path / "run.json")
    for _ in range(2):  # as frameworks do
        iter(loader)
    for most, number in [(PER_EPOCH, 1), (5, 1), (PER_EPOCH, 2), (PER_EPOCH, 2)]:
        for _ in zip(range(most), loader, strict=False):
            pass
        assert len(writes) == number
    loader.set_epoch(9)
    list(loader)
    assert len(writes) == 3
    loader.skip([4 * PER_EPOCH + 8])
    list(loader)
    list(loader)
    places = [(each["step"], each["epoch"], each["attempt"]) for each in json.loads(writes[-1])["segments"]]
    assert places == [(0, 0, 1), (43, 2, 1), (119, 9, 1), (157, 10, 1), (194, 11, 1)]
    assert len(json.loads(writes[-1])["attempts"]) == 1


def test_an_earlier_state_in_one_process_is_another_attempt(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    (loader,) = loaders(noisy(), 8, 1, path)
    first, state = [], None
    for batch in loader:
        first.append(print_of(batch))
        if len(first) == 10:
            state = loader.state_dict()
        if len(first) == 20:
            break
    loader.load_state_dict(state)
    second = [print_of(batch) for batch in loader]
    assert [print_of(loader.replay(step)) for step in (9, 10, 15, 37)] == [first[9], second[0], second[5], second[27]]
    assert [print_of(loader.replay(step, attempt=1)) for step in (0, 15)] == [first[0], first[15]]
    page = who(path, 15)
    assert "attempt 1 took this step before, with the same rows: --attempt 1" in page
    assert "took this step before" not in who(path, 25)


def test_a_loop_that_an_adapter_is_ahead_of_is_counted(tmp_path: Path) -> None:
    (loader,) = loaders(noisy(), 8, 1, tmp_path / "run.json")
    view = ahead(loader, depth=4)
    expected = [print_of(batch) for batch in loaders(noisy(), 8, 1, None)[0]]
    for number, _ in enumerate(view):
        assert loader.state_dict()["steps"]["step"] == number + 1
        if number == 6:
            break
    rest = [print_of(batch) for batch in view]
    assert loader.state_dict()["steps"]["step"] == 7 + PER_EPOCH
    assert print_of(loader.replay(6)) == expected[6]
    assert [print_of(loader.replay(step)) for step in (7, 44)] == [rest[0], rest[-1]]


def test_a_cut_or_damaged_file_is_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    kept(path)
    whole = path.read_bytes()
    for end in [0, 1, *range(10, len(whole) - 2, 97), len(whole) - 2]:
        path.write_bytes(whole[:end])
        with raises(bu.LedgerError):
            bu.ledger(bu.Loader(noisy(), 8, shuffle=SEED, pool="serial"), path)
        with raises(bu.LedgerError):
            who(path, 3)
        assert path.read_bytes() == whole[:end]


def test_entries_of_wrong_types_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    kept(path)
    content = json.loads(path.read_text())
    for field in dataclasses.fields(Segment):
        for wrong in ("x", -5, 1.5, [[1]], {}):
            changed = {**content, "segments": [{**content["segments"][0], field.name: wrong}]}
            path.write_text(json.dumps(changed))
            with raises(bu.LedgerError):
                who(path, 3)
        missing = {name: value for name, value in content["segments"][0].items() if name != field.name}
        path.write_text(json.dumps({**content, "segments": [missing]}))
        with raises(bu.LedgerError):
            who(path, 3)
    for name in ("run", "sources", "attempts", "segments"):
        for wrong in (None, 3, [3], [{}]):
            path.write_text(json.dumps({**content, name: wrong}))
            if (name, wrong) != ("attempts", [{}]):
                with raises(bu.LedgerError):
                    who(path, 3)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    kept(path)
    content = json.loads(path.read_text())
    folder = tmp_path / "folder"
    folder.mkdir()
    for text in ("{}", "[]", json.dumps({**content, "version": 99}), json.dumps({**content, "format": 1})):
        path.write_text(text)
        with raises(bu.LedgerError):
            who(path, 3)
    for other in (folder, tmp_path / "none.json"):
        with raises(bu.LedgerError):
            who(other, 3)


def refused(loader: Any, path: Path) -> None:
    text = path.read_text()
    bu.ledger(loader, path)
    for _ in range(2):
        with raises(bu.LedgerError):
            iter(loader)
    assert path.read_text() == text


def test_the_ledger_of_another_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    kept(path)
    refused(bu.Loader(noisy(), 8, shuffle=SEED + 1, pool="serial"), path)
    refused(bu.Loader(noisy(np.arange(20)), 8, shuffle=SEED, pool="serial"), path)
    refused(bu.Loader(bu.ArrayDataSource([np.arange(N)]).map(lambda x: x), 8, shuffle=SEED, pool="serial"), path)


def test_two_loaders_that_write_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    (one,), (other,) = loaders(noisy(), 8, 1, path), loaders(noisy(), 8, 1, path)
    next(iter(one))
    list(other)
    text = path.read_text()
    with raises(bu.LedgerError):
        iter(one)  # it left its epoch early, which is a change
    assert path.read_text() == text


def test_steps_and_ranks_that_were_never_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    ranks = loaders(noisy(), 4, 2, path)
    for _ in zip(*ranks, strict=True):
        pass
    state = ranks[0].state_dict()
    for rank in ranks:
        rank.close()
    ranks = loaders(noisy(), 4, 2, path, state)
    (loader,) = loaders(noisy(), 5, 1, path)
    for wrong in (38, 1000):
        with raises(bu.LedgerError):
            loader.replay(wrong, 0)
        with raises(bu.LedgerError):
            who(path, wrong, 0)
    for rank in (2, -1):
        with raises(bu.LedgerError):
            loader.replay(3, rank)
    loaders(noisy(), 5, 1, path)
    with raises(bu.LedgerError):
        who(path, 3)
    next(iter(ranks[0]))
    for attempt in (0, 3):
        with raises(bu.LedgerError):
            who(path, 3, 0, attempt)
    with raises(bu.LedgerError):
        who(path, 3, 0, 2)
    with raises(bu.ArgumentError):
        who(path, -1, 0)


def test_another_source_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    kept(path)
    for source in (noisy(np.arange(20)), bu.ArrayDataSource([np.arange(N)])):
        (loader,) = loaders(source, 8, 1, path)
        with raises(bu.LedgerError):
            loader.replay(3)
    path.unlink()
    x = np.arange(N)
    list(loaders(bu.ArrayDataSource([x]).sample(bu.WeightedSampler(1 + x % 3, num_samples=N)), 8, 1, path)[0])
    (loader,) = loaders(bu.ArrayDataSource([x]).sample(bu.WeightedSampler(1 + x % 4, num_samples=N)), 8, 1, path)
    with raises(bu.LedgerError):
        loader.replay(3)


def test_sources_without_steps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    stream = bu.IteratorDataSource(iter([(np.arange(3),)]))
    for loader in (
        bu.Loader(stream, 3, pool="serial"),
        bu.Loader(noisy(), 8, shuffle=np.random.RandomState(1), pool="serial"),
    ):
        with raises(bu.ArgumentError):
            bu.ledger(loader, path)


def test_a_ledger_begins_before_the_loop(tmp_path: Path) -> None:
    (loader,) = loaders(noisy(), 8, 1, None)
    next(iter(loader))
    with raises(bu.ArgumentError):
        bu.ledger(loader, tmp_path / "run.json")
    with raises(bu.ArgumentTypeError):
        bu.ledger(noisy(), tmp_path / "run.json")  # type: ignore[arg-type]
    list(loader)
    bu.ledger(loader, tmp_path / "run.json")
    expected = [print_of(batch) for batch in loader]
    assert print_of(loader.replay(2 * PER_EPOCH + 3)) == expected[3], "epochs before the ledger count as whole ones"


def test_replay_needs_a_ledger() -> None:
    with raises(bu.ArgumentError):
        loaders(noisy(), 8, 1, None)[0].replay(3)


def test_a_source_of_the_command_line_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    kept(path)
    for source in ("train", "json:nothing"):
        with raises(bu.ArgumentError):
            who(path, 3, source=source)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    (loader,) = loaders(noisy(), 8, 1, path)
    write, full = keeping.replace_text, [True]

    def sometimes(path: Any, text: str) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, text)

    monkeypatch.setattr(keeping, "replace_text", sometimes)
    expected = [print_of(batch) for batch in loaders(noisy(), 8, 1, None)[0]]
    for _ in range(2):
        with raises(OSError):
            iter(loader)
    assert not path.exists()
    full[0] = False
    assert [print_of(batch) for batch in loader] == expected
    next(iter(loader))
    full[0] = True
    with raises(OSError):
        iter(loader)
    full[0] = False
    assert (len(list(loader)), loader.epoch) == (PER_EPOCH, 3)
    full[0] = True
    loader.close()
    assert [print_of(loaders(noisy(), 8, 1, path)[0].replay(step)) for step in (0, 37)] == [expected[0], expected[37]]
    assert [each["step"] for each in json.loads(path.read_text())["segments"]] == [0, 39]


def test_who_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    kept(path, 4)
    assert main(["who", str(path), "--step", "7", "--rank", "3"]) == 0
    out = capsys.readouterr().out
    assert out == who(path, 7, 3) + "\n"
    assert out.startswith("step 7, rank 3 of 4: batch 7 of epoch 0, 8 samples\n")
    assert main(["who", str(path), "--step", "7"]) == 1
    assert main(["who", str(tmp_path / "none.json"), "--step", "7"]) == 1
    with pytest.raises(SystemExit) as ended:
        main(["who", str(path), "--step", "7", "--rank", "3", "--source", "train"])
    assert ended.value.code == 2
    assert "--rank must be from 0 to 3" in capsys.readouterr().err


def test_what_a_segment_does_not_hold_is_refused(tmp_path: Path) -> None:
    (loader,) = kept(tmp_path / "run.json")
    options, plan = loader._options_of(0), loader._shared.inner.plan
    keeping._segment(options, plan, 0, 0, 1)
    with raises(bu.LedgerError):
        keeping._segment(dataclasses.replace(options, order_path=(1,)), plan, 0, 0, 1)


def test_ranks_other_than_the_first_write_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    ranks = loaders(noisy(), 8, 3, path)
    list(ranks[2])
    assert not path.exists()
    ranks[2].close()
    assert not path.exists()


@pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")
def test_the_page_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], {})
    shown = text.split("$ python -m batchup_ng who ")[1].split("     ...\n```")[0].splitlines()
    command, begun, *others = shown[0], shown[2], shown[1], *shown[3:]
    assert command == "run.json --step 20"
    got = who("run.json", 20).splitlines()
    assert [got[0], *got[2 : len(shown) - 1]] == others
    numbers = re.compile(r"\d+")
    assert "".join(numbers.split(got[1])).startswith("".join(numbers.split(begun))), "libraries may follow"


def test_a_drawn_seed_is_the_one_of_the_state(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    loader = bu.ledger(bu.Loader(noisy(), 8, shuffle=True, pool="serial"), path)
    seen = []
    for batch in loader:
        seen.append(print_of(batch))
        if len(seen) == 5:
            state = loader.state_dict()
            break
    other = bu.ledger(bu.Loader(noisy(), 8, shuffle=True, pool="serial"), path)
    other.state_dict()  # of its own seed
    other.load_state_dict(state)
    seen += [print_of(batch) for batch in other]
    assert [print_of(other.replay(step)) for step in range(len(seen))] == seen
    third = bu.ledger(bu.Loader(noisy(), 8, shuffle=True, pool="serial"), tmp_path / "third.json")
    third.state_dict()
    third.load_state_dict({name: value for name, value in state.items() if name != "steps"})
    list(third)
    fourth = bu.ledger(bu.Loader(noisy(), 8, shuffle=True, pool="serial"), tmp_path / "third.json")
    fourth.load_state_dict(third.state_dict())
    list(fourth)


def test_a_step_is_replayed_while_the_loop_goes_on(tmp_path: Path) -> None:
    (loader,) = loaders(noisy(), 8, 1, tmp_path / "run.json", pool="threads", workers=2)
    with loader:
        seen = []
        for batch in loader.epochs(2):
            seen.append(print_of(batch))
            step = len(seen) // 2
            if len(seen) % 7 == 0:
                assert print_of(loader.replay(step)) == seen[step]
        assert len(seen) == loader.state_dict()["steps"]["step"] == 2 * PER_EPOCH


def test_an_error_that_ends_an_epoch_is_counted(tmp_path: Path) -> None:
    def bad(x: np.ndarray) -> Any:
        if 77 in x:
            raise ValueError("bad")
        return (x,)

    source = bu.ArrayDataSource([np.arange(N)]).map(bad)
    (loader,) = loaders(source, 8, 1, tmp_path / "run.json")
    seen = []
    for _ in range(3):
        with contextlib.suppress(bu.BatchError):
            for batch in loader:
                seen.append(print_of(batch))
    assert 0 < len(seen) < 3 * PER_EPOCH
    assert loader.state_dict()["steps"]["step"] == len(seen)
    assert [print_of(loader.replay(step)) for step in range(len(seen))] == seen


class Own(bu.RandomAccessDataSource):
    """A source of BatchUp's kind."""

    def __init__(self) -> None:
        super().__init__(N)

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (np.asarray(indices) * 2,)


def test_a_source_of_the_users_class_replays(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    (loader,) = loaders(Own(), 8, 1, path)
    seen = [batch[0].tolist() for batch in loader]
    assert [loader.replay(step)[0].tolist() for step in range(len(seen))] == seen
    rows = [int(line.split()[1]) for line in who(path, 3).split("\n\n")[1].splitlines()[1:]]
    assert [2 * row for row in rows] == seen[3]
