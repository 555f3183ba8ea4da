"""Augmentations of Albumentations and torchvision, one sample at a time, with random numbers of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing import assert_reproducible
from tests.augment.helpers import images

pytest.importorskip("torch", reason="torch is not installed")
