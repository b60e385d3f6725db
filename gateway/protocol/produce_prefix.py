"""The prefix of a Produce request for one partition: the part before its records, the same each time.

After its api key, version and correlation id such a request is

    v9–v13 client_id | 0 | null | acks | timeout | 2 | name or id | 2 | index ‖ compact size | records | 0 0 0
    v5–v8  client_id | null | acks | timeout | 1 | name | 1 | index ‖ int32 size | records

where ‖ marks the end of the prefix. `split_request` takes any bytes for such a request, so its answer has a
meaning only where a request with the same prefix was decoded before and `is_for_one_partition`. It runs for
every Produce, compiled (`produce_prefix.pxd` has the types) or interpreted, from the same text. Where it
returns None, the whole request is decoded, and that finds out what is wrong.
"""

from __future__ import annotations

from struct import Struct

_INT32 = Struct(">i")
_LEGACY_START = Struct(">hhii")  # null transactional_id, acks, timeout, topic count


def split_request(
    frame: memoryview, api_version: int, client_id_bytes: int
) -> tuple[bytes, memoryview] | None:
    """Return prefix and records of a request for one partition; None where it is cut, its records are null or
    followed by more, or their size is rare: of five bytes. `client_id_bytes` are those that it states.
    """
    view = memoryview(frame)
    size = len(frame)
    end = _end_of_prefix(view, size, api_version, client_id_bytes)
    if not 0 < end <= size - 4:
        return None
    length = view[end]
    if api_version < 9:
        length = length << 24 | view[end + 1] << 16 | view[end + 2] << 8 | view[end + 3]
        if length != size - end - 4:
            return None
        return bytes(view[8:end]), frame[end + 4 :]
    start = end + 1
    if length >= 0x80:
        length = length & 0x7F | view[end + 1] << 7
        start += 1
        if length >= 1 << 14:
            length = length & 0x3FFF | view[end + 2] << 14
            start += 1
            if length >= 1 << 21:
                length = length & 0x1FFFFF | view[end + 3] << 21
                start += 1
                if length >= 1 << 28:
                    return None
    stop = start + length - 1
    if not length or stop + 3 != size or view[stop] or view[stop + 1] or view[stop + 2]:
        return None
    return bytes(view[8:end]), frame[start:stop]


def _end_of_prefix(view: memoryview, size: int, api_version: int, client_id_bytes: int) -> int:
    """Return the end of the prefix, which may be after that of the request; 0 if the request is cut."""
    body = 10
    if client_id_bytes > 0:
        body += client_id_bytes
    if api_version >= 13:
        return body + 30
    if body + 14 > size:
        return 0
    if api_version >= 9:
        return body + 14 + view[body + 9]
    return body + 22 + (view[body + 12] << 8 | view[body + 13])


def is_for_one_partition(frame: memoryview, api_version: int, client_id_bytes: int) -> bool:
    """Return whether a well-formed request has the layout that `split_request` assumes."""
    body = 10 + max(client_id_bytes, 0)
    end = _end_of_prefix(memoryview(frame), len(frame), api_version, client_id_bytes)
    if not 0 < end < len(frame):
        return False
    if api_version < 9:
        transactional, _, _, topic_count = _LEGACY_START.unpack_from(frame, body)
        (partition_count,) = _INT32.unpack_from(frame, end - 8)
        return bool(transactional == -1 and topic_count == partition_count == 1)
    plain_name = api_version >= 13 or frame[body + 9] < 0x80
    return plain_name and frame[body] == frame[body + 1] == 0 and frame[body + 8] == frame[end - 5] == 2
