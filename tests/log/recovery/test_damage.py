"""Damage below the recovery point is not a torn tail: nothing is cut, no offset is used twice, sound batches
stay readable.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import (
    CorruptRecord,
    DamagedRange,
    IncompatibleFormat,
    LocalDurability,
    LogConfig,
    LogDirectory,
    PartitionLog,
    Storage,
)
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import OutOfOrderSequence
from seqgate.log.format.record_batch import HEADER_BYTES, crc_matches, parse_header, whole_batches
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.segments.damage import DAMAGED_BATCHES, DamageRegister
from tests.log.support import (
    NOW_MS,
    SMALL,
    append_end_marker,
    batch,
    delete_records,
    flush,
    open_log,
    read_log,
)

BATCHES = 7
COUNT = 3
END = BATCHES * COUNT
LENGTH_AT, LEADER_EPOCH_AT, MAGIC_AT, CRC_AT, DELTA_AT = 8, 12, 16, 17, 23
ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)
BITS = [*range(8 * HEADER_BYTES), 8 * HEADER_BYTES + 5, 8 * HEADER_BYTES + 400]
"""The flipped bits of a batch: in its header and in some of its records."""
NOTHING: list[tuple[int, int]] = []


def written(tmp_path: Path, config: LogConfig = ONE_SEGMENT) -> Path:
    """Return the directory of a killed process: a durable log with batches of three records by two producers."""
    log = open_log(tmp_path / "log", config)
    for number in range(BATCHES):
        log.append(
            batch(COUNT, producer_id=number % 2, base_sequence=number // 2 * COUNT, size=10 + number),
            now_ms=NOW_MS,
        )
    flush(log)
    log.close(clean=False)
    return tmp_path / "log"


def first_file(directory: Path) -> Path:
    return min(directory.glob("*.log"))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def is_field(bit: int, position: int, size_bytes: int = 1) -> bool:
    return position <= bit // 8 < position + size_bytes


def damage(log: PartitionLog) -> list[tuple[int, int]]:
    """Return (first, end) of the known damaged offsets."""
    return [(found.first_offset, found.end_offset) for found in log.environment.damage.of(log.directory)]


def unreadable(log: PartitionLog, end: int = END) -> list[int]:
    """Return the offsets of sound batches that a client can't read, or reads with other contents."""
    return [offset for offset in range(end) if not is_readable(log, offset)]


def is_readable(log: PartitionLog, offset: int) -> bool:
    try:
        data = memoryview(read_log(log, offset, 1, upper_bound=log.log_end_offset))
        assert data, "a client would ask again for ever"
        header = parse_header(data)
    except CorruptRecord:
        return False
    is_whole = len(data) >= header.size_bytes and crc_matches(header, data[: header.size_bytes])
    first_offset = offset // COUNT * COUNT
    return is_whole and (header.base_offset, header.last_offset) == (first_offset, first_offset + COUNT - 1)


