"""Three terabytes in one file: batches are right, need little memory, and go on after the training was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.work_pool import huge_file

ROOT = Path(__file__).parents[2]
WRITTEN = 12
"""Batches of the epoch whose rows are not zeros; of the others the row numbers tell them apart."""
LOOKED_AT = 60
"""Batches of the epoch that are looked at: three buffers full."""
MAX_HELD = 300e6


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of 3 TB, nearly all of it a hole."""
    path = tmp_path_factory.mktemp("huge") / "images.npy"
    try:
        huge_file.make_file(path, WRITTEN)
    except OSError as error:
        path.unlink(missing_ok=True)
        pytest.skip(f"the file system has no sparse files of 3 TB: {error}")
    found = path.stat()
    assert found.st_size > 3_000_000_000_000
    if found.st_blocks * 512 > 1e9:
        path.unlink()
        pytest.skip("the file system has no sparse files")
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def expected(file: Path) -> list[str]:
    """The digests of the first batches of an epoch that no pool made and nothing broke."""
    source = huge_file.source_of(file)
    batches = islice(source.batch_iterator(huge_file.BATCH_SIZE, huge_file.SEED, epoch=huge_file.EPOCH), LOOKED_AT)
    return [huge_file.digest(batch) for batch in batches]


def start(file: Path, state: Path, *options: str) -> subprocess.Popen[str]:
    """Start a training over the file in a session of its own."""
    command = [sys.executable, str(ROOT / "tests/work_pool/huge_file.py"), str(file), str(state), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # what coverage holds is not ours to count
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def killed_after(n: int, training: subprocess.Popen[str]) -> dict[int, str]:
    """Return the digests of the first `n` batches of a training that is killed then, wherever it is."""
    with training:
        try:
            assert training.stdout is not None
            return dict(json.loads(line) for line in islice(training.stdout, n))
        finally:
            training.kill()


def finish(training: subprocess.Popen[str]) -> tuple[dict[int, str], dict[str, float]]:
    """Return the digest of each batch that a training handed out, then what it says at its end."""
    try:
        out, _ = training.communicate(timeout=600)
    finally:
        training.kill()
    assert training.returncode == 0
    *digests, end = map(json.loads, out.splitlines())
    return dict(digests), end


def test_each_row_is_what_was_written_there(file: Path) -> None:
    source = huge_file.bu.ArrayDataSource([np.load(file, mmap_mode="r")], include_indices=True)
    plan = source.plan(huge_file.BATCH_SIZE, huge_file.SEED, epoch=huge_file.EPOCH)
    rows, images = next(source.batch_iterator(huge_file.BATCH_SIZE, huge_file.SEED, epoch=huge_file.EPOCH))
    np.testing.assert_array_equal(rows, plan[0].rows)
    assert [image.tobytes() for image in images] == [huge_file.content(row) for row in rows.tolist()]
    assert rows.max() > 2**31 // huge_file.ROW_BYTES, "rows beyond what 32 bits could address"


@pytest.mark.thorough
@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_all_processes_hold_little_memory(file: Path, expected: list[str], tmp_path: Path, pool: str) -> None:
    training = start(file, tmp_path / "state.json", "--pool", pool, "--batches", str(LOOKED_AT))
    digests, end = finish(training)
    assert list(digests) == list(range(LOOKED_AT))
    assert list(digests.values()) == expected
    assert end["held"] <= MAX_HELD


@pytest.mark.thorough
def test_a_training_that_is_killed_goes_on_with_the_same_bytes(
    file: Path, expected: list[str], tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    first = killed_after(5, start(file, state, "--pool", "processes", "--workers", "2", "--batches", "50"))
    delivered = json.loads(state.read_text())["batches"]
    assert delivered >= len(first) == 5
    middle, _ = finish(start(file, state, "--pool", "threads", "--workers", "3", "--batches", str(delivered + 5)))
    last, _ = finish(start(file, state, "--pool", "processes", "--workers", "1", "--batches", str(delivered + 8)))
    assert [*first, *middle, *last] == [*range(5), *range(delivered, delivered + 8)]
    for number, digest in {**first, **middle, **last}.items():
        assert digest == expected[number]
