"""A partition flushes as its settings demand, and its high watermark follows the flush or the write."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.flusher import Flusher
from seqgate.gateway.runtime.partitions.partition import FLUSH_NEVER, Partition
from seqgate.log import InvalidProducerEpoch, LocalDurability, LogConfig, LogDirectory, Storage
from seqgate.log.errors import OutOfOrderSequence
from seqgate.log.format.records import NewRecord, build_batch


@pytest.fixture
async def flusher() -> AsyncIterator[Flusher]:
    flusher = Flusher(asyncio.get_running_loop(), durability=LocalDurability(Storage()))
    flusher.start()
    yield flusher
    await flusher.idle()
    flusher.stop()


def partition(
    tmp_path: Path,
    flusher: Flusher,
    *,
    flush_messages: int,
    flush_ms: int = FLUSH_NEVER,
    segment_bytes: int = 1 << 20,
) -> Partition:
    directory = LogDirectory.open(tmp_path / "data", Storage(), node_id=1, now_ms=lambda: 1000)
    flusher.durability = directory.environment.durability
    log = directory.create("t", uuid.uuid4(), 0, LogConfig(segment_bytes=segment_bytes))
    return Partition(log, flusher, leader_epoch=0, flush_messages=flush_messages, flush_ms=flush_ms)


BATCH = build_batch([NewRecord(b"v" * 100, timestamp=1000)])


async def test_with_flush_messages_one_the_high_watermark_follows_the_flush(
    tmp_path: Path, flusher: Flusher
) -> None:
    served = partition(tmp_path, flusher, flush_messages=1)
    info = served.append(BATCH, 1000)
    assert served.log.high_watermark == 0
    assert not served.is_persisted(info.last_offset)
    await flusher.flushed(served.log)
    assert served.is_persisted(info.last_offset)


async def test_an_offset_is_decided_by_its_flush(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=1)
    told: list[tuple[bool, int]] = []
    served.when_decided(
        served.append(BATCH, 1000).answer_after,
        lambda persisted: told.append((persisted, served.log.high_watermark)),
    )
    assert told == []
    await flusher.idle()
    assert told == [(True, 1)], "acknowledged records must be visible"


async def test_in_page_cache_mode_it_follows_the_write(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=FLUSH_NEVER)
    assert served.is_persisted(served.append(BATCH, 1000).last_offset)
    await flusher.idle()
    assert flusher.rounds == 0


async def test_every_n_messages_are_flushed(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=3)
    for _ in range(2):
        served.append(BATCH, 1000)
    await flusher.idle()
    assert served.log.recovery_point == 0
    served.append(BATCH, 1000)
    await flusher.idle()
    assert served.log.recovery_point == 3


async def test_a_closed_segment_is_flushed_in_page_cache_mode_too(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=FLUSH_NEVER, segment_bytes=3 * len(BATCH))
    served.start_flush()
    await flusher.idle()
    for _ in range(4):
        served.append(BATCH, 1000)
    await flusher.idle()
    assert len(served.log.segments) == 2
    assert served.log.recovery_point == 4


async def test_flush_by_time(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=FLUSH_NEVER, flush_ms=500)
    served.append(BATCH, 1000)
    served.flush_by_time(1000)
    served.flush_by_time(1499)
    await flusher.idle()
    assert served.log.recovery_point == 0
    served.flush_by_time(1500)
    await flusher.idle()
    assert served.log.recovery_point == 1
    served.append(BATCH, 1500)
    served.flush_by_time(1500)
    served.flush_by_time(900)  # the clock was set back: nobody knows how long the record has waited
    await flusher.idle()
    assert served.log.recovery_point == 2


async def test_watchers_hear_of_the_high_watermark_and_of_the_end(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=FLUSH_NEVER)
    heard: list[int] = []
    served.watch("reader", lambda: heard.append(served.log.high_watermark))
    served.append(BATCH, 1000)
    served.close()
    assert heard == [1, 1]
    served.append(BATCH, 1000)
    assert heard == [1, 1], "no request may wait any more"


TRANSACTIONAL = build_batch(
    [NewRecord(b"v", timestamp=1000)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
)


@pytest.mark.parametrize("flush_messages", [1, FLUSH_NEVER])
async def test_a_marker_is_persisted_and_wakes_as_any_batch(
    tmp_path: Path, flusher: Flusher, flush_messages: int
) -> None:
    served = partition(tmp_path, flusher, flush_messages=flush_messages)
    served.append(TRANSACTIONAL, 1000)
    await flusher.idle()
    woken = asyncio.Event()
    served.watch(woken, woken.set)
    assert served.log.last_stable_offset == 0
    info = served.append_end_marker(7, 0, commit=True, coordinator_epoch=1, now_ms=1000)
    assert info.base_offset == 1
    await woken.wait()
    assert served.log.last_stable_offset == 2


async def test_a_stale_marker_leaves_the_partition_as_it_was(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=1)
    served.append_end_marker(7, 3, commit=True, coordinator_epoch=1, now_ms=1000)
    with pytest.raises(InvalidProducerEpoch):
        served.append_end_marker(7, 2, commit=True, coordinator_epoch=1, now_ms=1000)
    assert served.log.log_end_offset == 1


async def test_an_unknown_producer_may_have_to_begin_at_zero(tmp_path: Path, flusher: Flusher) -> None:
    served = partition(tmp_path, flusher, flush_messages=1)
    later = build_batch([NewRecord(b"v", timestamp=1000)], producer_id=7, producer_epoch=0, base_sequence=5)
    with pytest.raises(OutOfOrderSequence):
        served.append(later, 1000, begins_at_zero=True)
    assert served.append(later, 1000).base_offset == 0
