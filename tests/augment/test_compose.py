"""What all operations have in common: parts of a batch, memory, draws, errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.augment.base import copied
from batchup_ng.errors import ArgumentError, ArgumentTypeError, MapCallError
from tests.augment.helpers import images, rng, without_opencv
from tests.messages import raises

NEED_NUMPY: list[Any] = [
    augment.flip(), augment.flip(vertical=True), augment.random_crop((18, 25), padding=3), augment.cutout(),
    augment.normalize(0.5, 0.5),
]  # fmt: skip
NEED_OPENCV: dict[str, Any] = {
    "resized_crop": lambda: augment.resized_crop(16),
    "affine": lambda: augment.affine(rotate=20, translate=0.1, scale=(0.9, 1.1), shear=10),
    "color_jitter": lambda: augment.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    "grayscale": lambda: augment.grayscale(p=0.5),
    "blur": lambda: augment.blur(),
    "rand_augment": lambda: augment.rand_augment(),
}


SIZES = (6, 40)  # images of 11 and 72 kB where they are uint8: below and above the size at which memory is lent


def everything() -> list[Any]:
    """Return one of each operation that keeps samples apart."""
    pytest.importorskip("cv2", reason="OpenCV, which most operations need, is not installed")
    return [*NEED_NUMPY, *[make() for make in NEED_OPENCV.values()]]


@given(st.integers(0, 14), st.integers(0, 2**32))
def test_what_becomes_of_a_sample_depends_on_its_position_alone(cut: int, seed: int) -> None:
    for dtype in (np.uint8, np.float32):
        x = images(14, dtype=dtype)
        for operation in everything():
            (whole,) = operation(x, rng=bu.SampleRng(seed, np.arange(14)))
            parts = [
                operation(x[part], rng=bu.SampleRng(seed, np.arange(14)[part]))[0]
                for part in (slice(cut), slice(cut, None))
            ]
            np.testing.assert_array_equal(np.concatenate(parts), whole, strict=True)


def test_draws_do_not_depend_on_the_images() -> None:
    for operation in everything():
        after = []
        for x in (images(4), images(4, (40, 31), dtype=np.float32)):
            draws = rng(4)
            operation(x, rng=draws)
            after.append(draws.random())
        np.testing.assert_array_equal(*after)


def test_operations_of_a_chain_draw_for_themselves() -> None:
    x = np.tile(np.arange(4, dtype=np.uint8), (2000, 1, 1))
    once, twice = (augment.compose(*[augment.flip()] * k)(x, rng=rng(2000))[0][:, 0, 0, 0] == 3 for k in (1, 2))
    assert 0.45 < (once != twice).mean() < 0.55
    nested = augment.compose(augment.compose(augment.flip()), augment.flip())
    np.testing.assert_array_equal(nested(x, rng=rng(2000))[0][:, 0, 0, 0] == 3, twice)
    assert len(nested.operations) == 2


def test_parts_are_given_by_place_or_by_name() -> None:
    x, y, z = images(), np.arange(6), np.ones(6)
    flip = augment.flip(p=1.0)
    by_place = flip(x, y, z, rng=rng(6))
    assert type(by_place) is tuple
    assert by_place[1] is y
    assert by_place[2] is z
    by_name = flip(pixels=x, label=y, rng=rng(6))
    assert list(by_name) == ["pixels", "label"]
    np.testing.assert_array_equal(by_name["pixels"], x[:, :, ::-1])
    second = augment.compose(flip, image="x")(y=y, x=x, rng=rng(6))
    np.testing.assert_array_equal(second["x"], x[:, :, ::-1])
    np.testing.assert_array_equal(augment.compose(flip, image=1)(y, x, rng=rng(6))[1], x[:, :, ::-1])
    mixed = augment.compose(augment.mixup(num_classes=6), image="x", label="y")(z=z, y=y, x=x, rng=rng(6))
    assert {name: part.shape for name, part in mixed.items()} == {"z": (6,), "y": (6, 6), "x": x.shape}


def test_the_images_of_a_dict_without_image_are_its_only_part_like_them(pools: list[Any]) -> None:
    pytest.importorskip("cv2")
    photo = np.arange(6 * 4 * 4 * 3, dtype=np.uint8).reshape(6, 4, 4, 3)
    flipped = photo[:, :, ::-1]
    beside = {"id": np.arange(6), "tokens": np.zeros((6, 5)), "embedding": np.zeros((6, 2, 4)), "text": list("abcdef")}
    flip = augment.flip(p=1.0)
    source = bu.ArrayDataSource({**beside, "photo": photo, "label": np.arange(6)}).map(flip)
    for over in (source, *[pool.parallel_data_source(source) for pool in pools]):
        (batch,) = over.batch_iterator(6)
        np.testing.assert_array_equal(batch["photo"], flipped)
        assert batch["embedding"].shape == (6, 2, 4)
    grey = bu.ArrayDataSource({"id": np.arange(6), "scan": photo[..., 0]}).map(flip)
    np.testing.assert_array_equal(grey[:]["scan"], flipped[..., :1])
    files = bu.ArrayDataSource({"id": np.arange(2), "photo": [photo[0], photo[1, :2]]}).map(augment.resize(2))
    assert files[:]["photo"].shape == (2, 2, 2, 3)
    masks = bu.ArrayDataSource({"of": photo[..., 0], "photo": photo}).map(augment.compose(flip, masks="of"))
    np.testing.assert_array_equal(masks[:]["of"], flipped[..., 0])

    two = bu.ArrayDataSource({"f": np.zeros((6, 4, 4), np.float32), "photo": photo})
    sizes = bu.ArrayDataSource({"x": np.zeros((2, 4, 4), np.uint8), "y": [photo[0], photo[1, :2]]})
    for refused in (two, two.rename({"f": "x", "photo": "y"}), sizes, bu.ArrayDataSource(beside)):
        for chain in (flip, augment.compose(flip)):
            with raises(ArgumentError):
                refused.map(chain)[:]
    for chosen in (two.map(augment.compose(flip, image="photo")), two.map(flip, on="photo")):
        np.testing.assert_array_equal(chosen[:]["photo"], flipped)
        assert chosen[:]["f"].shape == (6, 4, 4)


def test_a_column_of_a_dict_with_the_height_and_width_of_the_images_must_move_too() -> None:
    pytest.importorskip("cv2")
    x, grey = images(4, (8, 8)), images(4, (8, 8))[..., 0]
    for chain in (augment.flip(p=1.0), augment.random_crop(4), augment.compose(augment.flip())):
        with raises(ArgumentError):
            bu.ArrayDataSource({"image": x, "segmentation": grey}).map(chain)[:]
    source = bu.ArrayDataSource({"image": x, "segmentation": grey, "other": x})
    moved = source.map(augment.compose(augment.flip(p=1.0), masks="segmentation"))[:]
    np.testing.assert_array_equal(moved["segmentation"], grey[:, :, ::-1])
    np.testing.assert_array_equal(moved["other"], x)
    alone = source.map(augment.flip(p=1.0), on="image")[:]
    np.testing.assert_array_equal(alone["segmentation"], grey)
    coloured = source.map(augment.color_jitter(0.5))[:]  # which moves nothing
    np.testing.assert_array_equal(coloured["segmentation"], grey)


def test_in_a_source_by_place_and_by_name() -> None:
    x, y = images(10), np.arange(10)
    chain = augment.compose(augment.flip(), augment.random_crop(16, padding=2))
    ((a, b),) = bu.ArrayDataSource([x, y]).map(chain, rng="sample").batch_iterator(10, shuffle=3)
    (named,) = bu.ArrayDataSource({"x": x, "y": y}).map(chain, rng="sample").batch_iterator(10, shuffle=3)
    np.testing.assert_array_equal(named["x"], a)
    np.testing.assert_array_equal(named["y"], b)


def test_a_map_of_an_operation_that_draws_has_random_numbers_for_each_sample() -> None:
    x = images(10)
    source = bu.ArrayDataSource({"image": x, "y": np.arange(10)})
    chain = augment.compose(augment.flip(), augment.normalize(0, 1))
    for operation in (augment.flip(), chain, augment.choose(augment.cutout(), augment.flip())):
        (expected,) = source.map(operation, rng="sample").batch_iterator(10, shuffle=3)
        for same in (source.map(operation), source.map(operation, on="image"), bu.MapDataSource(source, operation)):
            (found,) = same.batch_iterator(10, shuffle=3)
            np.testing.assert_array_equal(found["image"], expected["image"], strict=True)
    assert augment.normalize(0, 1).default_rng is None
    with raises(ArgumentTypeError):
        augment.flip()(x)
    with raises(ArgumentTypeError):
        next(source.map(augment.flip(), rng="batch").batch_iterator(4))


def test_images_without_channels_have_one() -> None:
    x = images(channels=1)
    for operation in NEED_NUMPY:
        np.testing.assert_array_equal(operation(x[..., 0], rng=rng(6))[0], operation(x, rng=rng(6))[0], strict=True)


@pytest.mark.parametrize("shape", [(0, 20, 30, 3), (2, 20, 30, 4), (3, 20, 30, 1)])
def test_any_batch_of_images_is_taken(shape: tuple[int, ...]) -> None:
    operations = everything()
    if shape[3] != 3:
        operations = [
            one for one in operations if not isinstance(one, (augment.color_jitter, augment.grayscale, augment.choose))
        ]
    for dtype in (np.uint8, np.float32):
        for operation in operations:
            (made,) = operation(np.ones(shape, dtype), rng=rng(shape[0]))
            assert len(made) == shape[0]
            assert made.shape[3] == shape[3]
            assert made.dtype == (np.float32 if isinstance(operation, augment.normalize) else dtype)


def given_anyhow(x: np.ndarray) -> list[np.ndarray]:
    """Return the same images in memory of one's own, read-only, with other strides, and lent by the library."""
    frozen, spread = x.copy(), np.zeros((len(x), 41, 63, 3), x.dtype)
    frozen.flags.writeable = False
    spread[:, 1:40:2, 2:62:2] = x
    return [
        x.copy(),
        frozen,
        spread[:, 1:40:2, 2:62:2],
        np.asfortranarray(x),
        copied(x),
        copied(np.tile(x, (1, 9, 4, 1)))[:, :20, :30],
    ]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_what_is_given_is_not_written_to_however_often_it_is_given(n: int, dtype: Any) -> None:
    x, y = images(n, dtype=dtype), np.arange(n) % 6
    mixing = [augment.mixup(num_classes=6), augment.cutmix(num_classes=6)]
    apart = [one for one in everything() if not isinstance(one, augment.normalize)]
    chain = augment.compose(augment.compose(*apart[:2]), *apart[3:], *mixing)
    for operation in (*everything(), *mixing, augment.choose(*apart[:2], n=2), chain, augment.compose(mixing[0])):
        wanted = operation(x.copy(), y, rng=rng(n))
        for lying in given_anyhow(x):
            for _ in range(2):
                made = operation(lying, y, rng=rng(n))
                np.testing.assert_array_equal(lying, x)
                np.testing.assert_array_equal(y, np.arange(n) % 6)
                assert not np.shares_memory(made[0], lying)
                np.testing.assert_array_equal(made[0], wanted[0])
                np.testing.assert_array_equal(made[1], wanted[1])


