"""Sets throttle_time_ms in an encoded answer.

Nearly every answer has the field first in its body. Of the others:

    Produce, CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken
                   last, before the tagged fields of flexible versions
    ApiVersions    after the error and the array of APIs
    OffsetDelete   after the error
    low versions, and the answers of the SASL login, have no such field
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache
from typing import Final

from gateway.protocol.messages import API_VERSIONS, is_flexible, response_type, written
from log import FileRegion

PRODUCE: Final = 0
_LAST: Final = frozenset({PRODUCE, 38, 39, 40, 41})
"""The APIs that have the field last: Produce and those of delegation tokens."""
OFFSET_DELETE: Final = 47
_HEADER_BYTES: Final = 8
_ERROR_BYTES: Final = 2
_NO_TIME_AND_NO_TAGS: Final = bytes(5)
"""The end of a Produce answer that names no leaders: throttle_time_ms 0 and no tagged fields."""
_ROW_BYTES: Final = 6
"""The bytes of one row of ApiVersions, without tagged fields."""


def with_throttle_time(
    answer: bytes | Sequence[bytes | FileRegion], api_key: int, version: int, throttle_ms: int
) -> bytes | Sequence[bytes | FileRegion]:
    """Return the answer with this throttle time; the same answer when its version has no such field."""
    if not isinstance(answer, bytes):
        head = answer[0]
        if not isinstance(head, bytes):
            raise TypeError(f"an answer begins with its header, not with {head!r}")
        return [_patched(head, api_key, version, throttle_ms), *answer[1:]]
    return _patched(answer, api_key, version, throttle_ms)


def _patched(head: bytes, api_key: int, version: int, throttle_ms: int) -> bytes:
    if not _has_field(api_key, version):
        return head
    if api_key == PRODUCE and is_flexible(api_key, version) and not head.endswith(_NO_TIME_AND_NO_TAGS):
        return _patched_before_tags(head, version, throttle_ms)
    position = _position(head, api_key, version)
    return head[:position] + throttle_ms.to_bytes(4, "big") + head[position + 4 :]


def _patched_before_tags(head: bytes, version: int, throttle_ms: int) -> bytes:
    """Patch a Produce answer whose tagged fields name the leaders of partitions. Such an answer is rare, so it is decoded."""
    from kio.serial import entity_reader  # noqa: PLC0415 - slow to import, and rarely needed

    kind = response_type(PRODUCE, version)
    answer, _ = entity_reader(kind)(head, _HEADER_BYTES + 1)
    body = written(replace(answer, throttle_time=timedelta(milliseconds=throttle_ms)))
    return head[: _HEADER_BYTES + 1] + body


@cache
def _has_field(api_key: int, version: int) -> bool:
    return any(field.name == "throttle_time" for field in fields(response_type(api_key, version)))


def _position(head: bytes, api_key: int, version: int) -> int:
    flexible = is_flexible(api_key, version)
    if api_key in _LAST:
        return len(head) - (5 if flexible else 4)
    if api_key == API_VERSIONS:
        return _position_in_api_versions(head, flexible=flexible)
    if api_key == OFFSET_DELETE:
        return _HEADER_BYTES + _ERROR_BYTES
    return _HEADER_BYTES + (1 if flexible else 0)


def _position_in_api_versions(head: bytes, *, flexible: bool) -> int:
    position = _HEADER_BYTES + _ERROR_BYTES
    if not flexible:
        count = int.from_bytes(head[position : position + 4], "big")
        return position + 4 + count * _ROW_BYTES
    count = shift = 0
    while True:
        byte = head[position]
        position += 1
        count |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return position + (count - 1) * (_ROW_BYTES + 1)
