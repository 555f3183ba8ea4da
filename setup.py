"""Metadata and dependencies of batchup_ng; the settings of the tools are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent

CORE = ["numpy>=1.24", "joblib>=1.3", "pillow>=10.1", "cloudpickle>=3.0"]

# torch is pinned where a command must give the same result each time; the `torch` extra is for users.
PINNED_TORCH = "torch==2.13.0"

EXTRAS = {
    "progress": ["tqdm>=4.64"],
    "hdf5": ["h5py>=3.8"],
    "lmdb": ["lmdb>=1.4", "msgpack>=1.0"],
    "zarr": ["zarr>=3.0; python_version>='3.11'"],
    "parquet": ["pyarrow>=14.0"],
    # Before that version fsspec keeps its event loop behind a fork, where nothing runs it.
    "remote": ["fsspec>=2025.5.1", "aiohttp>=3.9"],
    "datasets": ["pooch>=1.8", "scipy>=1.10"],
    "images": ["simplejpeg>=1.7", "opencv-python-headless>=4.8", "PyYAML>=6.0"],
    "tables": ["narwhals>=1.20"],
    "ray": ["ray>=2.40"],
    "torch": ["torch>=2.2"],
    "keras": ["keras>=3.3"],
    "jax": ["jax>=0.4.34"],
    "tensorflow": ["tensorflow>=2.16"],
    "plot": ["matplotlib>=3.7"],
    "top": ["rich>=12.0"],
    "examples": [
        "pandas>=2.0", "tqdm>=4.64", PINNED_TORCH, "keras>=3.3", "pytorch-lightning>=2.2",
        "jax>=0.4.34", "orbax-checkpoint>=0.6", "tensorflow-cpu>=2.16", "transformers>=4.40", "accelerate>=1.0",
        "simplejpeg>=1.7", "opencv-python-headless>=4.8", "narwhals>=1.20", "scikit-image>=0.22",
        "ray[train]>=2.40",
    ],
    "benchmarks": [
        PINNED_TORCH, "batchup==0.2.3", "scikit-learn>=1.3", "psutil>=5.9", "tabulate>=0.9", "matplotlib>=3.7",
        "simplejpeg>=1.7", "opencv-python-headless>=4.8", "scikit-image>=0.22", "ray[data]>=2.40", "h5py>=3.8",
        "lmdb>=1.4", "zarr>=3.0; python_version>='3.11'", "pyarrow>=14.0", "safetensors>=0.4", "webdataset>=0.2.86",
        "datasets>=2.19",
    ],
    "docs": ["sphinx>=7.2", "myst-parser>=3.0", "furo>=2024.1.29"],
    "test": [
        "pytest>=8.2", "hypothesis>=6.100", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "psutil>=5.9", "tabulate>=0.9",
    ],
    "lint": ["ruff>=0.15"],
    "types": ["mypy>=1.15", "types-psutil>=5.9"],
    "release": ["build>=1.0", "setuptools>=70", "tox>=4.20", "wheel>=0.43"],
}
# With all libraries and tools that a test, an example or .ci/run uses, and with one torch, the pinned one.
TESTED = [
    "pytest-cov>=7.0", "threadpoolctl>=3.2", "ipython>=8.12", "datasets>=2.19", "polars>=1.0", "pyarrow>=14.0",
    "albumentations>=2.0", "webdataset>=0.2.100", "ml-pyxis>=0.4.dev0", "protobuf>=4.21", "safetensors>=0.4",
    "tables>=3.9", "prometheus_client>=0.20",
]
REPLACED = {*EXTRAS["torch"], *EXTRAS["tensorflow"]}  # by the pinned one, and by the build without CUDA
EXTRAS["dev"] = sorted({*TESTED, *(one for extra in EXTRAS.values() for one in extra)} - REPLACED)


def read_version() -> str:
    """Return the version that `batchup_ng/_version.py` states, without running it."""
    text = (HERE / "batchup_ng" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("batchup_ng/_version.py must hold one line of the form: __version__ = \"1.2.3\"")
    return found.group(1)


setup(
    name="batchup_ng",
    version=read_version(),
    description="Mini-batches for neural networks, always a few ahead of the training loop",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="batchup_ng contributors",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["batchup_ng", "batchup_ng.*"]),
    package_data={"batchup_ng": ["py.typed"], "batchup_ng.demo": ["*.npz", "*.md"]},
    install_requires=CORE,
    extras_require=EXTRAS,
    zip_safe=False,
    keywords=["data loading", "mini-batch", "neural networks", "deep learning", "numpy"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
