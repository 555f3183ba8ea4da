"""Each page of the documentation can be reached, from the sidebar, from the first page and from ``llms.txt``."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
INDICES = ("index", "api/index")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([\w./-]+\.md)?(?:#([\w-]+))?\)")

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="not run in a checkout")


def pages() -> set[str]:
    """Return the pages, without those parts that other pages include."""
    found = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    return {page for page in found if not page.startswith("figures/")}


def text_of(page: str) -> str:
    """Return the Markdown of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", (DOCS / f"{page}.md").read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page, as Markdown on GitHub and MyST make them."""
    headings = re.findall(r"^#{1,3} (.*)$", text_of(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    named = re.findall(r"^\((.*)\)=$", text_of(page), re.MULTILINE)
    return {*named, *plain, *(f"{each}-{n}" for each in plain for n in range(1, plain.count(each)))}


def test_each_page_is_once_in_the_sidebar() -> None:
    listed = []
    for index in INDICES:
        folder = index.rpartition("/")[0]
        for tree in TOCTREE.findall((DOCS / f"{index}.md").read_text(encoding="utf-8")):
            names = [line for line in tree.splitlines() if line and line[0] != ":"]
            listed += [f"{folder}/{name}" if folder else name for name in names]
    assert sorted(listed) == sorted(pages() - {"index"})


def test_each_page_is_linked_from_the_first_page_or_the_reference() -> None:
    linked = {target.removesuffix(".md") for target, _ in LINK.findall(text_of("index")) if target}
    linked |= {f"api/{target.removesuffix('.md')}" for target, _ in LINK.findall(text_of("api/index")) if target}
    assert pages() - linked - {"index"} == set()


def test_links_lead_to_pages_and_headings() -> None:
    wrong = []
    for page in pages():
        for target, anchor in LINK.findall(text_of(page)):
            path = (DOCS / page).parent / target if target else DOCS / f"{page}.md"
            if not path.exists():
                wrong.append(f"{page}: {target}")
            elif anchor and DOCS in path.resolve().parents:
                own = path.resolve().relative_to(DOCS).with_suffix("").as_posix()
                if anchor not in anchors(own):
                    wrong.append(f"{page}: {target}#{anchor}")
    assert wrong == []


def test_llms_txt_is_that_of_the_first_page() -> None:
    text = runpy.run_path(str(DOCS / "llms_txt.py"))["text"]()
    assert (DOCS / "llms.txt").read_text(encoding="utf-8") == text, "run python docs/llms_txt.py"
    assert re.match(r"# batchup_ng\n\n> \S.*\n\n## ", text)
    linked = re.findall(r"^- \[.+\]\(_sources/([\w/]+)\.md\.txt\): \S", text, re.MULTILINE)
    assert len(linked) == len(set(linked)) == text.count("\n- ")
    assert set(linked) == {page for page in pages() if not page.startswith("api/")} - {"index"} | {"api/index"}
