"""Side-by-side speed of loaders on three workloads: ``python -m benchmarks arrays|images|python``.

    __main__.py   the command line
    workloads.py  the data, made once by the parent        readers.py       how a peer's process reads them
    peers/        one file a library, each variant behind one Protocol
    harness.py    parent side: rounds, waves               peer_process.py  parent's end of one process group
    child.py      process side: runs epochs on request
    outcome.py    what was measured                        report.py        medians, ratios, Markdown, JSON

The parent never imports a library that is measured. A new peer is one file in ``peers/`` plus its line in the
registry there.
"""
