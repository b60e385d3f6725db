"""The messages of Fetch, encoded and decoded by hand.

Answers: the bytes of records go to the socket without another copy.

    v4–v6    throttle, topics[name, partitions[index, error, high_watermark, last_stable_offset,
             (v5: log_start_offset), aborted_transactions, records]]
    v7–v10   throttle, error, session_id, topics[…]
    v11      … preferred_read_replica
    v12      compact lengths and tagged fields
    v13–v18  topic_id (16 bytes) instead of the name
    v16–v18  … node_endpoints (tagged)

Source: Kafka's FetchResponse.json.

Requests: consumers send one for every answer, so the decoder is quick.

    v4       int32 replica_id, int32 max_wait_ms, int32 min_bytes, int32 max_bytes, int8 isolation_level,
             topics[name, partitions[int32 index, int64 fetch_offset, int32 partition_max_bytes]]
    v5       … int64 log_start_offset after fetch_offset
    v7       session_id and session_epoch before topics, forgotten topics after them
    v9       int32 current_leader_epoch before fetch_offset
    v11      rack_id at the end
    v12      compact lengths and tagged fields, int32 last_fetched_epoch after fetch_offset
    v13      topic_id (16 bytes) instead of the name
    v15      replica_id moves into a tagged field

Source: Kafka's FetchRequest.json.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from seqgate.gateway.protocol.frames import (
    MAX_ITEMS,
    NO_TAGS,
    ONE_BYTE,
    SHORT_TEXT_BYTES,
    MalformedRequest,
    NodeEndpoint,
    TooManyItems,
    compact_string,
    read_tagged_count,
    read_unsigned_varint,
    skip_tagged_fields,
    string,
    tagged_node_endpoints,
    text_of,
    unsigned_varint,
)
from seqgate.gateway.protocol.schema import Read
from seqgate.log import FileRegion

Piece = bytes | FileRegion
"""A piece of a frame: bytes, or a region of a segment file that holds the bytes."""

_INT32 = Struct(">i")
_TOP_V7 = Struct(">ihi")
_ROW_V4 = Struct(">ihqq")
_ROW_V5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_TWO_INT32 = Struct(">ii")
_EPOCH_AND_OFFSET = Struct(">iq")
_NONE = b"\xff\xff\xff\xff"
FIRST_FLEXIBLE = 12


class FetchRow(NamedTuple):
    """The answer for one partition. `aborted_transactions` holds (producer_id, first_offset) items, and is
    None under read_uncommitted. `diverging_epoch` is (leader_epoch, end_offset) when the reader's last leader
    epoch does not match the log (KIP-595). `current_leader` is (leader_id, leader_epoch) beside errors about
    leadership (KIP-951).
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
    flexible = version >= FIRST_FLEXIBLE
    count, text, one_more = (unsigned_varint, compact_string, 1) if flexible else (_INT32.pack, string, 0)
    head = bytearray(9 if flexible else 8)
    head += _TOP_V7.pack(0, error_code, session_id) if version >= 7 else _INT32.pack(0)
    pieces: list[Piece] = []
    head += count(len(topics) + one_more)
    for topic, rows in topics:
        head += topic if isinstance(topic, bytes) else text(topic)
        head += count(len(rows) + one_more)
        for row in rows:
            head += _ROW_V5.pack(*row[:5]) if version >= 5 else _ROW_V4.pack(*row[:4])
            aborted = row.aborted_transactions
            if aborted is None:
                head += NO_TAGS if flexible else _NONE
            else:
                head += count(len(aborted) + one_more)
                for producer_id, first_offset in aborted:
                    head += _ABORTED.pack(producer_id, first_offset) + (NO_TAGS if flexible else b"")
            if version >= 11:
                head += _INT32.pack(row.preferred_read_replica)
            size = len(row.records)
            head += count(size + one_more)
            if size:
                pieces += (bytes(head), row.records)
                head = bytearray()
            if flexible:
                head += _row_tags(row) if row.diverging_epoch or row.current_leader else NO_TAGS
        if flexible:
            head += NO_TAGS
    if flexible:
        head += tagged_node_endpoints(node_endpoints) if node_endpoints else NO_TAGS
    if head:
        pieces.append(bytes(head))
    first = pieces[0]
    assert isinstance(first, bytes)
    pieces[0] = _TWO_INT32.pack(sum(map(len, pieces)) - 4, correlation_id) + first[_TWO_INT32.size :]
    return pieces


def _row_tags(row: FetchRow) -> bytes:
    tags = bytearray()
    count = 0
    if row.diverging_epoch is not None:
        tags += b"\0\x0d" + _EPOCH_AND_OFFSET.pack(*row.diverging_epoch) + b"\0"
        count += 1
    if row.current_leader is not None:
        tags += b"\1\x09" + _TWO_INT32.pack(*row.current_leader) + b"\0"
        count += 1
    return bytes((count,)) + bytes(tags)


TopicKey = str | bytes
"""The topic name, or from v13 on the 16 bytes of the topic id."""
_LIMITS = Struct(">iiib")
_TOPIC_ID_BYTES = 16
_REPLICA_STATE_TAG = 1


class FetchPosition(NamedTuple):
    """The position of a read in one partition. A leader epoch is −1 when the reader names none."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FetchRequest(NamedTuple):
    """A Fetch request. In versions without fetch sessions `session_id` is 0 and `session_epoch` −1."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    positions: dict[tuple[TopicKey, int], FetchPosition]
    forgotten: list[tuple[TopicKey, int]]
    replica_id: int
    """The node id of a follower; -1 for a consumer."""
    rack_id: str = ""
    """The rack of the consumer; empty when it names none."""


