"""Operations that take companions: mosaic, copy_paste, mixup and cutmix, against plain loops."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.augment.annotated import OPTIONS, batch
from tests.augment.helpers import images, rng
from tests.messages import raises

N = 24
LABELS = np.arange(N) % 5
WITHOUT_POINTS: dict[str, Any] = {name: value for name, value in OPTIONS.items() if not name.startswith("keypoint")}


def ragged(rows: list[np.ndarray]) -> bu.Ragged:
    return bu.Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


@functools.cache
def scenes(points: bool = True) -> Any:
    """Return images with annotations as a source, with the row of each image."""
    x = batch(N)
    columns = {name: ragged(part) if isinstance(part, list) else part for name, part in x.items()}
    made = bu.ArrayDataSource({**columns, "row": np.arange(N)})
    return made if points else made.drop("keypoints", "names")


# -- mixup and cutmix ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("soft", [False, True])
def test_mixup_blends_each_image_with_its_companion(dtype: Any, soft: bool) -> None:
    x, partners = images(N, dtype=dtype), images(N, dtype=dtype)[::-1].copy()
    labels = np.eye(5, dtype=np.float32)[LABELS] if soft else LABELS
    operation = augment.mixup(0.4, num_classes=None if soft else 5)
    given = x.copy(), partners.copy(), labels.copy()
    made, mixed = operation.with_companions([(partners, labels[::-1])], x, labels, rng=rng(N))
    weights = operation.draw(rng(N))[:, 0] / 256
    w = weights[:, None, None, None]
    wanted = w * x + (1 - w) * partners
    np.testing.assert_allclose(made, wanted if dtype == np.float32 else np.floor(wanted + 0.5), atol=1e-6)
    each = np.eye(5)[LABELS]
    np.testing.assert_allclose(mixed, weights[:, None] * each + (1 - weights[:, None]) * each[::-1], atol=1e-6)
    assert_same_batches([given], [(x, partners, labels)])


def test_cutmix_takes_a_box_of_the_companion() -> None:
    x, partners = images(N), images(N)[::-1].copy()
    made, soft = augment.cutmix(num_classes=2).with_companions(
        [(partners, np.ones(N, int))], x, np.zeros(N, int), rng=rng(N)
    )
    for i in range(N):
        own = (made[i] == x[i]).all(axis=2)
        assert (own | (made[i] == partners[i]).all(axis=2)).all()
        np.testing.assert_allclose(soft[i], [own.mean(), 1 - own.mean()], atol=1e-6)
    assert (soft[:, 1] > 0.2).any()


@pytest.mark.parametrize("kind", [augment.mixup, augment.cutmix])
def test_mixing_with_companions_is_the_same_for_all_batch_sizes_and_worlds(
    kind: Any, pools: list[AbstractWorkerPool]
) -> None:
    source = bu.ArrayDataSource([images(N), LABELS]).map(kind(0.4, num_classes=5), companions=1)

    def epoch(made: Any, size: int, world: int = 1) -> list[np.ndarray]:
        """Return the columns of the epoch that ranks share, sample by sample in its order."""
        ranks = [list(made.batch_iterator(size, 3, epoch=2, shard=(rank, world))) for rank in range(world)]
        batches = [each for together in zip(*ranks, strict=True) for each in together]
        return [np.concatenate(parts) for parts in zip(*batches, strict=True)]

    whole = epoch(source, N)
    assert len(np.unique(whole[0].reshape(N, -1), axis=0)) == N
    for size, world in ((1, 1), (5, 1), (7, 1), (12, 2), (4, 3), (1, 4)):
        assert_same_batches([epoch(source, size, world)], [whole])
    for pool in pools:
        assert_same_batches([epoch(pool.parallel_data_source(source), 5)], [whole])
    others = bu.ArrayDataSource([images(N), LABELS]).map(kind(0.4, num_classes=5))
    assert not np.array_equal(epoch(others, 5)[0], epoch(others, 7)[0])


def test_a_chain_goes_on_after_its_first_operation() -> None:
    x, y = images(N), LABELS.astype(np.float32)
    chain = augment.compose(augment.mixup(), augment.flip(p=1.0), augment.normalize(0.5, 0.25))
    made, mixed = chain.with_companions([(x[::-1], y[::-1])], x, y, rng=rng(N))
    alone, labels = augment.mixup().with_companions([(x[::-1], y[::-1])], x, y, rng=rng(N))
    np.testing.assert_allclose(made, (alone[:, :, ::-1] / 255 - 0.5) / 0.25, atol=1e-5)
    np.testing.assert_array_equal(mixed, labels)


# -- mosaic ----------------------------------------------------------------------------------------------------------


def pasted(pictures: list[np.ndarray], point: tuple[int, int], size: tuple[int, int], fill: Any) -> np.ndarray:
    """Return the mosaic of four images, pixel by pixel."""
    out = np.full((*size, *pictures[0].shape[2:]), fill, pictures[0].dtype)
    for row in range(size[0]):
        for column in range(size[1]):
            below, right = row >= point[0], column >= point[1]
            image = pictures[2 * below + right]
            y = row - point[0] + (0 if below else image.shape[0])
            x = column - point[1] + (0 if right else image.shape[1])
            if 0 <= y < image.shape[0] and 0 <= x < image.shape[1]:
                out[row, column] = image[y, x]
    return out


def moved(boxes: np.ndarray, quarter: int, point: tuple[int, int], shape: Any, size: Any) -> list[tuple[Any, float]]:
    """Return each box in a quarter of the mosaic, and the share of its area that is left."""
    below, right = divmod(quarter, 2)
    dy, dx = point[0] - (0 if below else shape[0]), point[1] - (0 if right else shape[1])
    top, bottom = (point[0], size[0]) if below else (0, point[0])
    left, end = (point[1], size[1]) if right else (0, point[1])
    found = []
    for x1, y1, x2, y2 in np.asarray(boxes, float).tolist():
        area = (x2 - x1) * (y2 - y1)
        x1, x2 = (min(max(min(max(x, 0), shape[1]) + dx, left), end) for x in (x1, x2))
        y1, y2 = (min(max(min(max(y, 0), shape[0]) + dy, top), bottom) for y in (y1, y2))
        left_over = max(0, x2 - x1) * max(0, y2 - y1)
        found.append(([x1, y1, x2, y2], left_over / area if area else 0.0))
    return found


@pytest.mark.parametrize("size", [(20, 30), (48, 64), (7, 90)])
@pytest.mark.parametrize("center", [(0.25, 0.75), (0.0, 1.0), (0.5, 0.5)])
def test_a_mosaic_and_all_that_belongs_to_it_are_where_they_should_be(size: Any, center: Any) -> None:
    parts = [batch(6, (24, 32), seed) for seed in range(4)]
    operation = augment.mosaic(size, center=center, fill=9)
    chain = augment.compose(operation, **OPTIONS, min_visibility=0.2)
    made = chain.with_companions(parts[1:], **parts[0], rng=rng(6))
    low, high = center
    points = [tuple(int(side * (low + (high - low) * u)) for side, u in zip(size, draw, strict=True))
              for draw in operation.draw(rng(6)).tolist()]  # fmt: skip
    for i, point in enumerate(points):
        np.testing.assert_array_equal(made["image"][i], pasted([part["image"][i] for part in parts], point, size, 9))
        np.testing.assert_array_equal(made["mask"][i], pasted([part["mask"][i] for part in parts], point, size, 255))
        boxes, labels, masks, points_left, names = [], [], [], [], []
        for quarter, part in enumerate(parts):
            rows = moved(part["boxes"][i], quarter, point, (24, 32), size)
            for row, (box, share) in enumerate(rows):
                if share >= 0.2 - 1e-6 and (box[2] - box[0]) * (box[3] - box[1]) >= 1 - 1e-6:
                    boxes.append(box)
                    labels.append(part["labels"][i][row])
                    four = [np.full((24, 32), 255, np.uint8)] * 4
                    four[quarter] = part["masks"][i][row]
                    masks.append(pasted(four, point, size, 255))
            below, right = divmod(quarter, 2)
            shift = np.array([point[1] - (0 if right else 32), point[0] - (0 if below else 24)])
            for at, name in zip(part["keypoints"][i], part["names"][i], strict=True):
                x, y = at + shift
                in_quarter = (x + 0.5 >= point[1]) == right and (y + 0.5 >= point[0]) == below
                inside = 0 <= at[0] + 0.5 < 32 and 0 <= at[1] + 0.5 < 24
                if inside and in_quarter and 0 <= x + 0.5 < size[1] and 0 <= y + 0.5 < size[0]:
                    points_left.append([x, y])
                    names.append(name)
        np.testing.assert_allclose(made["boxes"][i], np.reshape(boxes, (-1, 4)), atol=1e-5)
        assert made["labels"][i].tolist() == labels
        np.testing.assert_array_equal(made["masks"][i], np.reshape(masks, (-1, *size)))
        np.testing.assert_allclose(made["keypoints"][i], np.reshape(points_left, (-1, 2)), atol=1e-4)
        assert made["names"][i].tolist() == names


PAGE = Path(__file__).parents[2] / "docs" / "augmentation.md"


@pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")
@pytest.mark.parametrize("seed", range(5))
def test_the_mosaic_of_the_page_has_20_lines_and_is_right(seed: int) -> None:
    (block,) = [each for each in PAGE.read_text(encoding="utf-8").split("```") if "def mosaic(" in each]
    code = block.removeprefix("python\n").split("\n\n")[0]
    assert len(code.splitlines()) <= 20
    own: dict[str, Any] = {"np": np}
    exec(code, own)
    parts = [batch(1, (30, 30), seed * 4 + i) for i in range(4)]
    four = [{name: part[name][0] for name in ("image", "boxes", "labels")} for part in parts]
    for each in four:
        each["boxes"] = each["boxes"].clip(0, 30)
    made = own["mosaic"](**four[0], others=four[1:], rng=np.random.default_rng(seed))
    point = tuple(np.random.default_rng(seed).integers(15, 45, 2).tolist())
    np.testing.assert_array_equal(made["image"], pasted([each["image"] for each in four], point, (60, 60), 114))
    wanted = []
    for quarter, each in enumerate(four):
        rows = moved(each["boxes"], quarter, point, (30, 30), (60, 60))
        for (box, _), label in zip(rows, each["labels"], strict=True):
            if box[2] - box[0] >= 1 and box[3] - box[1] >= 1:
                wanted.append((box, label))
    assert made["boxes"].tolist() == [box for box, _ in wanted]
    assert made["labels"].tolist() == [label for _, label in wanted]


def test_images_of_several_sizes_become_a_mosaic() -> None:
    sizes = [(9, 5), (12, 30), (4, 4), (20, 18), (1, 7), (16, 16), (3, 40), (11, 11)]
    pictures = [images(1, size)[0] for size in sizes]
    parts = [pictures[start : start + 2] for start in (0, 2, 4, 6)]
    (made,) = augment.mosaic((20, 24), center=(0.5, 0.5), fill=(1, 2, 3)).with_companions(
        [(part,) for part in parts[1:]], parts[0], rng=rng(2)
    )
    for i in range(2):
        wanted = pasted([part[i] for part in parts], (10, 12), (20, 24), (1, 2, 3))
        np.testing.assert_array_equal(made[i], wanted)


@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_boxes_keep_their_format(form: str) -> None:
    parts = [batch(5, seed=seed) for seed in range(4)]
    converted = [
        {**part, "boxes": [augment.box_convert(each, "xyxy", form) for each in part["boxes"]]} for part in parts
    ]
    made, wanted = (
        augment.compose(augment.mosaic(40), **{**OPTIONS, "box_format": name}).with_companions(
            each[1:], **each[0], rng=rng(5)
        )
        for each, name in ((converted, form), (parts, "xyxy"))
    )
    for one, other in zip(made["boxes"], wanted["boxes"], strict=True):
        np.testing.assert_allclose(augment.box_convert(one, form, "xyxy"), other, atol=1e-4)


def test_images_without_boxes_join_with_any() -> None:
    empty: Any = [[], np.zeros((0, 4)), []]
    some = [np.array([[0, 0, 8, 8]]), [], np.array([[1, 1, 5, 6], [2, 2, 4, 4]])]
    labels = [np.arange(len(each)) for each in some]
    chain = augment.compose(augment.mosaic(16, center=(0.5, 0.5)), boxes="boxes")
    x = images(3, (8, 8))
    own = {"image": x, "boxes": empty, "labels": [[], [], []]}
    others = [{"image": x, "boxes": some, "labels": labels}, own, {"image": x, "boxes": some, "labels": labels}]
    made = chain.with_companions(others, **own, rng=rng(3))
    assert [each.tolist() for each in made["labels"]] == [[0, 0], [], [0, 1, 0, 1]]
    assert made["labels"][2].dtype == labels[2].dtype
    assert made["boxes"][0].tolist() == [[8, 0, 16, 8], [8, 8, 16, 16]]


def test_a_column_with_a_row_for_each_box_must_be_named() -> None:
    parts = [{**batch(4, seed=seed), "score": [np.ones(len(each)) for each in batch(4, seed=seed)["boxes"]]}
             for seed in range(4)]  # fmt: skip
    chain = augment.compose(augment.mosaic(40), **OPTIONS)
    with raises(ArgumentError):
        chain.with_companions(parts[1:], **parts[0], rng=rng(4))
    none = [{name: column[:0] for name, column in part.items()} for part in parts]
    chain.with_companions(none[1:], **none[0], rng=rng(0))


# -- copy_paste ------------------------------------------------------------------------------------------------------


def squares(*boxes: tuple[int, int, int, int], size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes and their masks, which fill them."""
    masks = np.zeros((len(boxes), size, size), np.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
        mask[top:bottom, left:right] = 1
    return np.array(boxes).reshape(-1, 4), masks


def test_objects_of_the_companion_cover_those_of_the_image() -> None:
    boxes, masks = squares((0, 0, 4, 4), (6, 6, 10, 10), (1, 7, 3, 9))
    theirs, their_masks = squares((2, 0, 8, 6), (0, 6, 4, 11))
    x, y = np.full((1, 12, 12, 3), 10, np.uint8), np.full((1, 12, 12, 3), 90, np.uint8)
    own = {"image": x, "boxes": [boxes], "labels": [np.array([1, 2, 3])], "masks": [masks],
           "semantic": masks.max(axis=0)[None]}  # fmt: skip
    other = {"image": y, "boxes": [theirs], "labels": [np.array([7, 8])], "masks": [their_masks],
             "semantic": 2 * their_masks.max(axis=0)[None]}  # fmt: skip
    chain = augment.compose(
        augment.copy_paste(objects=1.0), boxes="boxes", box_labels=["labels", "masks"], masks=["masks", "semantic"]
    )
    made = chain.with_companions([other], **own, rng=rng(1))
    covered = their_masks.max(axis=0) > 0
    np.testing.assert_array_equal(made["image"][0, ..., 0], np.where(covered, 90, 10))
    np.testing.assert_array_equal(made["semantic"][0], np.where(covered, 2, masks.max(axis=0)))
    # The first loses its right half, the second nothing, the third all.
    assert made["boxes"][0].tolist() == [[0, 0, 2, 4], [6, 6, 10, 10], *theirs.tolist()]
    assert made["labels"][0].tolist() == [1, 2, 7, 8]
    left = masks[:2] * ~covered
    np.testing.assert_array_equal(made["masks"][0], np.concatenate([left, their_masks]))
    assert (x == 10).all()
    assert masks[0, :4, :4].all()
    stricter = augment.compose(
        augment.copy_paste(objects=1.0), boxes="boxes", box_labels=["labels", "masks"],
        masks=["masks", "semantic"], min_visibility=0.6,
    ).with_companions([other], **own, rng=rng(1))  # fmt: skip
    assert stricter["labels"][0].tolist() == [2, 7, 8]


def test_objects_are_chosen_one_by_one() -> None:
    n = 300
    boxes, masks = squares((0, 0, 4, 4), (6, 6, 10, 10))
    part = {"image": images(n, (12, 12)), "boxes": [boxes] * n, "labels": [np.arange(2)] * n, "masks": [masks] * n}
    options: dict[str, Any] = {"boxes": "boxes", "box_labels": ["labels", "masks"], "masks": "masks"}
    none = {**part, "boxes": [boxes[:0]] * n, "labels": [np.arange(0)] * n, "masks": [masks[:0]] * n}
    for p, share in ((1.0, 0.3), (0.5, 0.8), (0.0, 1.0)):
        chain = augment.compose(augment.copy_paste(objects=share, p=p), **options)
        found = [each.tolist() for each in chain.with_companions([part], **none, rng=rng(n))["labels"]]
        counts = [found.count(each) for each in ([], [0], [1], [0, 1])]
        wanted = np.array([1 - p + p * (1 - share) ** 2, *[p * share * (1 - share)] * 2, p * share**2]) * n
        assert np.abs(counts - wanted).max() < 5 * np.sqrt(n) / 2
        assert sum(counts) == n
    assert found == [[]] * n


# -- all in sources --------------------------------------------------------------------------------------------------

CHAINS: dict[str, Any] = {
    "mosaic": lambda: scenes().map(augment.compose(augment.mosaic(40), augment.flip(), **OPTIONS), companions=3),
    "copy_paste": lambda: scenes(False).map(
        augment.compose(augment.copy_paste(), augment.flip(), **WITHOUT_POINTS), companions=1),
    "after a flip": lambda: scenes().map(augment.compose(augment.flip(), **OPTIONS)).map(
        augment.compose(augment.mosaic((30, 50)), augment.random_crop(20), **OPTIONS), companions=3),
    "images alone": lambda: scenes().select("image", "row").map(augment.mosaic(40), on="image", companions=3),
    "mixup": lambda: bu.ArrayDataSource([images(N), LABELS]).map(
        augment.mixup(num_classes=5), companions=bu.other_class(1)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("name", CHAINS)
def test_all_settings_give_the_same_batches(name: str) -> None:
    assert_reproducible(CHAINS[name](), 5, max_batches=3)


@pytest.mark.parametrize("name", CHAINS)
def test_every_pool_and_batch_size_gives_the_same_samples(name: str, pools: list[AbstractWorkerPool]) -> None:
    source = CHAINS[name]()
    expected = list(source.batch_iterator(7, 5))
    for pool in pools:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(7, 5)), expected)
    one, other = ([row for each in source.batch_iterator(size, 5) for row in rows_of(each)] for size in (7, 24))
    for left, right in zip(one, other, strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)


def rows_of(given: Any) -> Any:
    """Return the samples of a batch."""
    return zip(*(given.values() if isinstance(given, dict) else given), strict=True)


def test_a_mosaic_in_a_source_is_that_of_its_companions() -> None:
    drawn = scenes().map(lambda row, others: np.stack([row, *[each[0] for each in others]], 1), on="row", companions=3)
    made = CHAINS["mosaic"]()
    data, seen = batch(N), 0
    for rows, mosaics in zip(drawn.batch_iterator(5, 3), made.batch_iterator(5, 3), strict=True):
        np.testing.assert_array_equal(rows["row"][:, 0], mosaics["row"])
        for four, image in zip(rows["row"], mosaics["image"], strict=True):
            # Each of the four images has a corner at the point: its colour is in the mosaic.
            corners = [(-1, -1), (-1, 0), (0, -1), (0, 0)]
            for row, corner in zip(four, corners, strict=True):
                assert (image == data["image"][row][corner]).all(axis=2).any()
            seen += 1
    assert seen == N


def test_no_samples_at_all() -> None:
    for make in CHAINS.values():
        assert list(rows_of(make()[0:0])) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: scenes().map(augment.mosaic(40)),
        lambda: scenes().map(augment.mosaic(40), companions=1),
        lambda: scenes().map(augment.flip(), companions=1),
        lambda: scenes().map(augment.compose(augment.flip(), augment.mixup()), companions=1),
        lambda: scenes().map(augment.compose(), companions=1),
        lambda: augment.compose(augment.flip(), augment.mosaic(40)),
        lambda: augment.compose(augment.mixup(), boxes="boxes"),
        lambda: augment.mosaic(40)(images(), rng=rng(6)),
        lambda: augment.compose().with_companions([(images(),)], images()),
        lambda: augment.mosaic(40).with_companions([(images(), np.arange(6))] * 3, images(), np.arange(6), rng=rng(6)),
        lambda: augment.mosaic(40).with_companions([(images(channels=1),)] * 3, images(), rng=rng(6)),
        lambda: augment.mosaic(0),
        lambda: augment.mosaic(40, center=(0.8, 0.2)),
        lambda: augment.copy_paste(objects=2),
        lambda: augment.compose(augment.copy_paste(), boxes="boxes"),
        lambda: augment.compose(augment.copy_paste(), **OPTIONS),
        lambda: augment.mixup().with_companions(
            [(images(size=(8, 8)), np.zeros(6))], images(), np.zeros(6), rng=rng(6)),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_remedy(call: Any) -> None:
    with raises(ArgumentError):
        call()
