"""The encoder of Fetch answers, written by hand so that the bytes of records go to the socket without another copy.

    v4–v6    throttle, topics[name, partitions[index, error, high_watermark, last_stable_offset,
             (v5: log_start_offset), aborted_transactions, records]]
    v7–v10   throttle, error, session_id, topics[…]
    v11      … preferred_read_replica
    v12      compact lengths and tagged fields
    v13–v18  topic_id (16 bytes) instead of the name
    v16–v18  … node_endpoints (tagged)

Source: Kafka's FetchResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from gateway.protocol.node_endpoints import NodeEndpoint, tagged_node_endpoints
from gateway.protocol.primitives import string, unsigned_varint
from log import FileRegion

Piece = bytes | FileRegion
"""A piece of a frame: bytes, or a region of a segment file that holds the bytes."""

_INT32 = Struct(">i")
_TOP_V4 = Struct(">i")
_TOP_V7 = Struct(">ihi")
_ROW_V4 = Struct(">ihqq")
_ROW_V5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_TWO_INT32 = Struct(">ii")
_EPOCH_AND_OFFSET = Struct(">iq")
_NONE = b"\xff\xff\xff\xff"


class FetchRow(NamedTuple):
    """The answer for one partition.

    `aborted_transactions` holds (producer_id, first_offset) items, and is None under read_uncommitted. `diverging_epoch` is
    (leader_epoch, end_offset) when the reader's last leader epoch does not match the log (KIP-595). `current_leader` is
    (leader_id, leader_epoch) beside errors about leadership (KIP-951).
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, int]] | None
    records: Piece
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    preferred_read_replica: int = -1
    """The node id of the gateway that the client should read from instead (KIP-392); -1 for this one."""


TopicRows = tuple[str | bytes, Sequence[FetchRow]]
"""The topic name or the 16 bytes of the topic id, and the rows of the topic."""


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[TopicRows],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Piece]:
    """Return the frame of a Fetch answer, as pieces in the order of their bytes."""
    pieces: list[Piece] = []
    flexible = version >= 12
    head = bytearray(8)
    if flexible:
        head.append(0)
    head += _TOP_V7.pack(0, error_code, session_id) if version >= 7 else _TOP_V4.pack(0)
    head += unsigned_varint(len(topics) + 1) if flexible else _INT32.pack(len(topics))
    for topic, rows in topics:
        if isinstance(topic, bytes):
            head += topic
        else:
            raw = topic.encode()
            head += (unsigned_varint(len(raw) + 1) + raw) if flexible else string(topic)
        head += unsigned_varint(len(rows) + 1) if flexible else _INT32.pack(len(rows))
        for row in rows:
            if flexible:
                _flexible_row(row, head)
            else:
                _legacy_row(version, row, head)
            if len(row.records):
                pieces.append(bytes(head))
                pieces.append(row.records)
                head = bytearray()
            if flexible:
                head += _row_tags(row)
        if flexible:
            head.append(0)
    if flexible:
        head += tagged_node_endpoints(node_endpoints)
    pieces.append(bytes(head))
    size = sum(map(len, pieces)) - 4
    first = pieces[0]
    assert isinstance(first, bytes)
    pieces[0] = _TWO_INT32.pack(size, correlation_id) + first[_TWO_INT32.size :]
    return pieces


def _flexible_row(row: FetchRow, head: bytearray) -> None:
    head += _ROW_V5.pack(*row[:5])
    aborted = row.aborted_transactions
    if aborted is None:
        head.append(0)
    else:
        head += unsigned_varint(len(aborted) + 1)
        for producer_id, first_offset in aborted:
            head += _ABORTED.pack(producer_id, first_offset) + b"\0"
    head += _preferred(row)
    head += unsigned_varint(len(row.records) + 1)


def _preferred(row: FetchRow) -> bytes:
    replica = row.preferred_read_replica
    return _NONE if replica < 0 else _INT32.pack(replica)


def _row_tags(row: FetchRow) -> bytes:
    if row.diverging_epoch is None and row.current_leader is None:
        return b"\0"
    tags = bytearray()
    count = 0
    if row.diverging_epoch is not None:
        tags += b"\0\x0d" + _EPOCH_AND_OFFSET.pack(*row.diverging_epoch) + b"\0"
        count += 1
    if row.current_leader is not None:
        tags += b"\1\x09" + _TWO_INT32.pack(*row.current_leader) + b"\0"
        count += 1
    return bytes((count,)) + bytes(tags)


def _legacy_row(version: int, row: FetchRow, head: bytearray) -> None:
    head += _ROW_V5.pack(*row[:5]) if version >= 5 else _ROW_V4.pack(*row[:4])
    aborted = row.aborted_transactions
    if aborted is None:
        head += b"\xff\xff\xff\xff"
    else:
        head += _INT32.pack(len(aborted))
        for producer_id, first_offset in aborted:
            head += _ABORTED.pack(producer_id, first_offset)
    if version >= 11:
        head += _preferred(row)
    head += _INT32.pack(len(row.records))
