"""The files that the log package reads when it opens a data directory: an input is damage to them.

A directory opens or is refused with a sentence. Reading it then gives the written data, data whose CRC shows
the damage, or an error. Damage outside of a partition's records must not cost any of them.
"""

from __future__ import annotations

import random
import shutil
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from crc32c import crc32c

from seqgate.log import LogConfig, LogDirectory, LogError, PartitionLog, Storage
from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files.file_names import LOG_SUFFIX
from seqgate.log.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from tests.fuzzing.damage import COPY, OVERWRITE, Damaged, Files, damaged, mutated_steps, steps_of
from tests.fuzzing.scene import temporary_directory
from tests.fuzzing.target import Breach, Run
from tests.log.support import append_end_marker, delete_due, persist, read_log
from tests.support.batches import HEAD, Batch, Record

MAX_INPUT_BYTES = 1024
PEAK_BYTES = 64 << 20
BASE_WORK = 1500.0
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0, delivery_delay_header="due"
)
LOGS = ("delayed", "plain", "transactional")
CLEAN, KILLED, SWAPPING = range(3)
READ_BYTES = 400
MOST_READS = 200


class Directories:
    """The directories to damage, with their contents, and the path where each is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files = directories()
        self._written = [{log: _batches_of(files, log) for log in LOGS} for files in self.files]

    def run(self, data: bytes) -> None:
        kind = data[0] % len(self.files) if data else 0
        damage = damaged(self.files[kind], data[1:])
        write_files(self._path, damage.files)
        try:
            _check(self._path, damage, self._written[kind])
        finally:
            shutil.rmtree(self._path)


@contextmanager
def opened() -> Iterator[Run]:
    with temporary_directory() as path:
        yield Directories(path / "data").run


def _open(path: Path) -> LogDirectory:
    return LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=CONFIG)


@cache
def directories() -> tuple[Files, ...]:
    """Return the files to damage, by kind of directory."""
    with temporary_directory() as path:
        return tuple(made(path / "data", kind) for kind in (CLEAN, KILLED, SWAPPING))


def made(path: Path, kind: int) -> Files:
    """Return the files of a directory that was stopped, or whose process was killed, perhaps during a segment
    swap.
    """
    directory = _open(path)
    for number, name in enumerate(LOGS):
        log = directory.create(name, uuid.UUID(int=number + 1), 0, CONFIG)
        for batch in _contents(name):
            log.append(batch, now_ms=NOW_MS, is_client=False)
            _flush(log)
        if name == "transactional":
            _end_transactions(log)
    directory.checkpoint()
    if kind != CLEAN:
        files = read_files(path)
        directory.close(clean=False)
    else:
        directory.close(clean=True)
        files = read_files(path)
    shutil.rmtree(path)
    if kind == SWAPPING:
        segments = sorted(name for name in files if name.startswith("plain-0/") and name.endswith(LOG_SUFFIX))
        files.update(_swap_of(files, segments[:2]))
        files[f"{segments[2]}.0f.cleaned"] = files[segments[2]]
    return files


def _swap_of(files: Files, segments: list[str]) -> Files:
    """Return the files of an unfinished swap: two segments merged into one, with its indexes, before it
    replaces the two.
    """
    first, second = (segment.removesuffix(LOG_SUFFIX) for segment in segments)
    base_offset, position = int(second.rpartition("/")[2]), len(files[segments[0]])
    offsets = [
        (offset + base_offset, at + position)
        for offset, at in OFFSET_ENTRY.iter_unpack(files[f"{second}.index"])
    ]
    times = [
        (timestamp, offset + base_offset)
        for timestamp, offset in TIME_ENTRY.iter_unpack(files[f"{second}.timeindex"])
    ]
    return {
        f"{first}.log.swap": files[segments[0]] + files[segments[1]],
        f"{first}.index.swap": files[f"{first}.index"]
        + b"".join(OFFSET_ENTRY.pack(*entry) for entry in offsets),
        f"{first}.timeindex.swap": files[f"{first}.timeindex"]
        + b"".join(TIME_ENTRY.pack(*entry) for entry in times),
    }


def _contents(name: str) -> Iterator[bytes]:
    if name == "delayed":
        for number in range(4):
            headers = ((b"due", str(NOW_MS + 1000 * number).encode()),)
            yield Batch((Record(b"v", b"k", headers), Record(b"w"))).encode()
    elif name == "plain":
        for number in range(12):
            codec = number % 5
            batch = Batch(
                (Record(b"v" * 50, b"k"), Record(None, b"k")), codec=codec, base_timestamp=NOW_MS + number
            )
            yield batch.of(7 + number % 2, 3, number // 2 * 2).encode()
    else:
        for number in range(6):
            yield Batch((Record(b"t" * 40),), attributes=0x10).of(20 + number % 3, 0, number // 3).encode()


def _end_transactions(log: PartitionLog) -> None:
    for producer_id, commit in ((20, True), (21, False)):
        append_end_marker(log, producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
        _flush(log)


def _flush(log: PartitionLog) -> None:
    ticket = log.prepare_flush()
    if ticket is not None:
        persist(ticket)
        log.complete_flush(ticket)
    log.advance_high_watermark_to_end()


def read_files(path: Path) -> dict[str, bytes]:
    """Return all files below a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def write_files(path: Path, files: Files) -> None:
    """Write the files into a directory."""
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_dir():
            file.write_bytes(content)


