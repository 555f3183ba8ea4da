"""Loaders with a planted bottleneck: a row for each, and what explain() printed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import batchup_ng as bu
from benchmarks.__main__ import main
from benchmarks.bottlenecks import program, study
from benchmarks.bottlenecks.planted import BATCH, PLANTED, Followed
from tests.extent import quick


def test_a_row_says_what_is_wrong_and_how_far_off_a_prediction_is() -> None:
    figures = {"name": "a slow disk", "causes": ["workers"], "cause": "cpu", "confidence": "high", "seconds": 0.0104,
               "wait_share": 0.77, "advice": "8 workers", "predicted": 0.003, "measured": 0.0025}  # fmt: skip
    assert study.row(figures) == [
        "a slow disk", "cpu (wrong: workers), high", "10.4", "77", "8 workers", "3", "2.5", "+20"
    ]  # fmt: skip
    right = {**figures, "cause": "workers", "advice": "", "predicted": None, "measured": None}
    assert study.row(right)[1:3] + study.row(right)[-3:] == ["workers, high", "10.4", "", "", ""]
    text = study.page("command", [figures, right])
    assert "planted one in 1 of 2" in text
    assert "within 25% of what was measured in 1 of 1" in text


@pytest.mark.parametrize("name", quick(list(PLANTED)[:1], list(PLANTED)))
def test_each_source_can_be_made_as_it_is_and_with_each_change(name: str) -> None:
    planted = PLANTED[name]
    changes = [Followed(**{change: True}) for change in ("half", "cached", "moved", "arrays")]
    for followed in [Followed(), *changes]:
        source = planted.source(followed)
        assert len(source) >= 4 * BATCH
        next(source.batch_iterator(BATCH))
    planted.loop()


@pytest.mark.in_turn
def test_a_run_writes_the_page_the_figures_and_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bottlenecks", "a map after", "--output", str(tmp_path)])
    assert "| a map after the pool" in capsys.readouterr().out
    (figures,) = json.loads((tmp_path / "bottlenecks.json").read_text())["figures"]
    assert figures["screen"].startswith("The loop waited")
    assert figures["seconds"] > 0.008  # the loop waits for 2 ms, and the map for 6
    (screen,) = (tmp_path / "bottlenecks").iterdir()
    assert screen.read_text() == figures["screen"] + "\n"
    assert screen.name == "a_map_after_the_pool.txt"


def test_advice_is_followed_by_options_or_by_changes_of_the_source() -> None:
    planted = PLANTED["a map in Python, 1 process"]
    with bu.Loader(planted.source(Followed()), BATCH, pool="serial") as loader:
        for _ in loader:
            pass
        told = loader.explain(trial=False)
    first = told.advice[0]
    options, followed = program.followed_by(first._replace(options={"workers": 2}), planted)
    assert (options, followed) == ({"pool": "processes", "workers": 2}, Followed())
    halved = first._replace(options={}, change="the map Computes in half the time")
    assert program.followed_by(halved, planted) == (planted.options, Followed(half=True))
    assert program.followed_by(first._replace(options={}, change="another"), planted) == (None, Followed())


def test_no_name_that_has_a_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["bottlenecks", "much"])
    assert refused.value.code == 2
    assert "no name has much; the names are: a map in Python, 4 threads" in capsys.readouterr().err


def test_objects_as_an_array_have_as_many_numbers() -> None:
    source = PLANTED["Python objects in batches, 2 processes"].source
    (objects,), (array,) = (next(source(Followed(arrays=each)).batch_iterator(2)) for each in (False, True))
    assert [len(each) for each in objects] == [array.shape[1]] * 2
    assert isinstance(array, np.ndarray)
