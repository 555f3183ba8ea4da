"""`from_folder`: classes by folder, what is taken, what is left out, in which order."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import random
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors.image_decoding import IMAGE_FORMATS
from batchup_ng.datasets.from_folder import IMAGE_EXTENSIONS
from tests.messages import raises, warns


def tree(root: Path, *files: str) -> str:
    """Write empty files below a folder, which has a slash at its end if it is to be empty; return its path."""
    for file in files:
        path = root / file
        (path if file.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not file.endswith("/"):
            path.touch()
    return str(root)


def taken(source: bu.FilesDataSource, root: Path) -> list[str]:
    """The files of a source, relative to a folder."""
    return [os.path.relpath(source.data[0].sample_name(row), root) for row in range(len(source.data[0]))]


def pairs(source: bu.FilesDataSource, root: Path) -> list[tuple[str, int]]:
    return list(zip(taken(source, root), source.data[1].tolist(), strict=True))


def test_each_folder_is_a_class(tmp_path: Path) -> None:
    root = tree(tmp_path, "dog/b.png", "dog/a.jpg", "cat/x/deep.jpg", "cat/z.webp", "Zebra/z.tif")
    source = bu.from_folder(root)
    assert source.class_names == ("Zebra", "cat", "dog")
    assert pairs(source, tmp_path) == [
        ("Zebra/z.tif", 0), ("cat/z.webp", 1), ("cat/x/deep.jpg", 1), ("dog/a.jpg", 2), ("dog/b.png", 2)
    ]  # fmt: skip
    assert source.data[1].dtype == np.int64
    assert source.report.class_counts == {"Zebra": 1, "cat": 2, "dog": 2}
    assert source.report.skipped == {}


def test_pictures_and_labels_make_a_batch(tmp_path: Path) -> None:
    for name, grey in (("black", 0), ("white", 255)):
        (tmp_path / name).mkdir()
        Image.new("RGB", (5, 4), (grey,) * 3).save(tmp_path / name / "a.png")
    source = bu.from_folder(tmp_path, (4, 5))
    x, y = next(source.batch_iterator(2))
    assert (x.shape, x.dtype, y.tolist()) == ((2, 4, 5, 3), np.uint8, [0, 1])
    np.testing.assert_array_equal(x.mean((1, 2, 3)), [0, 255])
    assert not source.node.traits.runs_user_code
    grey = bu.from_folder(tmp_path, images=functools.partial(bu.ImageFiles, size=2, mode="L"))
    assert grey.data[0].shape == (2, 2, 2)


class Names:
    """An accessor of one's own: the length of each file's name."""

    def __init__(self, paths: Any) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> Any:
        return np.array([len(os.path.basename(self.paths[row])) for row in np.atleast_1d(rows)])


def test_files_of_another_kind_by_an_accessor_of_ones_own(tmp_path: Path) -> None:
    root = tree(tmp_path, "a/one.NII.gz", "a/x.jpg", "b/fourth.nii.gz")
    for extensions in (".nii.gz", [".nii.gz"]):
        source = bu.from_folder(root, extensions=extensions, images=Names)
        assert next(source.batch_iterator(9))[0].tolist() == [10, 13]
        assert source.node.traits.runs_user_code


def test_the_order_is_that_of_torchvision(tmp_path: Path) -> None:
    rng = random.Random(3)
    names = ["a", "a-b", "a b", "B", "é", "10", "9", "a.b", "_", "~", "新"]
    paths = {"/".join(rng.choices(names, k=rng.randint(2, 4))) + ".jpg" for _ in range(200)}
    root = tree(tmp_path, *sorted(paths))
    # What torchvision.datasets.folder.make_dataset does; it needs no torchvision to be repeated.
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    expected = [
        (os.path.relpath(os.path.join(folder, name), root), number)
        for number, label in enumerate(classes)
        for folder, _, files in sorted(os.walk(os.path.join(root, label), followlinks=True))
        for name in sorted(files)
    ]
    assert pairs(bu.from_folder(root), tmp_path) == expected
    assert len(expected) == len(paths)


odd_names = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(st.sets(odd_names.filter(lambda name: name[0] != "." and len(name.encode()) < 50), min_size=1, max_size=6))
def test_names_of_every_kind(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    root = tmp_path_factory.mktemp("odd")
    files = [f"{name}/{name}.png" for name in names]
    source = bu.from_folder(tree(root, *files))
    assert source.class_names == tuple(sorted(names))
    assert pickle.loads(pickle.dumps(source)).class_names == source.class_names
    assert sorted(taken(source, root)) == sorted(files)
    assert str(source.report)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    root = os.fsencode(tree(tmp_path, "a/"))
    with open(root + b"/a/\xff\xfe.png", "wb"):
        pass
    assert os.fsencode(bu.from_folder(tmp_path).data[0].sample_name(0)) == root + b"/a/\xff\xfe.png"


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    inside = ["a/1.jpg", "a/.2.jpg", "a/notes.txt", "a/noending", "b/.git/3.jpg", "b/4.JPEG"]
    root = tree(tmp_path, *inside, "loose.png", ".c/5.jpg")
    os.mkfifo(tmp_path / "b" / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as one, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "b")  # a socket's path is short
        one.bind("socket.jpg")
    source = bu.from_folder(root)
    assert taken(source, tmp_path) == ["a/1.jpg", "b/4.JPEG"]
    found = {why: sorted(os.path.relpath(p, root) for p in paths) for why, paths in source.report.skipped.items()}
    assert found == {
        "hidden": [".c", "a/.2.jpg", "b/.git"],
        "no picture by its name": ["a/noending", "a/notes.txt"],
        "neither file nor folder": ["b/pipe.jpg", "b/socket.jpg"],
        "in no class": ["loose.png"],
    }
    page = str(source.report)
    assert page.startswith(f"{root}: 2 files in 2 classes\n  a  1\n  b  1\nleft out, ")
    assert f"left out, in no class: 1 ('{root}/loose.png')" in page


def test_links_are_followed_unless_they_lead_nowhere_or_in_a_circle(tmp_path: Path) -> None:
    tree(tmp_path, "root/a/1.jpg", "root/b/2.jpg", "elsewhere/3.jpg", "elsewhere/sub/4.jpg")
    root = tmp_path / "root"
    (root / "c").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "linked.jpg").symlink_to(tmp_path / "elsewhere" / "3.jpg")
    (root / "a" / "gone.jpg").symlink_to(tmp_path / "gone")
    (root / "a" / "itself.jpg").symlink_to("itself.jpg")
    (root / "b" / "up").symlink_to(root)
    (tmp_path / "elsewhere" / "sub" / "round").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "to_b").symlink_to(root / "b")
    source = bu.from_folder(root)
    assert taken(source, root) == ["a/1.jpg", "a/linked.jpg", "a/to_b/2.jpg", "b/2.jpg", "c/3.jpg", "c/sub/4.jpg"]
    found = {why: sorted(os.path.relpath(p, root) for p in paths) for why, paths in source.report.skipped.items()}
    assert found == {
        "neither file nor folder": ["a/gone.jpg", "a/itself.jpg"],
        "a link to a folder that it lies in": ["a/to_b/up", "b/up", "c/sub/round"],
    }


def test_links_that_lead_to_one_another_end(tmp_path: Path) -> None:
    root = tree(tmp_path, "a/1.jpg", "b/2.jpg")
    (tmp_path / "a" / "b").symlink_to("../b")
    (tmp_path / "b" / "a").symlink_to("../a")
    assert taken(bu.from_folder(root), tmp_path) == ["a/1.jpg", "a/b/2.jpg", "b/2.jpg", "b/a/1.jpg"]


@pytest.mark.in_turn
def test_links_that_double_the_ways_at_each_level_are_an_error(tmp_path: Path) -> None:
    tree(tmp_path, "root/c/0.jpg", "pool/24/1.jpg")
    for level in range(24):
        tree(tmp_path, f"pool/{level}/")
        for name in "ab":
            (tmp_path / "pool" / str(level) / name).symlink_to(f"../{level + 1}")
    link = tmp_path / "root" / "c" / "link"
    link.symlink_to("../../pool/20")
    assert taken(bu.from_folder(tmp_path / "root"), tmp_path / "root") == [
        "c/0.jpg", *("c/link/" + "/".join(way) + "/1.jpg" for way in itertools.product("ab", repeat=4))
    ]  # fmt: skip
    link.unlink()
    link.symlink_to("../../pool/0")
    with raises(bu.ArgumentError):
        bu.from_folder(tmp_path / "root")


def test_names_that_would_write_to_the_terminal_are_shown_escaped(tmp_path: Path) -> None:
    root = tree(tmp_path / "r\x1b[31m", "a\x1b[32m\n/1.jpg", "b\u202e/2.jpg", "c/3.\x07txt", "\x1b.jpg")
    for source in (bu.from_folder(root), bu.from_folder(root).subset([0])):
        for text in (str(getattr(source, "report", "")), repr(source), source._repr_html_()):
            assert text.replace("\n", "").isprintable()
    assert "\n  'a\\x1b[32m\\n'  1\n" in str(bu.from_folder(root).report)
    assert bu.from_folder(root).class_names == ("a\x1b[32m\n", "b\u202e", "c")


def test_a_folder_without_folders_gives_pictures_alone(tmp_path: Path) -> None:
    source = bu.from_folder(tree(tmp_path, "b.jpg", "a.jpg"))
    assert (taken(source, tmp_path), len(source.data), source.class_names) == (["a.jpg", "b.jpg"], 1, ())
    assert str(source.report) == f"{tmp_path}: 2 files"


def test_an_empty_folder_is_a_class_all_the_same(tmp_path: Path) -> None:
    source = bu.from_folder(tree(tmp_path, "a/", "b/1.jpg", "c/x.txt"))
    assert source.report.class_counts == {"a": 0, "b": 1, "c": 0}
    assert source.data[1].tolist() == [1]


def test_class_names_keep_the_numbers_of_another_folder(tmp_path: Path) -> None:
    train = bu.from_folder(tree(tmp_path / "train", "a/1.jpg", "b/1.jpg", "c/1.jpg"))
    root = tree(tmp_path / "test", "a/1.jpg", "c/2.jpg")
    test = bu.from_folder(root, class_names=train.class_names)
    assert (test.data[1].tolist(), test.class_names) == ([0, 2], ("a", "b", "c"))
    assert test.report.class_counts == {"a": 1, "b": 0, "c": 1}
    with raises(bu.ArgumentError):
        bu.from_folder(root, class_names=["a", "b"])
    with raises(bu.ArgumentError):
        bu.from_folder(root, class_names=["a", "c", "a"])


@pytest.mark.parametrize("files", [(), ("a/", "b/.hidden"), ("x.txt",)])
def test_a_folder_without_pictures_is_an_error(tmp_path: Path, files: tuple[str, ...]) -> None:
    with raises(bu.ArgumentError):
        bu.from_folder(tree(tmp_path, *files))


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    for wrong in (tmp_path / "absent", tree(tmp_path, "file") + "/file"):
        with raises(bu.ArgumentError):
            bu.from_folder(wrong)


def test_a_folder_that_cannot_be_listed_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is forbidden to root, but for everyone a path has its limit (PATH_MAX), which relative steps get round.
    monkeypatch.chdir(tmp_path)
    for _ in range(17):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    with raises(OSError) as caught:
        bu.from_folder(tmp_path)
    assert caught.value.filename.startswith(str(tmp_path))


def test_relative_paths_stay_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tree(tmp_path, "data/a/1.jpg")
    assert bu.from_folder("data").data[0].sample_name(0) == "data/a/1.jpg"
    assert bu.from_folder("data/").data[0].sample_name(0) == "data/a/1.jpg"
    assert bu.from_folder("data/a/").data[0].sample_name(0) == "data/a/1.jpg"


def test_the_exclusion_list_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tree(tmp_path, "data/a/1.jpg", "data/a/2.jpg", "data/b/1.jpg")
    for root, out in [("data", tmp_path / "data/a/1.jpg"), (tmp_path / "data", "data/../data/a/1.jpg")]:
        with warns(bu.SampleWarning):
            source = bu.from_folder(root, exclude=[out, "data/c/1.jpg"])
        assert list(source.report.unmatched) == [str(tmp_path / "data/c/1.jpg")]
        assert "on the exclusion list, but not there: 1 (" in str(source.report)
        assert taken(source, tmp_path) == ["data/a/2.jpg", "data/b/1.jpg"]
        assert [os.path.relpath(path) for path in source.report.skipped["excluded"]] == ["data/a/1.jpg"]
    everything = bu.from_folder("data", exclude=None)
    assert everything.num_samples() == 3
    assert "excluded" not in everything.report.skipped


def test_the_endings_are_those_that_pillow_knows() -> None:
    Image.init()
    by_pillow = {ending for ending, name in Image.registered_extensions().items() if name in IMAGE_FORMATS}
    assert by_pillow <= set(IMAGE_EXTENSIONS)
    assert set(IMAGE_EXTENSIONS) <= by_pillow | {".avif", ".avifs"}


def test_the_report_of_many_classes_is_short(tmp_path: Path) -> None:
    files = [f"{number:03}/{each}.jpg" for number in range(30) for each in range(1 + number)]
    source = bu.from_folder(tree(tmp_path, *files))
    lines = str(source.report).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  and 10 more, each with 21 to 30"
    assert "30 classes" in repr(source)


def test_options_of_the_accessor_are_told_where_they_go(tmp_path):
    for make in (bu.from_folder, bu.from_csv, bu.from_table):
        with raises(bu.errors.ArgumentTypeError):
            make(tmp_path, crop="random")
    with raises(bu.errors.ArgumentTypeError):
        bu.from_folder(tmp_path, clas_names=["a"])
    (tmp_path / "picture.png").touch()
    assert bu.from_folder(root=tmp_path).num_samples() == 1


def test_what_is_no_folder_is_refused_with_the_remedy() -> None:
    with raises(bu.ArgumentError):
        bu.from_folder("~/pictures")
    for wrong in (["a.jpg", "b.jpg"], 3):
        with raises(bu.ArgumentTypeError):
            bu.from_folder(wrong)  # type: ignore[arg-type]
    with raises(bu.ArgumentTypeError):
        bu.from_folder("photos", on_error="skip")  # type: ignore[call-arg]
    with raises(bu.ArgumentTypeError):
        bu.from_folder(".", "64x64")  # type: ignore[arg-type]
