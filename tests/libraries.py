"""The optional libraries, which the package imports when they are used, and which tests of them need."""

from __future__ import annotations

OPTIONAL = (
    "torch", "jax", "tensorflow", "keras", "h5py", "lmdb", "zarr", "pyarrow", "ray", "tqdm", "matplotlib", "pandas",
    "simplejpeg", "cv2", "narwhals", "polars", "skimage", "msgpack", "safetensors", "numcodecs", "fsspec", "aiohttp",
    "albumentations", "torchvision", "yaml", "rich", "pooch", "scipy", "requests",
)  # fmt: skip
