"""The prefix of Produce requests. Nearly all requests of a producer differ only in correlation id and records.

The prefix of a request for one partition is the part before its records: client id, acks, topic, partition. A producer
sends the same prefix each time, so the gateway decodes it once and then looks it up. After its api key, version and
correlation id such a request is

    v9–v13   client_id | 0 | null | acks | timeout | 2 | name or id | 2 | index ‖ compact size | records | 0 0 0
    v5–v8    client_id | null | acks | timeout | 1 | name | 1 | index ‖ int32 size | records

where ‖ marks the end of the prefix. Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.protocol.frames import FIXED_HEADER_BYTES, read_unsigned_varint
from gateway.protocol.produce_codec import ProduceRow, encode_produce_response

FIRST_VERSION: Final = 5
"""The first version whose answers have rows with log_start_offset. Older requests are always decoded."""
PREFIX_START: Final = 8
_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_IDS: Final = 13
_INT32: Final = Struct(">i")
_LEGACY_START: Final = Struct(">hhii")  # null transactional_id, acks, timeout, topic count
_NO_TAGS_THRICE = b"\0\0\0"
_CONTINUES: Final = 0x80  # a varint of more than one byte
_MARKED_ROW: Final = (0x5EA96A7E00000001, 0x5EA96A7E00000002, 0x5EA96A7E00000003)
_MARK: Final = Struct(">qqq").pack(*_MARKED_ROW)


def prefix_end(frame: memoryview, api_version: int, client_id_bytes: int) -> int:
    """Return the end of the prefix of a request for one partition.

    For any other request the result is meaningless. Raises IndexError.
    """
    body = FIXED_HEADER_BYTES
    if client_id_bytes > 0:
        body += client_id_bytes
    if api_version >= _FIRST_WITH_IDS:
        return body + 30
    if api_version >= _FIRST_FLEXIBLE:
        return body + 14 + frame[body + 9]
    return body + 22 + (frame[body + 12] << 8 | frame[body + 13])


def is_for_one_partition(frame: memoryview, api_version: int, client_id_bytes: int) -> bool:
    """Return True when a well-formed request has the layout that `prefix_end` assumes."""
    body = FIXED_HEADER_BYTES + max(client_id_bytes, 0)
    end = prefix_end(frame, api_version, client_id_bytes)
    if end >= len(frame):
        return False
    if api_version < _FIRST_FLEXIBLE:
        transactional, _, _, topic_count = _LEGACY_START.unpack_from(frame, body)
        (partition_count,) = _INT32.unpack_from(frame, end - 8)
        return bool(transactional == -1 and topic_count == partition_count == 1)
    plain_name = api_version >= _FIRST_WITH_IDS or frame[body + 9] < _CONTINUES
    return plain_name and frame[body] == frame[body + 1] == 0 and frame[body + 8] == frame[end - 5] == 2


def records_of(frame: memoryview, end: int, api_version: int) -> memoryview | None:
    """Return the records after a prefix that ends at `end`; None when they are null, or when more than records follows.

    Raises MalformedRequest.
    """
    if api_version < _FIRST_FLEXIBLE:
        if len(frame) - end < _INT32.size or _INT32.unpack_from(frame, end)[0] != len(frame) - end - 4:
            return None
        return frame[end + 4 :]
    size, start = read_unsigned_varint(frame, end)
    stop = start + size - 1
    if size == 0 or stop + 3 != len(frame) or frame[stop:] != _NO_TAGS_THRICE:
        return None
    return frame[start:stop]


class RepeatedAnswer:
    """The answer to a request with a known prefix whose batch was appended. Only four numbers change."""

    __slots__ = ("_after", "_before", "_pack", "_size_bytes")

    def __init__(self, api_version: int, key: str | bytes, partition: int) -> None:
        """Pack the answer for a topic and partition. `key` is the topic name or id, as the request names the topic.

        Raises struct.error for a name that is too long for an answer.
        """
        frame = encode_produce_response(api_version, 0, [(key, [ProduceRow(partition, 0, *_MARKED_ROW)])])
        row_at = frame.index(_MARK)
        self._size_bytes = len(frame) - 4
        self._before = frame[8:row_at]
        self._after = frame[row_at + len(_MARK) :]
        self._pack = Struct(f">ii{len(self._before)}sqqq{len(self._after)}s").pack

    def encode(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the whole frame, size included."""
        return self._pack(
            self._size_bytes,
            correlation_id,
            self._before,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            self._after,
        )
