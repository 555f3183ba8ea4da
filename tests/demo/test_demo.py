"""``python -m batchup_ng demo`` keeps its promises with each pool."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchup_ng import cli
from batchup_ng.demo import digits, job
from batchup_ng.work_pool.loader_pool import POOLS
from tests.extent import quick
from tests.messages import raises

ROOT = Path(__file__).parents[2]


def command_line(folder: Path, *words: str) -> dict[str, object]:
    """Return how to start the command line, with `folder` as the place for temporary files."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = dict(os.environ, TMPDIR=str(folder), PYTHONPATH=path, PYTHONFAULTHANDLER="1")
    return {"args": [sys.executable, "-m", "batchup_ng", *words], "env": environment, "cwd": folder, "text": True}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(**command_line(folder, *words), capture_output=True, timeout=800, check=False)  # type: ignore[call-overload]


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo work with 300 of its digits."""
    first = tuple(part[:300] for part in digits.load_digits())
    monkeypatch.setattr(digits, "load_digits", lambda: first)


@pytest.mark.thorough
@pytest.mark.parametrize("pool", ["auto", *POOLS])
def test_the_demo_reaches_its_accuracy(pool: str, tmp_path: Path) -> None:
    done = run(tmp_path, "demo", "--pool", pool)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert float(re.fullmatch(r"test accuracy (\S+) \(0\.95 reached\)", lines[-1])[1]) >= 0.95
    epoch = r"epoch +\d+: +[\d,]+ samples/s, +\d+% of the time spent waiting for data, accuracy \d\.\d{3}"
    assert [line for line in lines[1:-1] if not re.fullmatch(epoch, line)] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few_digits")
def test_the_result_depends_on_the_seed_and_not_on_who_does_the_work() -> None:
    def report(pool: str, seed: int) -> list[str]:
        said: list[str] = []
        job.run_demo(pool, None if pool == "serial" else 2, epochs=1, seed=seed, say=said.append)
        return [line.rpartition("accuracy")[2] for line in said[1:]]

    serial = report("serial", 5)
    assert report("threads", 5) == serial
    assert report("processes", 5) == serial
    assert report("serial", 6) != serial


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "--pool", "thraeds"], r"invalid choice: 'thraeds'.*threads"),
        (["demo", "--workers", "0"], r"workers must be at least 1, not 0"),
        (["demo", "--workers", "two"], r"invalid int value: 'two'"),
        (["demo", "--epochs", "-1"], r"epochs must be at least 1, not -1"),
        (["demo", "--seed", "-1"], r"seed must not be negative, and is -1"),
        (["demo", "--epoch", "1"], r"unrecognized arguments: --epoch"),
        (["dmeo"], r"invalid choice: 'dmeo'.*demo"),
        ([], r"required: COMMAND"),
    ],
)
def test_a_wrong_option_is_told_and_is_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    assert re.fullmatch(rf"batchup_ng.*: error: .*{message}.*", printed.err.splitlines()[-1])


def test_an_accuracy_too_low_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "run_demo", lambda **_: 0.5)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().out == "test accuracy 0.500 (0.95 not reached; try more epochs)\n"


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("pool", quick(["processes"], POOLS))
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_no_folder(
    pool: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.tempfile, "tempdir", str(tmp_path))

    def fail(*_: object) -> None:
        raise error("no more")

    monkeypatch.setattr(job.Classifier, "train_batch", fail)
    with raises(error):
        job.run_demo(pool, say=list)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_exit_code_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_demo", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "batchup_ng: stopped"


@pytest.mark.thorough
@pytest.mark.parametrize("pool", POOLS)
def test_ctrl_c_leaves_no_folder(pool: str, tmp_path: Path) -> None:
    started = command_line(tmp_path, "demo", "--pool", pool, "--epochs", "100000")
    # An interrupt that comes while the measuring of coverage holds its lock makes it wait for that lock for ever.
    started["env"].pop("COVERAGE_PROCESS_CONFIG", None)  # type: ignore[attr-defined]
    with subprocess.Popen(**started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:  # type: ignore[call-overload]
        for _ in range(2):
            assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group, the workers too
        try:
            _, errors = process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it says where it stands; leaving the block would wait for it for ever
            _, errors = process.communicate(timeout=30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"still running 600 s after an interrupt:\n{errors}")
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "batchup_ng: stopped"
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few_digits")
def test_a_bar_is_drawn_around_each_epoch() -> None:
    drawn: list[tuple[str, int]] = []

    class Bar:
        def __init__(self, batches: object, *, total: int, desc: str, leave: bool, disable: None) -> None:
            self.batches, self.title, self.steps = batches, desc, 0
            assert total == 8

        def __iter__(self):
            for batch in self.batches:
                self.steps += 1
                yield batch

        def close(self) -> None:
            drawn.append((self.title, self.steps))

    job.run_demo("serial", epochs=2, say=list, progress=Bar)
    assert drawn == [("epoch 1", 8), ("epoch 2", 8)]


def test_the_demo_works_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert cli.progress_bar() is None
