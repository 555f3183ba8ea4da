"""A contact sheet shows what is in the samples: pixels, annotations, words, and where each sample comes from."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.observe.drawing import GREY, RED
from tests.messages import raises
from tests.observe.reading import SIDE, file_pixels, image_of, near, panel, pixels_of, rgb, squares, words

pytest.importorskip("matplotlib", reason="show draws with matplotlib, which is not installed")

BLACK = np.zeros((1, SIDE, SIDE, 3), np.uint8)


def scaled(values: np.ndarray) -> np.ndarray:
    return (np.asarray((values - values.min()) / (values.max() - values.min())) * 255).round().astype(np.uint8)


def test_pixels_are_those_of_the_images() -> None:
    x = squares()
    sheet = bu.show([x], 4)
    for place in range(4):
        np.testing.assert_array_equal(image_of(panel(sheet, place % 2, place // 2), 16), x[place])
    assert sheet.names == ["row 0", "row 1", "row 2", "row 3"]
    assert repr(sheet) == f"<ContactSheet: 4 samples, {pixels_of(sheet).shape[1]} x {pixels_of(sheet).shape[0]} pixels>"


@pytest.mark.parametrize("first", [False, True])
def test_floats_and_other_numbers_are_scaled_and_the_title_says_from_what(first: bool) -> None:
    x = squares(1)[0].astype(np.float32)
    for values, note in (
        (x / 255, "scaled from 0 to 1"),
        ((x - x.min()) / 100 - 1, "scaled from -1 to 1.55"),
        (x.astype(np.uint16) * 200, "scaled from 0 to 51000"),
    ):
        expected = x.astype(np.uint8) if note == "scaled from 0 to 1" else scaled(values)
        given = values.transpose(2, 0, 1) if first else values
        sheet = bu.show({"image": given[None]}, 1)
        assert any(note in text for text in words(sheet)), words(sheet)
        np.testing.assert_allclose(image_of(panel(sheet, titles=2), 16), expected, atol=1)
    with_nan = (x / 255).copy()
    with_nan[3, 4] = np.nan
    sheet = bu.show({"image": with_nan[None]}, 1)
    assert {"scaled from 0 to 1", "1 pixel not finite"} <= set(words(sheet))
    assert image_of(panel(sheet, titles=3), 16)[3, 4].tolist() == [0, 0, 0]


def test_gray_images_and_booleans() -> None:
    x = squares(1)[..., 0]
    gray = np.repeat(x[0][..., None], 3, axis=2)
    for given in (x, x[..., None], x[:, None]):
        np.testing.assert_array_equal(image_of(panel(bu.show([given], 1)), 16), gray)
    np.testing.assert_array_equal(image_of(panel(bu.show([x > 99], 1)), 16), (gray > 99) * 255)


def test_large_and_long_images_keep_their_proportions() -> None:
    wide = np.tile(np.array([7, 99, 200], np.uint8), (1, 100, 800, 1))
    found = pixels_of(bu.show([wide], 1))
    inside = (found == [7, 99, 200]).all(axis=2)
    assert (inside.any(axis=0).sum(), inside.any(axis=1).sum()) == (SIDE, SIDE // 8)


@pytest.mark.parametrize(("form", "box"), [("xyxy", (40, 30, 120, 100)), ("xywh", (40, 30, 80, 70)),
                                           ("cxcywh", (80, 65, 80, 70))])  # fmt: skip
def test_boxes_have_their_colour_at_their_edges(form: str, box: Any) -> None:
    boxes = [np.array([box, (5, 5, 5, 5) if form == "xyxy" else (5, 5, 0, 0)], np.float32)]
    sheet = bu.show({"image": BLACK, "boxes": boxes, "labels": [np.array([3, 3])]}, 1, box_format=form)
    square = panel(sheet)
    for x, y in ((40, 80), (119, 70), (90, 30), (80, 99)):
        assert any(near(square[y, x + d], rgb(3)) or near(square[y + d, x], rgb(3)) for d in (-1, 0, 1)), (x, y)
    for x, y in ((30, 65), (80, 65), (130, 65), (80, 20), (80, 110), (5, 5)):
        assert square[y, x].tolist() == [0, 0, 0], "a box without area only pads"
    assert words(sheet) == ["row 0", "image uint8 160x160x3"], "annotations are no panels of their own"


def test_boxes_that_pad_are_not_drawn() -> None:
    source = bu.ArrayDataSource(
        {"image": np.repeat(BLACK, 2, 0), "boxes": bu.Ragged(np.tile([40.0, 30, 120, 100], (3, 1)), [0, 1, 3])}
    )
    for options in ({"mask": True}, {"lengths": True}):
        padded = source.pad("boxes", value=50.0, **options)
        sheet = bu.show(padded.map(lambda boxes: boxes + np.array([0, 0, 9, 9]), on="boxes"), 1)
        square = panel(sheet)
        assert near(square[65, 40], rgb(0)) or near(square[65, 41], rgb(0))
        assert square[50:59, 46:56].max() == 0
        assert words(sheet) == ["row 0", "image uint8 160x160x3"]


def test_masks_lie_over_the_image() -> None:
    masks = np.zeros((2, SIDE, SIDE), np.uint8)
    masks[0, :40, :40], masks[1, 100:, 100:] = 1, 1
    square = panel(bu.show({"image": BLACK, "masks": [masks], "labels": [np.array([4, 2])]}, 1))
    assert near(square[20, 20], 0.45 * np.array(rgb(4)))
    assert near(square[130, 130], 0.45 * np.array(rgb(2)))
    assert square[70, 70].tolist() == [0, 0, 0]
    whole = masks[0] * 5 + masks[1]
    for given in (whole[None], whole[None, ..., None], whole[None, None]):
        square = panel(bu.show({"image": BLACK, "mask": given}, 1))
        assert near(square[20, 20], 0.45 * np.array(rgb(5)))
        assert near(square[130, 130], 0.45 * np.array(rgb(1)))
        assert square[70, 70].tolist() == [0, 0, 0], "0 is the background"


def test_keypoints_lie_in_the_centres_of_pixels() -> None:
    image = np.zeros((1, 16, 16, 3), np.uint8)
    points = np.array([[[[4, 8, 2], [12, 3, 0]]]], np.float32)
    square = panel(bu.show({"image": image, "keypoints": points}, 1))
    assert near(square[85, 45], rgb(0))
    assert square[35, 125].tolist() == [0, 0, 0], "it cannot be seen"
    square = panel(bu.show({"image": image, "keypoints": points[:, 0, :, :2]}, 1))
    assert near(square[85, 45], rgb(0))
    assert near(square[35, 125], rgb(0))


def test_targets_in_dicts_and_whole_batches() -> None:
    boxes = [np.array([[40, 30, 120, 100]], np.float32), np.zeros((0, 4), np.float32)]
    source = bu.ArrayDataSource(
        {"image": np.repeat(BLACK, 2, 0), "boxes": boxes, "labels": [np.array([3]), np.array([], int)]}
    )
    joined = source.map(bu.DetectionTargets("boxes", "labels"))
    for data in (joined, next(joined.batch_iterator(2)), tuple(next(joined.batch_iterator(2)).values())):
        sheet = bu.show(data, 2)
        assert any(near(panel(sheet)[65, x], rgb(3)) for x in (39, 40, 41))
        assert panel(sheet, 1).max() == 0
    nested = {"view": (squares(2), squares(2) // 2), "label": np.arange(2)}
    sheet = bu.show(nested, 2)
    assert {"view.0 uint8 16x16x3", "view.1 uint8 16x16x3", "label 1"} <= set(words(sheet))
    np.testing.assert_array_equal(image_of(panel(sheet, 1, header=1), 16), squares(2)[0] // 2)


def test_arrays_are_heat_maps_and_lines() -> None:
    heat = np.zeros((1, 16, 16))
    heat[0, :8] = 1
    square = panel(bu.show({"mel": heat}, 1), titles=2)
    assert near(square[20, 80], (253, 231, 37))
    assert near(square[140, 80], (68, 1, 84)), "the ends of viridis"
    sheet = bu.show({"mel": heat - 3, "wave": np.sin(np.arange(100))[None], "few": np.arange(3)[None]}, 1)
    assert {"mel float64 16x16", "-3 to -2", "wave float64 100", "few [0 1 2]"} <= set(words(sheet))
    (line,) = [line for axes in sheet.figure.axes for line in axes.lines]
    np.testing.assert_array_equal(line.get_ydata(), np.sin(np.arange(100)))
    odd = {"deep": np.zeros((1, 5, 7, 2)), "c": np.full((1, 2, 9), 3 + 4j), "none": np.full((1, 9, 9), np.nan),
           "empty": np.zeros((1, 0, 3)), "video": np.zeros((1, 6, 8, 8, 3), np.uint8)}  # fmt: skip
    sheet = bu.show(odd, 1)
    notes = {"first of 5", "0 to 0", "5 to 5", "no finite value", "empty float64 (0, 3)", "first of 6"}
    assert notes <= set(words(sheet))


def test_tokens_are_text_whose_padding_is_grey() -> None:
    source = bu.ArrayDataSource({"tokens": [[2, 1, 3], [1]], "n": np.arange(2)}).pad("tokens", value=0, mask=True)
    vocabulary = ["[PAD]", "cat", "the", "$at$"]
    for decode in (vocabulary, lambda ids: [vocabulary[i] for i in ids]):
        sheet = bu.show(source, 2, decode={"tokens": decode})
        colours = [(text.get_text(), text.get_color()) for text in sheet.figure.texts]
        assert ("the", "#000000") in colours
        assert colours.count(("[PAD]", GREY)) == 2
        assert ("$at$", "#000000") in colours
    assert all(text.get_parse_math() is False for text in sheet.figure.texts), "no text is a formula"
    plain = words(bu.show({"ids": np.array([[5, 6, 7]])}, 1))
    assert plain[-3:] == ["5", "6", "7"]
    masked = {"input": np.array([[5, 6, 7]]), "attention_mask": np.array([[1, 1, 0]])}
    assert [t.get_color() for t in bu.show(masked, 1).figure.texts][-3:] == ["#000000", "#000000", GREY]
    with raises(bu.ArgumentError):
        bu.show(source, 1, decode={"tokens": lambda ids: ["one"]})


def test_texts_are_wrapped_and_escaped() -> None:
    long = "word " * 30 + "\x1b[31m end"
    sheet = bu.show({"text": [long], "name": ["<b>$x$\x1b"], "raw": [b"abc"]}, 1)
    found = words(sheet)
    assert found.count("word") == 30
    assert "'\\x1b[31m'" in found
    assert "name '<b>$x$\\x1b'" in found
    assert "raw 3 bytes" in found
    only_words = words(bu.show({"a": np.arange(2), "b": ["x", "y"]}, 2))
    assert only_words[:5] == ["row 0", "a", "0", "b", "x"]


def photos(folder: Path) -> bu.FilesDataSource:
    for name in ("$a$ cat", "dog"):
        (folder / name).mkdir()
        for i in range(3):
            Image.fromarray(squares(3)[i]).save(folder / name / f"{name[0]}{i}.png")
    return bu.from_folder(folder)


def test_folders_have_file_names_class_names_and_bad_files(tmp_path: Path) -> None:
    source = photos(tmp_path)
    (tmp_path / "dog" / "d1.png").write_bytes(b"no image")
    sheet = bu.show(source, 6)
    assert [os.path.basename(name) for name in sheet.names] == [f"{letter}{i}.png" for letter in "$d" for i in range(3)]
    found = words(sheet)
    assert {"$0.png", "d1.png", "label 0 ($a$ cat)", "label 1 (dog)"} <= set(found)
    assert found.count("label 1 (dog)") == 2
    bad = [text for text in sheet.figure.texts if text.get_color() == RED]
    assert bad[0].get_text() == "SampleReadError:"
    np.testing.assert_array_equal(image_of(panel(sheet, 2, header=1), 16), squares(3)[2])
    np.testing.assert_array_equal(image_of(panel(sheet, 2, 1, header=1), 16), squares(3)[2])
    mixed = source.map(lambda x, y: (x, np.eye(2)[y] * 0.7 + 0.15)).subset([0])
    assert "1 dog 0.15" not in words(bu.show(mixed, 1))
    assert any("$a$ cat 0.85, dog 0.15" in text for text in words(bu.show(mixed, 1)))


def test_every_sample_may_fail() -> None:
    def fail(x: np.ndarray) -> Any:
        raise ValueError("wrong $x$ \x1b")

    sheet = bu.show(bu.ArrayDataSource([np.arange(3)]).map_samples(fail), 2)
    red = [text.get_text() for text in sheet.figure.texts if text.get_color() == RED]
    assert red[:3] == ["ValueError:", "wrong", "$x$"]


def test_errors_of_the_program_are_raised() -> None:
    source = bu.ArrayDataSource([np.arange(3)])
    with raises(NameError):
        bu.show(source.map(lambda x: undefined), 2)  # type: ignore[name-defined]  # noqa: F821
    with raises(bu.MapCallError):
        bu.show(source.map(lambda x, y: x), 2)


def test_columns_are_chosen(tmp_path: Path) -> None:
    source = photos(tmp_path)
    assert not any(text.startswith("label") for text in words(bu.show(source, 2, columns="image")))
    assert [text for text in words(bu.show(source, 1, columns=[1])) if "cat" in text]
    assert not bu.show(source, 1, columns="label").figure.axes


def test_files_have_the_formats_of_their_endings(tmp_path: Path) -> None:
    sheet = bu.show([squares()], 2, path=tmp_path / "sheet.png")
    np.testing.assert_array_equal(file_pixels(tmp_path / "sheet.png"), pixels_of(sheet))
    sheet.save(tmp_path / "sheet.svg")
    assert "<svg" in (tmp_path / "sheet.svg").read_text()
    with pytest.raises(FileNotFoundError):
        sheet.save(tmp_path / "no folder" / "sheet.png")


def test_a_file_that_cannot_be_written_keeps_the_picture_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    sheet = bu.show([squares()], 2, path=path)
    old = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as on a full disk
        with raises(OSError) as caught:
            sheet.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == os.path.realpath(path)
    with raises(ValueError):
        sheet.save(tmp_path / "sheet.jbig")
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["sheet.png"]


def test_settings_of_the_program_change_no_pixel() -> None:
    import matplotlib

    data = {"image": squares(), "mel": np.random.default_rng(0).normal(size=(6, 9, 30)), "name": list("abcdef")}
    settings = {
        "savefig.bbox": "tight", "image.origin": "lower", "savefig.transparent": True, "figure.dpi": 50,
        "savefig.dpi": 30, "text.usetex": True, "figure.constrained_layout.use": True, "axes.grid": True,
        "savefig.format": "pdf", "font.size": 30, "text.color": "red",
    }  # fmt: skip
    expected = pixels_of(bu.show(data, 2))
    with matplotlib.rc_context(settings):
        found = pixels_of(bu.show(data, 2))
    np.testing.assert_array_equal(found, expected)


def test_it_needs_neither_display_nor_pyplot(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np, matplotlib; matplotlib.use('TkAgg', force=False); import batchup_ng as bu\n"
        f"bu.show([np.zeros((3, 8, 8, 3))], 2, path={str(tmp_path / 'a.png')!r})\n"
        "print('matplotlib.pyplot' in sys.modules, matplotlib.rcParams._get_backend_or_none())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MPLBACKEND")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["False", "tkagg"] or done.stdout.split() == ["False", "TkAgg"], done.stderr
    assert file_pixels(tmp_path / "a.png").shape[2] == 3


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with raises(ImportError):
        bu.show([squares()], 2)


def test_wrong_arguments_are_refused() -> None:
    data = {"image": squares(), "label": np.arange(6)}
    for wrong in (
        {"n": 0}, {"columns": "no"}, {"columns": []}, {"box_format": "xy"}, {"decode": {"no": []}}, {"side": 0},
        {"rows": []}, {"rows": [0], "shuffle": 1}, {"rows": [0], "batch_size": 2}, {"side": 30_000}, {"epoch": -1},
    ):  # fmt: skip
        with raises(bu.ArgumentError):
            bu.show(data, **wrong)  # type: ignore[arg-type]
    for wrong in (
        {"n": 1.5}, {"stages": 1}, {"decode": len}, {"decode": {"label": 5}}, {"shuffle": "x"}, {"columns": 1.5},
    ):  # fmt: skip
        with raises(bu.ArgumentTypeError):
            bu.show(data, **wrong)  # type: ignore[arg-type]
    with raises(bu.ArgumentTypeError):
        bu.show("photos")
    with raises(bu.ArgumentError):
        bu.show(bu.ArrayDataSource([np.zeros((0, 3))]))
    with raises(IndexError):
        bu.show(data, rows=[9])
