"""The pool of Ray actors where Ray is not installed."""

from __future__ import annotations

import sys

import pytest

import batchup_ng as bu
from tests.messages import raises


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with raises(ImportError):
        bu.WorkerRayPool()
