"""Which error answers the acknowledgement of a record that was never acquired, or is not acquired any more."""

from __future__ import annotations

import pytest

from seqgate.gateway.coordinator.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    InvalidRecordState,
    NeverAcquired,
    ShareLimits,
    SharePartition,
)

LIMITS = ShareLimits()
NOW_MS = 1_000


def accept(partition: SharePartition, first_offset: int, last_offset: int) -> None:
    said = Acknowledgement(first_offset, last_offset, (AcknowledgeType.ACCEPT,))
    partition.acknowledge("m", [said], LIMITS, NOW_MS)


def test_nothing_was_handed_out() -> None:
    partition = SharePartition(3)
    for first_offset, last_offset in ((3, 3), (4, 8), (2**40, 2**40)):
        with pytest.raises(InvalidRecordState, match="the group has acquired no offset"):
            accept(partition, first_offset, last_offset)
    accept(partition, 0, 2)


def test_all_of_it_is_done() -> None:
    partition = SharePartition(0)
    partition.acquire("m", [(0, 4)], 10, LIMITS, NOW_MS)
    accept(partition, 0, 4)
    with pytest.raises(InvalidRecordState):
        accept(partition, 5, 5)


def test_behind_what_is_in_flight() -> None:
    partition = SharePartition(0)
    partition.acquire("m", [(0, 4)], 10, LIMITS, NOW_MS)
    for first_offset, last_offset in ((5, 5), (3, 5)):
        with pytest.raises(NeverAcquired):
            accept(partition, first_offset, last_offset)
