"""No file, however broken, does more than fail: in a process that would crash, hang or grow."""

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


@pytest.mark.in_turn
@pytest.mark.parametrize("way", WAYS)
def test_mutated_files_are_decoded_or_refused(way, in_full):
    kinds = [kind for kind in IMAGE_FORMATS if kind not in NEEDS or features.check(NEEDS[kind])]
    if way != "pillow" and not in_full:
        kinds = ["JPEG"]  # Pillow decodes the others, whatever the way
    count = 10_000 if in_full else 40
    command = [sys.executable, str(Path(__file__).with_name("fuzz_images.py")), ",".join(kinds), repr(WAYS[way]), "1"]
    ran = subprocess.run(
        [*command, str(count)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True,
        text=True, check=False, timeout=6000,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    assert list(found) == kinds
    for kind, of_kind in found.items():
        assert of_kind["decoded"] + of_kind["refused"] == count, kind
        assert of_kind["refused"] > 0, kind
        assert of_kind["grown"] < 200, f"MB of {kind}; a million pixels of 16 bytes are 16 MB"
