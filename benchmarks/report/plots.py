"""The plot of a study whose parts differ in batch size: an SVG file that depends only on the figures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from statistics import median

from benchmarks.plan import Result, Study
from benchmarks.records import Reading
from benchmarks.report.columns import middle

STYLES = ("o-", "s--", "^-.", "D:", "v-", "X--", "P-.", "h:")
BATCH_BYTES = Reading("bytes", per="batches")


def curves(study: Study, results: Sequence[Result]) -> str:
    """Return the median of each variant by the bytes of a batch, as the text of an SVG file."""
    import matplotlib
    from matplotlib.figure import Figure

    points: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        for name, outcome in result.told.items():
            size = median(map(BATCH_BYTES, outcome.rounds))
            points.setdefault(name, []).append((size, middle(outcome, result.part.reading)))
    # The file ignores the user's settings and contains no date. Text stays text.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.hashsalt": study.name, "svg.fonttype": "none"})
        figure = Figure(figsize=(9.6, 5.4), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log", title=study.title, xlabel="bytes a batch")
        axes.set_ylabel(results[0].part.unit)
        for place, (name, curve) in enumerate(points.items()):
            axes.plot(*zip(*curve, strict=True), STYLES[place % len(STYLES)], label=name)
        axes.grid(which="major", linewidth=0.5)
        figure.legend(loc="outside right upper")
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": study.title})
    return file.getvalue()
