"""Records of `__transaction_state`: Kafka's bytes, and UnreadableTransactionRecord for any others."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.transaction.records import (
    EMPTY,
    PREPARE_COMMIT,
    Transaction,
    TransactionRecord,
    TransactionState,
    UnreadableTransactionRecord,
    decode,
    encode,
)

KEY = bytes.fromhex("0000 0001 74")
EMPTY_BY_KAFKA = bytes.fromhex(
    "0001 0000000000000001 0001 0000ea60 00 00 000001a1fe3de82f ffffffffffffffff 01 00 08 0000000000000001"
)
PREPARED_BY_KAFKA = bytes.fromhex(
    "0001 0000000000000001 0002 0000ea60 02 02 04 746f70 02 00000000 00 000001a1fe3de929 000001a1fe3de8d2"
    "02 00 08 0000000000000001 02 02 0002"
)
PREPARED = Transaction(
    1,
    2,
    60_000,
    PREPARE_COMMIT,
    frozenset({("top", 0)}),
    0x1A1FE3DE929,
    0x1A1FE3DE8D2,
    previous_producer_id=1,
    client_version=2,
)
STORED_STATES = tuple(TransactionState)[:6]
int16s, int64s = st.integers(0, 2**15 - 1), st.integers(0, 2**63 - 1)
partitions = st.frozensets(st.tuples(st.text(max_size=8), st.integers(0, 2**31 - 1)), max_size=20)
transactions = st.builds(
    Transaction,
    int64s,
    int16s,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(STORED_STATES),
    partitions,
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.integers(0, 2),
).map(lambda value: value._replace(partitions=frozenset()) if value.state is EMPTY else value)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (Transaction(1, 1, 60_000, last_update_ms=0x1A1FE3DE82F, previous_producer_id=1), EMPTY_BY_KAFKA),
        (PREPARED, PREPARED_BY_KAFKA),
        (None, None),
    ],
)
def test_bytes_that_kafka_wrote(value: Transaction | None, raw: bytes | None) -> None:
    assert encode(TransactionRecord("t", value)) == (KEY, raw)
    assert decode(KEY, raw) == TransactionRecord("t", value)


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [("ffffffff", set()), ("00000001 0003 746f70 00000002 00000000 00000007", {("top", 0), ("top", 7)})],
)
def test_values_without_tags_are_decoded(topics: str, partitions: set[tuple[str, int]]) -> None:
    head, times = "0000 0000000000000005 0003 0000ea60 01", "0000000000000064 0000000000000032"
    read = decode(KEY, bytes.fromhex(head + topics + times))
    assert read == TransactionRecord(
        "t", Transaction(5, 3, 60_000, TransactionState.ONGOING, frozenset(partitions), 100, 50)
    )


def test_tags_that_are_not_known_are_skipped() -> None:
    value = PREPARED_BY_KAFKA.replace(bytes.fromhex("02 00 08"), bytes.fromhex("03 00 08"), 1)
    assert decode(KEY, value + bytes.fromhex("e807 03 616263")) == TransactionRecord("t", PREPARED)


@given(st.text(max_size=20), transactions)
def test_every_record_is_decoded_as_it_was_encoded(name: str, value: Transaction) -> None:
    assert decode(*encode(TransactionRecord(name, value))) == TransactionRecord(name, value)


@given(st.binary(max_size=80), st.none() | st.binary(max_size=120))
@example(KEY, EMPTY_BY_KAFKA[:-1])
@example(KEY, PREPARED_BY_KAFKA[:20])
@example(KEY, PREPARED_BY_KAFKA[:16] + b"\x09" + PREPARED_BY_KAFKA[17:])
@example(KEY, bytes.fromhex("0001 0000000000000001 0002 0000ea60 02 02 04 746f70 ffffffff0f"))
@example(b"\0\0\xff\xff", None)
def test_other_bytes_are_unreadable(key: bytes, value: bytes | None) -> None:
    with suppress(UnreadableTransactionRecord):
        decode(b"\0\0" + key, value)


@given(st.integers(0, len(PREPARED_BY_KAFKA) - 1))
def test_a_truncated_value_is_unreadable(size: int) -> None:
    with pytest.raises(UnreadableTransactionRecord):
        decode(KEY, PREPARED_BY_KAFKA[:size])


@pytest.mark.parametrize("number", [6, 7, 8, 200])
def test_states_that_are_never_stored_are_unreadable(number: int) -> None:
    with pytest.raises(UnreadableTransactionRecord):
        decode(KEY, EMPTY_BY_KAFKA[:16] + bytes((number,)) + EMPTY_BY_KAFKA[17:])


def test_keys_of_other_kinds_are_skipped() -> None:
    assert decode(b"\0\1\0\0", b"") is None
