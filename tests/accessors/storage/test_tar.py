"""Samples in tar files as WebDataset writes them."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, BatchError, SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises

from .stored_contract import StoredContract

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
ROWS = np.arange(7 * 6, dtype=np.int32).reshape(7, 3, 2)


def write(path: Path, members: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    """Write a tar of plain files."""
    with tarfile.open(path, "w", format=form) as file:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def shards(folder: Path, extension: str, contents: list[bytes]) -> str:
    """Write samples of two members into three tars; return the pattern of these."""
    for number, part in enumerate((range(3), range(3, 4), range(4, len(contents)))):
        samples = [(f"of/{row:04d}", contents[row]) for row in part]
        write(
            folder / f"x-{number}.tar",
            [(f"{key}.{end}", each) for key, one in samples for end, each in ((extension, one), ("id", b"5"))],
            FORMATS[number],
        )
    return str(folder / "x-{0..2}.tar")


def npy(array: np.ndarray) -> bytes:
    """Return what numpy.save writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(color: int) -> bytes:
    """Return a picture of one colour."""
    file = io.BytesIO()
    Image.new("RGB", (6, 4), (color, color, color)).save(file, "PNG")
    return file.getvalue()


class TestBytes(StoredContract):
    """Members that are left as they are."""

    options: ClassVar[dict[str, Any]] = {"column": "bin"}

    def make(self, tmp_path: Path) -> Made:
        contents = [b"x" * row + b"end" for row in range(7)]
        return bu.TarShards(shards(tmp_path, "bin", contents), **self.options), contents  # type: ignore[return-value]

    def opened(self, like: Any) -> Any:
        return bu.TarShards(like.paths, **self.options)


class TestArrays(TestBytes):
    """Arrays that differ in shape."""

    options: ClassVar[dict[str, Any]] = {"column": "npy"}

    def make(self, tmp_path: Path) -> Made:
        rows = [ROWS[row, : row % 3].T for row in range(7)]
        rows[0] = ROWS[0].astype(">f4")
        return bu.TarShards(shards(tmp_path, "npy", list(map(npy, rows))), **self.options), rows


class TestRawRows(TestBytes):
    """Rows of one shape, written as they are."""

    options: ClassVar[dict[str, Any]] = {"column": "bin", "shape": (3, 2), "dtype": "<i4"}

    def make(self, tmp_path: Path) -> Made:
        return bu.TarShards(shards(tmp_path, "bin", [row.tobytes() for row in ROWS]), **self.options), list(ROWS)


class TestArraysOfOneShape(TestBytes):
    """Arrays of one shape, read straight into the batch."""

    options: ClassVar[dict[str, Any]] = {"column": "x.npy", "shape": (3, 2), "dtype": "<i4"}

    def make(self, tmp_path: Path) -> Made:
        return bu.TarShards(shards(tmp_path, "x.npy", list(map(npy, ROWS))), **self.options), list(ROWS)


class TestLabels(TestBytes):
    """Numbers."""

    options: ClassVar[dict[str, Any]] = {"column": "cls"}

    def make(self, tmp_path: Path) -> Made:
        labels = np.arange(-2, 5)
        contents = [b" %d\n" % label for label in labels.tolist()]
        return bu.TarShards(shards(tmp_path, "cls", contents), **self.options), list(labels)


