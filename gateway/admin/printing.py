"""Prints the output of commands: tables for people, one JSON document for programs."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

UNKNOWN: Final = "?"
"""The text for an unknown count."""
NARROWEST: Final = 8
"""Characters that a column of names keeps on a narrow terminal."""
AROUND: Final = 3
"""The number of spaces around a column of a table."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds numbers, which are aligned to the right."""

    heading: str
    number: bool = False


def print_json(value: Any) -> None:
    """Print a result as one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their headings. On a terminal that is too narrow, names wrap; elsewhere a row is
    always one line.

    No column is left out: where the terminal is too narrow for the numbers and a few letters of the names,
    the table is wider.
    """
    # Import rich here, because the import is slow and only tables need rich.
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    wraps = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    rows = list(rows)
    needed = 0
    for position, column in enumerate(columns):
        heading = column.heading if wraps else column.heading.replace("-\n", "").replace("\n", " ")
        narrowest = _narrowest(heading, [row[position] for row in rows], wraps=wraps and not column.number)
        needed += narrowest + AROUND
        table.add_column(
            heading,
            justify="right" if column.number else "left",
            overflow="fold",
            no_wrap=column.number or not wraps,
            min_width=narrowest,
        )
    for row in rows:
        table.add_row(*row)
    written = io.StringIO()
    width, height = shutil.get_terminal_size()
    console = Console(
        highlight=False,
        markup=False,
        soft_wrap=False,
        file=sys.stdout if wraps else written,
        width=max(width, needed),
        height=height,  # rich believes the width of a dumb terminal only beside a height
    )
    console.print(table)
    print_lines(*(line.rstrip() for line in written.getvalue().splitlines()))


def _narrowest(heading: str, cells: Sequence[str], *, wraps: bool) -> int:
    """Return the least width of a column: a few letters where it wraps, otherwise that of its longest line."""
    from rich.cells import cell_len  # noqa: PLC0415 - slow to import

    longest = max(cell_len(line) for cell in (heading, *cells) for line in cell.split("\n"))
    return min(NARROWEST, longest) if wraps else longest


def print_lines(*lines: str) -> None:
    """Print sentences below a table."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def count(value: int | None) -> str:
    """Return a count with thousands separators; None is an unknown count."""
    return UNKNOWN if value is None else f"{value:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things: `1 block`, `1,200 blocks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def shown(text: str, longest: int | None = None) -> str:
    """Escape unprintable characters of a text that a client chose, and cut it to the `longest` length."""
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return safe if longest is None or len(safe) <= longest else safe[: longest - 1] + "…"


def moment(time_ms: int) -> str:
    """Return a time in the local time zone, to the second."""
    if time_ms < 0:
        return "-"
    return dt.datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(length_ms: int) -> str:
    """Return a length of time in its largest two units: `3 d 4 h`, `12 min 5 s`, `0.4 s`."""
    if length_ms < 10_000:
        return f"{length_ms / 1000:.1f} s"
    seconds = length_ms // 1000
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    for (size, unit), (smaller_size, smaller_unit) in itertools.pairwise(units):
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size} {unit} {rest} {smaller_unit}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"