class TestKilled:
    """The process is killed, a bit of the segment of the recovery point flips, and the gateway starts."""

    @pytest.mark.tier("all")
    @pytest.mark.parametrize("number", [0, 3, BATCHES - 1])
    def test_no_bit_costs_more_than_its_batch(self, tmp_path: Path, number: int) -> None:
        path = first_file(written(tmp_path))
        whole = path.read_bytes()
        position, header = list(whole_batches(whole))[number]
        for bit in BITS:
            if is_field(bit, LEADER_EPOCH_AT, 4):
                continue  # no checksum covers this field
            if number == BATCHES - 1 and bit == 8 * MAGIC_AT:
                continue  # looks like a batch of a later release with nothing sound behind it: see test_load
            shutil.rmtree(path.parent)
            path.parent.mkdir()
            content = flipped(whole, 8 * position + bit)
            path.write_bytes(content)
            log = open_log(tmp_path / "log", ONE_SEGMENT, recovery_point=END)
            damaged = (header.base_offset, header.last_offset + 1)
            assert (log.bytes_cut, damage(log), unreadable(log)) == (0, [damaged], list(range(*damaged))), bit
            assert log.append(batch(), now_ms=NOW_MS).base_offset == END
            assert path.read_bytes()[: len(whole)] == content
            log.close(clean=False)

    def test_the_damaged_batch_is_served_alone_as_it_lies(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        whole = path.read_bytes()
        batches = list(whole_batches(whole))
        position, header = batches[2]
        path.write_bytes(flipped(whole, 8 * (position + 70)))
        log = open_log(tmp_path / "log", ONE_SEGMENT, recovery_point=END)

        def found(offset: int) -> bytes:
            return read_log(log, offset, 1 << 20, upper_bound=END)

        assert found(0) == whole[:position]
        assert found(header.base_offset) == path.read_bytes()[position : position + header.size_bytes]
        assert found(header.last_offset + 1) == whole[batches[3][0] :]

    def test_a_torn_tail_is_cut_all_the_same(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        whole = path.read_bytes()
        batches = list(whole_batches(whole))
        content = flipped(flipped(whole, 8 * (batches[2][0] + 70)), 8 * (batches[5][0] + 70))
        path.write_bytes(content)
        log = open_log(tmp_path / "log", ONE_SEGMENT, recovery_point=15)
        assert (damage(log), log.log_end_offset) == ([(6, 9)], 15)
        assert path.read_bytes() == content[: batches[5][0]]

    def test_a_whole_segment_of_zeros(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        size_bytes = path.stat().st_size
        path.write_bytes(bytes(size_bytes))
        log = open_log(tmp_path / "log", ONE_SEGMENT, recovery_point=END)
        assert (damage(log), unreadable(log)) == ([(0, END)], list(range(END)))
        assert path.stat().st_size == size_bytes
        assert log.append(batch(), now_ms=NOW_MS).base_offset == END

    def test_bytes_that_are_missing(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        batches = list(whole_batches(path.read_bytes()))
        os.truncate(path, batches[4][0])
        environment = LogEnvironment()
        for _ in range(2):
            log = open_log(path.parent, ONE_SEGMENT, environment=environment, recovery_point=END)
            assert (damage(log), unreadable(log)) == ([(12, END)], list(range(12, END)))
            assert log.log_end_offset == END
            log.close(clean=False)

    def test_a_batch_within_a_damaged_one_is_not_taken_for_the_next(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", ONE_SEGMENT)
        inner = bytearray(batch())
        inner[:8] = (1).to_bytes(8, "big")
        log.append(build_batch([NewRecord(bytes(inner) + b"behind")]), now_ms=NOW_MS)
        log.append(batch(), now_ms=NOW_MS)
        log.append(batch(), now_ms=NOW_MS)
        flush(log)
        log.close(clean=False)
        path = first_file(tmp_path / "log")
        path.write_bytes(flipped(path.read_bytes(), 8 * LENGTH_AT + 31))
        log = open_log(tmp_path / "log", ONE_SEGMENT, recovery_point=3)
        assert read_log(log, 1, 1, upper_bound=3)[16:] == batch()[16:]
        assert damage(log) == [(0, 1)]

    def test_what_is_known_outlives_a_clean_stop(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        position, _ = list(whole_batches(path.read_bytes()))[2]
        path.write_bytes(flipped(path.read_bytes(), 8 * (position + LENGTH_AT)))
        environment = LogEnvironment()
        environment.damage.load(environment.storage, environment.durability, str(tmp_path))
        log = open_log(path.parent, ONE_SEGMENT, environment=environment, recovery_point=END)
        log.append(batch(), now_ms=NOW_MS)
        stop = log.close(clean=True)
        again = LogEnvironment()
        again.damage.load(again.storage, again.durability, str(tmp_path))
        log = open_log(path.parent, ONE_SEGMENT, environment=again, clean_stop=stop)
        assert log.clean_stop is not None
        assert (damage(log), unreadable(log)) == ([(6, 9)], [6, 7, 8])


class TestNotChecked:
    """A bit flips in data that a start does not check: after a clean stop, or in a closed segment below the
    recovery point.
    """

    @pytest.mark.tier("all")
    @pytest.mark.parametrize("is_closed", [False, True])
    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_no_bit_costs_more_than_its_batch(self, tmp_path: Path, number: int, *, is_closed: bool) -> None:
        directory = written(tmp_path, SMALL)
        stop = open_log(directory, SMALL, recovery_point=END).close(clean=True)
        path = first_file(directory) if is_closed else max(directory.glob("*.log"))
        whole = path.read_bytes()
        batches = list(whole_batches(whole))
        position, header = batches[number % len(batches)]
        damaged = (header.base_offset, header.last_offset + 1)
        for bit in BITS:
            if is_field(bit, LEADER_EPOCH_AT, 4) or is_field(bit, 0, 8):
                continue  # no checksum covers these two; offsets are compared below
            if is_field(bit, MAGIC_AT) and position + header.size_bytes == len(whole):
                continue
            path.write_bytes(flipped(whole, 8 * position + bit))
            log = open_log(directory, SMALL, clean_stop=stop)
            assert set(unreadable(log)) <= set(range(*damaged)), bit
            assert damage(log) in ([damaged], NOTHING), bit
            log.close(clean=False)

    def test_an_offset_that_jumps(self, tmp_path: Path) -> None:
        directory = written(tmp_path)
        stop = open_log(directory, ONE_SEGMENT, recovery_point=END).close(clean=True)
        path = first_file(directory)
        whole = path.read_bytes()
        position, _ = list(whole_batches(whole))[2]
        for bit in range(64):
            path.write_bytes(flipped(whole, 8 * position + bit))
            log = open_log(directory, ONE_SEGMENT, clean_stop=stop)
            with pytest.raises(CorruptRecord):
                read_log(log, 6, 1, upper_bound=END)
            assert damage(log) == [(6, 9)]
            assert unreadable(log) == [6, 7, 8]


class TestProducers:
    def test_one_that_may_have_written_the_damaged_batch_is_refused(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        position, _ = list(whole_batches(path.read_bytes()))[BATCHES - 2]
        path.write_bytes(flipped(path.read_bytes(), 8 * (position + 70)))
        log = open_log(tmp_path / "log", ONE_SEGMENT, recovery_point=END)
        for base_sequence in (2 * COUNT, 3 * COUNT):  # the damaged batch again, and the next one
            with pytest.raises(OutOfOrderSequence, match="damaged"):
                log.append(batch(COUNT, producer_id=1, base_sequence=base_sequence), now_ms=NOW_MS)
        known = log.append(batch(COUNT, producer_id=1, base_sequence=COUNT), now_ms=NOW_MS)
        assert (known.is_duplicate, known.base_offset) == (True, 9)
        behind = log.append(batch(producer_id=0, base_sequence=4 * COUNT), now_ms=NOW_MS)
        assert not behind.is_duplicate, "a producer that wrote after the damage must be able to continue"
        new_epoch = batch(producer_id=1, producer_epoch=1, base_sequence=0)
        assert log.append(new_epoch, now_ms=NOW_MS).base_offset == END + 1

    def test_it_still_is_after_a_clean_stop(self, tmp_path: Path) -> None:
        path = first_file(written(tmp_path))
        position, _ = list(whole_batches(path.read_bytes()))[BATCHES - 2]
        path.write_bytes(flipped(path.read_bytes(), 8 * (position + 70)))
        environment = LogEnvironment()
        log = open_log(path.parent, ONE_SEGMENT, environment=environment, recovery_point=END)
        stop = log.close(clean=True)
        log = open_log(path.parent, ONE_SEGMENT, environment=environment, clean_stop=stop)
        with pytest.raises(OutOfOrderSequence, match="damaged"):
            log.append(batch(producer_id=1, base_sequence=3 * COUNT), now_ms=NOW_MS)


class TestTransactions:
    def opened(self, tmp_path: Path, *, commit: bool) -> tuple[PartitionLog, LogEnvironment]:
        """A log with a damaged marker, and a later marker of the same producer."""
        log = open_log(tmp_path / "log", ONE_SEGMENT)
        log.append(batch(producer_id=9, base_sequence=0, is_transactional=True), now_ms=NOW_MS)
        append_end_marker(log, 9, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
        log.append(batch(producer_id=9, base_sequence=1, is_transactional=True), now_ms=NOW_MS)
        append_end_marker(log, 9, 0, commit=not commit, coordinator_epoch=0, now_ms=NOW_MS)
        flush(log)
        log.close(clean=False)
        path = first_file(tmp_path / "log")
        position, _ = list(whole_batches(path.read_bytes()))[1]
        path.write_bytes(flipped(path.read_bytes(), 8 * (position + 65)))
        environment = LogEnvironment()
        return open_log(path.parent, ONE_SEGMENT, environment=environment, recovery_point=4), environment

    @pytest.mark.parametrize("commit", [True, False])
    def test_one_that_may_have_ended_there_stays_undecided(self, tmp_path: Path, *, commit: bool) -> None:
        log, environment = self.opened(tmp_path, commit=commit)
        assert (log.high_watermark, log.last_stable_offset) == (4, 0)
        stop = log.close(clean=True)
        log = open_log(tmp_path / "log", ONE_SEGMENT, environment=environment, clean_stop=stop)
        assert log.last_stable_offset == 0

    def test_until_the_damage_is_deleted(self, tmp_path: Path) -> None:
        log, _ = self.opened(tmp_path, commit=True)
        assert delete_records(log, 1) == 1
        assert log.last_stable_offset == 1
        delete_records(log, 2)
        assert log.last_stable_offset == 4


class TestRegister:
    def test_a_damaged_register_has_every_log_checked(self, tmp_path: Path) -> None:
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
        log = directory.create("flights", uuid.UUID(int=7), 0, SMALL)
        for _ in range(30):
            log.append(batch(), now_ms=NOW_MS)
        flush(log)
        directory.close()
        path = min((tmp_path / "flights-0").glob("*.log"))
        path.write_bytes(flipped(path.read_bytes(), 8 * 70))
        (tmp_path / DAMAGED_BATCHES).write_bytes(b"{")
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
        [(topic, partition, found)] = directory.known_damage()
        assert (topic, partition, found.first_offset, found.end_offset) == ("flights", 0, 0, 1)
        directory.delete("flights", 0)
        assert list(directory.known_damage()) == []
        directory.close()

    def test_a_new_log_has_no_damage_of_a_deleted_one(self, tmp_path: Path) -> None:
        """A process that died while it deleted the log has left the entry; another one has deleted the
        directory.
        """
        register = DamageRegister()
        register.load(Storage(), LocalDurability(Storage()), str(tmp_path))
        damage = DamagedRange(0, 0, 70, 0, 1, is_framed=True, reason="its CRC is wrong")
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
        directory.close()
        register.note(f"{tmp_path}/flights-0", [damage], is_durable=True)
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
        log = directory.create("flights", uuid.UUID(int=7), 0, SMALL)
        for _ in range(3):
            log.append(batch(), now_ms=NOW_MS)
        flush(log)
        assert list(directory.known_damage()) == []
        directory.close()
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
        log = directory.get("flights", 0)
        assert log is not None
        assert log.log_end_offset == 3
        assert list(directory.known_damage()) == []
        directory.close()

    def test_it_refuses_what_a_later_release_wrote(self, tmp_path: Path) -> None:
        (tmp_path / DAMAGED_BATCHES).write_bytes(b'{"version":2}')
        with pytest.raises(IncompatibleFormat, match="damaged-batches has version 2"):
            DamageRegister().load(Storage(), LocalDurability(Storage()), str(tmp_path))
