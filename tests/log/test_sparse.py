from __future__ import annotations

import random
import uuid

import pytest

from seqgate.log import LocalDurability, Storage
from seqgate.log.sparse import BLOCK_BYTES, SegmentKey, SparseDisk, restore_residency, save_residency
from tests.faults.simulated_disk import SimulatedDisk

TOPIC_ID = uuid.UUID(int=7)
SIZE_BYTES = 2 * BLOCK_BYTES + 10
FIRST, SECOND = "/data/t-0/00000000000000000000.log", "/data/t-0/00000000000000000009.log"


class Bucket:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        return self.content[position : position + size_bytes]


class Life:
    """A process on the disk."""

    def __init__(self, disk: SimulatedDisk, content: bytes) -> None:
        self.storage = Storage(disk=disk.process()).with_holes()
        assert self.storage.sparse is not None
        self.sparse: SparseDisk = self.storage.sparse
        self.sparse.source = Bucket(content)

    def restore(self) -> bool:
        return restore_residency(self.storage, self.sparse, "/data")


@pytest.fixture
def content() -> bytes:
    return random.Random(7).randbytes(SIZE_BYTES)


@pytest.fixture
def disk(content: bytes) -> SimulatedDisk:
    """The disk after a clean stop. Of the first segment only block 1 is resident, of the second all blocks."""
    disk = SimulatedDisk(tells_cached=True)
    disk.provide_directory("/data/t-0")
    life = Life(disk, content)
    life.sparse.create_absent(FIRST, SegmentKey(TOPIC_ID, 0, 0), SIZE_BYTES)
    life.storage.read_by_name(FIRST, 10, BLOCK_BYTES)
    life.storage.write_file(SECOND, content)
    second = life.sparse.files.of(SECOND)
    assert second is not None
    life.sparse.stored(second, SegmentKey(TOPIC_ID, 0, 9), SIZE_BYTES)
    save_residency(LocalDurability(life.storage), life.sparse, "/data")
    disk.make_durable()
    disk.power_cut(None)
    return disk


def test_a_start_knows_the_holes_of_the_stop_before(disk: SimulatedDisk, content: bytes) -> None:
    life = Life(disk, content)
    assert life.restore()
    assert life.sparse.absent_bytes() == BLOCK_BYTES + 10
    assert life.storage.read_file(FIRST) == content
    assert life.sparse.blocks_waited_for == 2
    second = life.sparse.files.of(SECOND)
    assert second is not None
    assert life.sparse.evict(second, [0]) == 2 * BLOCK_BYTES
    assert life.storage.read_file(SECOND) == content


def test_without_the_file_the_holes_are_unknown(disk: SimulatedDisk, content: bytes) -> None:
    life = Life(disk, content)
    life.storage.delete("/data/residency")
    assert not life.restore()


def test_a_segment_of_another_size_makes_the_file_worthless(disk: SimulatedDisk, content: bytes) -> None:
    disk.put(SECOND, content[:-1])
    assert not Life(disk, content).restore()


def test_a_missing_segment_makes_the_file_worthless(disk: SimulatedDisk, content: bytes) -> None:
    life = Life(disk, content)
    life.storage.delete(SECOND)
    assert not life.restore()


def test_each_flipped_bit_is_found(disk: SimulatedDisk, content: bytes) -> None:
    before = Life(disk, content)
    assert before.restore()
    known = {file.path: (file.key, file.absent) for file in before.sparse.files}
    for bit in range(0, 8 * len(disk.content("/data/residency")), 7):
        damaged = disk.copy()
        damaged.flip_bit("/data/residency", bit)
        life = Life(damaged, content)
        if life.restore():
            assert {file.path: (file.key, file.absent) for file in life.sparse.files} == known, bit


def test_nothing_of_another_directory_is_written(disk: SimulatedDisk, content: bytes) -> None:
    disk.provide_directory("/other")
    life = Life(disk, content)
    assert life.restore()
    save_residency(LocalDurability(life.storage), life.sparse, "/other")
    assert b"t-0" not in disk.content("/other/residency")
