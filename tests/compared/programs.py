"""The programs of docs/compared, and the tables of their lengths."""

from __future__ import annotations

from pathlib import Path

from tests.compared.counts import count_lines, names_by_package

PROGRAMS = Path(__file__).parents[2] / "docs" / "compared"

TASKS = {
    "folder": "a folder of images, augmented and validated",
    "columns": "a table of images, labels and numbers",
    "large_file": "a file larger than memory",
    "resume": "resumable training on several ranks",
    "lengths": "sequences of different lengths",
    "boxes": "images with boxes",
}
LIBRARIES = {
    "batchup_ng": "batchup_ng", "torch": "torch", "tf_data": "tf.data", "hugging_face": "Hugging Face",
    "grain": "Grain",
}  # fmt: skip
PACKAGES = {"batchup_ng", "torch", "torchvision", "tensorflow", "keras", "datasets", "transformers", "grain"}
"""Packages whose names are those of a library that makes batches."""


def code_of(program: str) -> str:
    """Return the code of a program, `task_library`."""
    return (PROGRAMS / f"{program}.py").read_text(encoding="utf-8")


def names_of(program: str) -> tuple[int, int]:
    """Return how many names of the library a program uses, and how many names of all packages."""
    by_package = names_by_package(code_of(program))
    own = sum(len(names) for package, names in by_package.items() if package in PACKAGES)
    return own, sum(map(len, by_package.values()))


def table_of_lines() -> str:
    """Return the table of the lines of all programs in Markdown. The fewest of a row are bold."""
    return _table([[count_lines(code_of(program)) for program in row] for row in _rows()])


def table_of_names(place: int) -> str:
    """Return the table of the names of the libraries (`place` 0), or of all packages (1). The fewest are bold."""
    return _table([[names_of(program)[place] for program in row] for row in _rows()])


def _rows() -> list[list[str]]:
    return [[f"{task}_{library}" for library in LIBRARIES] for task in TASKS]


def _table(counts: list[list[int]]) -> str:
    rows = [["program", *LIBRARIES.values()], ["---"] * (len(LIBRARIES) + 1)]
    for title, row in zip(TASKS.values(), counts, strict=True):
        link = f"[{title}](#{title.replace(' ', '-').replace(',', '')})"
        rows.append([link, *(f"**{count}**" if count == min(row) else str(count) for count in row)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def tables() -> list[str]:
    """Return the tables in the order of the page."""
    return [table_of_lines(), table_of_names(1), table_of_names(0)]


if __name__ == "__main__":
    print("\n".join(tables()))
