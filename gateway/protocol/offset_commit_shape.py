"""The shape of OffsetCommit requests: a consumer's commits differ only in correlation id, offsets and leader epochs.

The gateway decodes the first such request and remembers its shape. A later request of the same shape is compared with
it byte for byte, and its numbers are taken out, by one `struct` call. After its api key, version and correlation id a
request is

    v6, v7   client_id | group_id | generation | member_id ‖ group_instance_id (v7) | topics
    v8–v10   client_id | 0 | group_id | generation | member_id ‖ group_instance_id | topics | 0

where ‖ marks the end of the prefix that finds the shape. Source: Kafka's OffsetCommitRequest.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from gateway.protocol.frames import FIXED_HEADER_BYTES
from gateway.protocol.offset_commit_codec import FIRST_WITH_LEADER_EPOCH

FIRST_VERSION: Final = FIRST_WITH_LEADER_EPOCH
"""The first version whose requests name leader epochs. Older requests are always decoded."""
PREFIX_START: Final = 8
_FIRST_FLEXIBLE: Final = 8
_NUMBERS_BYTES: Final = 12


def prefix_end(frame: memoryview, api_version: int, client_id_bytes: int) -> int:
    """Return the end of the prefix of a request whose texts are short. Raises IndexError.

    For any other request the result is meaningless: its prefix is then found, if at all, with a shape that differs.
    """
    body = FIXED_HEADER_BYTES
    if client_id_bytes > 0:
        body += client_id_bytes
    if api_version >= _FIRST_FLEXIBLE:
        generation = body + 1 + frame[body + 1]
        return generation + 4 + frame[generation + 4]
    member = body + 2 + (frame[body] << 8 | frame[body + 1]) + 4
    return member + 2 + (frame[member] << 8 | frame[member + 1])


class CommitShape:
    """All bytes of a request after its correlation id but the offsets and leader epochs."""

    __slots__ = ("_constant", "_size_bytes", "_unpack")

    def __init__(self, frame: bytes, positions: Sequence[int]) -> None:
        """Take the shape of a frame, given the positions of its offsets, in order and at least one."""
        ends = [PREFIX_START, *(position + _NUMBERS_BYTES for position in positions)]
        gaps = [position - end for end, position in zip(ends, positions, strict=False)]
        layout = "".join(f"{gap}sqi" for gap in gaps) + f"{len(frame) - ends[-1]}s"
        self._size_bytes = len(frame)
        self._unpack = Struct(f">{layout}").unpack_from
        self._constant = self._unpack(frame, PREFIX_START)[0::3]

    def numbers(self, frame: memoryview) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the offsets and leader epochs of a request of this shape; None for a request of another shape."""
        if len(frame) != self._size_bytes:
            return None
        values = self._unpack(frame, PREFIX_START)
        if values[0::3] != self._constant:
            return None
        return values[1::3], values[2::3]
