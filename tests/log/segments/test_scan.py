"""A scan decides alike about batches that it reads in one run and about those that it examines one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from log.segments.damage import DamagedRange
from log.segments.scan import CHUNK_BYTES, EVERYWHERE, SegmentScan
from tests.support.batches import Batch, records


@dataclass
class File:
    """The bytes of a segment, and the reads that a scan made."""

    data: bytes
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read(self, position: int, size_bytes: int) -> bytes:
        self.reads.append((position, size_bytes))
        return self.data[position : position + size_bytes]

    def scan(self, *, kept_below: int = 0, limit: int = EVERYWHERE) -> SegmentScan:
        return SegmentScan(
            self.read,
            "segment",
            len(self.data),
            0,
            next_offset=0,
            kept_below=kept_below,
            gaps_below=0,
            limit=limit,
        )


def batches(*counts: int, size: int = 10) -> list[bytes]:
    """Return batches with these numbers of records, one after the other."""
    offsets = [sum(counts[:number]) for number in range(len(counts))]
    return [
        Batch(records(count, size), base_offset=offset).encode()
        for count, offset in zip(counts, offsets, strict=True)
    ]


def test_a_sound_segment_is_read_once() -> None:
    sound = batches(*[3] * 400, size=5_000)
    file = File(b"".join(sound))
    assert len(file.data) > 5 * CHUNK_BYTES
    found = [part for part in file.scan() if not isinstance(part, DamagedRange)]
    assert [batch.base_offset for _, batch in found] == list(range(0, 1200, 3))
    assert [file.data[at : at + batch.size_bytes] for at, batch in found] == sound
    read_bytes = sum(size_bytes for _, size_bytes in file.reads)
    assert read_bytes < len(file.data) + len(file.reads) * max(map(len, sound))
    assert len(file.reads) <= len(file.data) // CHUNK_BYTES + 2


@pytest.mark.parametrize("limit", [4, 5])
def test_a_batch_may_not_reach_into_the_next_segment(limit: int) -> None:
    file = File(b"".join(batches(2, 3)))
    scan = file.scan(kept_below=limit, limit=limit)
    parts = list(scan)
    assert [isinstance(part, DamagedRange) for part in parts] == [False, limit == 4]
    assert scan.next_offset == limit


def test_a_gap_that_nothing_explains_ends_the_scan() -> None:
    first, _, third = batches(2, 3, 1)
    scan = File(first + third).scan()
    assert len(list(scan)) == 1
    assert (scan.position, scan.next_offset) == (len(first), 2)


@pytest.mark.parametrize("lost", [1, 30, 61, 70])
def test_a_torn_batch_ends_the_scan(lost: int) -> None:
    first, second = batches(2, 3)
    scan = File(first + second[:-lost]).scan()
    assert len(list(scan)) == 1
    assert (scan.position, scan.next_offset) == (len(first), 2)
