"""File formats of the ``storage`` workload: a writer for each, and the best plain reader that we know."""

from benchmarks.formats.arrays import Hdf5Chunks, Hdf5Contiguous, Hdf5Rows, Npy, Safetensors, Zarr
from benchmarks.formats.base import GROUP, Format
from benchmarks.formats.samples import SHARDS, Lmdb, Tar
from benchmarks.formats.tables import Arrow, Parquet

__all__ = ["FORMATS", "GROUP", "SHARDS", "Format"]

FORMATS: dict[str, type[Format]] = {
    "npy": Npy, "hdf5": Hdf5Contiguous, "hdf5-rows": Hdf5Rows, "hdf5-chunks": Hdf5Chunks, "lmdb": Lmdb, "tar": Tar,
    "arrow": Arrow, "parquet": Parquet, "zarr": Zarr, "safetensors": Safetensors,
}  # fmt: skip
"""All formats by the prefix of their parts' names."""
