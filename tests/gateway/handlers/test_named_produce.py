"""Duplicates are acknowledged and not stored, but not before the outcome of their originals is decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce_late import OBJECTS_BYTES
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log.state.record_states import RecordStates
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch
from tests.support.held_disk import HeldDisk
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import decode

TOPIC = "ledger"
VERSION = 9
RETRY, STORAGE, FENCED, INVALID_RECORD = 19, 56, 90, 87
TRANSACTIONAL = 0x10
TURNS = 100
"""Turns of the event loop after which a request that does not wait for the disk is answered."""


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture
async def node(tmp_path: Path, disk: HeldDisk) -> AsyncIterator[Node]:
    async with open_node(tmp_path, storage=disk) as opened:
        await create(opened, TOPIC, 2, configs=dict(DEDUPLICATED))
        yield opened


def partition_of(node: Node, index: int = 0) -> Partition:
    partition = node.services.partitions.registry.get(TOPIC, index)
    assert partition is not None
    return partition


def bytes_of(batch: Batch) -> bytes:
    return replace(batch, base_timestamp=NOW_MS).encode()


def begin(node: Node, *batches: Batch, acks: int = -1) -> Any:
    """Begin a request with a batch for each partition in turn."""
    return begin_with(node, [bytes_of(batch) for batch in batches], acks)


def begin_with(node: Node, received: Iterable[bytes | bytearray], acks: int = -1) -> Any:
    entries = [PartitionRecords(index, memoryview(records)) for index, records in enumerate(received)]
    context = node.context(produce.API, VERSION)
    return produce.begin(context, ProduceRequest(None, acks, 30_000, [TopicRecords(TOPIC, entries)]))


def rows_of(answer: Any) -> list[tuple[int, int]]:
    """Return error and base offset by partition."""
    frame = answer.answer if isinstance(answer, Deferred) else answer
    assert isinstance(frame, bytes)
    fields = decode("produce", VERSION, frame[4:], correlation_id=7).fields
    rows = fields["responses"][0]["partition_responses"]
    return [
        (row["error_code"], row["base_offset"]) for row in sorted(rows, key=lambda row: int(row["index"]))
    ]


async def answered(answer: Any) -> list[tuple[int, int]]:
    if isinstance(answer, Deferred):
        await eventually(lambda: answer.answer is not None)
    return rows_of(answer)


async def eventually(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_met():
            await asyncio.sleep(0.001)


async def give_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_duplicate_waits_until_its_original_is_durable(
    node: Node, disk: HeldDisk, *, is_broken: bool
) -> None:
    # the offset from which names are tracked is persisted together with the first names
    assert await answered(begin(node, named("a", 0), named("b", 0))) == [(0, 0), (0, 0)]
    with disk.held(TOPIC):
        first = begin(node, named("a", 1, 2))
        await eventually(lambda: disk.waiting > 0)
        again = begin(node, named("a", 1, 2), named("b", 1))
        with_acks_1 = begin(node, named("a", 2), acks=1)
        await give_turns()
        assert first.answer is again.answer is with_acks_1.answer is None
        disk.broken_topic = TOPIC if is_broken else ""
    expected = (STORAGE, -1) if is_broken else (0, 1)
    assert await answered(first) == [expected]
    assert await answered(with_acks_1) == [(STORAGE, -1) if is_broken else (0, -1)]
    assert await answered(again) == [(STORAGE, -1)] * 2 if is_broken else [(0, -1), (0, 1)]
    assert node.services.partitions.counters.duplicates == 0


async def test_a_duplicate_of_a_durable_record_is_answered_at_once(node: Node) -> None:
    assert await answered(begin(node, named("a", 1, 2))) == [(0, 0)]
    assert rows_of(begin(node, named("a", 1, 2))) == [(0, -1)]
    assert partition_of(node).log.log_end_offset == 2


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_later_batches_of_a_long_request_are_appended_later(
    node: Node, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """Decoding the records of one batch may take a second. Other requests run before the next batch."""
    memory = node.services.upkeep.backlog.held.room = RequestMemory(1_000)
    monkeypatch.setattr(produce, "LONG_S", 0.0)
    received = [bytearray(bytes_of(named("a", 1))), bytearray(bytes_of(named("b", 1, 2)))]
    answer = begin_with(node, received, acks)
    assert memory.used_bytes == len(received[1]) + OBJECTS_BYTES
    assert [partition_of(node, index).log.log_end_offset for index in range(2)] == [1, 0]
    for buffer in received:
        buffer[:] = bytes(len(buffer))  # the next request waits behind it
    assert answer.holds_back
    await eventually(lambda: answer.answer is not None)
    assert answer.answer == b"" if acks == 0 else rows_of(answer) == [(0, 0)] * 2
    assert [partition_of(node, index).log.log_end_offset for index in range(2)] == [1, 2]
    assert partition_of(node, 1).log.record_states.name_state(b"b") is not None
    assert memory.used_bytes == 0


async def test_batches_that_can_not_be_kept_for_later_are_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = node.services.upkeep.backlog.held.room = RequestMemory(10)
    assert memory.try_keep("another", 1)
    second, third = named("b", 1).of(2000, 0, 0), named("b", 2).of(2000, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(produce, "LONG_S", 0.0)
        answer = begin(node, named("a", 1), second)
        assert await answered(answer) == [(0, 0), (RETRY, -1)]
    assert rows_of(begin(node, named("a", 1), third)) == [(0, -1), (RETRY, -1)], (
        "the later batch must not be stored first"
    )
    assert await answered(begin(node, named("a", 1), second)) == [(0, -1), (0, 0)]
    assert await answered(begin(node, named("a", 1), third)) == [(0, -1), (0, 1)]
    assert memory.used_bytes == 1


async def test_a_batch_behind_an_undecided_one_is_refused(node: Node) -> None:
    """Its producer is unknown, so the gateway would accept any first sequence."""
    partition = partition_of(node)
    partition.append(bytes_of(replace(named("a", 1).of(1000, 0, 0), attributes=TRANSACTIONAL)), NOW_MS)
    first, second = named("a", 1).of(2000, 0, 0), named("b", 1).of(2000, 0, 1)
    for _ in range(2):
        assert rows_of(begin(node, first)) == [(RETRY, -1)]
        assert rows_of(begin(node, second)) == [(RETRY, -1)]
    partition.append_end_marker(1000, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
    assert await answered(begin(node, first)) == [(0, 2)]
    assert await answered(begin(node, second)) == [(0, 3)]


async def test_a_batch_behind_one_without_an_open_partition_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = named("a", 1).of(2000, 0, 0), named("a", 2).of(2000, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(
            node.services.partitions.log_directory, "create", Mock(side_effect=OSError("the disk fails"))
        )
        assert rows_of(begin(node, first)) == [(STORAGE, -1)]
    assert rows_of(begin(node, second)) == [(RETRY, -1)]
    assert await answered(begin(node, first)) == [(0, 0)]
    assert await answered(begin(node, second)) == [(0, 1)]


async def test_a_batch_behind_one_without_room_is_refused(node: Node) -> None:
    budget = node.services.partitions.log_directory.environment.name_budget
    budget.max_in_all, budget.min_idle_ms = 1, 1_000
    assert await answered(begin(node, named("a", 1))) == [(0, 0)]
    first, second = named("b", 1).of(2000, 0, 0), named("a", 2).of(2000, 0, 1)
    assert rows_of(begin(node, first)) == [(RETRY, -1)]
    assert rows_of(begin(node, second)) == [(RETRY, -1)]


async def test_a_batch_behind_one_whose_names_are_in_replay_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = partition_of(node).log
    first, second = named("b", 1).of(2000, 0, 0), Batch().of(2000, 0, 1)
    with monkeypatch.context() as patch:
        assert log.record_states.names is not None
        patch.setattr(log.record_states.names, "replay_offset", 0)
        patch.setattr(RecordStates, "replay_names", lambda *_: False)
        # the second batch has no name: it need not wait, but it must not be stored first
        assert rows_of(begin(node, first)) == [(RETRY, -1)]
        assert rows_of(begin(node, second)) == [(RETRY, -1)]
    assert await answered(begin(node, first)) == [(0, 0)]
    assert await answered(begin(node, second)) == [(0, 1)]