@pytest.mark.parametrize("n", SIZES)
def test_who_owns_a_batch_may_have_its_parts_written_to(n: int) -> None:
    flip, x = augment.compose(augment.flip(p=1.0), augment.cutout(), image="x"), images(n)
    wanted = flip(x=x, rng=rng(n))["x"]
    mine = x.copy()
    assert flip.writing_to(("x",), x=mine, rng=rng(n))["x"] is mine
    np.testing.assert_array_equal(mine, wanted)
    (mine,) = augment.random_crop(9).writing_to((0,), x, rng=rng(n))
    np.testing.assert_array_equal(x, images(n))
    assert not np.shares_memory(mine, x)


@pytest.mark.parametrize("n", SIZES)
def test_a_source_hands_over_the_images_that_it_does_not_keep(n: int) -> None:
    given: list[Any] = []
    kept: list[np.ndarray] = []

    class Watched(augment.flip):
        def writing_to(self, own: Any, /, *batch: Any, **named: Any) -> Any:
            given.append(list(own))
            return super().writing_to(own, *batch, **named)

    def keeping(x: np.ndarray, y: np.ndarray) -> Any:
        kept.append(x)
        return x, y

    def keeping_nothing(x: np.ndarray, y: np.ndarray) -> Any:
        return x, y

    watched = Watched(p=1.0)
    source = bu.ArrayDataSource([images(2 * n), np.arange(2 * n)])
    named = bu.ArrayDataSource({"image": images(2 * n), "label": np.arange(2 * n)})
    for made, own in (
        (source.map(watched, rng="sample"), [0, 1]),
        (source.map(keeping_nothing).map(watched, rng="sample").map(watched, rng="sample"), [0, 1]),
        (named.map(watched, rng="sample"), ["image", "label"]),
        (source.map(keeping).map(watched, rng="sample"), [0, 1]),  # a copy of what the map keeps
    ):
        given.clear()
        with bu.WorkerThreadPool(1) as pool:
            for way in (made, pool.parallel_data_source(made)):
                list(way.batch_iterator(n))
        assert len(given) >= 4
        assert all(parts == own for parts in given)
    np.testing.assert_array_equal(np.concatenate(kept[:2]), images(2 * n))


