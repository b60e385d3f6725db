"""The offset to which a reset moves a group in one partition. Pure.

    target      the new offset
    earliest    the log start offset
    latest      the high watermark
    timestamp   the first record with that timestamp or a later one, the high watermark when there is none
    shift       the committed offset plus a number of records, which may be negative
    offset      the offset given

An offset that no consumer can read is clamped to the log start or the high watermark. Source: Kafka's
ConsumerGroupCommand.prepareOffsetsToReset.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from seqgate.gateway.admin.groups.messages import OffsetChange, ResetOffsetsRequest, ResetTarget
from seqgate.gateway.admin.request import ControlError

TO_LOG_START: Final = "clamped to the log start"
TO_HIGH_WATERMARK: Final = "clamped to the log end"
NOTHING_SO_LATE: Final = "no record is so late: the log end"


class NoCommittedOffset(ValueError):
    """The group has no committed offset to shift."""


class PartitionOffsets(NamedTuple):
    """The offsets of a partition; `at_timestamp` is the offset of the first record at the target's timestamp."""

    log_start_offset: int
    high_watermark: int
    committed_offset: int | None = None
    at_timestamp: int | None = None


class NewOffset(NamedTuple):
    """The offset to commit; `note` says why it differs from what the operator asked for."""

    offset: int
    note: str | None = None


def new_offset(target: ResetTarget, value: int, known: PartitionOffsets) -> NewOffset:
    """Return the offset to commit. Raises NoCommittedOffset."""
    match target:
        case "earliest":
            return NewOffset(known.log_start_offset)
        case "latest":
            return NewOffset(known.high_watermark)
        case "timestamp":
            if known.at_timestamp is None or known.at_timestamp >= known.high_watermark:
                return NewOffset(known.high_watermark, NOTHING_SO_LATE)
            return _clamped(known.at_timestamp, known)
        case "shift":
            if known.committed_offset is None:
                raise NoCommittedOffset
            return _clamped(known.committed_offset + value, known)
        case "offset":
            return _clamped(value, known)


def offset_change(
    request: ResetOffsetsRequest, place: tuple[str, int], known: PartitionOffsets
) -> OffsetChange:
    """Return what a reset changes in one partition. Raises ControlError when there is no committed offset to
    shift.
    """
    topic, partition = place
    try:
        found = new_offset(request.target, request.value, known)
    except NoCommittedOffset:
        raise ControlError(
            f"group {request.group} has no committed offset in {topic}-{partition} that could be shifted"
        ) from None
    return OffsetChange(
        topic,
        partition,
        known.committed_offset,
        found.offset,
        known.log_start_offset,
        known.high_watermark,
        found.note,
    )


def _clamped(offset: int, known: PartitionOffsets) -> NewOffset:
    if offset < known.log_start_offset:
        return NewOffset(known.log_start_offset, TO_LOG_START)
    if offset > known.high_watermark:
        return NewOffset(known.high_watermark, TO_HIGH_WATERMARK)
    return NewOffset(offset)
