"""The files of the standard data sets: names, mirrors, checksums, sizes.

Nothing here was computed from a download. The checksums and sizes were published by other libraries:

- TFDS: ``tensorflow_datasets/url_checksums/NAME.txt`` of ``tensorflow/datasets``. BatchUp 0.2.3 has the same sums for
  MNIST, Fashion-MNIST, SVHN and STL-10.
- torchvision: ``torchvision/datasets/usps.py`` of ``pytorch/vision``, which gives MD5 sums and no sizes.

A mirror with another file does no harm: its checksum is refused. Mirrors are tried in their order.
"""

from __future__ import annotations

from typing import NamedTuple


class RemoteFile(NamedTuple):
    """A file to download."""

    name: str
    urls: tuple[str, ...]
    checksum: str
    """As pooch takes it: ``"sha256:..."`` or ``"md5:..."``."""
    size: int | None = None
    """Bytes, or None if no source gives them."""


def _files(bases: tuple[str, ...], *files: tuple[str, str, int]) -> tuple[RemoteFile, ...]:
    """Return the files of a folder at each of `bases`. `files` has the name, the SHA-256, the size."""
    return tuple(
        RemoteFile(name, tuple(base + name for base in bases), f"sha256:{digest}", size) for name, digest, size in files
    )


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_HOUSENUMBERS = ("http://ufldl.stanford.edu/housenumbers/",)
_FASTAI = ("https://s3.amazonaws.com/fast-ai-imageclas/",)
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"

FILES: dict[str, tuple[RemoteFile, ...]] = {
    # TFDS, mnist.txt; the second mirror is torchvision's
    "mnist": _files(
        (
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
    # TFDS, fashion_mnist.txt; the second mirror is Keras's, the third the authors' repository
    "fashion_mnist": _files(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        ("train-images-idx3-ubyte.gz", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        ("t10k-images-idx3-ubyte.gz", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    ),
    # TFDS, kmnist.txt
    "kmnist": _files(
        ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
        ("train-images-idx3-ubyte.gz", "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4", 18165135),
        ("train-labels-idx1-ubyte.gz", "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17", 29497),
        ("t10k-images-idx3-ubyte.gz", "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5", 3041136),
        ("t10k-labels-idx1-ubyte.gz", "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c", 5120),
    ),
    # TFDS, emnist.txt
    "emnist": _files(
        ("https://biometrics.nist.gov/cs_links/EMNIST/", "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/"),
        ("gzip.zip", "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e", 561753746),
    ),
    # TFDS, cifar10.txt; the second mirror belongs to Swift for TensorFlow
    "cifar10": _files(
        (_TORONTO, "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/"),
        ("cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171),
    ),
    # TFDS, cifar100.txt
    "cifar100": _files(
        (_TORONTO,),
        ("cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", 168513733),
    ),
    # TFDS, svhn_cropped.txt
    "svhn": _files(
        _HOUSENUMBERS,
        ("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182040794),
        ("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64275384),
    ),
    "svhn-extra": _files(
        _HOUSENUMBERS,
        ("extra_32x32.mat", "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3", 1329278602),
    ),
    # TFDS, stl10.txt
    "stl10": _files(
        ("http://ai.stanford.edu/~acoates/stl10/", "https://cs.stanford.edu/~acoates/stl10/"),
        ("stl10_binary.tar.gz", "f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866", 2640397119),
    ),
    # torchvision, usps.py
    "usps": (
        RemoteFile("usps.bz2", (_LIBSVM + "usps.bz2",), "md5:ec16c51db3855ca6c91edd34d0e9b197"),
        RemoteFile("usps.t.bz2", (_LIBSVM + "usps.t.bz2",), "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
    ),
    # TFDS, imagenette.txt
    "imagenette-160": _files(
        _FASTAI,
        ("imagenette2-160.tgz", "88daccb09b6fce93f45e6c09ddeb269cce705549e6bff322092a2a5a11489863", 98948031),
    ),
    "imagenette-320": _files(
        _FASTAI,
        ("imagenette2-320.tgz", "5020a9130cea0348272823cb12d2db7e981c6f2afa3dce71ccd5b8013005c55e", 341553947),
    ),
    "imagenette-full": _files(
        _FASTAI,
        ("imagenette2.tgz", "de32de18a7d8df0114d5e2c3c14cafb9558e8f00441a73aa7953681ad02be49c", 1556914727),
    ),
}
"""The files of each download, in the order in which they are converted."""
