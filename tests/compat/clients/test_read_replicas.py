"""Clients that read history from another gateway than the leader, from the bucket of three gateways
(KIP-392).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AioPlace
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as Place

from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.config import load_config
from seqgate.gateway.config.cluster import RACK_SELECTOR, SPREADING_SELECTOR
from seqgate.gateway.gateway import Gateway
from tests.support.kafka_tools import run_tool

TOPIC = "history"
UPLOADED, LATER = 300, 20
VALUE_BYTES = 10_000
DEADLINE_S = 60.0
LAST_RACK = "r3"
Rows = list[tuple[int, bytes]]


def value(number: int) -> bytes:
    return b"%06d" % number + bytes(VALUE_BYTES - 6)


EXPECTED: Rows = [(number, value(number)) for number in range(UPLOADED + LATER)]


async def started(path: Path, number: int, selector: str) -> Gateway:
    overrides = [
        f"log.dirs={path / str(number)}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"broker.rack=r{number}",
        f"node.id={number}",
        f"seqgate.cluster=file://{path / 'bucket'}",
        f"replica.selector.class={selector}",
        "seqgate.cluster.puts.per.second=50",
        "seqgate.cluster.balance.delay.ms=0",
        "group.initial.rebalance.delay.ms=0",
    ]
    gateway = Gateway(load_config(overrides=overrides))
    await gateway.start()
    return gateway


class Three:
    """Three gateways; node 1 leads the topic, and has uploaded all of it but for the newest records."""

    def __init__(self) -> None:
        self.gateways: list[Gateway] = []

    @property
    def bootstrap(self) -> str:
        return self.gateways[0].services.node.brokers.advertised["PLAINTEXT"].shown

    async def stop(self, gateway: Gateway) -> None:
        """Stop a gateway that still runs."""
        if gateway in self.gateways:
            await gateway.stop()

    async def begin(self) -> None:
        await asyncio.to_thread(self._create)
        await asyncio.to_thread(self._produce, range(UPLOADED))
        leader = self.gateways[0].services
        uploads = leader.upkeep.find_uploads()
        assert uploads is not None
        await uploads.round()
        key = PartitionKey(leader.topics.metadata_log.image.topics_by_name[TOPIC].topic_id, 0)
        manifest = uploads.counting(key)
        assert manifest is not None
        assert manifest.end_offset == UPLOADED
        await asyncio.to_thread(self._produce, range(UPLOADED, UPLOADED + LATER))
        async with asyncio.timeout(DEADLINE_S):
            while not all(gateway.services.partitions.registry.has(TOPIC, 0) for gateway in self.gateways):
                await asyncio.sleep(0.01)

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])
        for done in admin.create_topics([topic]).values():
            done.result(DEADLINE_S)

    def _produce(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "batch.size": 100_000})
        for number in numbers:
            producer.produce(TOPIC, value(number), partition=0)
        assert producer.flush(DEADLINE_S) == 0

    def bytes_read(self) -> list[int]:
        """Return the bytes of records that each gateway has served of what another one leads."""
        reads = [gateway.services.partitions.bucket_reads for gateway in self.gateways]
        return [0 if each is None else each.bytes_read for each in reads]


@asynccontextmanager
async def three(path: Path, selector: str) -> AsyncIterator[Three]:
    (path / "bucket").mkdir()
    async with AsyncExitStack() as running:
        cluster = Three()
        for number in (1, 2, 3):
            gateway = await started(path, number, selector)
            cluster.gateways.append(gateway)
            running.push_async_callback(cluster.stop, gateway)
        await cluster.begin()
        yield cluster


def with_confluent(bootstrap: str, rack: str, amid: Callable[[], None] = lambda: None) -> Rows:
    """Read all; call `amid` after the first records. The client has few more in memory then."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "confluent",
            "client.rack": rack,
            "max.partition.fetch.bytes": 100_000,
            "queued.max.messages.kbytes": 200,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: Rows = []
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found) < len(EXPECTED) and time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            found.append((message.offset(), message.value()))
            if len(found) == 1:
                amid()
    consumer.close()
    return found


def with_kafka_python(bootstrap: str, rack: str) -> Rows:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_rack=rack,
        auto_offset_reset="none",
        enable_auto_commit=False,
        max_partition_fetch_bytes=500_000,
    )
    consumer.assign([Place(TOPIC, 0)])
    consumer.seek(Place(TOPIC, 0), 0)
    found: Rows = []
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found) < len(EXPECTED) and time.monotonic() < deadline_s:
        for rows in consumer.poll(1000).values():
            found += [(row.offset, row.value) for row in rows]
    consumer.close()
    return found


