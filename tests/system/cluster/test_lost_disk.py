"""A gateway whose records are durable in a bucket loses its disk, and nothing that was acknowledged is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program

COUNT = 2_000
DEADLINE_S = 60.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    (tmp_path / "bucket").mkdir()
    process = GatewayProcess(
        tmp_path / "cache", settings={"seqgate.cluster": f"file://{tmp_path / 'bucket'}"}
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture(params=[MotoServer, Versitygw] if versitygw_program() else [MotoServer])
def gateway_on_s3(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    with request.param() as store:
        process = GatewayProcess(
            tmp_path / "cache",
            settings={"seqgate.cluster": f"s3://{BUCKET}/prefix", "seqgate.cluster.endpoint": store.endpoint},
            environment={"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
        )
        process.start()
        yield process
        process.kill()


def create(gateway: GatewayProcess, topic: str, partitions: int = 2, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(DEADLINE_S)


class Acknowledged:
    """Produces, and remembers what was acknowledged: value by (partition, offset)."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, int], bytes] = {}

    def delivered(self, error: KafkaError | None, message: object) -> None:
        assert error is None, error
        self.records[message.partition(), message.offset()] = message.value()  # type: ignore[attr-defined]


def produce(
    gateway: GatewayProcess,
    topic: str,
    first: int,
    count: int,
    acknowledged: Acknowledged,
    **settings: object,
) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True, **settings})
    for number in range(first, first + count):
        producer.produce(
            topic, f"{number}".encode(), partition=number % 2, on_delivery=acknowledged.delivered
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def read_all(gateway: GatewayProcess, topic: str, count: int) -> dict[tuple[int, int], bytes]:
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: dict[tuple[int, int], bytes] = {}
    while len(found) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None, message.error()
        key = message.partition(), message.offset()
        assert key not in found
        found[key] = message.value()
    assert consumer.poll(0.5) is None
    consumer.close()
    return found


def lose_the_disk(gateway: GatewayProcess) -> None:
    """Kill the gateway, and start it on an empty disk; it is another node then, which takes the partitions
    over.
    """
    gateway.kill()
    shutil.rmtree(gateway.data_dir)
    gateway.start()
    await_leaders(gateway)


def await_leaders(gateway: GatewayProcess) -> None:
    """Wait until each partition has a leader that answers."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    deadline_s = time.monotonic() + DEADLINE_S
    while not _answers(admin):
        assert time.monotonic() < deadline_s, "partitions have no leader"
        time.sleep(0.1)


def _answers(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
    places = [TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions]
    asked = admin.list_offsets({place: OffsetSpec.earliest() for place in places}) if places else {}
    return all(future.exception(DEADLINE_S) is None for future in asked.values())


@pytest.mark.tier("test")
def test_every_acknowledged_record_is_there_once(gateway: GatewayProcess) -> None:
    check_three_lives(gateway)


def test_every_acknowledged_record_is_in_the_s3_bucket(gateway_on_s3: GatewayProcess) -> None:
    check_three_lives(gateway_on_s3)


def check_three_lives(gateway: GatewayProcess) -> None:
    create(gateway, "flights")
    acknowledged = Acknowledged()
    for life in range(3):
        produce(gateway, "flights", life * COUNT, COUNT, acknowledged)
        lose_the_disk(gateway)
        assert read_all(gateway, "flights", len(acknowledged.records)) == acknowledged.records
    assert len(acknowledged.records) == 3 * COUNT


def test_a_clean_stop_is_reused_and_a_crash_is_rebuilt(gateway: GatewayProcess) -> None:
    create(gateway, "flights")
    acknowledged = Acknowledged()
    produce(gateway, "flights", 0, COUNT, acknowledged)
    gateway.stop()
    gateway.start()
    assert gateway.stderr_text().count("rebuilt from") == 1  # the first start, of an empty bucket
    produce(gateway, "flights", COUNT, COUNT, acknowledged)
    gateway.kill()
    gateway.start()
    assert gateway.stderr_text().count("rebuilt from") == 2
    assert read_all(gateway, "flights", 2 * COUNT) == acknowledged.records


def test_transactions_and_offsets_survive(gateway: GatewayProcess) -> None:
    create(gateway, "flights")
    acknowledged = Acknowledged()
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(DEADLINE_S)
    for number in range(20):
        producer.begin_transaction()
        told = acknowledged.delivered if number % 2 else None
        for partition in range(2):
            producer.produce("flights", f"{number}".encode(), partition=partition, on_delivery=told)
        if number % 2:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    consumer.commit(
        offsets=[TopicPartition("flights", 0, 7), TopicPartition("flights", 1, 11)], asynchronous=False
    )
    consumer.close()
    lose_the_disk(gateway)
    assert read_all(gateway, "flights", 20) == acknowledged.records
    again = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    committed = again.committed([TopicPartition("flights", 0), TopicPartition("flights", 1)], DEADLINE_S)
    again.close()
    assert [place.offset for place in committed] == [7, 11]
    second = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": "writer"})
    second.init_transactions(DEADLINE_S)
    second.begin_transaction()
    second.produce("flights", b"after", partition=0, on_delivery=acknowledged.delivered)
    second.commit_transaction(DEADLINE_S)
    assert read_all(gateway, "flights", 21) == acknowledged.records


def test_settings_and_deletions_survive(gateway: GatewayProcess) -> None:
    create(gateway, "kept", **{"retention.ms": "123456789"})
    create(gateway, "deleted")
    acknowledged = Acknowledged()
    produce(gateway, "kept", 0, 100, acknowledged)
    produce(gateway, "deleted", 0, 100, Acknowledged())
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.delete_topics(["deleted"])["deleted"].result(DEADLINE_S)
    admin.delete_records([TopicPartition("kept", 0, 30)])
    [future] = admin.delete_records([TopicPartition("kept", 0, 30)]).values()
    assert future.result(DEADLINE_S).low_watermark == 30
    lose_the_disk(gateway)
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    assert "kept" in topics
    assert "deleted" not in topics
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    [described] = admin.describe_configs([resource]).values()
    assert described.result(DEADLINE_S)["retention.ms"].value == "123456789"
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("kept", 0), DEADLINE_S) == (30, 50)
    consumer.close()


def test_a_second_gateway_with_the_same_node_id_takes_over(gateway: GatewayProcess, tmp_path: Path) -> None:
    create(gateway, "flights")
    acknowledged = Acknowledged()
    produce(gateway, "flights", 0, COUNT, acknowledged)
    second = GatewayProcess(tmp_path / "other", settings={**gateway.settings, "node.id": "1"})
    second.start()
    try:
        assert read_all(second, "flights", COUNT) == acknowledged.records
        assert gateway.await_end() == 1
        assert "its session has ended, and it may acknowledge nothing more" in gateway.stderr_text()
    finally:
        second.kill()
