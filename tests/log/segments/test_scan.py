"""A scan decides alike about batches that it reads in one run and about those that it examines one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from seqgate.log.errors import IncompatibleFormat
from seqgate.log.segments.damage import DamagedRange
from seqgate.log.segments.scan import CHUNK_BYTES, EVERYWHERE, SegmentScan
from tests.support.batches import HEAD, Batch, records


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


def test_a_batch_without_room_for_its_header_ends_the_scan() -> None:
    first, second = batches(2, 3)
    # A size of 21 bytes leaves nothing for the CRC to cover, and the CRC of nothing is 0.
    short = HEAD.pack(2, 9, 0, 2, 0, *HEAD.unpack_from(second)[5:])
    scan = File(first + short).scan()
    assert len(list(scan)) == 1
    assert (scan.position, scan.next_offset) == (len(first), 2)


def harmed(whole: Sequence[bytes], chance: Random) -> bytes:
    """Return the batches with a few flipped bits, most of them before the CRC, a lost batch or a lost end."""
    kept = [bytearray(batch) for batch in whole]
    if chance.random() < 0.3:
        del kept[chance.randrange(len(kept))]
    for _ in range(chance.randrange(3)):
        batch = chance.choice(kept)
        batch[chance.randrange(chance.choice([17, 17, len(batch)]))] ^= 1 << chance.randrange(8)
    data = bytearray(b"".join(kept))
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    return bytes(data)


def outcome(scan: SegmentScan) -> list[object]:
    """Return what a scan yields, why it refuses the rest, where it ends, and what it misses."""
    parts: list[object] = []
    try:
        for part in scan:
            if isinstance(part, DamagedRange):
                parts.append(part)
            else:
                parts.append((part[0], part[1].base_offset, part[1].size_bytes))
    except IncompatibleFormat as error:
        parts.append(str(error))
    return [*parts, scan.position, scan.next_offset, scan.missing()]


@pytest.mark.parametrize("seed", range(300))
def test_a_run_decides_as_a_look_at_each_batch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    counts = [chance.randint(1, 4) for _ in range(chance.randint(2, 8))]
    file = File(harmed(batches(*counts), chance))
    kept_below = chance.choice([0, sum(counts) // 2, sum(counts)])
    limit = chance.choice([EVERYWHERE, sum(counts), sum(counts) - 1])
    in_runs = outcome(file.scan(kept_below=kept_below, limit=limit))
    monkeypatch.setattr(SegmentScan, "_run", lambda _: iter(()))
    assert outcome(file.scan(kept_below=kept_below, limit=limit)) == in_runs