async def _with_aiokafka(bootstrap: str, rack: str) -> Rows:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_rack=rack,
        auto_offset_reset="none",
        enable_auto_commit=False,
        max_partition_fetch_bytes=500_000,
    )
    await consumer.start()
    found: Rows = []
    try:
        consumer.assign([AioPlace(TOPIC, 0)])
        consumer.seek(AioPlace(TOPIC, 0), 0)
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < len(EXPECTED):
                row = await consumer.getone()
                found.append((row.offset, row.value))
    finally:
        await consumer.stop()
    return found


def with_aiokafka(bootstrap: str, rack: str) -> Rows:
    return asyncio.run(_with_aiokafka(bootstrap, rack))


CLIENTS: dict[str, Callable[[str, str], Rows]] = {
    "confluent-kafka": with_confluent,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_reads_history_in_its_rack(tmp_path: Path, client: str) -> None:
    async with three(tmp_path, RACK_SELECTOR) as cluster:
        found = await asyncio.to_thread(CLIENTS[client], cluster.bootstrap, LAST_RACK)
        assert found == EXPECTED
        first, second, third = cluster.bytes_read()
        assert third >= UPLOADED * VALUE_BYTES, (
            "the gateway of the client's rack has served all that is uploaded"
        )
        assert (first, second) == (0, 0)


async def test_kafka_python_reads_from_both(tmp_path: Path) -> None:
    """It goes back to the leader after each answer of another gateway, and the leader does not send it away
    again.
    """
    async with three(tmp_path, RACK_SELECTOR) as cluster:
        assert await asyncio.to_thread(with_kafka_python, cluster.bootstrap, LAST_RACK) == EXPECTED
        first, second, third = cluster.bytes_read()
        assert (first, second) == (0, 0)
        assert 0 < third < UPLOADED * VALUE_BYTES


async def test_a_client_returns_to_the_leader_when_the_other_gateway_stops(tmp_path: Path) -> None:
    async with three(tmp_path, RACK_SELECTOR) as cluster:
        loop, last = asyncio.get_running_loop(), cluster.gateways.pop()

        def stop() -> None:
            reads = last.services.partitions.bucket_reads
            assert reads is not None
            assert reads.bytes_read > 0
            asyncio.run_coroutine_threadsafe(last.stop(), loop).result(DEADLINE_S)

        assert await asyncio.to_thread(with_confluent, cluster.bootstrap, LAST_RACK, stop) == EXPECTED


async def test_a_client_without_a_rack_reads_from_the_leader(tmp_path: Path) -> None:
    async with three(tmp_path, RACK_SELECTOR) as cluster:
        assert await asyncio.to_thread(with_confluent, cluster.bootstrap, "") == EXPECTED
        assert cluster.bytes_read() == [0, 0, 0]


async def test_the_console_consumer_reads_history_in_its_rack(tmp_path: Path) -> None:
    async with three(tmp_path, RACK_SELECTOR) as cluster:
        run = await asyncio.to_thread(
            run_tool,
            "kafka-console-consumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--from-beginning"),
            *("--max-messages", str(len(EXPECTED)), "--timeout-ms", "60000"),
            *("--isolation-level", "read_committed", "--command-property", f"client.rack={LAST_RACK}"),
        )
        lines = run.expect_success().stdout.splitlines()
        assert [line[:6] for line in lines] == [f"{number:06}" for number in range(len(EXPECTED))]
        first, second, third = cluster.bytes_read()
        assert third >= UPLOADED * VALUE_BYTES
        assert (first, second) == (0, 0)


async def test_consumers_spread_over_all_gateways(tmp_path: Path) -> None:
    async with three(tmp_path, SPREADING_SELECTOR) as cluster:
        # Each is another client to the leader, by its rack, which no gateway has.
        racks = ("a", "b", "c")
        found = await asyncio.gather(
            *(asyncio.to_thread(with_confluent, cluster.bootstrap, rack) for rack in racks)
        )
        assert found == [EXPECTED] * 3
        first, second, third = cluster.bytes_read()
        assert first == 0, "the leader has served one of them, as the leader"
        assert min(second, third) >= UPLOADED * VALUE_BYTES
