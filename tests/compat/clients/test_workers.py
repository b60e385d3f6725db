"""Clients of several workers over one data directory: the JVM's tools and aiokafka; others are in tests/system/workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.system.workers.scene import PARTITIONS, TOPIC, consecutive_ports, create_topic, kill, pids, workers

COUNT = 300


@pytest.fixture(params=[2, 3])
def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    with workers(tmp_path / "data", request.param, consecutive_ports(request.param)) as started:
        create_topic(started.bootstrap)
        yield started


def test_the_tools_of_the_jvm(gateway: GatewayProcess) -> None:
    sent = "".join(f"{number}:line {number}\n" for number in range(COUNT))
    produced = run_tool(
        *("kafka-console-producer", "--bootstrap-server", gateway.bootstrap, "--topic", TOPIC),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        *("--command-property", "enable.idempotence=true"),
        stdin=sent,
    )
    produced.expect_success()
    kill(pids(gateway)[-1])  # readers and groups meet a worker that has just started again
    read = run_tool(
        *("kafka-console-consumer", "--bootstrap-server", gateway.bootstrap, "--topic", TOPIC),
        *("--from-beginning", "--group", "jvm", "--max-messages", str(COUNT), "--timeout-ms", "60000"),
    )
    lines = read.expect_success().stdout.splitlines()
    assert sorted(lines) == sorted(f"line {number}" for number in range(COUNT))
    described = run_tool(
        "kafka-topics", "--bootstrap-server", gateway.bootstrap, "--describe", "--topic", TOPIC
    )
    rows = described.expect_success().stdout.splitlines()
    assert sum("Leader: " in row for row in rows) == PARTITIONS
    assert not any("Leader: none" in row for row in rows)


async def test_aiokafka_over_all_workers(gateway: GatewayProcess) -> None:
    async with AIOKafkaProducer(bootstrap_servers=gateway.bootstrap, enable_idempotence=True) as producer:
        for number in range(COUNT):
            await producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        await producer.flush()
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=gateway.bootstrap, group_id="aio", auto_offset_reset="earliest"
    )
    async with consumer:
        found = [int((await consumer.getone()).value) for _ in range(COUNT)]
        await consumer.commit()
    assert sorted(found) == [*range(COUNT)]