@pytest.mark.thorough  # for it imports torch
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # for webdataset closes no files
def test_what_webdataset_writes_is_read_as_it_reads_it(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(str(tmp_path / "s-%06d.tar"), maxcount=4, verbose=0) as writer:
        for row in range(10):
            sample = {"cls": row, "json": {"row": row}, "txt": f"zeile ü {row}", "x.npy": ROWS[row % 7].astype("f4")}
            writer.write({"__key__": f"a/{row:05d}", "png": np.full((4, 6, 3), row / 255, np.float32), **sample})
    columns = bu.TarShards.columns(str(tmp_path / "s-{000000..000002}.tar"), size=(4, 6))
    tars = sorted(map(str, tmp_path.glob("*.tar")))
    theirs = list(webdataset.WebDataset(tars, shardshuffle=False, empty_check=False).decode("rgb8"))
    assert sorted(columns) == ["cls", "json", "png", "txt", "x.npy"]
    assert list(columns["cls"].keys) == [one["__key__"] for one in theirs]
    for name, column in columns.items():
        for mine, other in zip(column[:], theirs, strict=True):
            np.testing.assert_array_equal(mine, other[name])
    assert columns["cls"][:].tolist() == list(range(10))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_of_tar_is_read(form: int, tmp_path: Path) -> None:
    long = "f" * 120 + "/" + "k" * 90
    names = [f"{long}.bin", "./b.c.bin", "ümlaut.BIN", "/abs/d.bin", "../up.bin"]
    write(tmp_path / "x.tar", [(name, name.encode()) for name in names if ".c." not in name], form)
    rows = bu.TarShards(tmp_path / "x.tar")
    assert list(rows.keys) == [long, "ümlaut", "/abs/d", "../up"]
    assert rows[:] == [name.encode() for name in names if ".c." not in name]


@pytest.mark.parametrize("form", FORMATS[1:])
def test_names_of_any_length_and_no_utf_8_are_read(form: int, tmp_path: Path) -> None:
    names = ["n" * 3000 + "/1.bin", os.fsdecode(b"\xff\xfe/2.bin")]
    write(tmp_path / "x.tar", [(name, b"1") for name in names], form)
    rows = bu.TarShards(tmp_path / "x.tar")
    assert [f"{key}.bin" for key in rows.keys] == names
    assert rows.sample_name(-1) == f"{tmp_path}/x.tar/{names[1]}"


def test_what_gnu_tar_writes_is_read(tmp_path: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar here")
    (tmp_path / "d").mkdir()
    for row in range(3):
        (tmp_path / "d" / f"{row}.txt").write_text(f"row {row}")
    (tmp_path / "d" / "3.txt").symlink_to("0.txt")
    for number, form in enumerate(["gnu", "oldgnu", "posix", "ustar", "v7"]):
        path = tmp_path / f"{number}.tar"
        subprocess.run(["tar", f"--format={form}", "--sort=name", "-cf", path, "d"], cwd=tmp_path, check=True)
        assert bu.TarShards(path)[:] == ["row 0", "row 1", "row 2"]
    with open(tmp_path / "d" / "0.txt", "wb") as file:
        file.truncate(1 << 20)
    for form in ("gnu", "posix"):
        subprocess.run(["tar", f"--format={form}", "--sparse", "-cf", "x.tar", "d"], cwd=tmp_path, check=True)
        with raises(SampleReadError):
            bu.TarShards(tmp_path / "x.tar")


def test_the_size_of_pax_and_numbers_in_base_256_are_read(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.bin")
    member.size, member.pax_headers = 3, {"size": "3", "comment": "x"}
    head = bytearray(member.tobuf(tarfile.PAX_FORMAT))
    assert b"size=3" in head
    content = bytes(head) + b"abc".ljust(512, b"\0")
    member.pax_headers = {}
    plain = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    plain[:5], plain[124:136] = b"b.bin", b"\x80" + (3).to_bytes(11, "big")
    (tmp_path / "x.tar").write_bytes(content + summed(plain) + b"def".ljust(512, b"\0") + bytes(1024))
    assert bu.TarShards(tmp_path / "x.tar")[:] == [b"abc", b"def"]


def summed(header: bytearray) -> bytes:
    """Return a header with the right sum."""
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(("magic", "how"), [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz")])
def test_a_compressed_tar_is_refused_with_what_to_do(magic: bytes, how: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", f"w:{how[:2] if how != 'bzip2' else 'bz2'}") as file:
        file.addfile(tarfile.TarInfo("a.bin"))
    assert (tmp_path / "x.tar").read_bytes().startswith(magic)
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "x.tar")


def test_s3_links_devices_and_folders_are_passed_over_and_nothing_is_opened(tmp_path: Path) -> None:
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo(f"../../{number}.bin")
            member.type, member.linkname = kind, "/etc/passwd"
            file.addfile(member)
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "x.tar")
    write(tmp_path / "y.tar", [("__meta__/x.json", b"{}"), (".hidden", b""), ("d/._mac.bin", b""), ("none", b"")])
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "y.tar")


def test_a_tar_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    content = write(tmp_path / "x.tar", [(f"{row}.bin", b"1" * 600) for row in range(3)]).read_bytes()
    for length in (0, 512, 600, 1000, 1536, 1537, 3 * 1536):
        (tmp_path / "x.tar").write_bytes(content[:length])
        with raises(SampleReadError):
            bu.TarShards(tmp_path / "x.tar")


@pytest.mark.parametrize("place", [0, 511, 512, (1 << 16) - 513, (1 << 16) - 512, (1 << 24) - 513, (1 << 24) - 512])
def test_a_byte_behind_the_end_is_refused(place: int, tmp_path: Path) -> None:
    content = write(tmp_path / "x.tar", [("0.bin", b"zero")]).read_bytes()
    assert not any(content[1024:])
    (tmp_path / "x.tar").write_bytes(content[: 1024 + 512] + bytes(place) + b"1")
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "x.tar", index=False)


def test_tars_that_were_joined_are_refused(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{row}.tar", [(f"{row}.bin", b"1")]).read_bytes() for row in range(2)]
    (tmp_path / "x.tar").write_bytes(b"".join(parts))
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "x.tar")
    assert not (tmp_path / "x.tar.index").exists()
    if shutil.which("tar") is not None:  # what the error advises
        subprocess.run(["tar", "--concatenate", "--file=0.tar", "1.tar"], cwd=tmp_path, check=True)
        assert bu.TarShards(tmp_path / "0.tar")[:] == [b"1", b"1"]


@pytest.mark.parametrize("zeros", [0, 511, 512, 1024, 10240, 1 << 16, 1 << 20, (1 << 24) - 513, (1 << 24) - 512])
def test_zeros_behind_the_end_are_passed_over(zeros: int, tmp_path: Path) -> None:
    content = write(tmp_path / "x.tar", [("0.bin", b"zero")]).read_bytes()[: 1024 + 512] + bytes(zeros)
    (tmp_path / "x.tar").write_bytes(content)
    assert bu.TarShards(tmp_path / "x.tar", index=False)[:] == [b"zero"]


def test_a_file_whose_rest_was_never_downloaded_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("0.bin", b"zero")])
    os.truncate(path, 1024 + (1 << 24) + 1)
    with raises(SampleReadError):
        bu.TarShards(path)
    os.truncate(path, 1024 + 1024)  # what the error advises
    assert bu.TarShards(path)[:] == [b"zero"]


