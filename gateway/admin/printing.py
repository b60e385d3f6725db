"""Prints the output of commands: lines and tables for people, one JSON document for programs."""

from __future__ import annotations

import codecs
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgspec

from seqgate.gateway.admin.tables import Block, Column, Table

NARROWEST: Final = 8
"""Characters that a column of names keeps on a narrow terminal."""
AROUND: Final = 3
"""The number of spaces around a column of a table."""


def print_json(value: Any) -> None:
    """Print a result as one JSON document; in ASCII where the output is not UTF-8, which JSON must be."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if not text.isascii() and codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8":
        import json  # noqa: PLC0415 - for such outputs only

        text = json.dumps(json.loads(text), indent=2)
    sys.stdout.write(f"{text}\n")


def _takes(text: str) -> bool:
    """Return whether the encoding of standard output has all letters of a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their headings. On a terminal that is too narrow, names wrap; elsewhere a row is
    always one line. No column is left out: where the terminal is too narrow for the numbers and a few letters
    of the names, the table is wider.
    """
    rows = list(rows)
    if sys.stdout.isatty():
        _print_on_terminal(columns, rows)
    else:
        print_lines(*_lines(columns, rows))


def _lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table without a terminal, as rich draws it, which scripts need not import."""
    headings = [column.heading.replace("-\n", "").replace("\n", " ") for column in columns]
    widths = [max(map(_width, cells)) for cells in zip(headings, *rows, strict=True)]

    def drawn(row: Sequence[str]) -> Iterator[str]:
        for texts in zip_longest(*(cell.split("\n") for cell in row), fillvalue=""):
            cells = []
            for text, width, column in zip(texts, widths, columns, strict=True):
                blanks = " " * (width - _width(text))
                cells.append(blanks + text if column.is_number else text + blanks)
            yield (" " * AROUND).join(cells).rstrip()

    yield from drawn(headings)
    yield ("─" if _takes("─") else "-") * (sum(widths) + AROUND * (len(widths) - 1))
    for row in rows:
        yield from drawn(row)


def _width(cell: str) -> int:
    """Return the cells of a terminal that the longest line of a text takes."""
    if cell.isascii():
        return max(map(len, cell.split("\n")))
    from rich.cells import cell_len  # noqa: PLC0415 - slow to import

    return max(map(cell_len, cell.split("\n")))


def _print_on_terminal(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    # Import rich here, because the import is slow and only tables on a terminal need rich.
    import rich.table  # noqa: PLC0415
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    drawn = rich.table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    needed = 0
    for column, *cells in zip(columns, *rows, strict=True):
        longest = max(map(_width, (column.heading, *cells)))
        narrowest = longest if column.is_number else min(NARROWEST, longest)
        needed += narrowest + AROUND
        drawn.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            overflow="fold",
            no_wrap=column.is_number,
            min_width=narrowest,
        )
    for row in rows:
        drawn.add_row(*row)
    width, height = shutil.get_terminal_size()
    # rich believes the width of a dumb terminal only beside a height
    Console(highlight=False, markup=False, soft_wrap=False, width=max(width, needed), height=height).print(
        drawn
    )


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
