"""The page of an explanation in a browser: it has the text as text, whatever the names of samples and maps contain."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from batchup_ng.explanation import Explanation
from tests.explanation.world import World

MARKUP = "</pre><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">&amp;'\""

pytestmark = [
    pytest.mark.in_turn,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed"),
]


def shown(path: Path, profile: Path) -> str:
    """Return the document that Chromium makes of a page, after its scripts have run."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
               "--disable-background-networking", "--disable-component-update"]  # fmt: skip
    command = ["chromium", *options, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def test_markup_in_names_is_shown_and_does_not_run(tmp_path: Path) -> None:
    world = World(slow_of=30, slow=0.2, read_wait=0.002, map_cpu=0.001)
    why = Explanation(world.evidence(), lambda epoch, number: MARKUP)
    assert why.slowest[0]["samples"] == MARKUP
    why.to_html(tmp_path / "page.html")
    document = shown(tmp_path / "page.html", tmp_path / "profile")
    assert "<title>What the loop waits for</title>" in document
    assert set(re.findall(r"<(\w+)", document)) == {
        "html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tbody", "tr", "th", "td", "div", "pre"
    }  # fmt: skip
    (text,) = re.findall(r"<pre>(.*)</pre>", document, re.DOTALL)
    assert html.unescape(text) == str(why)
    assert document.count("<tr>") == 1 + len(why.stages)