def test_tars_with_records_of_any_size_are_read(tmp_path: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar here")
    (tmp_path / "0.txt").write_text("zero")
    (tmp_path / "1.txt").write_text("one")
    for factor in (1, 2, 20, 2048):
        subprocess.run(["tar", "-b", str(factor), "-cf", "x.tar", "0.txt"], cwd=tmp_path, check=True)
        assert bu.TarShards(tmp_path / "x.tar")[:] == ["zero"]
        subprocess.run(["tar", "-rf", "x.tar", "1.txt"], cwd=tmp_path, check=True)
        assert bu.TarShards(tmp_path / "x.tar")[:] == ["zero", "one"]
        subprocess.run(["tar", "--delete", "-f", "x.tar", "1.txt"], cwd=tmp_path, check=True)
        assert bu.TarShards(tmp_path / "x.tar", index=False)[:] == ["zero"]


def test_a_tar_to_which_python_appends_is_read(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [("0.bin", b"0")])
    for row in range(1, 20):
        with tarfile.open(tmp_path / "x.tar", "a") as file:
            member = tarfile.TarInfo(f"{row}.bin")
            member.size = 1
            file.addfile(member, io.BytesIO(b"%d" % (row % 10)))
        assert len(bu.TarShards(tmp_path / "x.tar", index=False)) == row + 1


def test_a_tar_without_members_has_no_samples(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w"):
        pass
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "x.tar")


def test_a_sample_without_the_column_is_named_with_its_shard(tmp_path: Path) -> None:
    write(tmp_path / "0.tar", [("a.jpg", b"1"), ("a.cls", b"1")])
    write(tmp_path / "1.tar", [("b.png", b"1"), ("b.cls", b"2"), ("c.cls", b"3")])
    both = str(tmp_path / "*.tar")
    assert bu.TarShards(both, "cls")[:].tolist() == [1, 2, 3]
    with raises(SampleReadError) as caught:
        bu.TarShards(both, "jpg")
    assert caught.value.source == str(tmp_path / "1.tar")
    with raises(SampleReadError):
        bu.TarShards(both, "jpg;png")
    either = bu.TarShards([tmp_path / "1.tar", tmp_path / "0.tar"], "cls;jpg", decode=None)
    assert either[:] == [b"2", b"3", b"1"]


def test_alternatives_are_taken_as_they_are_named(tmp_path: Path) -> None:
    write(tmp_path / "0.tar", [("a.jpg", b"aj"), ("a.png", b"ap"), ("b.png", b"bp")])
    rows = bu.TarShards(tmp_path / "0.tar", "jpg;png;jpeg")
    assert rows[:] == [b"aj", b"bp"]
    assert [str(rows.sample_name(row)).rpartition("/")[2] for row in (0, 1)] == ["a.jpg", "b.png"]
    assert bu.TarShards(tmp_path / "0.tar", "png;jpg")[:] == [b"ap", b"bp"]


def test_s7_names_that_would_speak_to_a_terminal_are_escaped(tmp_path: Path) -> None:
    write(tmp_path / "0.tar", [("a\x1b[31m.x\x1b[2J", b""), ("b.cls", b"1")])
    for column in ("cls", "none", None):
        with pytest.raises((SampleReadError, ArgumentError)) as caught:
            bu.TarShards(tmp_path / "0.tar", column)
        assert "\x1b" not in str(caught.value)
        assert "\\x1b" in str(caught.value)


def test_a_member_that_is_there_twice_is_an_error_and_a_key_that_comes_again_another_sample(tmp_path: Path) -> None:
    write(tmp_path / "0.tar", [("a.bin", b"1"), ("b.bin", b"2"), ("a.bin", b"3")])
    assert bu.TarShards(tmp_path / "0.tar")[:] == [b"1", b"2", b"3"]
    write(tmp_path / "0.tar", [("a.bin", b"1"), ("b.bin", b"2"), ("b.bin", b"3")])
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "0.tar")


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    write(tmp_path / "0.tar", [("a.jpg", b"1"), ("a.cls", b"1")])
    for column in (None, "txt"):
        with raises(ArgumentError):
            bu.TarShards(tmp_path / "0.tar", column)
    with raises(ArgumentTypeError):
        bu.TarShards.columns(tmp_path / "0.tar", "jpg")