def test_chains_are_pickled_as_they_are() -> None:
    chain = augment.compose(*NEED_NUMPY)
    copy = pickle.loads(pickle.dumps(chain))
    assert repr(copy) == repr(chain)
    assert "flip(p=0.5, vertical=True)" in repr(chain)
    np.testing.assert_array_equal(copy(images(), rng=rng(6))[0], chain(images(), rng=rng(6))[0])


def test_choose_applies_n_of_its_operations_to_each_image() -> None:
    ones = [augment.cutout(p=1.0, scale=(1.0, 1.0), ratio=(1.0, 1.0), fill=k) for k in (1, 2, 3)]
    x = np.zeros((3000, 2, 2, 1), np.uint8)
    (made,) = augment.choose(*ones)(x, rng=rng(3000))
    counts = np.bincount(made[:, 0, 0, 0], minlength=4)
    assert counts[0] == 0
    assert (abs(counts[1:] - 1000) < 120).all()
    half = augment.choose(augment.cutout(p=0.5, scale=(1.0, 1.0), ratio=(1.0, 1.0), fill=1), n=2)(x, rng=rng(3000))[0]
    assert abs((half[:, 0, 0, 0] == 0).mean() - 0.25) < 0.03


def test_rand_augment_is_as_strong_as_its_magnitude() -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    x = images(64)
    np.testing.assert_array_equal(augment.rand_augment(2, 0.0)(x, rng=rng(64))[0], x)
    far = [np.abs(augment.rand_augment(2, m)(x, rng=rng(64))[0].astype(int) - x).mean() for m in (3, 10, 30)]
    assert 0 < far[0] < far[1] < far[2]


