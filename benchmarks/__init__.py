"""Side-by-side measurements of loaders: ``python -m benchmarks STUDY``.

    __main__.py   the command line
    studies/      what is compared, how it is told: one file a study, registered there
    campaign.py   makes the data of each part of a study (data.py), then measures it
    harness.py    parent side: rounds, waves               peer_process.py  parent's end of one process group
    child.py      process side: does a turn on request
    trials/       what a turn is: an epoch, a start, ...   processes.py     memory, CPU time of a process tree
    peers/        one file a library, each variant behind one Protocol
    workloads.py  what a peer must deliver                 readers.py       how a peer's process reads it
    case.py, outcome.py  what was to be measured, what was
    report/       medians, ratios, Markdown, JSON

The parent never imports a library that is measured. A new peer is one file in ``peers/`` plus its line in the
registry there; so are a new trial and a new study in theirs.
"""