def _batches_of(files: Files, log: str) -> dict[int, bytes]:
    """Return all batches of a log by their base offsets."""
    found: dict[int, bytes] = {}
    for name, content in files.items():
        if name.startswith(f"{log}-0/") and name.endswith(LOG_SUFFIX):
            found.update((_PLACE.unpack_from(batch)[0], batch) for batch in _sound_batches(content))
    return found


def _check(path: Path, damage: Damaged, written: dict[str, dict[int, bytes]]) -> None:
    try:
        directory = _open(path)
    except (LogError, IncompatibleFormat, OSError):
        return
    try:
        for name, batches in written.items():
            _check_log(directory, name, batches, damage)
        delete_due(directory.environment, NOW_MS)
        directory.checkpoint()
        with suppress(LogError, OSError):
            directory.close(clean=True)
    finally:
        directory.close(clean=False)


def _check_log(directory: LogDirectory, name: str, batches: dict[int, bytes], damage: Damaged) -> None:
    touched = {path.partition("/")[2] for path in damage.touched if path.startswith(f"{name}-0")}
    may_lose = any(path.endswith(LOG_SUFFIX) or path in _DECIDES_WHAT_IS_KEPT for path in touched)
    may_lose = may_lose or _may_pass_for_whole(touched)
    try:
        log = directory.get(name, 0)
        if log is None:
            if not may_lose:
                raise Breach(f"{name} is gone, although its records were not damaged")
            return
        served = _served(log)
    except IncompatibleFormat:
        return  # The damage made the batch look like one of a later release, which a start refuses.
    except (LogError, OSError) as error:
        if not may_lose:
            raise Breach(f"{name} can't be read, although its records were not damaged: {error}") from error
        return
    contents = {batch[HEAD_KEPT:] for batch in batches.values()}
    for offset, batch in served.items():
        if batch[HEAD_KEPT:] not in contents:
            raise Breach(f"{name} serves a batch at offset {offset} that was never written")
    missing = sorted(batches.keys() - served.keys())
    if missing and not may_lose:
        raise Breach(f"{name} has lost the batches at {missing} by damage to {sorted(touched)}")


def _may_pass_for_whole(touched: set[str]) -> bool:
    """Return whether damage to a cleaned segment can go unnoticed, because the index of its gaps is damaged,
    too.
    """
    swaps = (path.removesuffix(".log.swap") for path in touched if path.endswith(".log.swap"))
    return any(f"{swap}.timeindex.swap" in touched for swap in swaps)


def _served(log: PartitionLog) -> dict[int, bytes]:
    """Return the sound batches that a reader gets who skips damaged ones."""
    log.advance_high_watermark_to_end()
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    for _ in range(MOST_READS):
        if offset >= log.log_end_offset:
            _look_up(log)
            return found
        records = read_log(log, offset, READ_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
        before = offset
        for batch in _sound_batches(records):
            base_offset, last_offset_delta = _PLACE.unpack_from(batch)
            found[base_offset] = batch
            offset = base_offset + last_offset_delta + 1
        if offset <= before:
            return found
    raise Breach(f"{log.topic} was not read to its end by {MOST_READS} reads")


def _sound_batches(records: bytes) -> Iterator[bytes]:
    """Return the batches before the first damaged one, where a reader stops."""
    position = 0
    while len(records) - position >= HEAD.size:
        size = 12 + int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
        batch = records[position : position + size]
        if size < HEAD.size or len(batch) < size or crc32c(batch[21:]).to_bytes(4, "big") != batch[17:21]:
            return
        yield batch
        position += size


def _look_up(log: PartitionLog) -> None:
    """Look up offsets and timestamps, as consumers do."""
    log.first_of_largest_timestamp()
    for timestamp in (0, NOW_MS, NOW_MS + 5, 2**62):
        log.first_not_before(timestamp)
    log.segments.aborted_between(log.log_start_offset, log.log_end_offset)
    log.record_states.release_due(NOW_MS + 10_000)
    log.epochs.end_offset(0, log.log_end_offset)


_PLACE = struct.Struct(">q15xi")
"""The position of base_offset and of last_offset_delta in a batch."""
HEAD_KEPT = 21
"""The size of the head that Kafka's CRC does not cover. A changed offset in the head can't be noticed."""
_DECIDES_WHAT_IS_KEPT = frozenset({"partition.metadata", "log-start-offset-checkpoint"})


def seeds() -> Iterator[bytes]:
    for kind in (CLEAN, KILLED, SWAPPING):
        yield bytes([kind])
        for number in range(40):
            yield bytes([kind]) + steps_of((number, OVERWRITE, 7, b"\x01"))
            yield bytes([kind]) + steps_of((number, COPY, 0, b""))


def mutated(data: bytes, chance: random.Random) -> bytes:
    if not data or chance.random() < 0.2:
        data = bytes([chance.randrange(3)])
    return mutated_steps(data, directories()[data[0] % 3], chance)
