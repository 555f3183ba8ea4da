"""No file, however broken, does more than fail: each in a process, which would crash, hang or grow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import features

from batchup_ng.accessors.image_decoding import IMAGE_FORMATS, simplejpeg

WAYS = {"pillow": {"decoder": "pillow"}}
if simplejpeg() is not None:
    WAYS |= {"simplejpeg": {"decoder": "simplejpeg"}, "fast": {"resize": "fast", "crop": "random", "truncated": "fill"}}
NEEDS = {"WEBP": "webp", "JPEG2000": "jpg_2000", "AVIF": "avif"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", IMAGE_FORMATS)
def test_mutated_files_are_decoded_or_refused(kind, way, in_full):
    if kind in NEEDS and not features.check(NEEDS[kind]):
        pytest.skip(f"this Pillow has no {kind}")
    if way != "pillow" and kind != "JPEG" and not in_full:
        pytest.skip("Pillow decodes it, as in the other")
    command = [sys.executable, str(Path(__file__).with_name("fuzz_images.py")), kind, repr(WAYS[way]), "1"]
    count = 10_000 if in_full else 100
    ran = subprocess.run(
        [*command, str(count)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True,
        text=True, check=False, timeout=3000,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    assert found["decoded"] + found["refused"] == count
    assert found["refused"] > 0
    assert found["grown"] < 200, "MB; a million pixels of 16 bytes are 16 MB"
