"""The digits that the package ships are all there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from batchup_ng.demo import digits
from batchup_ng.demo.digits import load_digits, write_digits


def test_the_archive_holds_the_digits() -> None:
    images, labels = load_digits()
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((1797, 8, 8), np.uint8, (1797,), np.uint8)
    assert (images.min(), images.max()) == (0, 16)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_archive_is_that_of_the_original() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn ships the same digits")
    original = datasets.load_digits()
    images, labels = load_digits()
    np.testing.assert_array_equal(images, original.images)
    np.testing.assert_array_equal(labels, original.target)


def test_files_lie_in_a_folder_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = (part[:300] for part in load_digits())
    monkeypatch.setattr(digits, "load_digits", lambda: (images, labels))
    paths, written = write_digits(tmp_path)
    assert list(written) == list(labels)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == list("0123456789")
    assert [path.parent.name for path in paths] == [str(label) for label in labels]
    assert len(set(paths)) == len(list(tmp_path.glob("*/*.png"))) == 300
    for row in (0, 299):
        with Image.open(paths[row]) as picture:
            assert (picture.mode, picture.size) == ("L", (8, 8))
            np.testing.assert_array_equal(np.asarray(picture), images[row] * 15)
