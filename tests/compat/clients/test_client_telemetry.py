"""Clients that push their own metrics (KIP-714): the JVM's, librdkafka's, and the JVM's tool for
subscriptions.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.telemetry import Telemetry
from seqgate.gateway.telemetry.payload import PushedSeries, SeriesKind
from tests.compat.topics import fresh_topic
from tests.support.kafka_tools import ToolRun, run_tool
from tests.support.metrics_text import Values, values_of
from tests.support.setup_peers import KAFKA_VERSION
from tests.support.wire import Wire
from tests.system.metrics.scene import page
from tests.system.workers.scene import await_that, consecutive_ports, workers

DEADLINE_S = 120.0
COUNT = 1500
PRODUCER = "org.apache.kafka.producer."
SENT = f"{PRODUCER}record.send.total"
INTERVAL = ("--interval", "100")


class Scene:
    """A gateway in this process, and tools that ask it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.bootstrap = gateway.services.node.brokers.advertised["PLAINTEXT"].shown

    @property
    def telemetry(self) -> Telemetry:
        return self._gateway.services.telemetry

    def pushed(self, client_id: str) -> dict[str, list[PushedSeries]]:
        """Return the series of a client by name."""
        found: dict[str, list[PushedSeries]] = {}
        for series in self.telemetry.pushed_series():
            if series.labels["client_id"] == client_id:
                found.setdefault(series.name, []).append(series)
        return found

    async def scraped(self) -> Values:
        """Return what a scrape of the gateway shows."""
        _, port = self._gateway.metrics_address.rsplit(":", 1)
        status, text = await asyncio.to_thread(page, int(port), "/metrics")
        assert status == 200
        return values_of(text)

    async def subscribe(self, *arguments: str) -> ToolRun:
        return await self.tool("kafka-client-metrics", "--bootstrap-server", self.bootstrap, *arguments)

    async def tool(self, name: str, *arguments: str) -> ToolRun:
        return (await asyncio.to_thread(run_tool, name, *arguments)).expect_success()

    async def produce(self, topic: str, client_id: str, *properties: str) -> None:
        """Send COUNT records in a second and a half with the JVM's producer."""
        await self.tool(
            *(
                "kafka-producer-perf-test",
                "--topic",
                topic,
                "--num-records",
                str(COUNT),
                "--record-size",
                "10",
            ),
            *("--throughput", "1000", "--command-property", f"bootstrap.servers={self.bootstrap}"),
            *(f"client.id={client_id}", *properties),
        )


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms=0",
        "seqgate.metrics.listener=127.0.0.1:0",
    )
    gateway = Gateway(load_config(overrides=[f"log.dirs={tmp_path / 'data'}", *settings]))
    await gateway.start()
    yield Scene(gateway)
    await gateway.stop()


