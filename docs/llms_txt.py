"""Writes ``llms.txt``, in the form of https://llmstxt.org: the pages that ``index.md`` links, each with one line.

    python docs/llms_txt.py

The links lead to the Markdown of the pages, which Sphinx puts beside the HTML.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
FILE = DOCS / "llms.txt"
VERBS = ("move from", "to understand", "to look up")
"""Heads of tables whose cells need them to be understood."""

LINK = re.compile(r"\[[^]]*\]\(([\w/]+)\.md(?:#[\w-]+)?\)")


def text() -> str:
    """Return what ``llms.txt`` has to be."""
    index = (DOCS / "index.md").read_text(encoding="utf-8").partition("```{toctree}")[0]
    paragraphs = index.split("\n\n")
    lines = [paragraphs[0], "", "> " + " ".join(" ".join(paragraphs[1:3]).split())]
    seen: set[str] = set()
    verb = ""
    for line in index.splitlines():
        if line.startswith("## "):
            lines += ["", line, ""]
        elif line.startswith("| "):
            wanted = line.split(" | ")[0].removeprefix("| ")
            if "](" not in line:
                verb = f"{wanted} " if wanted in VERBS else ""
            pages = [page for page in dict.fromkeys(LINK.findall(line)) if page not in seen]
            lines += [f"- [{_title(page)}](_sources/{page}.md.txt): {verb}{wanted}" for page in pages]
            seen |= set(pages)
    return "\n".join(lines) + "\n"


def _title(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
