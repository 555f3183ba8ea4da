"""Side-by-side measurements of loaders: ``python -m benchmarks STUDY...``.

    __main__.py   the command line
    studies.py    the comparisons, built from plan.py
    harness.py    parent side: rounds, waves               peer_process.py  parent's end of one process group
    child.py      process side: runs a turn on request     trials.py        kinds of turns: epochs, a start, ...
    processes.py  memory, CPU time of a process tree       records.py       measured figures
    peers/        one file per library                     workloads/       one file per kind of data
    report/       tables, Markdown, JSON, a plot           formats/         files of the workload ``storage``

The parent never imports a measured library.
"""
