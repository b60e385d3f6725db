"""Reading from records' headers when they are due."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log.errors import LogError
from seqgate.log.format import records
from seqgate.log.format.record_batch import parse_header
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.state.delays import due_values, parse_due_ms
from tests.support.batches import CODECS, Batch, Record

LIMIT = 1 << 20


def values(batch: bytes, name: bytes = b"due") -> list[tuple[int, bytes | None]]:
    return due_values(parse_header(batch), memoryview(batch), name, LIMIT)


@pytest.mark.parametrize(
    ("value", "due_ms"),
    [
        (b"0", 0),
        (b"1700000000123", 1_700_000_000_123),
        (b"9" * 18, 10**18 - 1),
        (b"9" * 19, None),
        (b"", None),
        (None, None),
        (b"-5", None),
        (b"+5", None),
        (b" 5", None),
        (b"5.0", None),
        (b"1e9", None),
        ("٣".encode(), None),
        (b"\x00\x00\x01\x8b\xcf\xe5h{", None),
    ],
)
def test_what_a_value_tells(value: bytes | None, due_ms: int | None) -> None:
    assert parse_due_ms(value) == due_ms


@pytest.mark.parametrize("codec", CODECS)
def test_records_with_and_without_the_header(codec: str) -> None:
    batch = build_batch(
        [
            NewRecord(b"v"),
            NewRecord(b"v", key=b"due", headers=[("other", b"1"), ("due", b"5")]),
            NewRecord(b"the word due is here too", headers=[("Due", b"6"), ("due ", b"7")]),
            NewRecord(None, headers=[("due", None)]),
            NewRecord(b"v" * 300, headers=[("due", b"8"), ("x", None), ("due", b"9")]),
            NewRecord(b"v"),
        ],
        codec=codec,
    )
    assert values(batch) == [(1, b"5"), (3, None), (4, b"9")]


def test_a_batch_that_was_cleaned_has_its_own_deltas() -> None:
    records = [Record(headers=[(b"due", b"5")], offset_delta=delta) for delta in (2, 7)]
    assert values(Batch(records, last_offset_delta=9).encode()) == [(2, b"5"), (7, b"5")]


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2), (-1, 1)])
def test_deltas_that_do_not_fit_are_refused(deltas: tuple[int, int]) -> None:
    records = [Record(headers=[(b"due", b"5")], offset_delta=delta) for delta in deltas]
    with pytest.raises(LogError, match="delta"):
        values(Batch(records, last_offset_delta=1).encode())


@given(st.binary(max_size=60), st.integers(0, 4), st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_damage_is_refused_and_nothing_else(payload: bytes, codec: int, count: int) -> None:
    batch = Batch(payload=b"\x10" + payload + b"\x06due\x025", codec=codec, record_count=count).encode()
    try:
        found = values(batch)
    except LogError:
        return
    assert all(0 <= delta <= 4 for delta, _ in found)


def test_what_decompresses_to_too_much_is_refused() -> None:
    batch = build_batch([NewRecord(b"\0" * (LIMIT + 1), headers=[("due", b"5")])], codec="zstd")
    with pytest.raises(LogError):
        values(batch)


def test_more_headers_than_may_be_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_HEADERS", 10)
    ten, eleven = (Record(headers=[(b"due", b"5")] * count) for count in (10, 11))
    assert values(Batch([ten, ten]).encode()) == [(0, b"5"), (1, b"5")]
    with pytest.raises(LogError, match="first 2 records of the batch have 21 headers"):
        values(Batch([ten, eleven]).encode())
