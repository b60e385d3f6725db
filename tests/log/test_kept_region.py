"""Bytes that a reader takes in several steps, while their segment is deleted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import KeptRegion, LogConfig, LogDirectory, PartitionLog, Storage
from tests.log.support import (
    NOW_MS,
    SMALL,
    batch,
    delete_due,
    delete_old_segments,
    delete_records,
    fill,
    flush,
    open_log,
)

CONFIG = replace(SMALL, retention_ms=1000)
ALL_BYTES = 1 << 20


def filled(directory: Path, storage: Storage | None = None) -> PartitionLog:
    log = open_log(directory, CONFIG, storage=storage)
    fill(log, 40)
    flush(log)
    return log


def keep(log: PartitionLog, offset: int) -> KeptRegion:
    region = log.find(offset, ALL_BYTES, upper_bound=log.high_watermark)
    assert region is not None
    return region.kept()


def by_retention(log: PartitionLog) -> None:
    assert delete_old_segments(log, NOW_MS + 2000)


def by_delete_records(log: PartitionLog) -> None:
    delete_records(log, -1)
    delete_old_segments(log, NOW_MS)


def by_closing(log: PartitionLog) -> None:
    log.close(clean=False)


@pytest.mark.parametrize("remove", [by_retention, by_delete_records, by_closing])
def test_stays_readable_when_its_segment_goes(
    tmp_path: Path, remove: Callable[[PartitionLog], object]
) -> None:
    storage = Storage()
    log = filled(tmp_path / "log", storage)
    region = keep(log, 0)
    whole = region.read()
    first = region.read(0, 100)
    remove(log)
    delete_due(log.environment, NOW_MS + 10_000)
    for path in (tmp_path / "log").glob("*.log"):
        path.unlink()

    assert first + region.read(100) == whole
    region.release()
    with pytest.raises(FileNotFoundError):
        region.read()


def test_gives_its_descriptor_back(tmp_path: Path) -> None:
    storage = Storage()
    log = filled(tmp_path / "log", storage)
    regions = [keep(log, 0), keep(log, 0), keep(log, 39)]
    dropped = keep(log, 20)
    by_closing(log)
    assert len(storage.descriptors) == 3
    del dropped
    assert len(storage.descriptors) == 2
    for region in regions:
        assert region.read()
        region.release()
        region.release()

    assert len(storage.descriptors) == 0


def test_of_a_file_that_was_closed_meanwhile(tmp_path: Path) -> None:
    storage = Storage(max_open_files=1)
    log = filled(tmp_path / "log", storage)
    region = keep(log, 0)
    whole = region.read()
    keep(log, 39).read()
    by_retention(log)
    delete_due(log.environment, NOW_MS + 10_000)

    assert region.read() == whole


def test_more_than_may_stay_open_fail(tmp_path: Path) -> None:
    """Many stalled readers must not use up the file descriptors."""
    storage = Storage(max_open_files=2)
    log = filled(tmp_path / "log", storage)
    regions = [keep(log, offset) for offset in (0, 10, 20, 30)]
    by_retention(log)

    for region in regions[:2]:
        assert region.read()
    for region in regions[2:]:
        with pytest.raises(FileNotFoundError):
            region.read()
    regions[0].release()
    fill(log, 10)
    flush(log)
    another = keep(log, 40)
    by_closing(log)
    assert another.read()


def test_a_file_that_takes_the_name_is_never_read(tmp_path: Path) -> None:
    """Compaction gives its result the name of the segment that it read."""
    storage = Storage()
    log = filled(tmp_path / "log", storage)
    region = keep(log, 0)
    whole = region.read()
    by_closing(log)
    path = tmp_path / "log" / f"{0:020d}.log"
    (tmp_path / "swapped").write_bytes(b"\0" * len(whole))
    (tmp_path / "swapped").replace(path)

    assert region.read() == whole


def test_a_log_recovered_in_place_gives_no_bytes_of_before(tmp_path: Path) -> None:
    """A recovery may cut batches that were not flushed, and later batches take their place in the file."""
    log = open_log(tmp_path / "log")
    log.append(batch(3), now_ms=NOW_MS)
    ticket = log.prepare_flush()
    assert ticket is not None
    log.advance_high_watermark_to_end()
    region = keep(log, 0)
    log.go_offline("a test says so")
    log.reopen(NOW_MS)

    with pytest.raises(FileNotFoundError):
        region.read()
    with pytest.raises(FileNotFoundError):
        region.send(0, 0)
    log.complete_flush(ticket)
    region.release()


def test_a_deleted_topic_and_its_successor(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    config = LogConfig(file_delete_delay_ms=0)
    log = directory.create("flights", uuid.UUID(int=7), 0, config)
    fill(log, 10)
    flush(log)
    region = keep(log, 0)
    whole = region.read()
    directory.delete("flights", 0)
    while delete_due(directory.environment, NOW_MS):
        pass
    successor = directory.create("flights", uuid.UUID(int=8), 0, config)
    fill(successor, 10, count=2)
    flush(successor)

    assert region.read() == whole
    region.release()
    directory.close()


def test_is_sent_after_the_segment_went(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    region = keep(log, 0)
    whole = region.read()
    by_retention(log)
    delete_due(log.environment, NOW_MS + 10_000)
    receiving, sending = os.pipe()
    try:
        assert region.send(sending, 10) == len(whole) - 10
        assert os.read(receiving, ALL_BYTES) == whole[10:]
    finally:
        os.close(receiving)
        os.close(sending)
