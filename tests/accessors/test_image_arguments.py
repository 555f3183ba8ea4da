"""The paths and options of ImageFiles: what may be given, what is refused."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from batchup_ng.accessors.image_files import ImageFiles
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from tests.messages import raises

from .image_helpers import by_pillow, paths_of_all_kinds

# Paths


class OwnPath:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        lambda paths: np.array(paths, object),
        lambda paths: list(map(Path, paths)),
        lambda paths: list(map(OwnPath, paths)),
    ],
)
def test_paths_may_be_any_sequence_of_str_or_pathlike(tmp_path, kind):
    paths = paths_of_all_kinds(tmp_path)
    files = ImageFiles(kind(paths), 4)
    np.testing.assert_array_equal(files[2], by_pillow(paths[2], (4, 4)), strict=True)


@pytest.mark.parametrize("dtype", ["object", "string"])
def test_paths_may_be_a_column_of_a_table_by_position(tmp_path, dtype):
    pandas = pytest.importorskip("pandas", reason="its columns are what is read")
    paths = paths_of_all_kinds(tmp_path)
    table = pandas.DataFrame({"path": pandas.Series(paths, index=[5, 4, 3, 2, 1, 0], dtype=dtype)})
    np.testing.assert_array_equal(ImageFiles(table["path"], 4)[2], by_pillow(paths[2], (4, 4)), strict=True)
    with raises(ArgumentTypeError):
        ImageFiles(table)


@pytest.mark.parametrize(
    "paths", ["one.jpg", b"one.jpg", Path("one.jpg"), "data/*.png", "data/**/?.png", Path().glob("*.png")]
)
def test_one_path_a_pattern_and_a_search_are_refused_with_a_remedy(paths):
    with raises(ArgumentTypeError):
        ImageFiles(paths)


@pytest.mark.parametrize("paths", [{"a.jpg"}, {"a.jpg": 0}, iter(["a"]), 3, None, np.array([["a"]]), np.array("a")])
def test_what_is_no_sequence_is_refused(paths):
    with raises(ArgumentTypeError):
        ImageFiles(paths)


@pytest.mark.parametrize("paths", [[], (), np.array([], dtype=str)])
def test_no_paths_are_refused(paths):
    with raises(ArgumentError):
        ImageFiles(paths)


@pytest.mark.parametrize("odd", [3, None, float("nan"), b"b.jpg", OwnPath(b"b.jpg"), ["b.jpg"], io.BytesIO(b"")])
def test_what_is_no_path_is_refused_with_its_position(odd):
    with raises(ArgumentTypeError):
        ImageFiles(["a.jpg", odd])


def test_few_objects_hold_many_paths():
    files = ImageFiles([f"{row}.jpg" for row in range(10_000)])
    assert files._paths._joined.nbytes + files._paths._ends.nbytes < 20 * 10_000
    assert len(vars(files._paths)) == 2


def test_relative_paths_stay_what_they_were_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (2, 2), (7, 0, 0)).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    files = ImageFiles(["a.png", "absent.png"])
    monkeypatch.chdir("/")
    assert files[0][0, 0, 0] == 7
    with pytest.raises(SampleReadError) as caught:
        files[1]
    assert caught.value.source == "absent.png"


# Options


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "rgb"}, ArgumentError),
        ({"mode": None}, ArgumentError),
        ({"resize": "bilinaer"}, ArgumentError),
        ({"size": 0}, ArgumentError),
        ({"size": 2.5}, ArgumentTypeError),
        ({"size": (4, -1)}, ArgumentError),
        ({"size": (0, 4)}, ArgumentError),
        ({"size": (4, 4, 3)}, ArgumentError),
        ({"size": "44"}, ArgumentTypeError),
        ({"dtype": str}, ArgumentError),
        ({"dtype": object}, ArgumentError),
        ({"dtype": bool}, ArgumentError),
        ({"dtype": np.int8}, ArgumentError),
        ({"dtype": "float33"}, ArgumentTypeError),
        ({"dtype": None}, ArgumentTypeError),
        ({"max_pixels": 0}, ArgumentError),
        ({"max_pixels": None}, ArgumentTypeError),
        ({"crop": "centre"}, ArgumentError),
        ({"crop": 5}, ArgumentTypeError),
        ({"crop": "center"}, ArgumentError),
        ({"decoder": "turbo"}, ArgumentError),
    ],
)
def test_a_bad_option_is_refused_when_the_accessor_is_made(options, error):
    with raises(error):
        ImageFiles(["never_opened.jpg"], **options)


@pytest.mark.parametrize("size", [6, np.int64(6), (6, 6), [6, 6]])
def test_an_int_is_the_side_of_a_square(picture, size):
    assert ImageFiles([picture], size).shape == (1, 6, 6, 3)


def test_size_is_height_then_width(picture):
    assert ImageFiles([picture], (2, 5))[0].shape == (2, 5, 3)
