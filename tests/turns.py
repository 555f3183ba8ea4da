"""The tests marked ``in_turn``, of which a fifth runs each day."""

from __future__ import annotations

import pytest

TURNS = 5
"""In so many turns all tests marked ``in_turn`` have run."""

IN_TURN = pytest.StashKey[set[tuple[str, str]]]()
"""In the stash of a configuration: all of these tests, as :func:`named`."""


def named(item: pytest.Item) -> tuple[str, str]:
    """Return the file and the function of a test."""
    return item.nodeid.partition("::")[0], item.name.partition("[")[0]