def fetch_reader(version: int) -> Read:
    """Return the reader of requests of one version. The reader raises MalformedRequest."""

    def read_request(frame: memoryview, position: int) -> tuple[FetchRequest, int]:
        cursor = _Cursor(frame, position, version)
        try:
            request = _read(cursor, version)
        except (IndexError, struct.error):
            raise MalformedRequest(f"the request ends within a field, after {len(frame)} bytes") from None
        return request, cursor.position

    return read_request


def _read(cursor: _Cursor, version: int) -> FetchRequest:
    replica_id = cursor.unpack(_INT32)[0] if version < 15 else -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = cursor.unpack(_LIMITS)
    session_id, session_epoch = cursor.unpack(_TWO_INT32) if version >= 7 else (0, -1)
    positions: dict[tuple[TopicKey, int], FetchPosition] = {}
    layout = _PARTITION_LAYOUTS[version]
    for _ in range(cursor.items()):
        key = cursor.topic_key()
        for _ in range(cursor.items()):
            index, position = _position(version, cursor.unpack(layout))
            positions[key, index] = position
            cursor.skip_tags()
        cursor.skip_tags()
    forgotten: list[tuple[TopicKey, int]] = []
    if version >= 7:
        for _ in range(cursor.items()):
            key = cursor.topic_key()
            forgotten += [(key, cursor.unpack(_INT32)[0]) for _ in range(cursor.items())]
            cursor.skip_tags()
    rack_id = cursor.text() if version >= 11 else ""
    if version >= 15:
        replica_id = cursor.replica_id()
    else:
        cursor.skip_tags()
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        positions,
        forgotten,
        replica_id,
        rack_id,
    )


def _layout(version: int) -> Struct:
    return Struct(
        ">i"
        + ("i" if version >= 9 else "")
        + "q"
        + ("i" if version >= 12 else "")
        + ("q" if version >= 5 else "")
        + "i"
    )


_PARTITION_LAYOUTS = {version: _layout(version) for version in range(4, 19)}


def _position(version: int, row: tuple[int, ...]) -> tuple[int, FetchPosition]:
    if version >= 12:
        index, leader_epoch, offset, last_fetched_epoch, _, max_bytes = row
        return index, FetchPosition(offset, max_bytes, leader_epoch, last_fetched_epoch)
    if version >= 9:
        index, leader_epoch, offset, _, max_bytes = row
        return index, FetchPosition(offset, max_bytes, leader_epoch, -1)
    return row[0], FetchPosition(row[1], row[-1], -1, -1)


class _Cursor:
    """A position in a frame, with the layout of lengths and topics in the request's version."""

    __slots__ = ("_items", "flexible", "frame", "position", "with_ids")

    def __init__(self, frame: memoryview, position: int, version: int) -> None:
        self.frame = frame
        self.position = position
        self._items = 0
        self.flexible = version >= FIRST_FLEXIBLE
        self.with_ids = version >= 13

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.frame, self.position)
        self.position += layout.size
        return values

    def count(self) -> int:
        """Read the length of a non-null array or text. Raises MalformedRequest when fewer bytes are left."""
        if not self.flexible:
            (count,) = self.unpack(_INT32)
        elif self.frame[self.position] < ONE_BYTE:
            count = self.frame[self.position] - 1
            self.position += 1
        else:
            count = self._varint() - 1
        return self._checked(count)

    def items(self) -> int:
        """Read an array's length. Raises MalformedRequest when the request has more than MAX_ITEMS in all."""
        count = self.count()
        self._items += count
        if self._items > MAX_ITEMS:
            raise TooManyItems(self._items)
        return count

    def _checked(self, count: int) -> int:
        if not 0 <= count <= len(self.frame) - self.position:
            raise MalformedRequest(
                f"a length is {count}, and {len(self.frame) - self.position} bytes are left"
            )
        return count

    def _text_size(self) -> int:
        if self.flexible:
            return self.count()
        size = int.from_bytes(self.frame[self.position : self.position + 2], "big", signed=True)
        self.position += 2
        return self._checked(size)

    def topic_key(self) -> TopicKey:
        size = _TOPIC_ID_BYTES if self.with_ids else self._text_size()
        raw = self.frame[self.position : self.position + self._checked(size)]
        self.position += size
        if self.with_ids:
            return bytes(raw)
        return str(raw, "utf-8", "replace") if size <= SHORT_TEXT_BYTES else text_of(raw)

    def text(self) -> str:
        size = self._text_size()
        if not size:
            return ""
        self.position += size
        return text_of(self.frame[self.position - size : self.position])

    def replica_id(self) -> int:
        """Read the tagged fields at the end; return the follower's node id, -1 when the request has none."""
        replica_id = -1
        count, self.position = read_tagged_count(self.frame, self.position)
        for _ in range(count):
            tag = self._varint()
            size = self._checked(self._varint())
            if tag == _REPLICA_STATE_TAG:
                (replica_id,) = _INT32.unpack_from(self.frame, self.position)
            self.position += size
        return replica_id

    def _varint(self) -> int:
        value, self.position = read_unsigned_varint(self.frame, self.position)
        return value

    def skip_tags(self) -> None:
        if not self.flexible:
            return
        if self.frame[self.position]:
            self.position = skip_tagged_fields(self.frame, self.position)
        else:
            self.position += 1
