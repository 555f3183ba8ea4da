"""Side-by-side measurements of loaders: ``python -m benchmarks STUDY...``.

    __main__.py   the command line
    studies.py    what is compared, in terms of plan.py
    harness.py    parent side: rounds, waves               peer_process.py  parent's end of one process group
    child.py      process side: does a turn on request     trials.py        what a turn is: epochs, a start, ...
    processes.py  memory, CPU time of a process tree       records.py       what was measured
    peers/        one file a library                       workloads/       one file a kind of data
    report/       tables, Markdown, JSON, a plot           formats/      files of the workload ``storage``

The parent never imports a library that is measured.
"""
