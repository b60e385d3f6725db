"""One bit of one file turns over at rest: what is read is what was written, or an error; never something else.

What a flip in records means: below the recovery point Kafka never reads them again at a start, and serves them as they are;
whoever decodes them finds the checksum wrong. Above it recovery checks every batch and ends the log before the first bad one.
Here the same holds, and nothing before the flipped batch is touched.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from log import IncompatibleFormat, LogError, PartitionLog, lookups
from log.directory.log_directory import RECOVERY_POINTS
from log.directory.stored_logs import CLEAN_SHUTDOWN
from log.files.file_names import LEADER_EPOCHS, LOG_START_OFFSET, LOG_SUFFIX, PARTITION_METADATA
from log.format.record_batch import whole_batches
from tests.faults.directory_life import ROOT, new_disk
from tests.faults.scenario import Life, check_transactions, committed_values
from tests.faults.simulated_disk import SimulatedDisk
from tests.faults.written import Transactions, Written, read_all

SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
CHECKPOINTS = (RECOVERY_POINTS, LEADER_EPOCHS, LOG_START_OFFSET, PARTITION_METADATA, CLEAN_SHUTDOWN)
BITS_OF_A_FILE = 40


def rich_life() -> Life:
    """Several segments with aborted transactions, flushed."""
    life = Life(new_disk())
    life.open()
    for number in range(36):
        life.append(number % 3, 1 + number % 2)
        if number % 5 == 0:
            life.send(10, 2)
        if number % 5 == 3:
            life.end(10, commit=number % 2 == 0)
    life.flush()
    return life


def bits(disk: SimulatedDisk, suffix: str, chance: random.Random) -> Iterator[tuple[str, int]]:
    for path, size_bytes in disk.files(str(ROOT)).items():
        if path.endswith(suffix) and size_bytes:
            every = range(8 * size_bytes)
            for bit in (
                every if len(every) <= BITS_OF_A_FILE else sorted(chance.sample(every, BITS_OF_A_FILE))
            ):
                yield path, bit


def read_everything(log: PartitionLog, written: list[Written]) -> None:
    assert read_all(log) == [batch for batch in written if batch.end_offset > log.log_start_offset]
    for batch in written[:: max(1, len(written) // 12)]:
        if batch.end_offset <= log.log_start_offset:
            continue
        found = log.read(
            max(batch.base_offset, log.log_start_offset), 1, upper_bound=log.log_end_offset
        ).records
        assert next(iter(whole_batches(found)))[1].base_offset == batch.base_offset
    check_transactions(log, written)
    transactions = Transactions(written)
    start = log.log_start_offset
    assert committed_values(log, start) == transactions.committed(start, log.last_stable_offset)


def by_time(log: PartitionLog) -> list[object]:
    return [lookups.offset_for_timestamp(log, timestamp) for timestamp in range(1_000, 1_030, 3)] + [
        lookups.offset_of_max_timestamp(log)
    ]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_in_what_is_made_from_the_log(suffix: str) -> None:
    life = rich_life()
    expected = by_time(life.log)
    life.stop()
    for path, bit in bits(life.disk, suffix, random.Random(suffix)):
        disk = life.disk.copy()
        disk.flip_bit(path, bit)
        again = Life(disk, life.promises.copy())
        try:
            again.open()
            read_everything(again.log, life.promises.written)
            assert by_time(again.log) == expected
        except Exception as error:
            raise AssertionError(f"bit {bit} of {path}: {error!r}") from error


@pytest.mark.parametrize("suffix", CHECKPOINTS)
def test_in_checkpoints(suffix: str) -> None:
    """A start that refuses them says so; one that goes on has every record."""
    life = rich_life()
    life.delete_records(9)
    life.clean_up()
    life.checkpoint()
    life.stop()
    damaged = 0
    for path, bit in bits(life.disk, suffix, random.Random(suffix)):
        disk = life.disk.copy()
        disk.flip_bit(path, bit)
        flipped = disk.content(path)
        again = Life(disk, life.promises.copy())
        try:
            again.open()
            assert again.log.log_end_offset == life.promises.written[-1].end_offset
            assert again.log.log_start_offset in {9, again.log.segments.segments[0].base_offset}
            read_everything(again.log, life.promises.written)
        except (IncompatibleFormat, UnicodeDecodeError):
            damaged += 1
        except Exception as error:
            raise AssertionError(f"bit {bit} ({flipped!r}) of {path}: {error!r}") from error


def batches_of(disk: SimulatedDisk) -> dict[int, bytes]:
    found = {}
    for path in disk.files(str(ROOT)):
        if path.endswith(LOG_SUFFIX):
            data = disk.content(path)
            for position, header in whole_batches(data):
                found[header.base_offset] = data[position : position + header.size_bytes]
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_in_records(clean: bool) -> None:
    life = rich_life()
    sound = batches_of(life.disk)
    flipped = 0
    if clean:
        life.stop()
    else:
        life.disk.kill()
    for path, bit in bits(life.disk, LOG_SUFFIX, random.Random(5)):
        disk = life.disk.copy()
        disk.flip_bit(path, bit)
        again = Life(disk, life.promises.copy())
        try:
            again.open()
            flipped += check_what_is_served(again.log, sound, disk.content(path), clean=clean)
        except IncompatibleFormat:
            assert bit // 8 in magic_bytes(life.disk.content(path)), "nothing else looks like another format"
        except Exception as error:
            raise AssertionError(f"bit {bit} of {path}: {error!r}") from error
    assert bool(flipped) == clean


def magic_bytes(content: bytes) -> set[int]:
    return {position + 16 for position, _ in whole_batches(content)}


def check_what_is_served(log: PartitionLog, sound: dict[int, bytes], damaged: bytes, *, clean: bool) -> int:
    """Each batch as it was, as it lies damaged in the file, or an error; how many were damaged."""
    flipped = 0
    for offset, batch in sound.items():
        if offset >= log.log_end_offset:
            assert not clean
            continue
        try:
            found = bytes(log.read(offset, 1, upper_bound=log.log_end_offset).records[: len(batch)])
        except LogError:
            flipped += 1
            continue
        if found != batch:
            # neither Kafka's checksum nor the recovery cover the leader epoch
            assert clean or found[:12] + found[16:] == batch[:12] + batch[16:], "recovery has checked it"
            assert bytes(found) in damaged
            flipped += clean
    return flipped