def test_pickles_are_refused_and_given_as_bytes_if_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [(f"a.{end}", b"pickle") for end in ("pyd", "pkl", "pickle", "x.pth")])
    for end in ("pyd", "PKL", "pickle", "x.pth"):
        with raises(ArgumentError):
            bu.TarShards(tmp_path / "x.tar", end)
        assert bu.TarShards(tmp_path / "x.tar", end, decode=None)[0] == b"pickle"


def test_a_member_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [("a.cls", b"1"), ("b.cls", b"one"), ("c.cls", b"9" * 30)])
    labels = bu.TarShards(tmp_path / "x.tar")
    for row, key in ((1, "b"), (2, "c")):
        with raises(SampleReadError) as caught:
            labels[np.array([row])]
        assert caught.value.source == str(tmp_path / f"x.tar/{key}.cls")
    claims = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"
    npy_head = b"\x93NUMPY\x02\x00" + len(claims).to_bytes(4, "little") + claims
    write(tmp_path / "y.tar", [("a.npy", npy_head), ("a.json", b"[" * 100_000)])
    for column in ("npy", "json"):
        with raises(SampleReadError):
            bu.TarShards(tmp_path / "y.tar", column)[0]


def test_s4_a_member_of_items_without_bytes_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|V0", "fortran_order": False, "shape": (10**13,)})
    write(tmp_path / "0.tar", [("a.npy", header.getvalue())])
    with raises(SampleReadError):
        bu.TarShards(tmp_path / "0.tar", "npy")[0]


