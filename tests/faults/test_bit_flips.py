"""One bit of one stored file flips: a reader gets the original data or an error, never anything else.

A flip in records costs the batch that contains it and no other, however the gateway was stopped. The damaged
bytes stay, all other batches are read at their offsets, and no offset is used again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from seqgate.log import IncompatibleFormat, LogError, PartitionLog
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, RECOVERY_POINTS
from seqgate.log.files.file_names import LEADER_EPOCHS, LOG_START_OFFSET, LOG_SUFFIX, PARTITION_METADATA
from seqgate.log.format.record_batch import whole_batches
from tests.faults.directory_life import ROOT, new_disk, now_ms
from tests.faults.scenario import Life, check_transactions, committed_values
from tests.faults.simulated_disk import SimulatedDisk
from tests.faults.written import Transactions, Written, read_all
from tests.log.support import batch as new_batch
from tests.log.support import read_log
from tests.tiers import in_tiers

SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
CHECKPOINTS = (RECOVERY_POINTS, LEADER_EPOCHS, LOG_START_OFFSET, PARTITION_METADATA, CLEAN_SHUTDOWN)
BITS_OF_A_FILE = 40
PARTS = (0, 1)
"""Every second of these bits is flipped in `make test-all`, the others in `make test-nightly`."""
STOPS = ("clean", "kill", "power cut")


def rich_life() -> Life:
    """Return a disk with several segments and aborted transactions, flushed."""
    life = Life(new_disk())
    life.open()
    life.flush()  # a log rolls only after its first flush
    for number in range(36):
        life.append(number % 3, 1 + number % 2)
        if number % 5 == 0:
            life.send(10, 2)
        if number % 5 == 3:
            life.end(10, commit=number % 2 == 0)
    life.flush()
    return life


def bits(disk: SimulatedDisk, suffix: str, chance: random.Random, part: int) -> Iterator[tuple[str, int]]:
    for path, size_bytes in disk.files(str(ROOT)).items():
        if path.endswith(suffix) and size_bytes:
            every = range(8 * size_bytes)
            for bit in (
                every if len(every) <= BITS_OF_A_FILE else sorted(chance.sample(every, BITS_OF_A_FILE))
            )[part::2]:
                yield path, bit


def read_everything(log: PartitionLog, written: list[Written]) -> None:
    assert read_all(log) == [batch for batch in written if batch.end_offset > log.log_start_offset]
    for batch in written[:: max(1, len(written) // 12)]:
        if batch.end_offset <= log.log_start_offset:
            continue
        found = read_log(log, max(batch.base_offset, log.log_start_offset), 1, upper_bound=log.log_end_offset)
        assert next(iter(whole_batches(found)))[1].base_offset == batch.base_offset
    check_transactions(log, written)
    transactions = Transactions(written)
    start = log.log_start_offset
    assert committed_values(log, start) == transactions.committed(start, log.last_stable_offset)


def by_time(log: PartitionLog) -> list[object]:
    return [log.first_not_before(timestamp) for timestamp in range(1_000, 1_030, 3)] + [
        log.first_of_largest_timestamp()
    ]


def end(life: Life, stop: str) -> None:
    """Stop the gateway. Flushed data is below the recovery point; a power cut tears the data after the
    recovery point.
    """
    if stop == "clean":
        life.stop()
        return
    life.checkpoint()
    if stop == "kill":
        life.disk.kill()
        return
    life.append(0, 3)
    life.append(1)
    life.disk.power_cut(random.Random(7))


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("part", in_tiers(PARTS, nightly=[1]))
def test_in_what_is_made_from_the_log(suffix: str, stop: str, part: int) -> None:
    life = rich_life()
    expected = by_time(life.log)
    end(life, stop)
    for path, bit in bits(life.disk, suffix, random.Random(suffix), part):
        disk = life.disk.copy()
        disk.flip_bit(path, bit)
        again = Life(disk, life.promises.copy())
        try:
            again.open()
            again.promises.cut(again.log.log_end_offset)
            assert again.log.log_end_offset >= life.promises.durable_end_offset
            read_everything(again.log, again.promises.written)
            if stop != "power cut":
                assert by_time(again.log) == expected
        except Exception as error:
            raise AssertionError(f"bit {bit} of {path}: {error!r}") from error


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("suffix", CHECKPOINTS)
@pytest.mark.parametrize("part", in_tiers(PARTS, nightly=[1]))
def test_in_checkpoints(suffix: str, stop: str, part: int) -> None:
    """A start that refuses a damaged checkpoint says so; a start that accepts it has every record."""
    life = rich_life()
    life.delete_records(9)
    life.clean_up()
    end(life, stop)
    for path, bit in bits(life.disk, suffix, random.Random(suffix), part):
        disk = life.disk.copy()
        disk.flip_bit(path, bit)
        flipped = disk.content(path)
        again = Life(disk, life.promises.copy())
        try:
            again.open()
            if stop != "clean" and suffix == PARTITION_METADATA and not again.log.log_end_offset:
                assert any("-stray/" in name for name in disk.files(str(ROOT))), (
                    "the start must not delete records"
                )
                continue
            again.promises.cut(again.log.log_end_offset)
            # a recovery point that the flip has raised moves the log end there: no offset is used twice
            assert again.log.log_end_offset >= life.promises.durable_end_offset
            assert again.log.log_start_offset in {9, again.log.segments.segments[0].base_offset}
            if not list(again.directory.known_damage() if again.directory else ()):
                read_everything(again.log, again.promises.written)
        except (IncompatibleFormat, UnicodeDecodeError):
            pass
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


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("part", in_tiers(PARTS, nightly=[1]))
def test_in_records(stop: str, part: int) -> None:
    life = rich_life()
    sound = batches_of(life.disk)
    durable_end = life.promises.durable_end_offset
    end(life, stop)
    damaged = known = 0
    for path, bit in bits(life.disk, LOG_SUFFIX, random.Random(5), part):
        disk = life.disk.copy()
        durable = batches_in(life.disk.content(path), durable_end)
        if bit // 8 >= durable:
            continue  # recovery cuts the torn tail off
        disk.flip_bit(path, bit)
        flipped = disk.content(path)[:durable]
        again = Life(disk, life.promises.copy())
        try:
            again.open()
            log = again.log
            assert log.log_end_offset >= durable_end
            spoiled = not_as_written(log, sound)
            assert spoiled <= {base_offset_at(life.disk.content(path), bit // 8)}
            info = log.append(new_batch(timestamp=1_000), now_ms=now_ms())
            assert info.base_offset >= durable_end
            again.flush()
            assert disk.content(path)[:durable] == flipped, "the start must not cut any bytes"
            damaged += len(spoiled)
            known += len(list(again.directory.known_damage() if again.directory else ()))
            again.stop()
            again.open()
            assert not_as_written(again.log, sound) == spoiled
        except IncompatibleFormat:
            assert bit in later_magic_bits(life.disk.content(path)), (
                "only a flip of the magic may look like another format"
            )
        except Exception as error:
            raise AssertionError(f"bit {bit} of {path}: {error!r}") from error
    assert damaged >= known > 0


def batches_in(content: bytes, end_offset: int) -> int:
    """Return the position in a segment file behind the last batch that ends at or before the offset."""
    return max(
        (
            position + header.size_bytes
            for position, header in whole_batches(content)
            if header.last_offset < end_offset
        ),
        default=0,
    )


def base_offset_at(content: bytes, byte: int) -> int:
    return next(
        header.base_offset
        for position, header in whole_batches(content)
        if byte < position + header.size_bytes
    )


def later_magic_bits(content: bytes) -> set[int]:
    """Return the bits whose flip gives a batch the magic of a later release."""
    return {8 * (position + 16) for position, _ in whole_batches(content)}


def not_as_written(log: PartitionLog, sound: dict[int, bytes]) -> set[int]:
    """Return the base offsets of the batches that read differently from what was written; no checksum covers
    the leader epoch.
    """
    spoiled = set()
    for offset, batch in sound.items():
        try:
            found = bytes(read_log(log, offset, 1, upper_bound=log.log_end_offset)[: len(batch)])
        except LogError:
            spoiled.add(offset)
            continue
        if found[:12] + found[16:] != batch[:12] + batch[16:]:
            spoiled.add(offset)
    return spoiled
