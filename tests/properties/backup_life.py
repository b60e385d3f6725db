"""A data directory that lives on while it is backed up, and what its logs had at the moment of the backup."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.backup.command import copy_staged, damage_of, restore_files
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import Repository, manifest_of_complete
from seqgate.log import LogConfig, LogDirectory, PartitionLog, Storage, StorageFailed
from seqgate.log.staging import Staged, capture, remove_staging, stage, stage_stopped
from tests.faults.scenario import encode
from tests.faults.written import Written, read_all
from tests.log.support import NOW_MS, delete_due, delete_old_segments, delete_records, flush

CONFIG: Final = LogConfig(
    segment_bytes=700, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0
)
TOPICS: Final = ("flights", "orders")
PARTITIONS: Final = 2
PRODUCERS: Final = 3


@dataclass
class LogModel:
    """One log: its topic id, its batches, and the next sequence of each producer."""

    topic_id: uuid.UUID
    written: list[Written] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    log_start_offset: int = 0
    has_exact_start: bool = True

    @property
    def end_offset(self) -> int:
        return self.written[-1].end_offset if self.written else 0

    def copy(self) -> LogModel:
        return replace(self, written=list(self.written), sequences=dict(self.sequences))


class InterruptedStorage(Storage):
    """Lets the data directory live on between any two links."""

    def __init__(self, between: Callable[[], None]) -> None:
        super().__init__()
        self._between = between

    def link(self, source: str, target: str) -> None:
        self._between()
        super().link(source, target)

    def list_files(self, path: str) -> dict[str, int]:
        found = super().list_files(path)
        self._between()
        return found


class BackupLife:
    """Drives a log directory, and keeps a model of every log."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path = path / "data"
        self.rng = rng
        self.models: dict[tuple[str, int], LogModel] = {}
        self.interruptions = 0
        self.expecting: dict[tuple[str, int], LogModel] = {}
        """What the logs had at the last capture."""
        self.open()
        for topic in TOPICS:
            self.create(topic)

    def open(self) -> None:
        self.storage = Storage()
        self.directory = LogDirectory.open(
            self.path, self.storage, node_id=1, now_ms=lambda: NOW_MS, config=CONFIG
        )

    # --- the life of the logs

    def create(self, topic: str) -> None:
        if self.directory.has_taken_names:
            self.directory.checkpoint()
        topic_id = uuid.UUID(int=self.rng.getrandbits(128))
        for partition in range(PARTITIONS):
            self.directory.create(topic, topic_id, partition, CONFIG)
            self.models[topic, partition] = LogModel(topic_id)

    def act(self) -> None:
        """Do one thing of those that gateways do."""
        rng = self.rng
        key = rng.choice(list(self.models))
        log = self.log(key)
        act = rng.choices(
            [self._append, self._flush, self._roll, self._delete, self._retain, self._reopen, self._recreate],
            [60, 12, 6, 5, 5, 3, 2],
        )[0]
        act(key, log)
        if rng.random() < 0.2:
            delete_due(self.directory.environment, NOW_MS + 1)
        if rng.random() < 0.1:
            self.directory.checkpoint()

    def log(self, key: tuple[str, int]) -> PartitionLog:
        log = self.directory.get(*key)
        assert log is not None
        return log

    def _append(self, key: tuple[str, int], log: PartitionLog) -> None:
        model = self.models[key]
        producer_id = self.rng.randrange(PRODUCERS)
        sequence = model.sequences.get(producer_id, 0)
        values = [
            f"{key}-{producer_id}-{sequence + index}".encode() for index in range(self.rng.randint(1, 5))
        ]
        found = log.append(encode(producer_id, sequence, values), now_ms=NOW_MS)
        model.written.append(Written(found.base_offset, producer_id, sequence, values))
        model.sequences[producer_id] = sequence + len(values)

    def _flush(self, key: tuple[str, int], log: PartitionLog) -> None:
        flush(log)

    def _roll(self, key: tuple[str, int], log: PartitionLog) -> None:
        log.roll(NOW_MS)

    def _delete(self, key: tuple[str, int], log: PartitionLog) -> None:
        flush(log)
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        self.models[key].log_start_offset = delete_records(log, offset)

    def _retain(self, key: tuple[str, int], log: PartitionLog) -> None:
        flush(log)
        log.update_config(replace(CONFIG, retention_bytes=self.rng.randrange(3000)))
        delete_old_segments(log, NOW_MS)
        log.update_config(CONFIG)
        self.models[key].log_start_offset = log.log_start_offset

    def _reopen(self, key: tuple[str, int], log: PartitionLog) -> None:
        """Take the log offline with a failed write, and recover it from its files."""
        captured = self.expecting.get(key)
        if captured is not None and captured.topic_id == log.topic_id:
            captured.has_exact_start = False
        log.go_offline("a test says so")
        try:
            log.append(encode(0, 0, [b"refused"]), now_ms=NOW_MS)
        except StorageFailed:
            log.reopen(NOW_MS)
        flush(log)

    def _recreate(self, key: tuple[str, int], log: PartitionLog) -> None:
        """Delete the topic, and create one of the same name."""
        for partition in range(PARTITIONS):
            self.directory.delete(key[0], partition)
            del self.models[key[0], partition]
        self.create(key[0])

    # --- backups

    def stage_live(self) -> tuple[Staged, dict[tuple[str, int], LogModel]]:
        """Stage the directory while it lives on; return what its logs had at the moment of the capture."""
        self.storage.keeps_deleted = True
        cuts = capture(self.directory)
        expected = self.expecting = self.expected()
        interrupted = InterruptedStorage(self._between)
        staged = stage(interrupted, str(self.path), cuts, NOW_MS, ())
        self.storage.keeps_deleted = False
        return staged, expected

    def expected(self) -> dict[tuple[str, int], LogModel]:
        found = {key: model.copy() for key, model in self.models.items()}
        for key, model in found.items():
            model.has_exact_start = self.directory.opened(*key) is not None
        return found

    def _between(self) -> None:
        while self.rng.random() < 0.3:
            self.interruptions += 1
            self.act()

    def stage_after_stop(self, *, clean: bool) -> tuple[Staged, dict[tuple[str, int], LogModel]]:
        for key in self.models:
            flush(self.log(key))
        expected = self.expected()
        self.directory.close(clean=clean)
        staged = stage_stopped(self.storage, str(self.path), NOW_MS, ())
        self.open()
        return staged, expected

    def back_up(self, repository: Repository, staged: Staged, restored: Path) -> None:
        """Copy what is staged while the directory lives on, verify the copy, and restore it."""
        repository.create_and_lock()
        pace = Pace()
        storage = InterruptedStorage(self._between)
        created = copy_staged(storage, str(self.path), staged, repository, pace)
        remove_staging(self.storage, str(self.path))
        repository.unlock()
        manifest = manifest_of_complete(self.storage, created.path)
        assert list(damage_of(self.storage, created.path, manifest, Pace())) == []
        restore_files(self.storage, created.path, manifest, str(restored), Pace(), lambda: None)