def test_a_function_decodes(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [("a.txt", b"1 2"), ("b.txt", b"3")])
    rows = bu.TarShards(tmp_path / "x.tar", "txt", decode=lambda raw: [int(each) for each in raw.split()])
    assert rows[[1, 0]] == [[3], [1, 2]]
    with raises(ArgumentTypeError):
        bu.TarShards(tmp_path / "x.tar", "txt", decode="utf-8")  # type: ignore[arg-type]
    with raises(ArgumentError):
        bu.TarShards(tmp_path / "x.tar", "txt;json")


def test_shape_and_dtype_that_are_not_those_of_the_members_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [("a.bin", bytes(8)), ("a.npy", npy(np.zeros(2))), ("b.bin", bytes(4)),
                               ("b.npy", npy(np.zeros((1, 2))))])  # fmt: skip
    with raises(ArgumentError):
        bu.TarShards(tmp_path / "x.tar", "bin", shape=(2,), dtype="f4")
    with raises(ArgumentError):
        bu.TarShards(tmp_path / "x.tar", "bin", shape=(2,))
    with raises(ArgumentError):
        bu.TarShards(tmp_path / "x.tar", "bin", shape=(2,), dtype="f4", decode=len)
    with raises(ArgumentError):
        bu.TarShards(tmp_path / "x.tar", "npy", shape=(2,), dtype="f4")
    for shape, dtype in [(2, "f8"), ((-2,), "f8"), ((2,), "no"), ((2,), object)]:
        with raises((ArgumentError, ArgumentTypeError)):
            bu.TarShards(tmp_path / "x.tar", "npy", shape=shape, dtype=dtype)  # type: ignore[arg-type]
    rows = bu.TarShards(tmp_path / "x.tar", "npy", shape=(2,), dtype="f8")
    assert rows[0].tolist() == [0, 0]
    with raises(SampleReadError):
        rows[[0, 1]]


def test_rows_without_bytes_and_rows_that_are_stacked(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [(f"{row}.bin", b"") for row in range(4)])
    assert bu.TarShards(tmp_path / "x.tar", shape=(0, 3), dtype="f4")[:].shape == (4, 0, 3)
    write(tmp_path / "x.tar", [(f"{row}.bin", ROWS[row].tobytes()) for row in range(4)])
    stacked = bu.MapStyle(bu.TarShards(tmp_path / "x.tar", shape=(3, 2), dtype="i4"))[[2, 1]]
    np.testing.assert_array_equal(stacked, ROWS[[2, 1]])


def test_pictures_are_decoded_and_broken_ones_named(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [("a/1.png", png(7)), ("a/1.cls", b"4"), ("a/2.png", b"no picture"), ("a/2.cls", b"5")])
    columns = bu.TarShards.columns(tmp_path / "x.tar", {"image": "jpg;png", "label": "cls"}, size=(4, 6))
    source = bu.ArrayDataSource(columns)
    assert not source.node.traits.runs_user_code
    batch = next(source.batch_iterator(1))
    assert batch["image"].tolist() == np.full((1, 4, 6, 3), 7).tolist()
    assert batch["label"].tolist() == [4]
    assert batch["label"].dtype == np.int64
    with raises(BatchError) as caught:
        list(source.batch_iterator(2))
    assert caught.value.source == str(tmp_path / "x.tar/a/2.png")
    assert bu.TarShards.columns(tmp_path / "x.tar", ["png"])["png"][0] == png(7)
    assert not bu.ArrayDataSource([bu.ImageBytes([b""], 4)]).node.traits.runs_user_code
    mine = bu.TarShards(tmp_path / "x.tar", "png", decode=bytes)
    assert bu.ArrayDataSource([bu.ImageBytes(mine, 4)]).node.traits.runs_user_code


