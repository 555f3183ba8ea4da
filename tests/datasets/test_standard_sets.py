"""Standard data sets: each has the samples, labels and classes of its files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import datasets
from batchup_ng.datasets.standard import class_names, table
from batchup_ng.datasets.standard.converting import CONVERSIONS
from batchup_ng.formats.prepared import names_of
from tests.datasets import standard_helpers as made
from tests.messages import raises

pytest.importorskip("pooch", reason="downloads need pooch")


@pytest.fixture
def server() -> Iterator[made.Server]:
    with made.serving() as server:
        yield server


def columns(source: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate(parts) for parts in zip(*source.batch_iterator(7), strict=True))


def check(source: Any, *expected: np.ndarray) -> None:
    found = columns(source)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert [each.dtype for each in found] == [np.uint8, np.int64][: len(found)]


@pytest.mark.parametrize(
    ("name", "classes"),
    [("mnist", class_names.DIGITS), ("fashion_mnist", class_names.FASHION), ("kmnist", class_names.KUZUSHIJI)],
)
def test_mnist_and_its_relatives(server: made.Server, tmp_path: Path, name: str, classes: Any) -> None:
    train, test = made.small_mnist()
    server.add(name, *made.mnist_files(train, test))
    found = getattr(datasets, name)(tmp_path, progress=False)
    check(found.train, *train)
    check(found.test, *test)
    assert found.classes == classes == bu.datasets.FilesDataSource.class_names.fget(found.train)
    assert found.folder == str(tmp_path / name)
    assert repr(found) == f"<{name}: train: 50, test: 20 samples of 10 classes>"
    files = [f"{part}_{column}.npy" for part in ("test", "train") for column in ("image", "label")]
    assert sorted(os.listdir(found.folder)) == files
    assert os.listdir(tmp_path / "downloads") == []


@pytest.mark.parametrize(("split", "first"), [("balanced", 0), ("letters", 1)])
def test_emnist_is_upright_and_its_archive_stays(server: made.Server, tmp_path: Path, split: str, first: int) -> None:
    classes = class_names.EMNIST[split]
    images, labels = made.random_images(0, 30, 28, 28), made.random_labels(1, 30, len(classes))
    server.add("emnist", ("gzip.zip", made.emnist_zip(split, images, labels + first)))
    for _ in range(2):
        found = datasets.emnist(tmp_path, split=split, progress=False)
        check(found.train, images, labels)
        check(found.test, images, labels)
    assert found.classes == classes
    assert os.listdir(tmp_path / "downloads" / "emnist") == ["gzip.zip"]
    with raises(bu.SampleReadError):
        datasets.emnist(tmp_path, split="digits", progress=False)
    assert server.counts() == {"/a/gzip.zip": 1}
    with raises(bu.ArgumentError):
        datasets.emnist(tmp_path, split="words")


def test_cifar_10(server: made.Server, tmp_path: Path) -> None:
    images, labels = made.random_images(0, 60, 32, 32, 3), made.random_labels(1, 60, 10)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    parts = [slice(10 * i, 10 * i + 10) for i in range(6)]
    contents = [made.cifar_file(images[part], labels[part]) for part in parts]
    members = [(f"cifar-10-batches-bin/{name}", content) for name, content in zip(names, contents, strict=True)]
    content = made.tar_gz(*members[::-1], ("./cifar-10-batches-bin/readme.html", b"x"))  # in any order
    server.add("cifar10", ("cifar-10-binary.tar.gz", content))
    found = datasets.cifar10(tmp_path, progress=False)
    check(found.train, images[:50], labels[:50])
    check(found.test, images[50:], labels[50:])
    assert found.classes[9] == "truck"


def test_cifar_100_with_either_labels(server: made.Server, tmp_path: Path) -> None:
    images = made.random_images(0, 20, 32, 32, 3)
    fine, coarse = made.random_labels(1, 20, 100), made.random_labels(2, 20, 20)
    content = made.cifar_file(images, coarse, fine)
    archive = made.tar_gz(("cifar-100-binary/train.bin", content), ("cifar-100-binary/test.bin", content))
    server.add("cifar100", ("cifar-100-binary.tar.gz", archive))
    found = datasets.cifar100(tmp_path, progress=False)
    check(found.train, images, fine)
    check(found.test, images, fine)
    assert len(found.classes) == 100
    found = datasets.cifar100(tmp_path, coarse=True, progress=False)
    check(found.train, images, coarse)
    assert found.classes == class_names.CIFAR100_COARSE
    assert len(server.requests) == 1


def mat_file(images: np.ndarray, labels: np.ndarray) -> bytes:
    """As the files of SVHN: images last, 10 for digit 0."""
    scipy_io = pytest.importorskip("scipy.io", reason="SVHN needs SciPy")
    out = io.BytesIO()
    numbers = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    scipy_io.savemat(out, {"X": images.transpose(1, 2, 3, 0), "y": numbers}, do_compression=True)
    return out.getvalue()


def test_svhn_and_its_extra_part(server: made.Server, tmp_path: Path) -> None:
    images, labels = made.random_images(0, 40, 32, 32, 3), made.random_labels(1, 40, 10)
    first = mat_file(images[:9], labels[:9])
    server.add("svhn", ("train_32x32.mat", mat_file(images, labels)), ("test_32x32.mat", first))
    server.add("svhn-extra", ("extra_32x32.mat", mat_file(images[9:], labels[9:])))
    found = datasets.svhn(tmp_path, progress=False)
    check(found.train, images, labels)
    check(found.test, images[:9], labels[:9])
    assert found.extra is None
    found = datasets.svhn(tmp_path, extra=True, progress=False)
    assert found.extra is not None
    check(found.extra, images[9:], labels[9:])
    assert repr(found) == "<svhn: train: 40, test: 9, extra: 31 samples of 10 classes>"
    assert len(server.requests) == 3


def test_stl_10(server: made.Server, tmp_path: Path) -> None:
    images, labels = made.random_images(0, 12, 96, 96, 3), made.random_labels(1, 12, 10)
    names = [("train", 6), ("test", 3), ("unlabeled", 12)]
    members = [(f"stl10_binary/{name}_X.bin", made.stl_file(images[:n])) for name, n in names]
    members += [(f"stl10_binary/{name}_y.bin", (labels[:n] + 1).astype(np.uint8).tobytes()) for name, n in names[:2]]
    folds = np.array([[0, 1, 2], [5, 4, 3]])
    text = "\n".join(" ".join(map(str, fold)) for fold in folds).encode()
    archive = made.tar_gz(*members, ("stl10_binary/fold_indices.txt", text))
    server.add("stl10", ("stl10_binary.tar.gz", archive))
    found = datasets.stl10(tmp_path, progress=False)
    check(found.train, images[:6], labels[:6])
    check(found.test, images[:3], labels[:3])
    check(found.unlabeled, images)
    np.testing.assert_array_equal(found.folds, folds)
    check(found.train.subset(found.folds[1]), images[[5, 4, 3]], labels[[5, 4, 3]])


def test_usps_is_rounded_as_by_torchvision(server: made.Server, tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (11, 256)).round(5)
    values[0, :3] = [-1, 0, 1]
    labels = made.random_labels(1, 11, 10)
    content = made.usps_text(values, labels + 1)
    server.add("usps", ("usps.bz2", content), ("usps.t.bz2", made.usps_text(values[:4], labels[:4] + 1)))
    wanted = ((values.astype(np.float32) + 1) / 2 * 255).astype(np.uint8).reshape(-1, 16, 16)
    found = datasets.usps(tmp_path, progress=False)
    check(found.train, wanted, labels)
    check(found.test, wanted[:4], labels[:4])


def test_imagenette_is_a_folder_of_images(server: made.Server, tmp_path: Path) -> None:
    members = made.imagenette_members()
    archive = made.tar_gz(*[(f"./{name}", content) for name, content in members], ("imagenette2-160/noisy.csv", b"x"))
    server.add("imagenette-160", ("imagenette2-160.tgz", archive))
    found = datasets.imagenette(tmp_path, image_size=16, progress=False)
    assert found.classes == found.train.class_names == tuple(class_names.IMAGENETTE.values())
    for source, green in ((found.train, 0), (found.test, 100)):
        images, labels = columns(source)
        assert images.shape == (20, 16, 16, 3)
        assert labels.tolist() == [number for number in range(10) for _ in range(2)]
        wanted = [(10 * number, green, 20 * i) for number in range(10) for i in range(2)]
        assert np.abs(images.mean((1, 2)) - wanted).max() < 4  # JPEG
    for wrong in ({"size": 224}, {"image_size": 0}):
        with raises(bu.ArgumentError):
            datasets.imagenette(tmp_path, **wrong)  # type: ignore[arg-type]


def test_an_archive_that_would_write_elsewhere_is_refused(server: made.Server, tmp_path: Path) -> None:
    link = tarfile.TarInfo("imagenette2-160/train/n01440764")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
    for bad in ("../n.JPEG", "imagenette2-160/train/n01440764/../../../n.JPEG", "/n.JPEG"):
        archive = made.tar_gz(link, *made.imagenette_members(1), (bad, b"x"))
        server.add("imagenette-160", ("imagenette2-160.tgz", archive))
        with raises(bu.SampleReadError):
            datasets.imagenette(tmp_path / "sets", progress=False)
    assert os.listdir(tmp_path) == ["sets"]
    assert os.listdir(tmp_path / "sets") == ["downloads"]
    server.add("imagenette-160", ("imagenette2-160.tgz", made.tar_gz(link, *made.imagenette_members(1))))
    datasets.imagenette(tmp_path / "sets", progress=False)
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    assert os.listdir(tmp_path) == ["sets"]


def test_workers_read_the_files_by_name(server: made.Server, tmp_path: Path, pools: Any) -> None:
    train, test = made.small_mnist()
    server.add("mnist", *made.mnist_files(train, test))
    source = datasets.mnist(tmp_path, progress=False).train
    assert len(cloudpickle.dumps(source.node)) < 5000
    for batch, (images, labels) in enumerate(pools[1].parallel_data_source(source).batch_iterator(16)):
        np.testing.assert_array_equal(images, train[0][16 * batch : 16 * batch + 16])
        np.testing.assert_array_equal(labels, train[1][16 * batch : 16 * batch + 16])


def test_columns_and_classes_have_names(server: made.Server, tmp_path: Path) -> None:
    train, test = made.small_mnist()
    server.add("mnist", *made.mnist_files(train, test))
    source = datasets.mnist(tmp_path, progress=False).train
    np.testing.assert_array_equal(source.labels, train[1])
    (images,) = next(source.select("image").batch_iterator(50))
    np.testing.assert_array_equal(images, train[0])
    kept, rest = source.split([0.5, 0.5], seed=1, stratify="label")
    assert names_of(source) == names_of(kept) == ("image", "label")
    assert len(columns(kept)[1]) + len(columns(rest)[1]) == 50
    assert bu.class_weights(source.labels, 10).shape == (10,)


def test_what_batchup_gives_has_an_equivalent(server: made.Server, tmp_path: Path) -> None:
    train, test = made.small_mnist()
    server.add("mnist", *made.mnist_files(train, test))
    mnist, n_val = datasets.mnist(tmp_path, progress=False), 10
    images, labels = mnist.train.data
    train_rows, val_rows = range(len(images) - n_val), range(len(images) - n_val, len(images))
    train_x = bu.ImageArrayUInt8ToFloat32(images, 0.0, 1.0)
    old = bu.ArrayDataSource([train_x, labels], indices=np.arange(50)[train_rows]).map(lambda x, y: (x[:, None], y))
    x, y = next(old.batch_iterator(100))
    np.testing.assert_allclose(x, train[0][:-n_val, None] / np.float32(255), rtol=1e-6)
    assert (x.dtype, x.shape) == (np.float32, (40, 1, 28, 28))
    np.testing.assert_array_equal(y, train[1][:-n_val])
    check(mnist.train.subset(train_rows), train[0][:-n_val], train[1][:-n_val])
    check(mnist.train.subset(val_rows), train[0][-n_val:], train[1][-n_val:])
    np.testing.assert_array_equal(images[:], train[0])


def test_the_table_has_a_checksum_and_a_mirror_for_each_file() -> None:
    assert {download for download, _ in CONVERSIONS.values()} == set(table.FILES)
    for files in table.FILES.values():
        assert files
        for file in files:
            kind, digest = file.checksum.split(":")
            assert len(digest) == {"sha256": 64, "md5": 32}[kind]
            assert set(digest) <= set("0123456789abcdef")
            assert all(url.startswith(("https://", "http://")) and url.endswith(f"/{file.name}") for url in file.urls)
            assert file.urls
            assert file.size is None or file.size > 4000
    assert [len(names) for names in class_names.EMNIST.values()] == [47, 62, 47, 10, 26, 10]
    for names in (*class_names.EMNIST.values(), class_names.CIFAR100, class_names.CIFAR100_COARSE, class_names.STL10):
        assert len(set(names)) == len(names)
    assert (len(class_names.CIFAR100), len(class_names.CIFAR100_COARSE)) == (100, 20)


def test_an_option_of_other_libraries_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for option in ("root", "download", "train", "transform", "n_val", "val_lower"):
        with raises(bu.ArgumentTypeError):
            datasets.mnist(**{option: 1})


def test_the_import_of_the_data_sets_imports_no_library() -> None:
    program = (
        "import sys, batchup_ng as bu; bu.datasets.mnist; "
        "print([m for m in ('pooch', 'scipy', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=600, capture_output=True, text=True)
    assert done.stdout == "[]\n"
