"""Every file in `examples/` runs as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.short_folder import short_folder

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

# What each example imports beyond the core, and the last line that it must print.
NEEDS = {
    "after_torch": ["torch"],
    "before_torch": ["torch"],
    "contrastive": ["cv2", "torch"],
    "decode_once": ["skimage"],
    "detection": ["cv2", "torch"],
    "distributed": ["torch"],
    "folder_of_pictures": ["skimage", "torch"],
    "hugging_face_trainer": ["accelerate", "torch", "transformers"],
    "jax_checkpoint": ["jax", "orbax"],
    "jax_digits": ["jax"],
    "keras_digits": ["keras", "torch"],
    "lightning_resume": ["pytorch_lightning", "torch"],
    "ray_train": ["pandas", "pyarrow", "ray", "torch"],
    "segmentation": ["cv2", "torch"],
    "semi_supervised": ["cv2", "torch"],
    "table_of_pictures": ["keras", "narwhals", "pandas", "skimage", "torch"],
    "text_classification": ["torch"],
    "tf_data": ["tensorflow"],
    "torch_checkpoint": ["torch"],
    "torch_ddp": ["torch"],
    "torch_digits": ["torch"],
}
LAST_LINE = {
    "after_torch": r"epoch 7: mean loss 0\.0\d+",
    "before_torch": r"epoch 7: mean loss 0\.0\d+",
    "class_balancing": r"rarest to commonest class: 1 to 1\.[0-3]\d",
    "contrastive": r"accuracy by ten labelled digits 0\.5\d\d untrained, 0\.(6[4-9]|[7-9]\d)\d trained",
    "decode_once": r"accuracy on 280 other crops: (0\.[89]\d\d|1\.000)",
    "detection": r"of \d+ objects (0\.9\d\d|1\.000) found, of \d+ boxes (0\.9\d\d|1\.000) right",
    "digits": r"test accuracy (0\.9[5-9]\d|1\.000) after 20 epochs",
    "distributed": r"1797 samples in the epoch, each seen exactly once: True",
    "folder_of_pictures": r"test accuracy (0\.9\d\d|1\.000) after 8 epochs in torch",
    "hugging_face_trainer": r"test accuracy 0\.9\d\d; weights equal to those of the unbroken run: True",
    "images_of_different_sizes": r"60 images, after the cut all of shape \(48, 48, 3\): True",
    "jax_checkpoint": r"weights equal to those of the unbroken run: True",
    "jax_digits": r"test accuracy (0\.9[5-9]\d|1\.000) after 10 epochs in JAX .+",
    "keras_digits": r"test accuracy (0\.9[5-9]\d|1\.000) after 10 epochs of fit in Keras .+",
    "lightning_resume": r"weights equal to those of the unbroken run: True",
    "predict": r"1797 predictions, (0\.9[5-9]\d|1\.000) of them right",
    "ray_train": r"8 epochs, each sample seen exactly once in each: True",
    "resume": r"killed [1-9]\d* times \(.*\); weights equal, bit for bit, to those of an unbroken run: True",
    "segmentation": r"mean IoU 0\.(8[5-9]|9\d)\d on 100 images",
    "semi_supervised": r"test accuracy 0\.(7\d|8[0-8])\d from 40 labelled digits, 0\.9\d\d with 1308 others",
    "table_of_pictures": r"(0\.9\d\d|1\.000) of the tags right after 6 epochs in Keras on torch",
    "text_classification": r"test accuracy (0\.9[5-9]\d|1\.000) after 3 epochs, 25 words",
    "tf_data": r"test accuracy (0\.9[5-9]\d|1\.000) after 12 epochs in TensorFlow .+",
    "torch_checkpoint": r"weights equal to those of the unbroken run: True",
    "torch_ddp": r"test loss of each process: (0\.\d+), \1; accuracy 0\.9\d\d",
    "torch_digits": r"test accuracy (0\.9[5-9]\d|1\.000) after 10 epochs in torch .+",
    "train_and_validate": r"stopped after \d+ epochs; threads left: 0",
}

# Folders of settings, logs or compiled code that Keras, Ray and torch make, of which we know nothing.
OTHERS_LEAVE = ("keras", "ray", "torch")


def run_example(path: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an example away from the checkout, with `folder` as its home and place for temporary files."""
    environment = dict(os.environ, TMPDIR=str(folder), KERAS_HOME=str(folder / "keras"), PYTHONWARNINGS="default")
    environment.pop("KERAS_BACKEND", None)
    environment.update(variables)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path.parents[1]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(path)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=7000, check=False
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder whose name is short enough for the sockets of PyTorch and Ray in it."""
    with short_folder() as made:
        yield made


@pytest.mark.thorough
@pytest.mark.in_turn
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_its_result(path: Path, folder: Path) -> None:
    absent = [library for library in NEEDS.get(path.stem, []) if find_spec(library) is None]
    if absent:
        pytest.skip(f"examples/{path.name} needs {', '.join(absent)}; install the extra 'examples'")
    done = run_example(path, folder)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(LAST_LINE[path.stem], done.stdout.strip().splitlines()[-1]), done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    assert [left.name for left in folder.iterdir() if not left.name.startswith(OTHERS_LEAVE)] == []


@pytest.mark.thorough
@pytest.mark.in_turn
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_the_example_of_keras_on_other_backends(backend: str, folder: Path) -> None:
    if absent := [library for library in ("keras", backend) if find_spec(library) is None]:
        pytest.skip(f"{', '.join(absent)} not installed")
    (path,) = (path for path in EXAMPLES if path.stem == "keras_digits")
    done = run_example(path, folder, KERAS_BACKEND=backend)
    last = done.stdout.strip().splitlines()[-1:]
    assert last, done.stderr
    assert re.fullmatch(LAST_LINE["keras_digits"].replace(".+", f".+ on {backend}"), last[0]), done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 81
    assert re.fullmatch(r'"""[A-Z].+[^"]\."""', lines[0]), "the first line is one sentence"


def test_every_example_is_known_here() -> None:
    assert sorted(LAST_LINE) == [path.stem for path in EXAMPLES]


def test_no_example_hides_a_library() -> None:
    assert [path.stem for path in EXAMPLES if path.stem in sys.stdlib_module_names or path.stem in NEEDS.values()] == []
    assert not {path.stem for path in EXAMPLES} & {library for libraries in NEEDS.values() for library in libraries}