def test_patterns_stand_for_their_files_in_order(tmp_path: Path) -> None:
    for name in ("t-09", "t-10", "t-11", "v-a", "{odd,name}"):
        write(tmp_path / f"{name}.tar", [("k.id", b"1")])

    def names(*paths: Any) -> list[str]:
        found = bu.TarShards([tmp_path / path for path in paths]).paths
        return [Path(path).stem for path in found]

    assert names("t-{09..11}.tar") == names("t-*.tar") == ["t-09", "t-10", "t-11"]
    assert names("t-{11..09}.tar", "v-a.tar") == ["t-11", "t-10", "t-09", "v-a"]
    assert names("{v-a,t-1?}.tar") == ["v-a", "t-10", "t-11"]
    assert names("{odd,name}.tar") == ["{odd,name}"]
    for pattern in ["n-*.tar", "t-{09..12}.tar", "pipe:rm", "{v,w}-*.tar", "{x-1*,t-1?}.tar"]:
        with raises(SampleReadError):
            names(pattern)
    with raises(ArgumentError):
        bu.TarShards([])


def test_no_more_than_a_hundred_tars_are_open_at_once(tmp_path: Path) -> None:
    for number in range(120):
        write(tmp_path / f"{number:03d}.tar", [("a.cls", b"%d" % number)], tarfile.USTAR_FORMAT)
    before = len(os.listdir("/proc/self/fd"))
    labels = bu.TarShards(str(tmp_path / "{000..119}.tar"), index=False)
    order = np.random.default_rng(1).permutation(120)
    assert labels[order].tolist() == order.tolist()
    assert len(os.listdir("/proc/self/fd")) - before <= 100
    labels.close()
    assert len(list(tmp_path.iterdir())) == 120, "index=False writes nothing"


def test_blocks_are_about_a_megabyte_for_all_columns(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [(f"{row}.{end}", raw) for row in range(40)
                               for end, raw in (("bin", bytes(100_000)), ("cls", b"1"))])  # fmt: skip
    columns = bu.TarShards.columns(tmp_path / "x.tar")
    assert [column.natural_block for column in columns.values()] == [10, 10]


def test_a_pickle_takes_arrays_and_no_object_a_row(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [(f"{row:06d}.bin", b"") for row in range(3000)], tarfile.USTAR_FORMAT)
    buffers: list[pickle.PickleBuffer] = []
    rows = bu.TarShards(tmp_path / "x.tar")
    assert len(pickle.dumps(rows, protocol=5, buffer_callback=buffers.append)) < 5000
    assert sum(buffer.raw().nbytes for buffer in buffers) < 3000 * (8 + 8 + 1 + 8 + 6) + 100
    assert json.dumps(rows.fingerprint())


def test_what_the_system_reads_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(8, dtype=np.int64)
    encoded = io.BytesIO()
    np.save(encoded, array)
    write(tmp_path / "x.tar", [("a.npy", encoded.getvalue()), ("a.bin", bytes(array))])
    most = 0

    def in_parts(number: int, buffers: list[Any], offset: int) -> int:
        raw = os.pread(number, most, offset)[: sum(map(len, buffers))]
        cut = min(len(buffers[0]), len(raw))
        buffers[0][:cut] = raw[:cut]
        if len(raw) > cut:
            buffers[1][: len(raw) - cut] = raw[cut:]
        return len(raw)

    monkeypatch.setattr(os, "preadv", in_parts)
    for column in ("npy", "bin"):
        most = len(encoded.getvalue()) - 60 if column == "npy" else 5
        rows = bu.TarShards(tmp_path / "x.tar", column, shape=(8,), dtype=np.int64)
        assert rows[[0]].tolist() == [array.tolist()]
