"""A Produce is answered once consumers can read its records, and not earlier."""

from __future__ import annotations

import asyncio
import gc
import uuid
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.share.letters import producer_of
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce import refusal_of_all
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.security.acls.access import EverythingAllowed, Operation, ResourceType
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.handlers.two_brokers import OTHER, THIS, broker, commit
from tests.support.batches import Batch, records
from tests.support.held_disk import HeldDisk
from tests.support.wire import decode, encode

TOPIC = "orders"
VERSION = 9
TURNS = 100
"""Turns of the event loop after which an answer that does not wait for the disk has arrived."""
VISIBLE_BY_THE_FLUSH, VISIBLE_BY_THE_WRITE = "1", str(2**63 - 1)
"""Values of flush.messages."""


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture
async def node(tmp_path: Path, disk: HeldDisk) -> AsyncIterator[Node]:
    async with open_node(tmp_path, storage=disk) as opened:
        yield opened


class Client:
    """Sends numbered requests on one connection, each with a batch of one record for every partition of the
    topic.
    """

    def __init__(self, node: Node, partition_count: int) -> None:
        self._node = node
        self._dispatcher = Dispatcher([produce.API], node.services)
        self._partition_count = partition_count
        self._sent = 0

    def produce(self, acks: int) -> Any:
        """Send the next batches."""
        self._sent += 1
        return self.again(acks)

    def again(self, acks: int, timeout_ms: int = 30_000) -> Any:
        """Send the last batches another time."""
        batch = replace(Batch(records(1)).of(7, 0, self._sent - 1), base_timestamp=NOW_MS).encode()
        rows = [{"index": index, "records": batch} for index in range(self._partition_count)]
        topics = [{"name": TOPIC, "partition_data": rows}]
        fields = {"acks": acks, "timeout": timeout_ms, "topic_data": topics}
        frame = encode("produce", VERSION, fields, correlation_id=self._sent)
        return self._dispatcher.begin(memoryview(frame), self._node.peer)

    def error_codes(self, answer: Any) -> list[int]:
        return [row["error_code"] for row in self._rows(answer)]

    def base_offsets(self, answer: Any) -> list[int]:
        return [row["base_offset"] for row in self._rows(answer)]

    def _rows(self, answer: Any) -> list[dict[str, Any]]:
        frame: Any = answer.answer if isinstance(answer, Deferred) else answer
        fields = decode("produce", VERSION, frame[4:], correlation_id=self._sent).fields
        rows: list[dict[str, Any]] = fields["responses"][0]["partition_responses"]
        return rows


def partition_of(node: Node) -> Partition:
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    return partition


async def eventually(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_met():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("partition_count", [1, 2])
@pytest.mark.parametrize("acks", [1, -1])
async def test_records_are_visible_before_they_are_acknowledged(
    node: Node, disk: HeldDisk, acks: int, partition_count: int
) -> None:
    await create(node, TOPIC, partition_count, configs={"flush.messages": VISIBLE_BY_THE_FLUSH})
    client, log = Client(node, partition_count), partition_of(node).log
    for number in range(3):  # the prefix cache recognizes the second request for a partition
        with disk.held(TOPIC):
            answer = client.produce(acks)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert isinstance(answer, Deferred)
            assert answer.answer is None
            assert log.high_watermark == number
        await eventually(lambda answer=answer: answer.answer is not None)  # type: ignore[misc]
        assert client.error_codes(answer) == [0] * partition_count
        assert log.high_watermark == number + 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_with_kafkas_page_cache_they_are_visible_and_acknowledged_at_once(
    node: Node, disk: HeldDisk, acks: int
) -> None:
    await create(node, TOPIC, 1, configs={"flush.messages": VISIBLE_BY_THE_WRITE})
    client = Client(node, 1)
    with disk.held(TOPIC):
        for number in range(3):
            assert client.error_codes(client.produce(acks)) == [0]
            assert partition_of(node).log.high_watermark == number + 1


@pytest.mark.tier("all")
async def test_the_log_of_a_deleted_topic_goes_from_memory(node: Node) -> None:
    await create(node, TOPIC, 1, configs={"flush.messages": VISIBLE_BY_THE_WRITE})
    client = Client(node, 1)
    for _ in range(3):
        client.produce(acks=-1)
    log = weakref.ref(partition_of(node).log)
    await delete(node, TOPIC)
    await node.services.partitions.flusher.idle()
    gc.collect()
    assert log() is None


async def test_nothing_is_answered_without_acks(node: Node, disk: HeldDisk) -> None:
    await create(node, TOPIC, 1, configs={"flush.messages": VISIBLE_BY_THE_FLUSH})
    client = Client(node, 1)
    with disk.held(TOPIC):
        assert [client.produce(acks=0) for _ in range(3)] == [None] * 3
    assert partition_of(node).log.log_end_offset == 3


# A malformed batch, or a transactional batch without transactional id, refuses a request for all its
# partitions.

PLAIN = Batch(records(1)).of(7, 0, 0)
TRANSACTIONAL = replace(PLAIN, attributes=0x10)
CORRUPT = ErrorCode.corrupt_message
NO_ID = ErrorCode.transactional_id_authorization_failed


def refusal(*frames: bytes | None, transactional_id: str | None = None) -> ErrorCode | None:
    """Return the error of a request with one frame for each partition; None: the request is not refused."""
    entries = [
        PartitionRecords(index, None if frame is None else memoryview(frame))
        for index, frame in enumerate(frames)
    ]
    request = ProduceRequest(transactional_id, -1, 1_000, [TopicRecords("t", entries)])
    found = refusal_of_all(request)
    assert found is None or f"partition {len(frames) - 1}" in found[1]
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (PLAIN.encode(), None),
        (TRANSACTIONAL.encode(), NO_ID),
        (TRANSACTIONAL.encode()[:-1], None),
        (replace(TRANSACTIONAL, magic=1).encode(), None),
        (replace(PLAIN, magic=3).encode(), CORRUPT),
        (replace(PLAIN, batch_length=13).encode(), CORRUPT),
        (replace(PLAIN, batch_length=13).encode()[:12], CORRUPT),
        (PLAIN.encode()[:11], None),
        (PLAIN.encode()[:17], None),
        (b"", None),
        (None, None),
    ],
)
def test_one_frame_refuses_the_whole_request(last: bytes | None, error: ErrorCode | None) -> None:
    assert refusal(last) is error
    assert refusal(PLAIN.encode(), last) is error