async def until(holds: Callable[[], bool], what: str) -> None:
    """Poll until a client, which is another program, has done something."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what


async def test_the_tool_makes_shows_and_deletes_a_subscription(scene: Scene) -> None:
    made = await scene.subscribe(
        *("--alter", "--name", "basic", "--metrics", f"{PRODUCER},org.apache.kafka.consumer."),
        *(*INTERVAL, "--match", "client_id=loader.*,client_software_name=apache-kafka-java"),
    )
    assert made.stdout.strip() == "Altered client metrics config for basic."
    assert (await scene.subscribe("--list")).stdout.split() == ["basic"]
    described = (await scene.subscribe("--describe", "--name", "basic")).stdout
    assert "interval.ms=100\n" in described
    assert "match=client_id=loader.*,client_software_name=apache-kafka-java\n" in described
    assert f"metrics={PRODUCER},org.apache.kafka.consumer.\n" in described
    deleted = await scene.subscribe("--delete", "--name", "basic")
    assert deleted.stdout.strip() == "Deleted client metrics config for basic."
    assert (await scene.subscribe("--list")).stdout.split() == []


async def test_the_producer_of_the_jvm_pushes_what_it_has_sent(scene: Scene) -> None:
    topic = await asyncio.to_thread(fresh_topic, scene.bootstrap, "telemetry")
    await scene.subscribe(
        "--alter", "--name", "p", "--metrics", PRODUCER, *INTERVAL, "--match", "client_id=loader"
    )
    await scene.produce(topic, "loader")
    pushed = scene.pushed("loader")
    assert all(name.startswith(PRODUCER) for name in pushed)
    (sent,) = pushed[SENT]
    # a client on a busy machine may end before its last push
    assert sent.kind is SeriesKind.COUNTER
    assert isinstance(sent.value, float)
    assert 0 < sent.value <= COUNT
    assert sent.labels["client_software_name"] == "apache-kafka-java"
    assert sent.labels["client_software_version"] == KAFKA_VERSION
    (of_topic,) = pushed[f"{PRODUCER}topic.record.send.total"]
    assert (of_topic.labels["topic"], of_topic.value) == (topic, sent.value)
    assert pushed[f"{PRODUCER}request.latency.avg"][0].kind is SeriesKind.GAUGE
    scraped = await scene.scraped()
    shown = {
        key: value for key, value in scraped.items() if key[0] == "kafka_client_producer_record_send_total"
    }
    ((_, labels),) = shown
    assert dict(labels)["client_id"] == "loader"
    assert list(shown.values()) == [sent.value]
    counters = scene.telemetry.counters
    assert counters.pushes > 2
    assert not counters.refused
    assert counters.dropped_points == 0
    await until(lambda: scene.telemetry.known_clients == 0, "the client is forgotten when it has closed")


@pytest.mark.parametrize(
    ("client_id", "properties"), [("another", ()), ("loader", ("enable.metrics.push=false",))]
)
async def test_clients_without_a_subscription_push_nothing(
    scene: Scene, client_id: str, properties: tuple[str, ...]
) -> None:
    topic = await asyncio.to_thread(fresh_topic, scene.bootstrap, "telemetry")
    await scene.subscribe(
        "--alter", "--name", "p", "--metrics", "*", *INTERVAL, "--match", "client_id=loader"
    )
    await scene.produce(topic, client_id, *properties)
    assert scene.telemetry.series_count == 0
    assert not scene.telemetry.counters.refused


async def test_the_consumer_of_the_jvm_pushes_metrics_of_its_group(scene: Scene) -> None:
    topic = await asyncio.to_thread(fresh_topic, scene.bootstrap, "telemetry")
    await scene.produce(topic, "loader")
    await scene.subscribe("--alter", "--name", "c", "--metrics", "org.apache.kafka.consumer.", *INTERVAL)
    await scene.tool(
        *(
            "kafka-console-consumer",
            "--bootstrap-server",
            scene.bootstrap,
            "--topic",
            topic,
            "--from-beginning",
        ),
        # After the last record the consumer runs on for the time limit, and pushes.
        *("--timeout-ms", "2000", "--group", "readers", "--command-property", "client.id=reader"),
    )
    pushed = scene.pushed("reader")
    consumed = [
        series
        for series in pushed["org.apache.kafka.consumer.fetch.manager.records.consumed.total"]
        if "topic" not in series.labels
    ]
    assert [series.value for series in consumed] == [float(COUNT)]
    assert {series.labels.get("group_id") for rows in pushed.values() for series in rows} == {"readers"}


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_librdkafka_pushes(scene: Scene, compression: str) -> None:
    topic = await asyncio.to_thread(fresh_topic, scene.bootstrap, "telemetry")
    await scene.subscribe("--alter", "--name", "all", "--metrics", "*", *INTERVAL)
    producer = Producer(
        {
            "bootstrap.servers": scene.bootstrap,
            "client.id": "rd",
            "enable.metrics.push": True,
            "compression.type": compression,
            "log_level": 4,
        }
    )

    def has_pushed() -> bool:
        producer.produce(topic, b"x")
        producer.poll(0)
        latency = scene.pushed("rd").get(f"{PRODUCER}node.request.latency.avg")
        return latency is not None and scene.telemetry.counters.pushes > 2

    await until(has_pushed, "librdkafka pushes at each interval")
    assert await asyncio.to_thread(producer.flush, DEADLINE_S) == 0
    (created,) = scene.pushed("rd")[f"{PRODUCER}connection.creation.total"]
    assert created.kind is SeriesKind.COUNTER
    assert "rdkafka" in created.labels["client_software_version"]
    assert not scene.telemetry.counters.refused


async def test_a_running_client_follows_a_change_of_its_subscription(scene: Scene) -> None:
    topic = await asyncio.to_thread(fresh_topic, scene.bootstrap, "telemetry")
    await scene.subscribe("--alter", "--name", "s", "--metrics", f"{PRODUCER}record.queue", *INTERVAL)
    producer = Producer(
        {"bootstrap.servers": scene.bootstrap, "client.id": "rd", "enable.metrics.push": True, "log_level": 4}
    )

    def has_pushed(name: str) -> bool:
        producer.produce(topic, b"x")
        producer.poll(0)
        return any(pushed.startswith(f"{PRODUCER}{name}") for pushed in scene.pushed("rd"))

    await until(lambda: has_pushed("record.queue"), "the client pushes what it is asked for")
    assert not has_pushed("connection")
    await scene.subscribe("--alter", "--name", "s", "--metrics", f"{PRODUCER}connection", *INTERVAL)
    await until(lambda: has_pushed("connection"), "the client pushes what it is asked for now")
    assert set(scene.telemetry.counters.refused) <= {"unknown_subscription_id", "throttling_quota_exceeded"}
    assert await asyncio.to_thread(producer.flush, DEADLINE_S) == 0


def test_each_worker_gives_the_same_subscription(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, consecutive_ports(2)) as gateway:
        ports = [gateway.port, gateway.port + 1]
        made = ("--bootstrap-server", f"127.0.0.1:{ports[1]}", "--alter", "--name", "s", "--metrics", "a,b")
        run_tool("kafka-client-metrics", *made, *INTERVAL).expect_success()
        client = str(uuid.uuid4())

        def answers() -> list[dict[str, object]]:
            given = []
            for port in ports:
                with Wire(f"127.0.0.1:{port}") as wire:
                    given.append(
                        wire.call("get_telemetry_subscriptions", 0, client_instance_id=client).fields
                    )
            return given

        await_that(
            lambda: all(answer["requested_metrics"] == ["a", "b"] for answer in answers()),
            "both workers tell the subscription",
        )
        first, second = answers()
        assert first["subscription_id"] == second["subscription_id"]
