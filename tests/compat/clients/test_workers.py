"""Clients of several workers over one data directory: the JVM's tools and aiokafka; others are in
tests/system/workers.
"""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.system.workers.scene import (
    DEADLINE_S,
    PARTITIONS,
    QUICK,
    TOPIC,
    assert_all_there,
    await_that,
    consecutive_ports,
    create_topic,
    kill,
    load,
    pids,
    present_pid,
    stored,
    workers,
)

COUNT = 300
GENERATIONS = 6
"""Each worker is killed three times: the command ends when one dies a fourth time soon after its start."""
DONE = {"create": KafkaError.TOPIC_ALREADY_EXISTS, "delete": KafkaError.UNKNOWN_TOPIC_OR_PART}
"""The error that says that an earlier try, which got no answer, has done it."""


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


def test_partitions_move_by_kafkas_tool_while_clients_write(tmp_path: Path) -> None:
    """Both workers stop and start for the move; groups, producers and records are where they were."""
    data_dir, plan = tmp_path / "data", tmp_path / "plan.json"
    with workers(data_dir, 2, consecutive_ports(2)) as gateway:
        create_topic(gateway.bootstrap)

        def led(topic: str) -> set[int]:
            metadata = AdminClient({"bootstrap.servers": gateway.bootstrap}).list_topics(
                topic, timeout=DEADLINE_S
            )
            return {partition.leader for partition in metadata.topics[topic].partitions.values()}

        def move(to: int) -> None:
            moved = [(TOPIC, index) for index in range(PARTITIONS)]
            moved += [
                ("__consumer_offsets", index) for index in range(int(QUICK["offsets.topic.num.partitions"]))
            ]
            rows = [{"topic": topic, "partition": index, "replicas": [to]} for topic, index in moved]
            plan.write_text(json.dumps({"version": 1, "partitions": rows}))
            words = ("kafka-reassign-partitions", "--bootstrap-server", gateway.bootstrap)
            words += ("--reassignment-json-file", str(plan))
            assert "Successfully started" in run_tool(*words, "--execute").expect_success().stdout
            for topic in (TOPIC, "__consumer_offsets"):
                await_that(lambda topic=topic: led(topic) == {to}, f"{topic} is not led by {to}")  # type: ignore[misc]
            assert "is completed" in run_tool(*words, "--verify").expect_success().stdout

        def committed(consumer: Consumer) -> list[int]:
            """Ask once more where the coordinator has moved: librdkafka tells that instead of looking for it."""
            places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            found: list[TopicPartition] = []

            def is_answered() -> bool:
                try:
                    found[:] = consumer.committed(places, DEADLINE_S)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                        raise
                return bool(found)

            await_that(is_answered, "the group has no coordinator")
            return [place.offset for place in found]

        with load(gateway.bootstrap) as running:
            running.await_progress()
            consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
            places = [TopicPartition(TOPIC, index, 7 + index) for index in range(PARTITIONS)]
            consumer.commit(offsets=places, asynchronous=False)
            for to in (2, 1):
                move(to)
                running.await_progress()
                assert committed(consumer) == [7 + index for index in range(PARTITIONS)]
                kill(present_pid(gateway, to))  # what the new leader has taken over survives its death
                running.await_progress()
            consumer.close()
        assert not running.errors
        assert_all_there(running.acknowledged, stored(gateway.bootstrap))
    with GatewayProcess(data_dir, settings=QUICK, port=gateway.port) as gateway:
        assert_all_there(running.acknowledged, stored(gateway.bootstrap))
    assert "torn bytes" not in gateway.stderr_text()


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


class Topics:
    """Creates and deletes the topic by librdkafka's admin client, until a worker has confirmed it."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 20_000})

    def create(self) -> None:
        self._until_done("create", lambda: self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]))

    def delete(self) -> None:
        self._until_done("delete", lambda: self._admin.delete_topics([TOPIC]))

    @staticmethod
    def _until_done(what: str, begin: Callable[[], dict[str, Future[None]]]) -> None:
        errors: list[str] = []

        def is_done() -> bool:
            try:
                begin()[TOPIC].result(DEADLINE_S)
            except KafkaException as error:
                errors.append(str(error))
                return bool(errors[1:] and error.args[0].code() == DONE[what])
            return True

        await_that(is_done, f"{what}: {errors}")


class Stranger(threading.Thread):
    """A producer of an earlier time: it sends to the topic of this name all the while, and hears of every
    deletion late.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self._stopping = threading.Event()

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "linger.ms": 1,
                "message.timeout.ms": 3_000,
                "topic.metadata.refresh.interval.ms": 60_000,
            }
        )
        while not self._stopping.wait(0.005):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"stranger", partition=partition)
            producer.poll(0)
        producer.purge()
        producer.flush(DEADLINE_S)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(DEADLINE_S)


def produce(bootstrap: str, generation: int, in_between: Callable[[], None]) -> dict[int, list[int]]:
    """Send numbers to every partition by an idempotent producer; return what was acknowledged, which is
    everything.
    """
    acknowledged: dict[int, list[int]] = defaultdict(list)
    errors: list[str] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 20}
    )

    def send(partition: int, number: int) -> None:
        def answered(error: object, _: object) -> None:
            if error is None:
                acknowledged[partition].append(number)
            else:
                errors.append(str(error))

        producer.produce(TOPIC, str(number).encode(), partition=partition, on_delivery=answered)

    for number in range(COUNT):
        for partition in range(PARTITIONS):
            send(partition, generation * COUNT + number)
        producer.poll(0.001)
        if number == COUNT // 2:
            in_between()
    assert producer.flush(DEADLINE_S) == 0
    assert not errors
    return acknowledged


def numbers(bootstrap: str) -> dict[int, list[bytes]]:
    return {
        partition: [value for value in values if value != b"stranger"]
        for partition, values in stored(bootstrap).items()
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_a_topic_of_the_same_name_again_and_again_while_workers_die(tmp_path: Path, seed: int) -> None:
    """Nothing that is acknowledged for the living topic is lost, doubled or out of order."""
    chance = random.Random(seed)
    port = consecutive_ports(2)
    settings = {"auto.create.topics.enable": "false"}
    with workers(tmp_path / "data", 2, port, settings) as gateway:
        topics = Topics(f"127.0.0.1:{port},127.0.0.1:{port + 1}")
        topics.create()
        with Stranger(gateway.bootstrap):
            for generation in range(GENERATIONS):
                moment = chance.choice(["producing", "deleting", "creating"])

                def die(now: str, moment: str = moment, worker: int = generation % 2 + 1) -> None:
                    if now == moment:
                        # kill it somewhere in the midst of what follows
                        threading.Timer(chance.random() * 0.02, kill, [present_pid(gateway, worker)]).start()

                acknowledged = produce(gateway.bootstrap, generation, lambda: die("producing"))
                assert sum(map(len, acknowledged.values())) == COUNT * PARTITIONS
                assert_all_there(acknowledged, numbers(gateway.bootstrap))
                if generation < GENERATIONS - 1:
                    die("deleting")
                    topics.delete()
                    die("creating")
                    topics.create()
        assert_all_there(acknowledged, numbers(gateway.bootstrap))
    with GatewayProcess(tmp_path / "data", settings=QUICK, port=port) as gateway:
        assert_all_there(acknowledged, numbers(gateway.bootstrap))
    assert not list((tmp_path / "data").glob("*-stray"))
