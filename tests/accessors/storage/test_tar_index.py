"""What is kept beside a tar, and what damaged tars and indices do."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors.storage import tar as module
from batchup_ng.accessors.storage.index_file import INDEX_MAGIC, index_path, load_index, save_index
from batchup_ng.accessors.storage.open_file import OpenFile
from batchup_ng.errors import BatchupError
from tests.extent import THOROUGH

from .test_tar import FORMATS, summed, write

CONTENTS = [b"zero", b"one", b"two"]
MUTATIONS = settings(max_examples=20_000 if THOROUGH else 60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A tar of three samples."""
    return write(tmp_path / "x.tar", [(f"{row}.bin", content) for row, content in enumerate(CONTENTS)])


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take note of each reading of headers."""
    found: list[int] = []

    def noted(read: Any, size: int) -> Any:
        found.append(size)
        return scan(read, size)

    scan = module.scan
    monkeypatch.setattr(module, "scan", noted)
    return found


def test_headers_are_read_once_and_again_when_the_tar_changes(path: Path, scans: list[int]) -> None:
    for _ in range(3):
        assert bu.TarShards(path)[:] == CONTENTS
    assert len(scans) == 1
    assert sorted(os.listdir(path.parent)) == ["x.tar", "x.tar.index"]
    os.utime(path, ns=(1, 1))
    assert bu.TarShards(path)[:] == CONTENTS
    assert bu.TarShards(path, index=False)[:] == CONTENTS
    assert len(scans) == 2


def test_the_index_of_a_tar_is_kept_in_another_folder(path: Path, scans: list[int], tmp_path: Path) -> None:
    for _ in range(2):
        assert bu.TarShards(path, index=tmp_path / "caches")[:] == CONTENTS
        assert list(bu.TarShards.columns(path, index=tmp_path / "caches")) == ["bin"]
    assert len(scans) == 1
    assert sorted(os.listdir(path.parent)) == ["caches", "x.tar"]


def test_an_index_that_cannot_be_written_is_made_each_time(path: Path, scans: list[int]) -> None:
    path.with_name("x.tar.index").mkdir()
    for _ in range(2):
        assert bu.TarShards(path)[:] == CONTENTS
    assert len(scans) == 2
    assert sorted(os.listdir(path.parent)) == ["x.tar", "x.tar.index"], "nothing is left of the attempt"
    path.with_name("x.tar.index").rmdir()
    os.mkfifo(path.with_name("x.tar.index"))
    assert bu.TarShards(path, index=False)[:] == CONTENTS


def test_an_index_that_lies_is_made_anew(path: Path, scans: list[int]) -> None:
    bu.TarShards(path)
    index, stamp = f"{path}.index", (path.stat().st_size, path.stat().st_mtime_ns)
    right = load_index(index, stamp, module.INDEX_FORM)
    assert right is not None
    for name, array in right.items():
        if name in ("keys", "names"):  # bytes, each of which may have any value
            lies = [array[:-1], array[:0]]
        else:
            lies = [array[:-1], np.append(array, array[-1:])]
            lies += [np.where(np.arange(len(array)) == 1, value, array) for value in (-1, 1 << 40, -(1 << 63))]
        for lie in lies:
            before = len(scans)
            save_index(index, stamp, {**right, name: lie.astype(module.INDEX_FORM[name])}, OpenFile(str(path)))
            assert bu.TarShards(path)[:] == CONTENTS
            assert len(scans) == before + 1, (name, lie)


def test_s4_what_an_index_claims_is_held_against_its_size(path: Path, scans: list[int]) -> None:
    bu.TarShards(path)
    index = path.with_name("x.tar.index")
    stamp = path.stat().st_size, path.stat().st_mtime_ns
    for claims in ({"offsets": 1 << 60}, {}, {"offsets": -8}, {"offsets": 0.5}, {"offsets": "8"}, []):
        head = {"of": stamp, "bytes": claims and {**dict.fromkeys(module.INDEX_FORM, 0), **claims}, "crc32": 0}
        index.write_bytes(INDEX_MAGIC + json.dumps(head).encode() + b"\n")
        assert bu.TarShards(path)[:] == CONTENTS
    head = {"of": stamp, "bytes": dict.fromkeys(module.INDEX_FORM, 8)}
    index.write_bytes(INDEX_MAGIC + json.dumps(head).encode() + b"\n")
    os.truncate(index, 1 << 40)  # of which nothing is on the disk
    tracemalloc.start()
    assert bu.TarShards(path)[:] == CONTENTS
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20
    assert len(scans) == 8


def changed(content: bytes, data: Any) -> bytes:
    """Return bytes of which some have been changed, removed or added."""
    found = bytearray(content)
    places = st.integers(0, len(content) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=9)):
        found[place] = value
    cut = data.draw(st.just(len(found)) | st.integers(0, len(found)))
    return bytes(found[:cut]) + data.draw(st.just(b"") | st.binary(max_size=20))


@MUTATIONS
@given(st.data())
def test_s10_whatever_a_tar_holds_is_samples_or_our_error(tmp_path: Path, data: Any) -> None:
    path, file = tmp_path / "x.tar", io.BytesIO()
    names = [f"{'d' * data.draw(st.sampled_from([0, 150]))}/{row}.bin" for row in range(2)]
    with tarfile.open(fileobj=file, mode="w", format=data.draw(st.sampled_from(FORMATS[1:]))) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"12345"))
    content = changed(file.getvalue()[: data.draw(st.sampled_from([4096, 8192]))], data)
    if data.draw(st.booleans()):  # what is behind the sum is looked at too
        blocks = [bytearray(content[start : start + 512]) for start in range(0, len(content), 512)]
        content = b"".join(summed(block) if block[257:262] == b"ustar" else bytes(block) for block in blocks)
    path.write_bytes(content)
    tracemalloc.start()
    try:
        rows = bu.TarShards(path, "bin", index=False)
        assert all(len(row) <= len(content) for row in rows[:])
        assert len(rows.keys[:]) == len(rows)
    except BatchupError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 8 << 20


@MUTATIONS
@given(st.data())
def test_s10_whatever_an_index_holds_the_rows_are_right(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "x.tar"
    if not path.exists():
        write(path, [(f"{row}.bin", content) for row, content in enumerate(CONTENTS)])
        bu.TarShards(path)
        os.rename(f"{path}.index", f"{path}.right")
    right = (tmp_path / "x.tar.right").read_bytes()
    (tmp_path / "x.tar.index").write_bytes(changed(right, data))
    rows = bu.TarShards(path)
    assert rows[:] == CONTENTS
    assert rows.keys[:] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "signature",
    [
        "X-Amz-Date=20261128&X-Amz-Signature=ab%2F", "Expires=17&Signature=a&Key-Pair-Id=K",
        "sv=2&se=3&sr=b&sp=r&sig=x", "X-Goog-Credential=me&X-Goog-Signature=1", "token=abc",
    ],
)  # fmt: skip
def test_the_kept_index_of_a_url_goes_by_what_names_the_file_and_not_by_its_signature(signature: str) -> None:
    stamp = (10240, "mark")
    places = [index_path(f"https://host/get?shard={shard}&{signature}", stamp) for shard in (0, 1)]
    assert len(set(places)) == 2
    assert places == [index_path(f"https://host/get?shard={shard}", stamp) for shard in (0, 1)]
    assert index_path(f"https://host/x.tar?{signature}", stamp) == index_path("https://host/x.tar", stamp)
    assert index_path("https://host/x.tar?skip=1", stamp) != index_path("https://host/x.tar?skip=2", stamp)
    assert index_path(f"https://host/x.tar?{signature}", (10240, "")) != index_path("https://host/x.tar", (10240, ""))
