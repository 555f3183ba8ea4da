"""An explanation as a page for a browser."""

from __future__ import annotations

import html
import os
from string import Template
from typing import Any

from ..replaced_file import replace_text
from .text import clean

WIDEST = 24.0
"""Width of the bar of the longest stage, in em."""

PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>What the loop waits for</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em }
td, th { text-align: right; padding: 0 .8em } td:first-child, th:first-child, td:last-child { text-align: left }
td div { background: #4878a8; height: .8em } pre { background: #8882; padding: 1em; white-space: pre-wrap }
</style></head><body>
<h1>The loop waited $share of the time</h1>
<p>$sentence (confidence: $confidence)</p>
<table><tr><th>stage</th><th>mean, ms</th><th>p50</th><th>p99</th><th></th></tr>
$rows
</table>
<pre>$text</pre>
</body></html>
""")


def write(told: Any, path: str | os.PathLike[str]) -> None:
    """Write the page of an :class:`~.explanation.Explanation` to a file."""
    longest = max(of["mean"] for of in told.stages.values())
    rows = []
    for name, of in told.stages.items():
        cells = [html.escape(clean(name)), *[f"{of[key]:.3g}" for key in ("mean", "p50", "p99")]]
        bar = f'<div style="width:{WIDEST * of["mean"] / longest:.1f}em"></div>'
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in [*cells, bar]) + "</tr>")
    filled = PAGE.substitute(
        share=f"{told.wait_share:.1%}", sentence=html.escape(clean(told.verdict.sentence)), rows="\n".join(rows),
        confidence=told.verdict.confidence, text=html.escape(str(told)),
    )  # fmt: skip
    replace_text(path, filled)
