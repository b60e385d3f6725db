"""The order of an idempotent producer holds from its first batch on: each way in which a first batch can be
refused.

A producer sends A (sequences 0 to 4) and B (5 to 9) one behind the other. A is refused. Either B waits until
A came again, or, where every client gives A up, B is stored as in Kafka.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce_order import Refusals
from seqgate.gateway.metadata.image import TOPIC_RESOURCE
from seqgate.gateway.protocol.produce_codec import produce_reader
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.log.files.storage import DataFile
from seqgate.log.format.record_batch import Buffer
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import NOW_MS, FakePeer, Node, open_node
from tests.support.batches import Batch, Record, records
from tests.support.held_disk import HeldDisk
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import decode, encode

TOPIC = "orders"
VERSION = 8
OK, WAITS = 0, 19
A = replace(Batch(records(5)), base_timestamp=NOW_MS).of(7, 0, 0)
B, C = (replace(A, base_sequence=sequence) for sequence in (5, 10))
LARGE = replace(A, records=[Record(value=b"x" * 1_000)] * 5)


class Disk(HeldDisk):
    """A disk that can be full."""

    is_full = False

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        return super().write(file, buffers, position)


class Client:
    """One connection of a client that sends one batch in a request."""

    def __init__(self, node: Node, version: int = VERSION) -> None:
        self.node = node
        self.peer = FakePeer()
        self.version = version
        self._dispatcher = Dispatcher([produce.API], node.services)

    def frame(self, batch: Batch | bytearray, topic: str = TOPIC) -> memoryview:
        rows = [{"index": 0, "records": batch.encode() if isinstance(batch, Batch) else bytes(batch)}]
        fields = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": rows}]}
        return memoryview(encode("produce", self.version, fields, correlation_id=1))

    def begin(self, batch: Batch | bytearray, topic: str = TOPIC) -> Any:
        return self._dispatcher.begin(self.frame(batch, topic), self.peer)

    async def code(self, begun: Any) -> int:
        """Return the error code of an answer, when it is there."""
        if isinstance(begun, Deferred):
            if begun.answer is None:
                done = asyncio.Event()
                begun.on_resolved = done.set
                async with asyncio.timeout(60):
                    await done.wait()
            begun = begun.answer
        fields = decode("produce", self.version, bytes(begun)[4:], correlation_id=1).fields
        return int(fields["responses"][0]["partition_responses"][0]["error_code"])

    async def send(self, batch: Batch | bytearray) -> int:
        return await self.code(self.begin(batch))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def node(tmp_path: Path, disk: Disk) -> AsyncIterator[Node]:
    async with open_node(tmp_path, storage=disk) as opened:
        yield opened


@pytest.fixture
def client(node: Node) -> Client:
    return Client(node)


def reopen(node: Node) -> None:
    """Bring the partition back, as after a shortage of disk space."""
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    partition.log.reopen(NOW_MS)


async def settle(codes: Callable[[Batch], Awaitable[int]]) -> None:
    """Send A, B and C as their producer does from now on, and see that each is stored."""
    assert [await codes(batch) for batch in (A, B, C)] == [OK] * 3


SENT_AGAIN = {
    "too large, with several records": (ErrorCode.message_too_large, LARGE),
    "a wrong checksum": (ErrorCode.corrupt_message, replace(A, crc=1)),
}
GIVEN_UP = {
    "too large, with one record": (ErrorCode.message_too_large, replace(LARGE, records=LARGE.records[:1])),
    "a timestamp out of bounds": (
        ErrorCode.invalid_timestamp,
        replace(A, base_timestamp=NOW_MS - 10_000_000),
    ),
    "a negative sequence": (ErrorCode.invalid_record, replace(A, base_sequence=-2)),
    "a codec that does not exist": (
        ErrorCode.unsupported_compression_type,
        replace(A, codec=6, payload=b"x"),
    ),
}
LIMITS: dict[str, str | None] = {"max.message.bytes": "1000", "message.timestamp.before.max.ms": "1000"}


@pytest.mark.parametrize("version", [3, 8, 9])
@pytest.mark.parametrize("way", [*SENT_AGAIN, *GIVEN_UP])
async def test_a_batch_that_the_log_refuses(node: Node, way: str, version: int) -> None:
    await create(node, TOPIC, configs=LIMITS)
    client = Client(node, version)
    error, refused = (SENT_AGAIN | GIVEN_UP)[way]
    holds_back = way in SENT_AGAIN
    begun = [client.begin(batch) for batch in (refused, B)]
    assert [await client.code(each) for each in begun] == [int(error), WAITS if holds_back else OK]
    if holds_back:
        parts = [replace(A, records=A.records[:2]), replace(A, records=A.records[2:], base_sequence=2)]
        assert [await client.send(batch) for batch in (*parts, B, C)] == [OK] * 4
        assert client.peer.refused is None


@pytest.mark.parametrize("position", range(43, 57), ids=lambda position: f"byte {position}")
async def test_a_batch_whose_producer_is_damaged_on_the_way(
    node: Node, client: Client, position: int
) -> None:
    """The header does not say whose batch it is. A batch that is not the first of an unknown producer comes
    twice.
    """
    await create(node, TOPIC)
    damaged = bytearray(A.encode())
    damaged[position] ^= 0x10
    assert await client.send(damaged) == int(ErrorCode.corrupt_message)
    behind = [await client.send(batch) for batch in (B, C)]
    assert OK not in behind
    await settle(client.send)
    assert client.peer.refused is None


async def test_the_fast_path_keeps_the_order_too(node: Node, client: Client) -> None:
    """The requests of another producer have taught the gateway the prefix."""
    await create(node, TOPIC, configs=LIMITS)
    assert [await client.send(replace(A, producer_id=8, base_sequence=5 * n)) for n in range(2)] == [OK, OK]
    assert [await client.send(batch) for batch in (LARGE, B)] == [10, WAITS]
    await settle(client.send)


async def test_a_topic_that_is_created_between_two_requests(node: Node, client: Client) -> None:
    assert await client.send(A) == int(ErrorCode.unknown_topic_or_partition)
    await create(node, TOPIC)
    assert await client.send(B) == WAITS
    await settle(client.send)


async def test_a_producer_goes_on_in_a_topic_that_was_created_again(node: Node, client: Client) -> None:
    await create(node, TOPIC)
    assert await client.send(A) == OK
    await delete(node, TOPIC)
    assert await client.send(B) == int(ErrorCode.unknown_topic_or_partition)
    await create(node, TOPIC)
    assert [await client.send(batch) for batch in (C, B, C)] == [WAITS, OK, OK]


async def test_a_write_that_fails(node: Node, client: Client, disk: Disk) -> None:
    await create(node, TOPIC)
    disk.is_full = True
    assert await client.send(A) == int(ErrorCode.kafka_storage_error)
    disk.is_full = False
    reopen(node)
    assert await client.send(B) == WAITS
    await settle(client.send)


@pytest.mark.parametrize("is_learned", [False, True], ids=["decoded", "by its prefix"])
async def test_a_flush_that_fails_and_loses_the_batch(
    node: Node, client: Client, disk: Disk, is_learned: bool
) -> None:
    await create(node, TOPIC)
    if is_learned:
        assert await client.send(replace(A, producer_id=8)) == OK
    disk.broken_topic = TOPIC
    begun = client.begin(A)
    assert await client.code(begun) == int(ErrorCode.kafka_storage_error)
    disk.broken_topic = ""
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    Path(partition.log.directory, "00000000000000000000.log").write_bytes(b"")
    reopen(node)
    assert partition.log.producers.get(7) is None
    assert await client.send(B) == WAITS
    await settle(client.send)


async def test_a_partition_that_is_handed_over_and_comes_back(node: Node, client: Client) -> None:
    await create(node, TOPIC)
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    partition.is_handed_over = True
    assert await client.send(A) == int(ErrorCode.not_leader_or_follower)
    partition.is_handed_over = False
    assert await client.send(B) == WAITS
    await settle(client.send)


@pytest.mark.parametrize("code", [ErrorCode.not_enough_replicas, ErrorCode.throttling_quota_exceeded])
async def test_errors_that_a_test_ordered_for_all_batches_in_flight(
    node: Node, client: Client, code: ErrorCode
) -> None:
    """The test kit answers in place of the handler, and notes the refusals as the handler would. None of the
    later batches waited for the first, so that it is not given up.
    """
    await create(node, TOPIC)
    refusals = Refusals(node.services.partitions.refusals, client.peer)
    for batch in (A, *(replace(B, base_sequence=5 * number) for number in range(1, 5))):
        request, _ = produce_reader(VERSION)(client.frame(batch), 14)
        ((key, (entry,)),) = request.topics
        refusals.note(key, entry.partition, entry.records, int(code))
    assert await client.send(B) == WAITS
    await settle(client.send)


async def test_a_known_producer_waits_behind_its_refused_batch(node: Node, client: Client) -> None:
    await create(node, TOPIC)
    assert await client.send(A) == OK
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    partition.is_handed_over = True
    assert await client.send(B) == int(ErrorCode.not_leader_or_follower)
    partition.is_handed_over = False
    assert await client.send(A) == OK, "a duplicate"
    third = replace(B, base_sequence=10)
    assert [await client.send(batch) for batch in (third, B, third)] == [WAITS, OK, OK]
    assert client.peer.refused is None
    assert await client.send(replace(B, base_sequence=99)) == int(ErrorCode.out_of_order_sequence_number)


async def test_a_refused_batch_that_is_then_given_up(node: Node, client: Client) -> None:
    await create(node, TOPIC, configs=LIMITS)
    assert await client.send(LARGE) == int(ErrorCode.message_too_large)
    _, too_old = GIVEN_UP["a timestamp out of bounds"]
    assert [await client.send(batch) for batch in (too_old, B)] == [int(ErrorCode.invalid_timestamp), OK]


async def test_a_batch_that_is_a_duplicate_by_name_counts_as_sent_again(node: Node, client: Client) -> None:
    """Nothing of it is stored, so the partition still does not know the producer."""
    await create(node, TOPIC, configs={**DEDUPLICATED})
    first, second = (replace(named("app", *ids), base_timestamp=NOW_MS) for ids in ((1, 2), (3, 4)))
    assert await client.send(first.of(8, 0, 0)) == OK
    sent_again, behind = first.of(7, 0, 0), second.of(7, 0, 2)
    codes = [await client.send(batch) for batch in (replace(sent_again, crc=1), behind, sent_again, behind)]
    assert codes == [int(ErrorCode.corrupt_message), WAITS, OK, OK]
    assert client.peer.refused is None


async def test_another_connection_is_not_held_back(node: Node, client: Client) -> None:
    await create(node, TOPIC, configs=LIMITS)
    assert await client.send(LARGE) == int(ErrorCode.message_too_large)
    assert await Client(node).send(replace(B, producer_epoch=0)) == OK
    client.peer.hang_up()
    assert node.services.partitions.refusals.remembered == 0


@pytest.mark.parametrize(("version", "code"), [(0, OK), (2, OK), (3, WAITS)])
async def test_a_client_that_does_not_name_its_software_has_one_batch_in_flight(
    node: Node, client: Client, version: int, code: int
) -> None:
    """aiokafka asks ApiVersions v0 and would fail every later batch; the others ask v3 or later."""
    await create(node, TOPIC, configs=LIMITS)
    asked = {} if version < 3 else {"client_software_name": "a-client", "client_software_version": "1"}
    frame = memoryview(encode("api_versions", version, asked, correlation_id=1))
    assert Dispatcher(APIS, node.services).begin(frame, client.peer) is not None
    assert [await client.send(batch) for batch in (LARGE, B)] == [int(ErrorCode.message_too_large), code]


async def test_a_client_that_goes_on_without_the_refused_batch(node: Node, client: Client) -> None:
    await create(node, TOPIC, configs=LIMITS)
    await alter(node, TOPIC_RESOURCE, TOPIC, {"max.message.bytes": "1000"})
    assert await client.send(LARGE) == int(ErrorCode.message_too_large)
    later = [replace(B, base_sequence=5 * number) for number in range(1, 6)]
    assert [await client.send(batch) for batch in later] == [WAITS] * 4 + [OK]
