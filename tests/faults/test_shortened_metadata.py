"""A start that shortens the metadata log, on a disk whose power fails before any operation, or on which one
operation fails: the next start finds the same metadata.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest

from seqgate.gateway.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from seqgate.gateway.runtime.loop.clock import SystemClock
from seqgate.gateway.runtime.topics import metadata_log as module
from seqgate.gateway.runtime.topics.metadata_log import (
    LocalJournal,
    MetadataLog,
    change_batch,
    open_metadata_log,
)
from seqgate.log import LogDirectory, Storage, StorageFailed
from tests.faults.crash_images import images, left_by_power_cut
from tests.faults.directory_life import ROOT, new_disk, now_ms
from tests.faults.simulated_disk import SimulatedDisk
from tests.gateway.metadata.test_image_records import everything
from tests.log.support import flush

SAMPLES = 4
NEEDED = 7
"""The records of what is left, with the one that begins them."""


@pytest.fixture(autouse=True)
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTENED_FROM_BYTES", 0)


def open_directory(disk: SimulatedDisk) -> LogDirectory:
    return LogDirectory.open(ROOT, Storage(64, disk.process()), node_id=1, now_ms=now_ms)


def opened(directory: LogDirectory) -> MetadataLog:
    """Return the metadata as a start has it before it shortens the log."""
    flusher: Any = None  # nothing is committed
    metadata = MetadataLog(LocalJournal(open_metadata_log(directory), flusher, SystemClock()))
    metadata.replay()
    return metadata


def with_history() -> tuple[SimulatedDisk, Any]:
    """Return a disk after a clean stop whose metadata are mostly history, and what they say."""
    disk = new_disk()
    directory = open_directory(disk)
    log = open_metadata_log(directory)
    for number in range(12):
        topic_id = uuid.UUID(int=number + 1)
        created = [TopicRecord(f"t{number}", topic_id), PartitionRecord(0, topic_id, (1,), (1,), 1, 0)]
        created += [ConfigRecord(2, f"t{number}", "retention.ms", str(number))]
        gone = [RemoveTopicRecord(topic_id)] if number % 6 else []
        log.append(change_batch([*created, *gone], now_ms()), now_ms=now_ms(), is_client=False)
        flush(log)
    said = everything(opened(directory).image)
    directory.close(clean=True)
    return disk, said


def check(disk: SimulatedDisk, said: Any, described: str) -> None:
    """Check that a start finds what was said, shortens the log if need be, and so does the next start."""
    for _ in range(2):
        directory = open_directory(disk)
        metadata = opened(directory)
        assert everything(metadata.image) == said, described
        metadata.shorten(directory, now_ms())
        assert metadata.last_offset == metadata.log.log_end_offset - 1
        directory.close(clean=True)
    again = open_directory(disk)
    log = open_metadata_log(again)
    assert everything(opened(again).image) == said, described
    assert log.log_end_offset - log.log_start_offset == NEEDED, described
    again.close(clean=True)


def test_the_power_fails_before_any_operation(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    disk, said = with_history()

    def shorten() -> None:
        directory = open_directory(disk)
        opened(directory).shorten(directory, now_ms())

    seen: set[object] = set()
    for image in images(disk, shorten, lambda: None):
        for left in left_by_power_cut(image, SAMPLES, seen):
            check(left.disk, said, left.described)
    assert len(seen) > 10


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
def test_one_operation_fails(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The start fails, or goes on; either way the next start finds everything."""
    caplog.set_level(logging.CRITICAL)
    disk, _ = with_history()
    before = disk.plan.operations
    directory = open_directory(disk)
    opened(directory).shorten(directory, now_ms())
    failures = 0
    for fail_at in range(1, disk.plan.operations - before + 1):
        disk, said = with_history()
        disk.plan.fail_at, disk.plan.kind = disk.plan.operations + fail_at, kind
        try:
            directory = open_directory(disk)
            opened(directory).shorten(directory, now_ms())
            directory.close(clean=True)
        except (StorageFailed, OSError):
            failures += 1
        disk.plan.fail_at = 0
        disk.power_cut_by_seed(fail_at)
        check(disk, said, f"operation {fail_at}")
    assert failures > 5
