"""Which exceptions are a sample's fault."""

from __future__ import annotations

import binascii
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.faults.blame import checked_types, of_program
from tests.messages import raises

OF_DATA = [
    OSError, EOFError, ValueError, UnicodeDecodeError("utf-8", b"", 0, 1, ""), json.JSONDecodeError("", "", 0),
    KeyError, IndexError, ZeroDivisionError, FloatingPointError, OverflowError, SyntaxError, TypeError, RuntimeError,
    RecursionError, NotImplementedError, AssertionError, zlib.error, struct.error, binascii.Error,
    np.linalg.LinAlgError, Exception, UnidentifiedImageError, Image.DecompressionBombError, SampleReadError("damaged"),
]  # fmt: skip
"""What decoders, and checks of maps, raise for bad data."""

OF_PROGRAM = [NameError, UnboundLocalError, AttributeError, ImportError, ModuleNotFoundError, MemoryError]


def made(error: Any) -> BaseException:
    return error("") if isinstance(error, type) else error


@pytest.mark.parametrize("error", OF_DATA)
def test_what_data_cause_is_a_samples_fault(error: Any) -> None:
    assert not of_program(made(error))
    assert of_program(made(error), types=(GeneratorExit,))
    assert not of_program(made(error), types=(GeneratorExit, type(made(error))))


@pytest.mark.parametrize("error", OF_PROGRAM)
def test_what_no_data_cause_is_of_the_program_unless_it_is_listed(error: Any) -> None:
    assert of_program(made(error))
    assert not of_program(made(error), types=(error,))


def test_arrays_that_are_too_large_and_names_that_are_misspelt_are_of_the_program() -> None:
    library: Any = np
    nothing: Any = None
    for each in (lambda: np.empty(1 << 50, np.uint8), lambda: nothing.shape, lambda: library.flaot32):
        with pytest.raises((MemoryError, AttributeError)) as caught:
            each()
        assert of_program(caught.value)


def test_types_are_classes_of_exceptions() -> None:
    assert checked_types(OSError) == checked_types([OSError]) == (OSError,)
    assert checked_types((KeyError, SystemExit)) == (KeyError, SystemExit)
    for wrong in (ValueError("x"), (OSError, int)):
        with raises(ArgumentTypeError):
            checked_types(wrong)
    with raises(ArgumentError):
        checked_types(())
