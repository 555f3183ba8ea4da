"""The documentation builds without a warning, names everything that is public, and its code runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import batchup_ng
from batchup_ng import testing
from tests.short_folder import short_folder

DOCS = Path(__file__).parents[1] / "docs"
RUN_PAGES = (
    "quickstart", "concepts", "samplers", "mixtures", "pools", "slow_loader", "metrics", "what_a_worker_sees",
    "past_one_machine", "reproducibility", "checkpoints", "faults", "bad_batch", "caching", "storage",
    "recipes_storage", "frameworks", "images", "augmentation", "looking", "statistics", "moving_from_batchup",
    "coming_from_torch", "coming_from_grain", "coming_from_tf_data", "coming_from_keras", "coming_from_webdataset",
    "coming_from_hugging_face", "coming_from_mosaicml", "coming_from_ffcv", "coming_from_dali", "coming_from_litdata",
    "coming_from_ray_data", "cheat_sheet",
    "task_classification", "task_detection", "task_segmentation", "task_tabular_images", "task_text",
    "language_models", "many_gpus", "slurm", "containers", "notebooks",
    "time_series", "task_contrastive", "task_semi_supervised",
)  # fmt: skip
NEEDS = {
    "coming_from_torch": ("torch",), "augmentation": ("cv2",), "looking": ("cv2", "matplotlib"),
    "past_one_machine": ("ray",), "coming_from_hugging_face": ("pyarrow",), "storage": ("fsspec",),
    "recipes_storage": ("h5py", "lmdb", "msgpack", "pyarrow"),
    "cheat_sheet": ("jax", "keras", "matplotlib", "torch"),
    "task_classification": ("torch",), "task_tabular_images": ("torch",),
    "many_gpus": ("h5py",), "notebooks": ("matplotlib",), "language_models": ("torch", "transformers"),
    "task_text": ("tokenizers", "torch"), "task_contrastive": ("cv2", "torch"),
    "task_semi_supervised": ("cv2", "torch"), "task_detection": ("cv2", "torch"), "task_segmentation": ("cv2", "torch"),
}  # fmt: skip
LONGEST = 7000
"""Seconds after which a program is ended; the time limit of a test is shorter, and depends on its length."""
MARK = "-- next block --"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="not run in a checkout")


def blocks_of(page: str) -> list[tuple[str, str | None]]:
    """Return the Python blocks of a page, each with what the page says it prints (a ``text`` block right below)."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    blocks: list[tuple[str, str | None]] = []
    for number, fence in enumerate(fences):
        if fence[1] != "python":
            continue
        below = fences[number + 1] if number + 1 < len(fences) else None
        adjoins = below is not None and below[1] == "text" and not text[fence.end() : below.start()].strip()
        blocks.append((fence[2], below[2] if adjoins and below is not None else None))
    return blocks