def test_without_opencv_numpy_does_what_it_can_and_the_rest_names_the_extra() -> None:
    with without_opencv():
        for operation in NEED_NUMPY:
            operation(images(), rng=rng(6))
        for make in NEED_OPENCV.values():
            with raises(ImportError):
                make()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([images()[0]], ArgumentTypeError),
        (images().astype(float), ArgumentTypeError),
        (images().transpose(0, 3, 1, 2), ArgumentError),
        (np.arange(6, dtype=np.uint8), ArgumentError),
    ],
)
def test_what_is_no_batch_of_images_is_refused(given: Any, error: Any) -> None:
    with raises(error):
        augment.flip()(given, rng=rng(6))


def test_a_tensor_is_refused_with_the_way_to_convert_it() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for operation in (augment.flip(), augment.normalize(0.5, 0.5), augment.compose(augment.mixup())):
        with raises(ArgumentTypeError):
            operation(torch.zeros((2, 3, 8, 8), dtype=torch.uint8), np.zeros(2, np.float32), rng=rng(2))


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: augment.random_crop(4, **given),
        augment.flip,
        augment.rand_augment,
        augment.compose,
        augment.albumentations,
    ],
)
def test_options_that_are_misspelt_are_refused(make: Any) -> None:
    with raises(ArgumentTypeError):
        make(vertcal=True)


