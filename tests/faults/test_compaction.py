"""One operation of a compaction fails, or the power fails before it: no record that must stay is lost,
duplicated or misplaced.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from seqgate.log import LogConfig, PartitionLog, StorageFailed
from seqgate.log.cleaning import Cleaning, begin_swap
from seqgate.log.compaction.job import CleanedSegment
from seqgate.log.compaction.swap import delete_cleaned
from seqgate.log.directory.stored_logs import RECOVERY_POINTS
from seqgate.log.files.checkpoints import CLEANER_OFFSETS, encode_offsets
from seqgate.log.files.file_names import CLEANED_SUFFIX, SWAP_SUFFIX
from seqgate.log.format.record_batch import HEADER_BYTES
from tests.faults.crash_images import Image, images, left_by_power_cut
from tests.faults.directory_life import ROOT, DirectoryLife, failing_disk, new_disk, now_ms
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.compaction.cleaning import Kept, begin, keyed, run, stored, stored_batches, swap
from tests.log.compaction.test_model import states, table
from tests.log.support import append_end_marker, delete_due, delete_records, persist

TOPIC, TOPIC_ID = "flights", uuid.UUID(int=78)
CONFIG = LogConfig(
    segment_bytes=600, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=0, compact=True
)
SAMPLES = 4


@dataclass
class Known:
    """The records written so far, in order, and the log end up to which they are durable."""

    records: list[tuple[Kept, bool]] = field(default_factory=list)
    """The records with their keys and values, and whether each was aborted."""
    states: dict[int, dict[int, tuple[object, ...]]] = field(default_factory=dict)
    """The producers' state by log end offset."""
    durable_end_offset: int = 0
    log_start_offset: int = 0

    def copy(self) -> Known:
        return replace(self, records=list(self.records), states=dict(self.states))


class Life(DirectoryLife):
    topic, topic_id, config = TOPIC, TOPIC_ID, CONFIG

    def __init__(self, disk: SimulatedDisk, known: Known | None = None) -> None:
        super().__init__(disk)
        self.known = known or Known()
        self.clean_end_offset: int | None = None

    def send(self, number: int, producer_id: int = 1, *, is_aborted: bool = False) -> None:
        log, base_offset = self.log, self.log.log_end_offset
        entry = log.producers.get(producer_id)
        pairs = [(f"k{number % 3}", f"v{number}"), ("same", f"v{number}" if number % 4 else None)]
        data = keyed(
            *pairs,
            timestamp=now_ms(),
            producer_id=producer_id,
            base_sequence=0 if entry is None else entry.next_sequence,
            is_transactional=is_aborted,
        )
        self.known.records += [
            (Kept(base_offset + n, key.encode(), None if value is None else value.encode()), is_aborted)
            for n, (key, value) in enumerate(pairs)
        ]
        log.append(data, now_ms=now_ms())
        self._note()

    def abort(self, number: int) -> None:
        self.send(number, 11, is_aborted=True)
        append_end_marker(self.log, 11, 0, commit=False, coordinator_epoch=0, now_ms=now_ms())
        self._note()

    def _note(self) -> None:
        self.known.states[self.log.log_end_offset] = states(self.log, batches=5)

    def flush(self) -> None:
        log = self.log
        ticket = log.prepare_flush()
        if ticket is not None:
            try:
                persist(ticket)
            except OSError as error:
                log.fail_flush(ticket, error)
                raise
            except BaseException:
                log.fail_flush(ticket, OSError("power"))
                raise
            log.complete_flush(ticket)
        log.advance_high_watermark(log.recovery_point)
        self.known.durable_end_offset = log.recovery_point

    def checkpoint(self) -> None:
        assert self.directory is not None
        self.directory.checkpoint()

    def compact(self) -> None:
        """Compact as the worker process and the gateway do together."""
        cleaning = begin(self.log, clean_end_offset=self.clean_end_offset, now_ms=now_ms())
        try:
            cleaned, finished = run(self.storage, cleaning)
            for segment in cleaned:
                self._swap(cleaning, segment)
        except Exception:
            with contextlib.suppress(OSError):
                delete_cleaned(self.storage, cleaning.job.directory, cleaning.job.token)
            raise
        self.clean_end_offset = finished.clean_end_offset

    def _swap(self, cleaning: Cleaning, segment: CleanedSegment) -> None:
        ticket = begin_swap(self.log, cleaning, segment)
        assert ticket is not None
        swap(self.log, ticket, now_ms())
        assert len(self.log.segments) >= 2

    def delete_records(self) -> None:
        self.known.log_start_offset = delete_records(self.log, 3, now_ms())

    def clean_up(self) -> None:
        assert self.directory is not None
        delete_due(self.directory.environment, now_ms() + 10_000_000)

    def stop(self) -> None:
        assert self.directory is not None
        self.directory.close(clean=True)
        self.directory = None


def steps(life: Life) -> list[Callable[[], object]]:
    def some(*numbers: int) -> list[Callable[[], object]]:
        return [lambda n=number: life.send(n, 1 + n % 2) for number in numbers]

    return [
        life.open,
        *some(0, 1),
        life.flush,
        *some(2, 3),
        lambda: life.abort(4),
        *some(5, 6, 7, 8, 9),
        lambda: life.log.roll(now_ms()),
        *some(10),
        life.flush,
        life.checkpoint,
        life.compact,
        *some(11),
        life.clean_up,
        lambda: life.abort(12),
        *some(13, 14, 15, 16),
        lambda: life.log.roll(now_ms()),
        life.flush,
        life.checkpoint,
        life.compact,
        life.delete_records,
        life.clean_up,
        *some(17),
        life.flush,
        life.stop,
        life.open,
        *some(18),
        life.flush,
        life.stop,
    ]


