"""Boxes, masks and keypoints are the same bits from every pool, in each form that models take."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.augment.annotated import OPTIONS, batch
from tests.extent import quick

ROWS = 45
FORMS = ("apart", "targets", "padded", "flat", "tuple")


def ragged(rows: list[np.ndarray]) -> bu.Ragged:
    return bu.Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


@functools.cache
def source(form: str) -> Any:
    """Return images with all annotations, ragged columns, moved by a chain, in one of the forms."""
    x = batch(ROWS, (61, 75))
    columns = {name: ragged(part) if isinstance(part, list) else part for name, part in x.items()}
    chain: list[Any] = [augment.flip(), augment.random_crop((60, 70), padding=9), augment.cutout()]
    options: dict[str, Any] = {**OPTIONS, "min_visibility": 0.3}
    if form == "tuple":
        places = {name: place for place, name in enumerate(x)}
        options["boxes"], options["keypoints"] = places["boxes"], places["keypoints"]
        for name in ("box_labels", "masks", "keypoint_labels"):
            named = options[name] if isinstance(options[name], list) else [options[name]]
            options[name] = [places[one] for one in named]
        return bu.ArrayDataSource(list(columns.values())).map(augment.compose(*chain, **options), rng="sample")
    made: Any = bu.ArrayDataSource(columns).map(augment.compose(*chain, **options), rng="sample")
    if form == "targets":
        return made.map(bu.DetectionTargets("boxes", "labels", "masks"))
    if form == "padded":
        return made.map(bu.PadColumns("boxes", "labels", return_mask=True))
    return made.collate(bu.FlatColumns("boxes", "labels", "masks")) if form == "flat" else made


@pytest.mark.parametrize("form", quick(["apart", "targets", "flat"], FORMS))
def test_every_pool_gives_the_same_bits(form: str, pools: list[AbstractWorkerPool]) -> None:
    whole = []
    for size in (3, 20):  # the images of the second are large enough for memory on lease
        expected = list(source(form).batch_iterator(size, shuffle=5, epoch=1))
        for pool in (bu.SerialPool(), *pools):
            made = pool.parallel_data_source(source(form)).batch_iterator(size, shuffle=5, epoch=1)
            assert_same_batches(list(made), expected)
        whole.append(expected)
    if form == "apart":  # any batch size gives the same samples
        for name in whole[0][0]:
            one, other = ([row for batch in batches for row in batch[name]] for batches in whole)
            assert_same_batches([one], [other])


def test_the_forms_hold_the_same_boxes() -> None:
    for size in (4, 45):
        # Draws belong to the place of a map in the graph, which is the same for these three, and for the two below.
        batches = [list(source(form).batch_iterator(size, shuffle=5)) for form in ("targets", "padded", "flat")]
        for targets, padded, flat in zip(*batches, strict=True):
            assert sorted(targets) == ["image", "keypoints", "mask", "names", "target"]
            offsets = flat["boxes_offsets"]
            assert (offsets.dtype, len(offsets)) == (np.int64, len(targets["image"]) + 1)
            assert flat["masks"].shape[1:] == (60, 70)
            for i, one in enumerate(targets["target"]):
                own = slice(offsets[i], offsets[i + 1])
                assert sorted(one) == ["boxes", "labels", "masks"]
                assert (one["boxes"].dtype, one["labels"].dtype, one["masks"].dtype) == (np.float32, np.int64, np.uint8)
                np.testing.assert_array_equal(padded["boxes"][i][padded["boxes_mask"][i]], one["boxes"])
                np.testing.assert_array_equal(padded["labels"][i][padded["labels_mask"][i]], one["labels"])
                np.testing.assert_array_equal(flat["boxes"][own], one["boxes"])
                np.testing.assert_array_equal(flat["labels"][own], one["labels"])
                np.testing.assert_array_equal(flat["masks"][own], one["masks"])
        by_name, by_place = (source(form).batch_iterator(size, shuffle=5) for form in ("apart", "tuple"))
        for named, placed in zip(by_name, by_place, strict=True):
            assert_same_batches([tuple(named.values())], [placed])
