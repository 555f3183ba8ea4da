"""The command line: ``python -m batchup_ng COMMAND``.

Exit codes: 0: done. 1: the command ran, but its result is below the promised one, or files cannot be read, a program
does not answer, or a library is missing. 2: a wrong option. 130: stopped by Ctrl-C. 141: the reader of the output is
gone, as after ``| head``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ._version import __version__
from .data_source.array import ArrayDataSource
from .datasets.files import named
from .datasets.from_file import from_file, is_stored
from .datasets.standard.sets import fetch, listing
from .demo.job import WANTED_ACCURACY, run_demo
from .display import counted, progress_bar
from .errors import ArgumentError, BatchError, BatchupError, DownloadError, LedgerError, SampleReadError, WriteError
from .formats import convert
from .inspection import pictures_page, source_at, stored_page
from .observe.top import NoAnswer, top
from .time_machine import who
from .work_pool.loader_pool import POOLS

TABLE_OPTIONS = ("image", "label", "separator")

PATH_HELP = "a folder of pictures, a CSV file, or a file of rows, or several such as shards"

COLUMNS_HELP = "of rows, the names of some columns (default: all)"

REMEDIES = {"overwrite=True": "--overwrite", "on_error='skip'": "--on-error skip"}
"""Terms of Python in error messages, and their command-line options."""


OUTPUT_CLOSED = 141
"""The exit code after a write to a pipe that nobody reads: that of a program ended by SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments`, by default the arguments of this process; return the exit code."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # Python writes what is left at its end
        return OUTPUT_CLOSED


def _run(arguments: Sequence[str] | None) -> int:
    """Run a command, and print its errors. Return the exit code."""
    parser = argparse.ArgumentParser("batchup_ng", description="Mini-batches for neural networks.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"batchup_ng {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser("demo", help="train a small network on handwritten digits", allow_abbrev=False)
    pools = ("auto", *POOLS)
    demo.add_argument("--pool", choices=pools, default="auto", help="who makes the batches (default: %(default)s)")
    demo.add_argument("--workers", type=int, metavar="N", help="how many workers (default: one a CPU)")
    demo.add_argument("--epochs", type=int, metavar="N", default=20, help="default: %(default)s")
    demo.add_argument("--seed", type=int, metavar="N", default=1, help="default: %(default)s")
    demo.set_defaults(run=_demo)
    inspect = commands.add_parser(
        "inspect", help="tell what a file, or a folder or table of pictures holds", allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )  # fmt: skip
    inspect.add_argument("path", metavar="PATH", nargs="+", help=PATH_HELP)
    inspect.add_argument("--columns", metavar="A,B", help=COLUMNS_HELP)
    inspect.add_argument("--batch-size", type=int, metavar="N", help="of rows, to time shuffling (default: 64)")
    inspect.add_argument("--world", type=int, metavar="N", help="tell what each of so many ranks reads of the rows")
    pictures = inspect.add_argument_group("options for pictures")
    _table_options(pictures)
    pictures.add_argument("--sample", type=int, metavar="N", help="headers to read (default: 1000)")
    pictures.add_argument("--decode", action="store_true", help="decode all pictures instead, to find those that fail")
    pictures.add_argument("--write", metavar="FILE", help="of those that fail, a CSV file that exclude= takes")
    inspect.set_defaults(run=_inspect)
    convert_ = commands.add_parser("convert", help="write pictures or rows into another file", allow_abbrev=False)
    convert_.add_argument("path", metavar="PATH", nargs="+", help=PATH_HELP)
    convert_.add_argument("target", metavar="TARGET", help="a new .npy, .h5, .zarr, .parquet, .lmdb, shards-{:05d}.tar")
    _table_options(convert_.add_argument_group("options for a table of pictures"))
    convert_.add_argument("--columns", metavar="A,B", help=COLUMNS_HELP)
    convert_.add_argument("--size", type=int, metavar="N", help="the most pixels of the shorter side (default: any)")
    convert_.add_argument("--quality", type=int, metavar="N", help="of JPEGs (default: 90 with --size, else as is)")
    convert_.add_argument("--compression", metavar="NAME", help="of HDF5 (gzip, lzf) or Parquet (default: snappy)")
    convert_.add_argument("--chunk-rows", type=int, metavar="N", help="of a chunk (default: 1 MB, of Parquet 8 MB)")
    convert_.add_argument("--shard-rows", type=int, metavar="N", help="the most samples of a tar file")
    convert_.add_argument("--shard-bytes", metavar="SIZE", help="the most bytes of one, as 500MB (default: 1 GB)")
    convert_.add_argument("--pool", choices=pools, default="auto", help="who reads and encodes (default: %(default)s)")
    convert_.add_argument("--workers", type=int, metavar="N", help="how many workers (default: one a CPU)")
    convert_.add_argument("--on-error", choices=("raise", "skip"), default="raise", help="default: %(default)s")
    convert_.add_argument("--overwrite", action="store_true", help="replace a target that is there")
    convert_.set_defaults(run=_convert)
    top_ = commands.add_parser("top", help="show what the loaders of a running program do", allow_abbrev=False)
    top_.add_argument("pid", metavar="PID", type=int, help="the number of its process")
    top_.add_argument("--once", action="store_true", help="print one table as plain text, instead of one every second")
    top_.add_argument(
        "--timeout", type=float, metavar="SECONDS", default=3.0, help="to wait for an answer (default: %(default)g)"
    )
    top_.set_defaults(run=_top)
    who_ = commands.add_parser("who", help="list the rows of a step of a run, by its ledger", allow_abbrev=False)
    who_.add_argument("ledger", metavar="LEDGER", help="the file of batchup_ng.ledger(loader, path)")
    who_.add_argument("--step", type=int, metavar="N", required=True, help="of all epochs, counted from 0")
    who_.add_argument("--rank", type=int, metavar="R", help="whose batch, if several ranks trained")
    who_.add_argument("--attempt", type=int, metavar="K", help="of a resumed run (default: the latest)")
    who_.add_argument("--source", metavar="MODULE:FUNCTION", help="returns the loader or its data, to name files")
    who_.set_defaults(run=_who)
    datasets = commands.add_parser("datasets", help="list standard data sets, or download some", allow_abbrev=False)
    datasets.add_argument("names", metavar="NAME", nargs="*", help="what to download (default: list all)")
    datasets.add_argument("--path", metavar="FOLDER", help="of all data sets (default: $BATCHUP_NG_DATA, or a cache)")
    datasets.set_defaults(run=_datasets)
    options = vars(parser.parse_args(arguments))
    run = options.pop("run")
    try:
        return int(run(**options))
    except (BatchError, DownloadError, LedgerError, NoAnswer, SampleReadError, WriteError, ImportError) as error:
        print(f"{parser.prog}: {_in_options(str(error))}", file=sys.stderr)
        return 1
    except BatchupError as error:
        made_by = {_convert: convert_, _datasets: datasets, _demo: demo, _inspect: inspect, _top: top_, _who: who_}
        made_by[run].error(_in_options(" ".join(str(error).split())))
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped", file=sys.stderr)
        return 130


def _demo(**options: Any) -> int:
    accuracy = run_demo(**options, say=functools.partial(print, flush=True), progress=progress_bar())
    reached = accuracy >= WANTED_ACCURACY
    verdict = "reached" if reached else "not reached; try more epochs"
    print(f"test accuracy {accuracy:.3f} ({WANTED_ACCURACY} {verdict})")
    return 0 if reached else 1


def _inspect(path: list[str], **options: Any) -> int:
    first, *others = path
    if is_stored(first):
        _refuse(options, ("batch_size", "columns", "world"), f"{first!r} is a file of rows")
        page, good = stored_page(path if others else first, **options)
    else:
        _refuse(options, (*TABLE_OPTIONS, "sample", "decode", "write"), f"{first!r} is not a file of rows")
        page, good = pictures_page(_only(path), **options, progress=progress_bar())
    print(page)
    return 0 if good else 1


def _convert(path: list[str], target: str, columns: str | None, **options: Any) -> int:
    missing = 0
    source: ArrayDataSource
    about_table = {name: options.pop(name) for name in TABLE_OPTIONS if name in options}
    first, *others = path
    if is_stored(first):
        _refuse(about_table, (), f"{first!r} is a file of rows")
        source = from_file(path if others else first, columns and columns.split(","))
        print(source)
    else:
        _refuse(["columns"] if columns else [], (), f"{first!r} is not a file of rows")
        source = files = source_at(_only(path), None, **about_table)
        print(files.report)
        missing = len(files.report.missing)
    done = convert(source, target, **options)
    print(f"{counted(done.rows, 'row')} written to {named(done.paths)}")
    if done.skipped:
        print(f"left out: {named(done.skipped)}")
    return 1 if done.skipped or missing else 0


def _top(**options: Any) -> int:
    top(**options, say=functools.partial(print, flush=True))
    return 0


def _who(ledger: str, **options: Any) -> int:
    try:
        page = who(ledger, **options)
    except OSError as error:
        raise LedgerError(f"the ledger cannot be read: {error}") from error
    print(page)
    return 0


def _datasets(names: list[str], path: str | None) -> int:
    if not names:
        print(listing(path))
    for name in names:
        print(f"{name}: {fetch(name, path)}", flush=True)
    return 0


def _only(path: list[str]) -> str:
    """Return the one folder or table of images for a command."""
    if len(path) > 1:
        raise ArgumentError(f"PATH must be one folder or table of pictures, not {len(path)}; take them one by one")
    return path[0]


def _refuse(given: Iterable[str], known: Iterable[str], why: str) -> None:
    """Raise an error about the first option that does not suit a path."""
    for name in given:
        if name not in known:
            raise ArgumentError(f"--{name.replace('_', '-')} must be left out, as {why}")


def _in_options(text: str) -> str:
    """Return the text of an error with remedies of the command line."""
    for of_python, option in REMEDIES.items():
        text = text.replace(of_python, option)
    return text


def _table_options(group: argparse._ArgumentGroup) -> None:
    """Add the options for the columns of a table; options that are not given are missing from the parsed ones."""
    about: dict[str, Any] = {"default": argparse.SUPPRESS}
    group.add_argument("--image", metavar="COLUMN", help="of the paths (default: path)", **about)
    group.add_argument("--label", metavar="COLUMN", help="of the labels (default: none)", **about)
    group.add_argument("--separator", metavar="TEXT", help="between several labels of a picture", **about)
