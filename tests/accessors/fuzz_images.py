"""Decodes mutated pictures in a process of its own: ``python fuzz_images.py FORMATS OPTIONS SEED COUNT``.

Prints, as JSON and for each format, how many were decoded and refused, and by how many MB the peak of memory grew.
Ends with a traceback where anything else than ``SampleReadError`` is raised or a file takes longer than `SECONDS`, by a
signal where a decoder crashes; the format is the last one on standard error.
"""

import ast
import faulthandler
import io
import json
import resource
import sys
import warnings

import numpy as np
from PIL import Image

import batchup_ng as bu

SECONDS = 60
MAX_PIXELS = 10**6


def seeds(kind):
    """Small pictures of a format, in several of its forms."""
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((70, 50))
    exif = Image.Exif()
    exif[0x0112] = 6
    forms = {
        "JPEG": [{}, {"progressive": True}, {"exif": exif}, {"subsampling": 0, "restart_marker_rows": 1}],
        "TIFF": [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_deflate"}],
        "WEBP": [{}, {"lossless": True}],
    }
    made = []
    for options in forms.get(kind, [{}]):
        for mode in ("RGB", "L", "RGBA", "CMYK", "P", "I;16"):
            file = io.BytesIO()
            image = smooth.convert("L").convert("I").convert(mode) if mode == "I;16" else smooth.convert(mode)
            try:
                image.save(file, kind, **options)
            except (OSError, ValueError, KeyError):
                continue  # a mode that the format does not have
            made.append(file.getvalue())
    return made


def mutated(data, rng):
    """Return bytes with some of them changed, cut out, doubled or swapped."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        at, n = int(rng.integers(len(data))), int(rng.integers(1, 9))
        kind = rng.integers(6)
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[at : at + n] = rng.bytes(n)
        elif kind == 2:
            data[at : at + n] = bytes([int(rng.choice([0, 255]))]) * n
        elif kind == 3:
            data[at:at] = data[at : at + int(rng.integers(1, 99))]
        elif kind == 4:
            del data[at : at + n]
        elif kind == 5 and rng.random() < 0.2:
            del data[at:]
        if not data:
            return b""
    return bytes(data)


def decoded(kind, options, rng, count):
    """Decode so many mutated pictures of a format; return what became of them."""
    originals = seeds(kind)
    good = bu.ImageBytes(originals, 24, **options)[:]
    assert good.shape == (len(originals), 24, 24, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoded = refused = 0
    for _ in range(count):
        data = mutated(originals[rng.integers(len(originals))], rng)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            assert bu.ImageBytes([data], 24, **options)[0].shape == (24, 24, 3)
            decoded += 1
        except bu.SampleReadError:
            refused += 1
        faulthandler.cancel_dump_traceback_later()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    return {"decoded": decoded, "refused": refused, "grown": grown}


def main(kinds, options, seed, count):
    warnings.simplefilter("ignore")  # Pillow's, of broken notes
    options, found = {"max_pixels": MAX_PIXELS, **ast.literal_eval(options)}, {}
    for kind in kinds.split(","):
        print(kind, file=sys.stderr, flush=True)
        found[kind] = decoded(kind, options, np.random.default_rng(int(seed)), int(count))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
