"""Tables come from the rows; numbers, times and names are shown for people."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import pytest

from seqgate.gateway.admin.tables import UNKNOWN, Column, count, counted, duration, moment, shown, table


@pytest.mark.parametrize(
    ("length_ms", "shown"),
    [
        (0, "0.0 s"),
        (400, "0.4 s"),
        (9_999, "10.0 s"),
        (12_345, "12 s"),
        (60_000, "1 min"),
        (725_000, "12 min 5 s"),
        (3_600_000, "1 h"),
        (7_260_000, "2 h 1 min"),
        (90_000_000, "1 d 1 h"),
        (864_000_000, "10 d"),
    ],
)
def test_duration(length_ms: int, shown: str) -> None:
    assert duration(length_ms) == shown


def test_counts() -> None:
    assert (count(None), count(0), count(1234567)) == ("?", "0", "1,234,567")
    assert (counted(1, "block"), counted(0, "block")) == ("1 block", "0 blocks")
    assert counted(2_000, "batch", "batches") == "2,000 batches"


def test_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert moment(-1) == "-"
        assert moment(1_700_000_000_000) == "2023-11-14 17:13:20"
        assert moment(1_700_000_000_000_000) == "1700000000000000", "a year above 9999"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("billing-é-注文", "billing-é-注文"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines", "two\\nlines"),
        ("\u202edrow", "\\u202edrow"),
        ("a" * 9, "aaaa…"),
        ("aaaaa", "aaaaa"),
    ],
)
def test_texts_of_clients_are_harmless(text: str, expected: str) -> None:
    assert shown(text, 5 if text.startswith("aa") else None) == expected


class Part(msgspec.Struct, frozen=True):
    """A part of a row."""

    held: Annotated[int | None, Column("held", count)]


class Row(msgspec.Struct, frozen=True):
    """A row with all kinds of columns."""

    name: Annotated[str, Column("name")]
    secret: str
    age_ms: Annotated[int | None, Column("age", duration)]
    left: Annotated[int | None, Column("left", count, UNKNOWN)]
    part: Part | None

    @property
    def note(self) -> Annotated[str, Column("note")]:
        """What is made of a field without a column."""
        return self.secret.upper()


def test_rows_of_a_table_come_from_the_columns_of_their_fields() -> None:
    rows = [Row("a\x1b", "x", 1_000, 1_234, Part(None)), Row("b", "y", None, None, None)]
    columns, cells = table(Row, rows)
    assert [(column.heading, column.is_number) for column in columns] == [
        ("name", False),
        ("age", True),
        ("left", True),
        ("note", False),
    ]
    assert cells == [["a\\x1b", "1.0 s", "1,234", "X"], ["b", "-", "?", "Y"]]


def test_a_table_has_the_named_fields_in_their_order() -> None:
    rows = [Row("a", "x", 1_000, 1_234, Part(7)), Row("b", "y", None, None, None)]
    columns, cells = table(Row, rows, "part.held name")
    assert [column.heading for column in columns] == ["held", "name"]
    assert cells == [["7", "a"], ["-", "b"]]
