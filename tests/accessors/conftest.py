"""What the tests of accessors are given."""

import pytest

from .image_helpers import save


@pytest.fixture
def picture(tmp_path):
    """The path of a picture of 12 × 20 pixels."""
    return save(tmp_path / "picture.png")
