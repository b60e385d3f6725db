"""Prints the output of commands: lines and tables for people, one JSON document for programs."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from seqgate.gateway.admin.tables import Block, Column, Table

NARROWEST: Final = 8
"""Characters that a column of names keeps on a narrow terminal."""
AROUND: Final = 3
"""The number of spaces around a column of a table."""


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
    import rich.table  # noqa: PLC0415
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    wraps = sys.stdout.isatty()
    drawn = rich.table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    rows = list(rows)
    needed = 0
    for position, column in enumerate(columns):
        heading = column.heading if wraps else column.heading.replace("-\n", "").replace("\n", " ")
        narrowest = _narrowest(heading, [row[position] for row in rows], wraps=wraps and not column.is_number)
        needed += narrowest + AROUND
        drawn.add_column(
            heading,
            justify="right" if column.is_number else "left",
            overflow="fold",
            no_wrap=column.is_number or not wraps,
            min_width=narrowest,
        )
    for row in rows:
        drawn.add_row(*row)
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
    console.print(drawn)
    print_lines(*(line.rstrip() for line in written.getvalue().splitlines()))


def _narrowest(heading: str, cells: Sequence[str], *, wraps: bool) -> int:
    """Return the least width of a column: a few letters where it wraps, otherwise that of its longest line."""
    from rich.cells import cell_len  # noqa: PLC0415 - slow to import

    longest = max(cell_len(line) for cell in (heading, *cells) for line in cell.split("\n"))
    return min(NARROWEST, longest) if wraps else longest


def print_blocks(blocks: Iterable[Block]) -> None:
    """Print lines and tables in their order."""
    for block in blocks:
        if isinstance(block, Table):
            print_table(*block)
        else:
            print_lines(block)


def print_lines(*lines: str) -> None:
    """Print sentences below a table."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
