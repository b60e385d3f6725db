"""Producers of four libraries meet a backlog quota, and continue without loss or duplicates once the group
catches up."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from seqgate.gateway.admin.backlog import BacklogPage, BacklogRequest
from seqgate.gateway.admin.client import ask
from tests.compat.groups.members import await_that
from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire

COUNT = 120
QUOTA_BYTES = 3_000
IN_FLIGHT = 5
SETTINGS = {"seqgate.backlog.check.interval.ms": "20", "offsets.topic.num.partitions": "1"}
HOLD, REFUSE = "producer_request_hold", "producer_exception"

Send = Callable[[str, str], None]


@pytest.fixture(scope="module")
def quota_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("quota") / "data", settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.stderr_text()


def value(number: int) -> bytes:
    """Return a value so long that only a few fit into a batch."""
    return b"%0100d" % number


def with_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", batch_size=100, retry_backoff_ms=20
    )
    sent = [producer.send(topic, value(number), partition=0) for number in range(COUNT)]
    assert [future.get(60).offset for future in sent] == list(range(COUNT))
    producer.close()


def with_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]

    async def send() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=100, retry_backoff_ms=20
        ) as producer:
            sent = [await producer.send(topic, value(number), partition=0) for number in range(COUNT)]
            assert [row.offset for row in await asyncio.gather(*sent)] == list(range(COUNT))

    asyncio.run(send())


def with_librdkafka(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    quick = {"batch.num.messages": 5, "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **quick})
    offsets: list[int | None] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for number in range(COUNT):
        producer.produce(topic, value(number), partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert offsets == list(range(COUNT))


def with_the_jvm(bootstrap: str, topic: str, *more: str) -> None:
    lines = "".join(f"{value(number).decode()}\n" for number in range(COUNT))
    small = ("batch.size=100", "linger.ms=0", "retry.backoff.ms=20", "retry.backoff.max.ms=50", *more)
    properties = [word for text in small for word in ("--command-property", text)]
    run_tool(
        "kafka-console-producer", "--bootstrap-server", bootstrap, "--topic", topic, *properties, stdin=lines
    ).expect_success()


def with_an_impatient_jvm(bootstrap: str, topic: str) -> None:
    with_the_jvm(bootstrap, topic, "request.timeout.ms=1000", "delivery.timeout.ms=60000")


CLIENTS = {
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "librdkafka": with_librdkafka,
    "jvm": with_the_jvm,
}


class Reader:
    """A consumer group whose committed offset the test controls."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._wire = Wire(bootstrap)
        self._topic = topic
        self.group = f"slow-{uuid.uuid4().hex[:8]}"
        self._wire.call("find_coordinator", 3, key=self.group, key_type=0)
        self.offset = 0

    def commit(self, offset: int) -> None:
        self.offset = offset
        entry = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        entry["committed_metadata"] = ""
        asked = {"group_id": self.group, "generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [{"name": self._topic, "partitions": [entry]}]
        answer = self._wire.call("offset_commit", 8, asked, topics=topics).fields
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    def end_offset(self) -> int:
        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": self._topic, "partitions": [asked]}]
        answer = self._wire.call("list_offsets", 7, replica_id=-1, topics=topics).fields
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def close(self) -> None:
        self._wire.close()


@contextmanager
def reading(bootstrap: str, topic: str) -> Iterator[Reader]:
    reader = Reader(bootstrap, topic)
    try:
        await_that(lambda: _begins(reader), "the group begins")
        yield reader
    finally:
        reader.close()


def _begins(reader: Reader) -> bool:
    try:
        reader.commit(0)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("policy", [REFUSE, HOLD])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_producer_meets_the_quota_and_goes_on(
    quota_gateway: GatewayProcess, client: str, policy: str
) -> None:
    def has_met_the_quota(page: BacklogPage) -> bool:
        (row,) = page.partitions
        if policy == HOLD:
            return row.verdict == "holding" and page.waiting_requests > 0
        return row.verdict == "refusing" and row.refused > 0

    send_and_catch_up(quota_gateway, CLIENTS[client], policy, has_met_the_quota)


def test_a_producer_that_waits_in_vain_is_answered_before_it_hangs_up(quota_gateway: GatewayProcess) -> None:
    """A held request is refused after nine tenths of its timeout. The requests behind it are refused at the
    same time."""
    send_and_catch_up(
        quota_gateway, with_an_impatient_jvm, HOLD, lambda page: page.partitions[0].refused >= IN_FLIGHT
    )


def send_and_catch_up(
    gateway: GatewayProcess, send_all: Send, policy: str, has_met_the_quota: Callable[[BacklogPage], bool]
) -> None:
    bootstrap = gateway.bootstrap
    configs = {"backlog.quota.bytes": str(QUOTA_BYTES), "backlog.quota.policy": policy}
    topic = fresh_topic(bootstrap, "quota", configs=configs)
    failures: list[BaseException] = []

    def send() -> None:
        try:
            send_all(bootstrap, topic)
        except BaseException as error:
            failures.append(error)

    def has_met_it() -> bool:
        assert not failures, failures
        page = ask(gateway.data_dir, BacklogRequest(topic))
        return has_met_the_quota(page)

    with reading(bootstrap, topic) as reader:
        sender = threading.Thread(target=send)
        sender.start()
        await_that(has_met_it, "the producer meets the quota")
        stopped_at = reader.end_offset()
        assert stopped_at < COUNT
        while sender.is_alive():
            reader.commit(min(reader.offset + 9, reader.end_offset()))
            sender.join(0.03)
        assert not failures, failures
        assert reader.end_offset() == COUNT
    batches = stored_batches(bootstrap, topic)
    expect_unbroken(batches, COUNT)
    assert len(batches) > 1
