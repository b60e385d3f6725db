"""`--from` and `--since` of `seqgate consume` are parsed, and turned into the first offset of a partition."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.consume import Start, first_offset, parse_start


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Start("offset", 0)),
        ("end", Start("last", 0)),
        ("17", Start("offset", 17)),
        ("-5", Start("last", 5)),
        ("-0", Start("last", 0)),
    ],
)
def test_what_is_understood(text: str, expected: Start) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["", "start", "1.5", "--1", "1_000", "\u0665"])
def test_what_is_not(text: str) -> None:
    with pytest.raises(ValueError, match="is not a place to read from; write beginning, end, an offset"):
        parse_start(text)


@pytest.mark.parametrize(
    ("start", "at_time", "expected"),
    [
        (Start("offset", 0), None, 10),
        (Start("offset", 15), None, 15),
        (Start("offset", 99), None, 20),
        (Start("last", 3), None, 17),
        (Start("last", 50), None, 10),
        (Start("last", 0), None, 20),
        (Start("time", 5), 12, 12),
        (Start("time", 5), None, 20),
        (Start("time", 5), 3, 10),
    ],
)
def test_the_offset_lies_in_the_log(start: Start, at_time: int | None, expected: int) -> None:
    assert first_offset(start, 10, 20, at_time) == expected
