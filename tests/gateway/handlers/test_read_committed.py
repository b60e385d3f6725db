"""The answers to readers of committed records: Fetch and ListOffsets, and also DescribeProducers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from seqgate.gateway.handlers.answering.api import Deferred, ResponseBytes
from seqgate.gateway.handlers.records import fetch, list_offsets
from seqgate.gateway.handlers.transactions import describe_producers
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRequest
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import FileRegion
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.handlers.requests import TIMEOUT, create
from tests.gateway.handlers.support import NOW_MS, Node, open_node, versions
from tests.support.batches import read_batches

NAMED = [4, 6, 11, 12]
COMMITTED, UNCOMMITTED = 1, 0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        await create(node, "t")
        yield node


def partition_of(node: Node) -> Partition:
    partition = node.services.partitions.registry.get("t", 0)
    assert partition is not None
    return partition


def send(node: Node, producer_id: int, *, sequence: int = 0, size: int = 10) -> None:
    record = NewRecord(b"v" * size, timestamp=NOW_MS + sequence)
    data = build_batch(
        [record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    partition_of(node).append(data, NOW_MS)


def end(node: Node, producer_id: int, *, commit: bool = False) -> None:
    partition_of(node).append_end_marker(producer_id, 0, commit=commit, coordinator_epoch=3, now_ms=NOW_MS)


async def persist(node: Node) -> None:
    partition = partition_of(node)
    await node.services.partitions.flusher.flushed(partition.log, partition)


def ask(
    node: Node,
    *,
    version: int = 12,
    offset: int = 0,
    isolation_level: int = COMMITTED,
    max_bytes: int = 1 << 20,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
) -> ResponseBytes | Deferred:
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        positions={("t", 0): FetchPosition(offset, max_bytes, -1, -1)},
        forgotten=[],
        replica_id=-1,
    )
    context = node.context(fetch.API, version)
    return fetch.begin(context, request)


def row(answer: ResponseBytes | Deferred, version: int = 12) -> Any:
    assert not isinstance(answer, Deferred)
    pieces = [answer] if isinstance(answer, bytes) else answer
    frame = b"".join(piece.read() if isinstance(piece, FileRegion) else piece for piece in pieces)
    head = 9 if version >= 12 else 8
    response, _ = entity_reader(load_response_schema(1, version))(frame, head)
    return response.responses[0].partitions[0]


def aborted(found: Any) -> list[tuple[int, int]] | None:
    listed = found.aborted_transactions
    return None if listed is None else [(entry.producer_id, entry.first_offset) for entry in listed]


def base_offsets(found: Any) -> list[int]:
    return [view.base_offset for view in read_batches(bytes(found.records or b""))[0]]


class TestFetch:
    @pytest.mark.parametrize("version", NAMED)
    async def test_every_version(self, node: Node, version: int) -> None:
        send(node, 7), send(node, 8), end(node, 7), send(node, 9), end(node, 8, commit=True)
        await persist(node)
        committed = row(ask(node, version=version), version)
        assert (committed.high_watermark, committed.last_stable_offset) == (5, 3)
        assert base_offsets(committed) == [0, 1, 2]
        assert aborted(committed) == [(7, 0)]
        everything = row(ask(node, version=version, isolation_level=UNCOMMITTED), version)
        assert (everything.last_stable_offset, base_offsets(everything)) == (3, [0, 1, 2, 3, 4])
        assert aborted(everything) is None

    async def test_without_aborts_the_list_is_empty(self, node: Node) -> None:
        send(node, 7), end(node, 7, commit=True)
        await persist(node)
        assert aborted(row(ask(node))) == []
        at_the_end = row(ask(node, offset=2))
        assert (aborted(at_the_end), base_offsets(at_the_end)) == ([], [])

    async def test_aborted_transactions_are_listed_beside_records_sent_by_sendfile(self, node: Node) -> None:
        send(node, 7, size=100_000), send(node, 8, size=100_000), end(node, 7), end(node, 8, commit=True)
        await persist(node)
        answer = ask(node)
        assert isinstance(answer, list)
        assert any(isinstance(piece, FileRegion) for piece in answer)
        assert (base_offsets(row(answer)), aborted(row(answer))) == ([0, 1, 2, 3], [(7, 0)])


class TestWaitingFetch:
    async def test_a_persisted_marker_completes_a_waiting_fetch(self, node: Node) -> None:
        send(node, 7)
        await persist(node)
        waiting = ask(node, max_wait_ms=600_000)
        assert isinstance(waiting, Deferred)
        done = asyncio.Event()
        waiting.on_resolved = done.set
        end(node, 7, commit=True)
        assert not done.is_set()
        await persist(node)
        await done.wait()
        assert waiting.answer is not None
        assert base_offsets(row(waiting.answer)) == [0, 1]

    @pytest.mark.parametrize("others", [0, 3])
    async def test_min_bytes_counts_only_records_of_ended_transactions(self, node: Node, others: int) -> None:
        send(node, 7, size=5_000)
        await persist(node)
        waiting = ask(node, max_wait_ms=600_000, min_bytes=5_000)
        assert isinstance(waiting, Deferred)
        done = asyncio.Event()
        waiting.on_resolved = done.set
        for sequence in range(others):
            send(node, 8, sequence=sequence, size=4_000)
            await persist(node)
        assert not done.is_set()
        end(node, 7)
        await persist(node)
        await done.wait()
        assert waiting.answer is not None
        found = row(waiting.answer)
        assert (base_offsets(found), aborted(found)) == ([0] if others else [0, 1], [(7, 0)])


class TestListOffsets:
    @pytest.mark.parametrize("version", versions(list_offsets.API)[1:])
    async def test_the_latest_offset_is_the_last_stable_offset(self, node: Node, version: int) -> None:
        send(node, 7), end(node, 7), send(node, 8)
        await persist(node)
        assert await self.look_up(node, -1, COMMITTED, version) == 2
        assert await self.look_up(node, -1, UNCOMMITTED, version) == 3

    async def test_times_beyond_the_last_stable_offset_are_not_answered(self, node: Node) -> None:
        send(node, 7), end(node, 7), send(node, 8, sequence=0), send(node, 8, sequence=1)
        await persist(node)
        for isolation_level, offset in ((COMMITTED, -1), (UNCOMMITTED, 3)):
            assert await self.look_up(node, NOW_MS + 1, isolation_level) == offset
            assert await self.look_up(node, -3, isolation_level) == offset
        assert await self.look_up(node, NOW_MS, COMMITTED) == 0

    @staticmethod
    async def look_up(node: Node, timestamp: int, isolation_level: int, version: int = 9) -> int:
        def make(module: Any) -> dict[str, Any]:
            fields = {"partition_index": 0, "timestamp": timestamp}
            if version >= 4:
                fields["current_leader_epoch"] = -1
            entry = module.ListOffsetsPartition(**fields)
            topics = (module.ListOffsetsTopic(name="t", partitions=(entry,)),)
            return {
                "replica_id": -1,
                "isolation_level": isolation_level,
                "topics": topics,
                "timeout": TIMEOUT,
            }

        response = await node.ask(list_offsets.API, version, make)
        found = response.topics[0].partitions[0]
        assert found.error_code.name == "none"
        return int(found.offset)


async def test_describe_producers_shows_transactions(node: Node) -> None:
    send(node, 7), end(node, 7), send(node, 7, sequence=1)
    partition_of(node).append_end_marker(8, 4, commit=True, coordinator_epoch=5, now_ms=NOW_MS + 9)

    def make(module: Any) -> dict[str, Any]:
        return {"topics": (module.TopicRequest(name="t", partition_indexes=(0,)),)}

    response = await node.ask(describe_producers.API, 0, make)
    rows = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )
        for producer in response.topics[0].partitions[0].active_producers
    ]
    assert rows == [(7, 0, 1, NOW_MS + 1, 3, 2), (8, 4, -1, NOW_MS + 9, 5, -1)]