@pytest.mark.thorough
@pytest.mark.in_turn
@pytest.mark.parametrize("page", RUN_PAGES)
def test_the_code_of_a_page_runs_and_prints_what_stands_there(page: str, tmp_path: Path) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module, reason=f"docs/{page}.md needs {module}, which is not installed")
    blocks = blocks_of(page)
    assert blocks, f"docs/{page}.md has no Python block"
    script = tmp_path / "page.py"
    script.write_text("".join(f"print({MARK!r})\n{code}" for code, _ in blocks), encoding="utf-8")
    # As a reader would run it: one script without a __main__ guard, away from the checkout.
    paths = [str(DOCS.parent), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)), PYTHONWARNINGS="default")
    # Keras, Ray and torch leave files in TMPDIR, whose name is short enough for the sockets of PyTorch and Ray in it.
    with short_folder() as folder:
        environment |= {"TMPDIR": str(folder), "KERAS_HOME": str(tmp_path / "keras"), "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, str(script)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    printed = done.stdout.split(f"{MARK}\n")[1:]
    for (code, expected), got in zip(blocks, printed, strict=True):
        assert expected is None or got == expected, f"docs/{page}.md, below this block:\n{code}"


def test_the_ten_lines_of_the_readme_run_as_they_stand() -> None:
    blocks = [fence[2] for fence in FENCE.finditer((DOCS.parent / "README.md").read_text(encoding="utf-8"))]
    code = next(block for block in blocks if "bu.Loader(" in block)
    assert len(code.strip().splitlines()) <= 12
    names: dict[str, Any] = {}
    exec(code, names)
    assert (names["x"].shape, names["x"].dtype) == ((1000 % 64, 64, 64, 3), np.float32)
    assert (names["loader"].epoch, len(names["y"])) == (10, 1000 % 64)


SHOWN = re.compile(r"^```\{code-block\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_what_a_page_shows_of_the_examples_stands_in_them() -> None:
    pages = [(DOCS / f"{page}.md").read_text(encoding="utf-8") for page in ("checkpoints", "past_one_machine")]
    examples = [path.read_text(encoding="utf-8") for path in sorted((DOCS.parent / "examples").glob("*.py"))]
    examples = ["\n".join(line.rstrip() for line in example.splitlines()) for example in examples]
    recipe, *shown = [code for page in pages for code in SHOWN.findall(page)]
    assert recipe.startswith("import os\nimport torch\n")
    assert len(shown) == 8
    for code in shown:
        forms = [textwrap.indent(code, " " * indent) for indent in (0, 4)]
        assert any(form in f"{example}\n" for form in forms for example in examples), code


def test_the_recipe_for_torch_goes_on_from_any_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))  # or torch makes a folder in /tmp for it
    torch = pytest.importorskip("torch", reason="the recipe is for torch, which is not installed")
    recipe: dict[str, Any] = {}
    exec(SHOWN.findall((DOCS / "checkpoints.md").read_text(encoding="utf-8"))[0], recipe)
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    source = batchup_ng.ArrayDataSource([x, (x[:, 0] > 0).astype(np.int64)])

    def trained(path: Path, stop: int | None = None) -> Any:
        """Return the weights of a training, that is stopped after so many saves if need be."""
        torch.manual_seed(1)
        net = torch.nn.Linear(4, 2)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        saves, save = iter(range(stop or 1000)), recipe["save"]

        def save_some(*what: Any) -> None:
            if next(saves, None) is None:
                raise KeyboardInterrupt
            save(*what)

        recipe["save"] = save_some
        try:
            recipe["train"](path, net, optimiser, source, 2, save_every=2)
        except KeyboardInterrupt:
            assert stop is not None
        finally:
            recipe["save"] = save
        return net.weight.detach().numpy()

    expected = trained(tmp_path / "whole.pt")
    for stop in (1, 3, 4, 6):
        trained(tmp_path / f"{stop}.pt", stop)
        np.testing.assert_array_equal(trained(tmp_path / f"{stop}.pt"), expected)
    assert not list(tmp_path.glob("*.unfinished"))


def test_every_page_with_python_is_run() -> None:
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if blocks_of(page)} == set(RUN_PAGES)


def test_the_pages_name_no_place_of_this_machine() -> None:
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in (".md", ".py", ".svg"):
            found = re.findall(r"(?<![\w.])/(?:home|root|tmp|work|opt|usr|Users)/\S*", path.read_text(encoding="utf-8"))
            assert not found, f"{path.relative_to(DOCS)} names {found}"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the documentation with every warning an error; return the names that it documents."""
    for library in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(library, reason=f"building the documentation needs {library}; install the extra 'docs'")
    html = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(html / "trees")]
    # Without the pages of source code, which take a third of the time.
    command += ["-D", "extensions=myst_parser,sphinx.ext.autodoc,sphinx.ext.napoleon"]
    done = subprocess.run(
        [*command, str(DOCS), str(html / "html")], capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return _read_inventory(html / "html" / "objects.inv")


def _read_inventory(path: Path) -> Any:
    from sphinx.util.inventory import InventoryFile

    loaded = InventoryFile.loads(path.read_bytes(), uri="")
    return getattr(loaded, "data", loaded)


def documented(inventory: Any) -> set[str]:
    """Return the full names of all that the reference has an entry for."""
    return {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "module",
    [
        batchup_ng, batchup_ng.data_source, batchup_ng.datasets, batchup_ng.sampling, batchup_ng.work_pool,
        batchup_ng.errors, testing,
    ],
    ids=lambda module: module.__name__,
)  # fmt: skip
def test_every_public_name_is_in_the_reference(module: ModuleType, inventory: Any) -> None:
    names = documented(inventory)
    missing = []
    classes = {name: own for name, own in vars(module).items() if isinstance(own, type) and name[0] != "_"}
    public = [name for name, own in classes.items() if own.__module__ == module.__name__]
    for name in getattr(module, "__all__", public):
        own = getattr(module, name)
        # Where a name stands elsewhere too, its one entry is enough; Sphinx knows it by where it was defined.
        known = {f"batchup_ng.{name}", f"{module.__name__}.{name}", f"{getattr(own, '__module__', None)}.{name}"}
        if not known & names:
            missing.append(name)
    assert missing == []
