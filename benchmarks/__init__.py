"""Side-by-side measurements of loaders: ``python -m benchmarks STUDY...``.

    __main__.py   the command line                         arguments.py     types of its arguments
    studies.py    the table of comparisons                 plan.py          what a comparison is
    harness.py    parent side: rounds, waves               peer_process.py  parent's end of one process group
    child.py      process side: runs a turn on request     trials.py        kinds of turns: epochs, a start, ...
    processes.py  memory, CPU time of a process tree       records.py       measured figures
    peers/        a line per variant of a loader           workloads/       a class per kind of data
    report/       tables, Markdown, JSON, plots            formats/         files of the workload ``storage``
    own.py        studies with their own command lines     conditions.py    the head of each figure
    everything.py all figures of the docs at once

The parent never imports a measured library.
"""
