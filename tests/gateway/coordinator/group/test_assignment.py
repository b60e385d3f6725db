"""The assignment of the consumer protocol: as clients encode it, and malformed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group.consumer_assignors import assigned_partitions


def encoded(
    assigned: list[tuple[str, list[int]]], user_data: bytes | None = b"", version: int = 0, more: bytes = b""
) -> bytes:
    raw = struct.pack(">hi", version, len(assigned))
    for topic, partitions in assigned:
        name = topic.encode()
        raw += struct.pack(
            f">h{len(name)}si{len(partitions)}i", len(name), name, len(partitions), *partitions
        )
    raw += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return raw + more


@given(
    st.dictionaries(st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1)), max_size=5),
    st.none() | st.binary(max_size=20),
    st.integers(0, 2**15 - 1),
    st.binary(max_size=5),
)
def test_a_written_assignment_is_decoded(
    assigned: dict[str, list[int]], user_data: bytes | None, version: int, more: bytes
) -> None:
    raw = encoded(list(assigned.items()), user_data, version, more)
    assert assigned_partitions(raw) == assigned


def test_an_assignment_of_kafka_python_is_decoded() -> None:
    """The bytes are those that kafka-python 3.0 encodes for version 1."""
    raw = (
        b"\x00\x01\x00\x00\x00\x02"
        b"\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03"
        b"\x00\x07flights\x00\x00\x00\x01\x00\x00\x00\x01"
        b"\x00\x00\x00\x04mine"
    )
    assert assigned_partitions(raw) == {"orders": [0, 3], "flights": [1]}


def test_a_topic_may_come_in_pieces() -> None:
    assert assigned_partitions(encoded([("a", [1]), ("b", []), ("a", [0])])) == {"a": [1, 0], "b": []}


@given(st.binary(max_size=60))
def test_no_bytes_raise(raw: bytes) -> None:
    assigned_partitions(raw)


@given(st.integers(0, 200))
def test_a_truncated_assignment_is_refused(size: int) -> None:
    whole = encoded([("orders", [0, 1, 2]), ("flights", [7])], b"user data")
    assert (assigned_partitions(whole[:size]) is not None) == (size >= len(whole))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        encoded([], version=-1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1) + bytes(100),
        struct.pack(">hih", 0, 1, -1) + bytes(100),
        struct.pack(">hihi", 0, 1, 0, 2**31 - 1) + bytes(100),
        struct.pack(">hihi", 0, 1, 0, -1) + bytes(100),
        struct.pack(">hi", 0, 0) + struct.pack(">i", -2),
        struct.pack(">hi", 0, 0) + struct.pack(">i", 1),
        encoded([("orders", [-1])]),
        encoded([("orders", [0])]).replace(b"orders", b"\xff\xfeders"),
    ],
)
def test_other_bytes_are_refused(raw: bytes) -> None:
    assert assigned_partitions(raw) is None
