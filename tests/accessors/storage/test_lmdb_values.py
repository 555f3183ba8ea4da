"""Samples of ml-pyxis and Caffe, as they are written to LMDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors.storage.lmdb_values import datum, pyxis
from batchup_ng.errors import SampleReadError
from tests.messages import raises

pytest.importorskip("lmdb", reason="lmdb is not installed")

from .test_lmdb import numbered, written
from .test_tar import png

OPTIONAL, REPEATED = 1, 3
BYTES, FLOAT, INT32, BOOL = 12, 2, 5, 8
FIELDS = [
    ("channels", 1, OPTIONAL, INT32), ("height", 2, OPTIONAL, INT32), ("width", 3, OPTIONAL, INT32),
    ("data", 4, OPTIONAL, BYTES), ("label", 5, OPTIONAL, INT32), ("float_data", 6, REPEATED, FLOAT),
    ("encoded", 7, OPTIONAL, BOOL), ("later", 900, OPTIONAL, BYTES), ("fixed", 8, OPTIONAL, 1),
]  # fmt: skip
"""The fields of ``Datum`` in ``caffe.proto``, and two that a later version might have."""


@pytest.fixture(scope="module")
def caffe() -> Any:
    """The class ``Datum``, as protobuf itself makes it."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
    message = file.message_type.add(name="Datum")
    for name, number, label, kind in FIELDS:
        message.field.add(name=name, number=number, label=label, type=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))


def test_a_datum_is_what_protobuf_wrote(caffe: Any) -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for label in (0, 7, 2**31 - 1, -1, -(2**31)):
        message = caffe(channels=2, height=3, width=4, data=image.tobytes(), label=label, later=b"x", fixed=1.5)
        got = datum(memoryview(message.SerializeToString()))
        np.testing.assert_array_equal(got["image"], image, strict=True)
        assert got["label"] == label


def test_floats_of_a_datum_are_what_protobuf_wrote(caffe: Any) -> None:
    image = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    message = caffe(channels=2, height=3, width=4, float_data=image.ravel(), label=3)
    plain = message.SerializeToString()
    tags = b"".join(b"\x35" + number.tobytes() for number in image.ravel())
    assert tags in plain
    packed = plain.replace(tags, b"\x32\x60" + image.tobytes())
    for written_so in (plain, packed):
        got = datum(memoryview(written_so))
        np.testing.assert_array_equal(got["image"], image, strict=True)
        assert got["label"] == 3


def test_columns_of_datums_are_arrays_and_encoded_pictures_bytes(caffe: Any, tmp_path: Path) -> None:
    images = np.arange(5 * 12, dtype=np.uint8).reshape(5, 3, 2, 2)
    messages = [caffe(channels=3, height=2, width=2, data=x.tobytes(), label=y) for y, x in enumerate(images)]
    path = written(
        tmp_path / "x", {b"%08d_cat.jpg" % y: m.SerializeToString() for y, m in enumerate(messages)}, subdir=True
    )
    source = bu.ArrayDataSource(bu.LmdbRows.columns(path, decode="datum"))
    batch = next(source.batch_iterator(5, shuffle=1))
    np.testing.assert_array_equal(batch["image"], images[batch["label"]], strict=True)
    assert bu.LmdbRows(path, "datum")[2]["label"] == 2
    encoded = [caffe(data=png(number), label=number, encoded=True).SerializeToString() for number in range(4)]
    columns = bu.LmdbRows.columns(written(tmp_path / "y.mdb", numbered(encoded)), decode="datum")
    assert isinstance(columns["image"], bu.LmdbRows)
    pictures = bu.ImageBytes(columns["image"], 8)
    assert (pictures[:] == columns["label"][:][:, None, None, None]).all()


@pytest.mark.parametrize(
    "value",
    [
        b"\x22\xff\xff\xff\xff\x0fabc",
        b"\x08" + b"\xff" * 40,
        b"\x0b",
        b"\x35ab",
        b"\x08\x02\x10\x02\x18\x02\x22\x01a",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x02\x18\x02\x22\x01a",
        b"\x08",
    ],
)
def test_s4_a_datum_that_claims_what_it_does_not_have_is_refused(value: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([value]))
    with raises(SampleReadError):
        bu.LmdbRows(path, "datum")[0]


@pytest.mark.parametrize("dtype", ["|O", "<U99999999", "nonsense"])
def test_s4_an_array_of_pyxis_that_cannot_be_is_refused(dtype: str, tmp_path: Path) -> None:
    msgpack = pytest.importorskip("msgpack", reason="the extra lmdb is not installed")
    field = msgpack.packb({b"type": 2, b"dtype": dtype, b"shape": (2**40,), b"data": bytes(16)})
    path = written(tmp_path / "x.mdb", numbered([msgpack.packb({"x": field})]), b"data_db")
    with raises(SampleReadError):
        bu.LmdbRows(path, "pyxis")[0]


@given(st.dictionaries(st.text(max_size=40), st.integers(0, 70000), max_size=20))
def test_arrays_of_all_lengths_are_what_msgpack_wrote(lengths: dict[str, int]) -> None:
    msgpack = pytest.importorskip("msgpack", reason="the extra lmdb is not installed")
    arrays = {name: np.full((2, length), length % 251, "<u2") for name, length in lengths.items()}
    fields = {
        name: msgpack.packb({b"type": 2, b"dtype": x.dtype.str, b"shape": x.shape, b"data": x.tobytes()})
        for name, x in arrays.items()
    }
    got = pyxis(memoryview(msgpack.packb(fields)))
    assert list(got) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array, strict=True)


@pytest.mark.parametrize(
    "value",
    [
        b"\xdf\xff\xff\xff\xff\xa1x\xc4\x01a",
        b"\x81\xa1x\xc6\xff\xff\xff\xffabc",
        b"\x81\xce\xff\xff\xff\xff\xa0",
        b"\x81\xa1x\xc0",
        b"\x91" * 99999,
        b"",
    ],
)
def test_s4_a_sample_that_claims_what_it_does_not_have_is_refused(value: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([value]), b"data_db")
    with raises(SampleReadError):
        bu.LmdbRows(path, "pyxis")[0]


@given(st.data())
def test_s10_whatever_a_value_holds_is_arrays_or_an_error(caffe: Any, data: Any) -> None:
    msgpack = pytest.importorskip("msgpack", reason="the extra lmdb is not installed")
    if data.draw(st.booleans()):
        field = msgpack.packb({b"type": 2, b"dtype": "<i4", b"shape": (2, 3), b"data": bytes(24)})
        content, decode = bytearray(msgpack.packb({"x": field, "long name": field})), pyxis
    else:
        message = caffe(channels=1, height=2, width=3, data=bytes(6), label=-5, float_data=[1, 2], later=b"abc")
        content, decode = bytearray(message.SerializeToString()), datum
    places = st.integers(0, len(content) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=9)):
        content[place] = value
    value = bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    try:
        assert isinstance(decode(memoryview(value)), dict)
    except MemoryError:
        raise
    except Exception:
        pass  # of which the accessor makes one of ours
