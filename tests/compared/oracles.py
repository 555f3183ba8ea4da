"""Checks of the batches that the programs of docs/compared hand to the network, against the files that they read.

A log is a list of pairs: "train" or "evaluate", and a batch. A batch is a tuple, list or dict of arrays, as the library
makes it; images may have their channels first.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np

from tests.compared.files import BOXES, CLASSES, PEOPLE, PER_CLASS, RESUMED, ROWS, SCENES, TEXTS, ids_of, ramp
from tests.compared.run import STEPS_BEFORE_THE_STOP, WORLDS

Log: TypeAlias = "list[tuple[str, Any]]"


def parts(batch: Any, *names: str) -> list[Any]:
    """Return the parts of a batch, in this order if they have names."""
    return [batch[name] for name in names] if isinstance(batch, dict) else list(batch)


def pixels(images: Any) -> np.ndarray:
    """Return images with their channels last."""
    images = np.asarray(images)
    return images if images.shape[-1] == 3 else np.moveaxis(images, -3, -1)


def check_order(rows: Any, n: int) -> None:
    """Check that two epochs have each of `n` rows once, each in a random order of its own."""
    rows = np.asarray(rows)
    assert len(rows) == 2 * n
    first, second = rows[:n], rows[n:]
    assert sorted(first) == sorted(second) == list(range(n))
    for one, other in itertools.combinations([first, second, np.arange(n)], 2):
        assert (one == other).mean() < 0.5


def check_folder(log: Log, library: str) -> None:
    """Check two epochs of training, each followed by a validation."""
    groups = [(kind, [batch for _, batch in some]) for kind, some in itertools.groupby(log, lambda entry: entry[0])]
    assert [kind for kind, _ in groups] == ["train", "evaluate"] * 2
    images, rows = [], []
    for _, batches in groups:
        pairs = [parts(batch, "image", "label") for batch in batches]
        images.append(np.concatenate([pixels(x) for x, _ in pairs]))
        labels = np.concatenate([y for _, y in pairs])
        rows.append(np.rint(images[-1][..., 2].mean(axis=(1, 2)) * 255 / 4).astype(int))
        np.testing.assert_array_equal(rows[-1] // PER_CLASS, labels)
        assert images[-1].shape[1:] == (64, 64, 3)
        assert images[-1].dtype == np.float32
        assert 0 <= images[-1].min() < images[-1].max() <= 1
    n = CLASSES * PER_CLASS
    for train, val in (rows[:2], rows[2:]):
        assert len(val) == n // 10
        assert sorted([*train, *val]) == list(range(n))
        assert not np.array_equal(train, np.sort(train))
    assert sorted(rows[0]) == sorted(rows[2])
    assert not np.array_equal(rows[0], rows[2])
    first, second = (each[np.argsort(order)] for each, order in zip(images[::2], rows[::2], strict=True))
    assert (np.abs(first - second).max(axis=(1, 2, 3)) > 0.02).mean() > 0.9  # another crop or flip in each epoch
    flipped = images[0][..., -1, 0].mean(axis=1) < images[0][..., 0, 0].mean(axis=1)
    assert 0.1 < flipped.mean() < 0.9
    first, second = (each[np.argsort(order)] for each, order in zip(images[1::2], rows[1::2], strict=True))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first[..., :2].mean(axis=(1, 2)), 120 / 255, atol=0.01)  # the middle of the ramps
    assert (first[..., -1, 0] > first[..., 0, 0]).all()


def check_columns(log: Log, library: str) -> None:
    """Check that the columns of each sample belong together, and that the age is scaled."""
    rows: list[int] = []
    for kind, batch in log:
        assert kind == "train"
        images, labels, ages = parts(batch, "path" if library == "hugging_face" else "image", "label", "age")
        images = pixels(images)
        batch_rows = np.rint(images[:, 0, 0, 2] / 4).astype(int)
        np.testing.assert_array_equal(images, [ramp(row, (64, 64)) for row in batch_rows])
        np.testing.assert_array_equal(labels, batch_rows % 5)
        np.testing.assert_allclose(ages, batch_rows / 100, rtol=1e-6)
        rows += batch_rows.tolist()
    check_order(rows, PEOPLE)


def check_large_file(log: Log, library: str) -> None:
    """Check that the two columns belong together."""
    rows: list[int] = []
    for kind, batch in log:
        assert kind == "train"
        x, y = parts(batch, "x", "y")
        assert np.asarray(x).dtype == np.float32
        np.testing.assert_array_equal(x, np.repeat(np.asarray(y)[:, None], 8, axis=1))
        rows += np.asarray(y).tolist()
    check_order(rows, ROWS)


def check_resume(worlds: list[list[Log]], library: str) -> None:
    """Check that no sample is lost or repeated though another number of ranks goes on with an epoch."""
    seen = []
    for logs in worlds:
        assert len({len(log) for log in logs}) == 1, "all ranks have equally many batches"
        ranks = []
        for log in logs:
            batches = [parts(batch, "x", "y") for _, batch in log]
            for x, y in batches:
                np.testing.assert_array_equal(x, np.repeat(np.asarray(y)[:, None], 3, axis=1))
            ranks.append(np.concatenate([y for _, y in batches]))
        seen.append(ranks)
    (old, new), (before, after) = WORLDS, map(np.concatenate, seen)
    assert len(before) == len(set(before)) == old * 4 * STEPS_BEFORE_THE_STOP
    whole = (RESUMED - len(before)) // new  # of the rest of the epoch, on each rank
    rest = np.concatenate([rows[:whole] for rows in seen[1]])
    assert len({*before, *rest}) == len(before) + len(rest)
    counts = np.bincount([*before, *after], minlength=RESUMED)
    if library == "grain":  # leaves out the last samples, which are no whole batch of all ranks
        assert counts.max() == 2
        assert counts.sum() > 2 * RESUMED - 4 * new
    else:
        assert counts.min() == 2
        assert counts.sum() <= 2 * (RESUMED + new - 1)


def check_lengths(log: Log, library: str) -> None:
    """Check that texts are whole, that what follows is 0, and that batches have little of it."""
    batches, padded = [], 0
    for kind, batch in log:
        assert kind == "train"
        ids, rows = (np.asarray(part) for part in parts(batch, "ids", "label"))
        assert len(ids) == len(rows) <= 16
        for text, row in zip(ids, rows, strict=True):
            expected = ids_of(row)
            np.testing.assert_array_equal(text[: len(expected)], expected)
            assert not text[len(expected) :].any()
        assert ids.shape[1] == max(len(ids_of(row)) for row in rows)
        batches.append(sorted(rows.tolist()))
        padded += ids.size
    assert sorted(itertools.chain(*batches)) == sorted([*range(TEXTS)] * 2)
    assert padded < 1.35 * 2 * sum(len(ids_of(row)) for row in range(TEXTS))  # 1.8 times without buckets
    assert len({*map(tuple, batches)}) > 0.75 * len(batches), "each epoch has other batches"


def check_boxes(log: Log, library: str) -> None:
    """Check that boxes lie where their images are bright, and have their own labels."""
    seen: list[int] = []
    crops: dict[int, list[np.ndarray]] = {}
    kept = 0
    for kind, batch in log:
        assert kind == "train"
        samples = batch
        if isinstance(batch, dict) or not isinstance(batch[0], dict):
            columns = zip(*parts(batch, "image", "boxes", "labels"), strict=True)
            samples = [{"image": image, "boxes": boxes, "labels": labels} for image, boxes, labels in columns]
        for sample in samples:
            image, boxes = pixels(sample["image"]), np.asarray(sample["boxes"]).reshape(-1, 4)
            row = int(image[0, 0, 2] / 4)
            assert image.shape == (48, 48, 3)
            bright = np.zeros((48, 48), bool)
            for box, label in zip(boxes, np.asarray(sample["labels"], int), strict=True):
                left, top, right, bottom = np.rint(box).astype(int)
                bright[top:bottom, left:right] = True
                assert label // 10 == row
                whole = BOXES[label % 10]
                assert 0 < right - left <= whole[2] - whole[0]
                assert 0 < bottom - top <= whole[3] - whole[1]
            np.testing.assert_array_equal(image[..., 0] > 127, bright)
            kept += len(boxes)
            seen.append(row)
            crops.setdefault(row, []).append(image)
    check_order(seen, SCENES)
    assert kept < 2 * sum(row % 4 for row in range(SCENES)), "some boxes are outside"
    differ = [not np.array_equal(*both) for row, both in crops.items() if row % 4]
    assert np.mean(differ) > 0.8