def check(log: PartitionLog, known: Known) -> None:
    end_offset = log.log_end_offset
    assert end_offset >= known.durable_end_offset
    found = stored(log)
    offsets = [kept.offset for kept in found]
    assert offsets == sorted(set(offsets))
    written = {kept.offset: kept for kept, _ in known.records}
    assert all(written[kept.offset] == kept for kept in found)
    aborted = {kept.offset for kept, is_aborted in known.records if is_aborted}
    counted = [kept for kept, is_aborted in known.records if not is_aborted and kept.offset < end_offset]
    assert table([kept for kept in found if kept.offset not in aborted]) == table(counted)
    told = {first for _, first in log.segments.aborted_between(0, end_offset)}
    for offset in aborted & set(offsets):
        if log.transactions.open_transaction(11) is None:
            assert {offset, offset - 1} & told
    if end_offset in known.states:
        assert states(log, batches=5) == known.states[end_offset]
    assert all(header.size_bytes >= HEADER_BYTES for header, _ in stored_batches(log))


def check_files(disk: SimulatedDisk) -> None:
    assert not [name for name in disk.files() if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]


def recover_and_check(disk: SimulatedDisk, known: Known) -> None:
    life = Life(disk, known.copy())
    life.open()
    check_files(disk)
    check(life.log, known)
    life.flush()
    life.checkpoint()
    if len(life.log.segments) > 1:
        life.compact()
    check(life.log, known)
    life.stop()
    life.open()
    check(life.log, known)
    life.stop()


def live(life: Life) -> Life:
    for step in steps(life):
        step()
    return life


def compactions(log: Sequence[str]) -> range:
    """Return the operation numbers of both compactions and of the work between them."""
    first = next(number for number, name in enumerate(log) if CLEANED_SUFFIX in name)
    last = max(number for number, name in enumerate(log) if SWAP_SUFFIX in name)
    return range(first, last + 8)


def moments() -> list[Image[Known]]:
    life = Life(new_disk())
    taken = images(life.disk, lambda: live(life), life.known.copy)
    span = compactions([image.operation for image in taken])
    return taken[span.start - 1 : span.stop - 1]


def test_life_without_a_fault() -> None:
    life = live(Life(new_disk()))
    assert life.clean_end_offset is not None
    assert sum(f".log{SWAP_SUFFIX}" in name for name in life.disk.log) >= 3
    assert sum(".txnindex" in name and CLEANED_SUFFIX in name for name in life.disk.log) >= 2
    recover_and_check(life.disk, life.known)


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_without_recovery_points_gaps_are_taken_for_compaction(what: str) -> None:
    """Only recovery points distinguish a compacted log from a torn one. Without them, a gap must not end the
    log.
    """
    life = Life(new_disk())
    for step in steps(life)[:16]:
        step()
    life.flush()
    before = stored(life.log)
    assert life.directory is not None
    life.directory.close(clean=False)
    checkpoint = str(ROOT / RECOVERY_POINTS)
    if what == "damaged":
        life.disk.put(checkpoint, life.disk.content(checkpoint)[:-3])
    else:
        life.storage.delete(checkpoint)
        life.disk.put(str(ROOT / CLEANER_OFFSETS), encode_offsets({(TOPIC, 0): 11}))
    life.open()
    assert stored(life.log) == before
    check(life.log, life.known)


@pytest.mark.parametrize("part", range(4))
def test_power_cut_before_any_operation(part: int) -> None:
    seen: set[object] = set()
    for image in moments()[part::4]:
        for left in left_by_power_cut(image, SAMPLES, seen):
            try:
                recover_and_check(left.disk, image.known)
            except Exception as error:
                raise AssertionError(f"{left.described}: {error!r}") from error
    assert len(seen) > 30


@pytest.mark.parametrize("kind", ["EIO", "short"])
def test_one_operation_fails_and_life_goes_on(kind: str) -> None:
    operations = list(live(Life(new_disk())).disk.log)
    for fail_at in compactions(operations):
        operation = operations[fail_at - 1]
        if kind == "short" and not operation.startswith("write"):
            continue
        life = Life(failing_disk(fail_at, kind))
        try:
            live_on(life)
            life.disk.power_cut(None)
            recover_and_check(life.disk, life.known)
        except Exception as error:
            raise AssertionError(f"operation {fail_at} ({operation}): {error!r}") from error


def live_on(life: Life) -> None:
    for step in steps(life):
        try:
            step()
        except (StorageFailed, OSError):
            mend(life)
            if step in {life.open, life.flush}:
                step()


def mend(life: Life) -> None:
    if life.directory is None:
        life.open()
    log = life.directory.get(TOPIC, 0) if life.directory is not None else None
    if log is not None and log.offline:
        log.reopen(now_ms())
    end_offset = life.log.log_end_offset
    life.known.records = [entry for entry in life.known.records if entry[0].offset < end_offset]
    check(life.log, life.known)
