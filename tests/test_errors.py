"""The tree of exceptions."""

from __future__ import annotations

import pickle

import pytest

from batchup_ng import errors


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name not in ("BatchupError", "RemoteTraceback")])
def test_each_is_one_of_ours_and_stands_in_the_drawing(name: str) -> None:
    assert issubclass(getattr(errors, name), RuntimeWarning if name.endswith("Warning") else errors.BatchupError)
    assert f" {name} " in (errors.__doc__ or "")


def test_a_missing_library_names_its_extra() -> None:
    error = errors.MissingDependency("h5py", "hdf5", "reading HDF5")
    assert "reading HDF5 needs the library 'h5py'" in str(error)
    assert "pip install 'batchup_ng[hdf5]'" in str(error)
    assert isinstance(error, ImportError)
    assert (error.library, error.extra) == ("h5py", "hdf5")


def test_errors_travel() -> None:
    for error in (
        errors.SampleReadError("cannot read a.png", "a.png"),
        errors.MissingDependency("h5py", "hdf5", "reading HDF5"),
        errors.ArgumentError("bad"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)


def test_a_remote_traceback_shows_its_text() -> None:
    assert "line 3" in str(errors.RemoteTraceback("line 3"))