def test_options_that_others_have_tell_ours() -> None:
    for make, name in (
        (augment.affine, "degrees"),
        (augment.cutout, "value"),
        (augment.mixup, "probability"),
        (augment.blur, "kernel_size"),
        (augment.choose, "num_ops"),
        (augment.flip, "value"),
        (augment.normalize, "inplace"),
    ):
        with raises(ArgumentTypeError):
            make(**{name: 3})


def test_chains_are_checked() -> None:
    with raises(ArgumentTypeError):
        augment.compose([augment.flip()])  # type: ignore[arg-type]
    with raises(ArgumentTypeError):
        augment.compose(augment.flip(), abs)  # type: ignore[arg-type]
    with raises(ArgumentError):
        augment.compose(augment.normalize(0, 1), augment.flip())
    with raises(ArgumentError):
        augment.compose(augment.flip(), image="y")(x=images(), rng=rng(6))
    with raises(ArgumentError):
        augment.compose(augment.flip(), image=3)(images(), rng=rng(6))
    with raises(ArgumentTypeError):
        augment.choose(augment.random_crop(3))  # type: ignore[arg-type]
    with raises(ArgumentError):
        augment.choose()


def test_names_of_torchvision_tell_ours() -> None:
    with raises(AttributeError):
        _ = augment.random_resized_crop
    with raises(AttributeError):
        _ = augment.elastic
    assert not hasattr(augment, "random_erasing")


PICTURES = np.arange(4 * 6 * 5 * 3, dtype=np.uint8).reshape(4, 6, 5, 3)


def test_several_columns_that_look_like_images_are_not_guessed() -> None:
    """Only the first would change, in silence."""
    source = bu.ArrayDataSource({"left": PICTURES, "right": PICTURES, "y": np.arange(4)})
    for operation in (augment.flip(p=1.0), augment.normalize(0.5, 0.5), augment.compose(augment.flip(p=1.0))):
        for on in (["left", "right"], ["y", "right", "left"]):
            with raises(MapCallError):
                source.map(operation, on=on)[0:2]
        with raises(MapCallError):
            bu.ArrayDataSource([PICTURES, PICTURES]).map(operation, on=[0, 1])[0:2]
    both = source.map(augment.flip(p=1.0), on="left").map(augment.flip(p=1.0), on="right")[:]
    assert all((both[name] == PICTURES[:, :, ::-1]).all() for name in ("left", "right"))
    one = source.map(augment.compose(augment.normalize(0.5, 0.5), image="right"), on=["left", "right"])[:]
    assert [one[name].dtype for name in ("left", "right")] == [np.uint8, np.float32]
    named = bu.ArrayDataSource({"image": PICTURES, "other": PICTURES})
    for operation in (augment.flip(p=1.0), augment.compose(augment.normalize(0.5, 0.5))):
        with raises(MapCallError):
            named.map(operation, on=["image", "other"])[0:2]
        assert (named.map(operation)[0:2]["other"] == PICTURES[:2]).all(), "all of a dict: its column image"


def test_a_mask_beside_the_images_of_a_tuple_is_not_left_where_it_was() -> None:
    masks = PICTURES[..., 0]
    pairs = bu.ArrayDataSource([PICTURES, masks])
    for operation in (augment.flip(p=1.0), augment.compose(augment.flip(p=1.0))):
        with raises(MapCallError):
            pairs.map(operation)[0:2]
        assert (pairs.map(operation, on=0)[:][1] == masks).all()
    moved = pairs.map(augment.compose(augment.flip(p=1.0), masks=1))[:]
    assert (moved[0] == PICTURES[:, :, ::-1]).all()
    assert (moved[1] == masks[:, :, ::-1]).all()
    assert pairs.map(augment.normalize(0.5, 0.5))[:][0].dtype == np.float32, "which moves nothing"
    views = bu.ArrayDataSource([PICTURES, PICTURES]).map(augment.flip(p=1.0))[:]
    assert (views[0] == views[1][:, :, ::-1]).all(), "the first of several views"
    numbers = bu.ArrayDataSource([PICTURES, np.zeros((4, 3)), np.arange(4)])
    assert (numbers.map(augment.flip(p=1.0))[:][0] == PICTURES[:, :, ::-1]).all()