def check_restored(path: Path, expected: dict[tuple[str, int], LogModel]) -> None:
    """Check that a restored directory has what every log had, and judges producers as before."""
    directory = LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=CONFIG)
    try:
        assert len(directory) == len(expected)
        for key, model in expected.items():
            log = directory.get(*key)
            assert log is not None, key
            assert log.topic_id == model.topic_id
            check_log(log, model)
    finally:
        directory.close(clean=False)


def check_log(log: PartitionLog, model: LogModel) -> None:
    assert log.log_end_offset == model.end_offset
    if model.has_exact_start:
        assert log.log_start_offset == model.log_start_offset
    else:
        # A log that was opened, or opened again, while its files were linked may have lost old records, as it
        # would a moment later.
        assert model.log_start_offset <= log.log_start_offset <= model.end_offset
    kept = [batch for batch in model.written if batch.end_offset > log.log_start_offset]
    assert [batch for batch in read_all(log) if batch.end_offset > log.log_start_offset] == kept
    for producer_id, sequence in model.sequences.items():
        last = [batch for batch in model.written if batch.producer_id == producer_id][-1]
        again = log.append(encode(producer_id, last.base_sequence, last.values), now_ms=NOW_MS)
        assert again.is_duplicate
        assert again.base_offset == last.base_offset
        following = log.append(encode(producer_id, sequence, [b"next"]), now_ms=NOW_MS)
        assert not following.is_duplicate
