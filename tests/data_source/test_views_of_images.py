"""``source.views`` of images: which memory each view has, and what moves with it, in every pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError
from batchup_ng.testing.sources import assert_same_batch, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N, SIZE = 48, 20
SIDES = (20, 32, 50, 64)
"""Sides of images, of which a batch has 24, 61, 150 and 246 kB: around the 64 KiB from which on memory is lent."""


def written(x: np.ndarray, rng: bu.SampleRng) -> Any:
    x += rng.integers(1, 200, size=(1, 1, 1)).astype(np.uint8)
    return x


def turned(x: np.ndarray) -> Any:
    return x[:, ::-1]


def same(x: np.ndarray) -> Any:
    return x


def blanked(x: np.ndarray) -> Any:
    result = x.copy()
    x[...] = 0
    return result


FLIP, IDENTITY = augment.flip(p=1.0), augment.compose()
FNS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray] | None]] = {
    "turned": (turned, lambda x: x[:, ::-1]),
    "blanked": (blanked, lambda x: x),
    "written": (written, None),
    "identity": (IDENTITY, lambda x: x),
    "same": (same, lambda x: x),
    "flip": (FLIP, lambda x: x[:, :, ::-1]),
    "cutout": (augment.compose(FLIP, augment.cutout()), None),
    "crop": (augment.random_crop(16, padding=2), None),
}
"""Functions of images, and what they make of them, if that takes no random numbers."""


def written_to(*columns: np.ndarray) -> Any:
    """Write to each column, and fail if that changes another."""
    for place, column in enumerate(columns):
        others = [(other, other.copy()) for i, other in enumerate(columns) if i != place]
        column[...] = place
        assert all((other == before).all() for other, before in others)
    return columns


def pictures(side: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(side).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.fixture(scope="module", params=["direct", "serial", "threads", "processes", "behind"])
def over(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Any:
    """Return what makes views of a source: in a plain loop, in each pool, behind a pool."""
    kind = request.param
    pool = {"serial": bu.SerialPool(), "threads": pools[0], "processes": pools[1], "behind": pools[1]}.get(kind)
    if pool is None:
        return lambda source, *views, **options: source.views(*views, **options)
    if kind == "behind":
        return lambda source, *views, **options: pool.parallel_data_source(source).views(*views, **options)
    return lambda source, *views, **options: pool.parallel_data_source(source.views(*views, **options))


@pytest.mark.parametrize(("first", "side"), [*zip(FNS, SIDES * 2, strict=True)])
def test_no_function_sees_what_another_one_wrote(first: str, side: int, over: Any) -> None:
    x = pictures(side)
    before = x.copy()
    names = [first, *[name for name in FNS if name != first]]
    source = bu.ArrayDataSource([x, np.arange(N)])
    alone = {name: np.concatenate([batch[0] for batch in source.views(FNS[name][0]).batch_iterator(SIZE, 3)])
             for name in names if FNS[name][1] is None}  # fmt: skip
    rows = np.concatenate([y for _, y in source.batch_iterator(SIZE, 3)])
    batches = list(over(source, *[FNS[name][0] for name in names]).batch_iterator(SIZE, 3, epoch=0))
    for name, *parts in zip(names, *[batch[:-1] for batch in batches], strict=True):
        made, of = np.concatenate(parts), FNS[name][1]
        if of is not None:
            np.testing.assert_array_equal(made, of(x[rows]), err_msg=name)
        elif name == first:
            np.testing.assert_array_equal(made, alone[name], err_msg=name)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("side", SIDES)
def test_views_share_no_memory(side: int) -> None:
    fns = [fn for fn, _ in FNS.values()]
    made = bu.ArrayDataSource([pictures(side), np.arange(N)]).views(*fns, IDENTITY, FLIP, written)
    list(made.map(written_to).batch_iterator(SIZE))


def test_views_are_the_same_wherever_they_are_made(over: Any) -> None:
    source = bu.ArrayDataSource({"id": np.arange(N), "image": pictures(50), "label": np.arange(N) % 3})
    views = (2, augment.compose(augment.random_crop(40), augment.flip()), 1, augment.random_crop(16))
    expected = list(source.views(*views).batch_iterator(SIZE, 3, epoch=1))
    assert [list(batch) for batch in expected] == [["id", "image_1", "image_2", "image_3", "label"]] * 3
    iterator = over(source, *views).batch_iterator(SIZE, 3, epoch=1)
    got = [next(iterator)]
    got += list(over(source, *views).batch_iterator(SIZE, 3, state=iterator.state_dict()))
    iterator.close()
    assert_same_batches(got, expected)


# -- what belongs to images ------------------------------------------------------------------------------------------


def scenes() -> Any:
    boxes = [np.array([[2, 3, 20, 30], [16, 0, 32, 8]])[: i % 3] for i in range(N)]
    return bu.ArrayDataSource({
        "id": np.arange(N), "image": pictures(32), "boxes": boxes, "labels": [np.arange(len(each)) for each in boxes],
        "mask": pictures(32)[..., 0] > 100,
    })  # fmt: skip


def test_boxes_and_masks_move_with_their_view() -> None:
    colours = augment.compose(augment.cutout(), boxes="boxes", masks="mask")
    chain = augment.compose(augment.flip(), augment.random_crop(24), boxes="boxes", masks="mask")
    made = scenes().views(2, chain, colours, on=["image", "boxes", "labels", "mask"])
    batch = next(made.batch_iterator(SIZE, 3))
    assert list(batch) == ["id", *[f"{name}_{i}" for name in ("image", "boxes", "labels", "mask") for i in (1, 2, 3)]]
    first = next(scenes().map(chain, rng="sample").batch_iterator(SIZE, 3))
    assert_same_batch({name: batch[f"{name}_1"] for name in list(first)[1:]}, dict(list(first.items())[1:]))
    for i in range(SIZE):  # the white part of an image shows where its mask is
        for view in (1, 2):
            crops = {int(mask.sum()) for mask in batch[f"mask_{view}"][i : i + 1]}
            assert crops == {int((batch[f"image_{view}"][i, ..., 0] > 100).sum())}
    rows = next(scenes().batch_iterator(SIZE, 3))
    assert_same_batch(batch["mask_3"], rows["mask"])
    assert [len(each) for each in batch["boxes_3"]] == [len(each) for each in rows["boxes"]]


def test_views_of_images_alone_leave_no_boxes_or_masks_behind() -> None:
    pytest.importorskip("cv2")
    for moving in (augment.flip(), augment.compose(augment.flip())):
        with raises(ArgumentError):
            scenes().views(2, moving)
    assert "boxes" in scenes().views(2, augment.color_jitter(0.5))[:]
    assert "boxes" in scenes().views(2, augment.flip(), on="image")[:]


def test_a_list_that_no_operation_changes_is_not_shared() -> None:
    def cleared(one: Any, other: Any) -> Any:
        for each in one:
            each[...] = 9
        return one, other

    colours = augment.compose(augment.cutout(), boxes="boxes")
    made = scenes().views(2, colours, on=["image", "boxes", "labels"])
    batch = made.map(cleared, on=["labels_1", "labels_2"])[:]
    assert all((each == np.arange(len(each))).all() for each in batch["labels_2"])


class Reusing:
    """Returns its own array each time."""

    def __init__(self) -> None:
        self.out = np.empty((8, 2))

    def __call__(self, image: np.ndarray, rng: Any) -> np.ndarray:
        return np.add(image, rng.uniform(size=(2,)), out=self.out)


def test_a_function_that_returns_its_own_array_for_two_views_is_refused() -> None:
    source = bu.ArrayDataSource({"image": np.zeros((64, 2))})
    with raises(bu.MapResultError):
        next(source.views(2, Reusing()).batch_iterator(8, shuffle=1))
    batch = next(source.views(Reusing(), Reusing()).batch_iterator(8, shuffle=1))
    assert (batch["image_1"] != batch["image_2"]).all()