def test_with_a_transactional_id_batches_after_the_first_transactional_one_are_not_checked() -> None:
    bad = replace(PLAIN, magic=3).encode()
    assert refusal(TRANSACTIONAL.encode(), bad, transactional_id="x") is None
    assert refusal(PLAIN.encode(), bad, transactional_id="x") is CORRUPT


class TestForgedLetters:
    """Requests as raw bytes with the producer id of a group's dead letters, which their batches show."""

    TOPIC = "dlq.flights"
    KEY = SharePartitionKey("readers", uuid.UUID(int=7), 0)

    async def ask(
        self, node: Node, epoch: int, sequence: int = 0, *, listener: str = "PLAINTEXT", count: int = 1
    ) -> str:
        """Send records as those of a round of letters; return the name of the error."""
        producer = producer_of(self.KEY, NOW_MS, epoch)
        sent = replace(Batch(records(count)).of(producer.producer_id, epoch, sequence), base_timestamp=NOW_MS)
        client = Asking(node)
        client.peer.listener_name = listener
        rows = [{"index": 0, "records": sent.encode()}]
        topics = [{"name": self.TOPIC, "partition_data": rows}]
        names = set()
        for _ in range(2):  # the second request takes the fast path
            answer = await client.ask(
                "produce", VERSION, transactional_id=None, acks=-1, timeout=30_000, topic_data=topics
            )
            names.add(ErrorCode(answer["responses"][0]["partition_responses"][0]["error_code"]).name)
        (name,) = names
        return name

    async def create(self, node: Node) -> Partition:
        await create(node, self.TOPIC, 1, configs={"errors.deadletterqueue.group.enable": "true"})
        partition = node.services.partitions.registry.get(self.TOPIC, 0)
        assert partition is not None
        return partition

    async def test_a_client_can_not_write_as_the_gateway(self, node: Node) -> None:
        partition = await self.create(node)
        assert await self.ask(node, 1) == "invalid_record", "the producer is unknown"
        letter = build_batch(
            [NewRecord(b"a", timestamp=NOW_MS)] * 2,
            producer_id=producer_of(self.KEY, NOW_MS, 1).producer_id,
            producer_epoch=1,
            base_sequence=0,
        )
        partition.append(letter, NOW_MS, may_derive=True)
        assert await self.ask(node, 1, 0, count=2) == "invalid_record", "the batch is a duplicate"
        assert await self.ask(node, 1, 2) == "invalid_record", "the batch is the next one"
        assert await self.ask(node, 2) == "invalid_record", "the epoch is that of the next round"
        assert partition.log.log_end_offset == 2

    async def test_another_gateway_can(self, node: Node) -> None:
        """At the listener between gateways, with the right of a gateway."""
        partition = await self.create(node)
        assert await self.ask(node, 1) == "invalid_record", "a gateway alone has no others"
        await commit(node, broker(THIS), broker(OTHER))
        assert await self.ask(node, 1, listener="CLIENTS") == "invalid_record"
        node.services.node.access = Rights((Operation.WRITE, ResourceType.TOPIC, self.TOPIC))
        assert await self.ask(node, 1) == "cluster_authorization_failed"
        assert partition.log.log_end_offset == 0
        node.services.node.access = EverythingAllowed()
        assert await self.ask(node, 1) == "none"
        assert partition.log.log_end_offset == 1
