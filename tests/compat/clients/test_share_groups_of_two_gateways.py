"""Share groups, producer names and commands of clients over two gateways, each with half of the partitions
and of the coordinators' state.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord, TopicRecord
from seqgate.gateway.runtime.topics.topic_lifecycle import java_hash
from tests.compat.clients.test_two_gateways import (
    COUNT,
    DEADLINE_S,
    NODES,
    PARTITIONS,
    TwoGateways,
    lines,
    started,
)
from tests.support.kafka_tools import run_tool

STATES_ID = uuid.uuid5(uuid.NAMESPACE_OID, "__share_group_state")


def coordinated_by(node_id: int) -> str:
    """Return a group that a gateway coordinates."""
    names = (f"readers-{number}" for number in range(100))
    return next(name for name in names if NODES[(java_hash(name) & 0x7FFFFFFF) % PARTITIONS % 2] == node_id)


GROUPS = [coordinated_by(node_id) for node_id in NODES]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[TwoGateways]:
    async with AsyncExitStack() as running:
        gateways = [
            await running.enter_async_context(started(tmp_path / str(node_id), node_id)) for node_id in NODES
        ]
        both = TwoGateways(gateways)
        await both.begin()
        records: list[MetadataRecord] = [
            TopicRecord("__share_group_state", STATES_ID),
            ConfigRecord(TOPIC_RESOURCE, "lines", "message.deduplication.enable", "true"),
        ]
        for index in range(PARTITIONS):
            leader = NODES[(index + 1) // 2 % 2]
            records.append(PartitionRecord(index, STATES_ID, (leader,), (leader,), leader, 0))
        records += [
            ConfigRecord(GROUP_RESOURCE, group, "share.auto.offset.reset", "earliest") for group in GROUPS
        ]
        for gateway in gateways:
            await gateway.services.topics.metadata_log.commit(lambda _: Decision(records, None))
        yield both


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number, (partition, value) in enumerate(lines()):
        headers = [("dedup.name", b"writer"), ("dedup.sequence", b"%d" % number)]
        producer.produce("lines", value, partition=partition, headers=headers)
    assert producer.flush(DEADLINE_S) == 0


def share(bootstrap: str, group: str) -> list[str]:
    """Read and accept all records with Kafka's own share consumer."""
    read = run_tool(
        "kafka-console-share-consumer",
        *("--bootstrap-server", bootstrap, "--topic", "lines", "--group", group),
        *("--max-messages", str(COUNT), "--timeout-ms", "60000"),
    ).expect_success()
    return sorted(read.stdout.splitlines())


def lags(bootstrap: str, group: str) -> dict[int, tuple[int, int]]:
    """Return the start offset and the lag of each partition, as Kafka's tool describes them."""
    told = run_tool(
        "kafka-share-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group, "--offsets"
    ).expect_success()
    rows = re.findall(rf"^{group}\s+lines\s+(\d+)\s+(\d+)\s+(\d+)", told.stdout, re.MULTILINE)
    return {int(index): (int(start), int(lag)) for index, start, lag in rows}


@pytest.mark.parametrize("group", GROUPS)
async def test_a_share_group_reads_all_partitions_once(two: TwoGateways, group: str) -> None:
    await asyncio.to_thread(write, two.bootstraps[0])
    assert two.led() == [{0, 2}, {1, 3}]
    expected = sorted(value.decode() for _, value in lines())
    assert await asyncio.to_thread(share, two.bootstraps[1], group) == expected
    done = dict.fromkeys(range(PARTITIONS), (COUNT // PARTITIONS, 0))
    assert await asyncio.to_thread(lags, two.bootstraps[0], group) == done


async def test_every_gateway_tells_the_sequence_ids_of_a_name_in_all_partitions(two: TwoGateways) -> None:
    await asyncio.to_thread(write, two.bootstraps[0])

    def committed(bootstrap: str) -> list[int | None]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id="seqgate-name:writer")
        try:
            return [consumer.committed(TopicPartition("lines", index)) for index in range(PARTITIONS)]
        finally:
            consumer.close()

    for bootstrap in two.bootstraps:
        last = [COUNT - PARTITIONS + index for index in range(PARTITIONS)]
        assert await asyncio.to_thread(committed, bootstrap) == last
