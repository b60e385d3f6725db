from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.telemetry.payload import MAX_FIELDS, FieldBudget, MalformedMessage, nested
from tests.gateway.telemetry.support import field, varint


def found(message: bytes, number: int, most: int = MAX_FIELDS) -> list[bytes]:
    return [bytes(content) for content in nested(memoryview(message), number, FieldBudget(most))]


def test_fields_of_other_numbers_and_kinds_are_passed() -> None:
    message = b"".join(
        (
            varint(2 << 3) + varint(2**64 - 1),
            varint(2 << 3 | 1) + bytes(8),
            varint(2 << 3 | 5) + bytes(4),
            field(1, b"other"),
            field(2, b"first"),
            field(2**29 - 1, b""),
            field(2, b""),
        )
    )
    assert found(message, 2) == [b"first", b""]


@pytest.mark.parametrize(
    "message",
    [
        b"\x12",
        b"\x12\x05abcd",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80",
        b"\x10\x80",
        b"\xff" * 11 + b"\x01",
        b"\x11" + bytes(7),
        b"\x15" + bytes(3),
        b"\x13",
        b"\x14",
        b"\x16",
        b"\x17",
    ],
)
def test_malformed_bytes_are_refused(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        found(field(2, b"before") + message, 2)


def test_the_budget_counts_every_field() -> None:
    message = field(1, b"") * 3 + field(2, b"x")
    assert found(message, 2, most=4) == [b"x"]
    with pytest.raises(MalformedMessage, match="too many fields"):
        found(message, 2, most=3)


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.binary(max_size=300)), max_size=10))
def test_what_is_written_is_found(fields: list[tuple[int, bytes]]) -> None:
    message = b"".join(field(number, content) for number, content in fields)
    for wanted, _ in fields:
        assert found(message, wanted) == [content for number, content in fields if number == wanted]


@given(st.binary(max_size=200), st.integers(1, 8))
def test_any_bytes_are_read_or_refused(message: bytes, number: int) -> None:
    try:
        contents = found(message, number)
    except MalformedMessage:
        return
    assert sum(map(len, contents)) <= len(message)
