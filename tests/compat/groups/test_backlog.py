"""Groups of every protocol skip records that they have not read, also when the gateway is killed meanwhile."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from seqgate.gateway.admin.backlog import BacklogReader, BacklogRequest, PartitionBacklog
from seqgate.gateway.admin.client import ask
from tests.compat.groups.members import DEADLINE_S, await_that
from tests.compat.groups.share_members import share_readers
from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.wire import Wire

VALUE = b"x" * 100
QUOTA_BYTES = 3_000
EVICT = {"backlog.quota.bytes": str(QUOTA_BYTES), "backlog.quota.policy": "consumer_backlog_eviction"}
SETTINGS = {
    "seqgate.backlog.check.interval.ms": "20",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="module")
def evicting_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("evicting") / "data", settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.stderr_text()


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Produce each record in a batch of its own."""
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = Producer({**settings, "batch.num.messages": 1, "linger.ms": 0})
    for _ in range(count):
        producer.produce(topic, VALUE, partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def consumer(bootstrap: str, group: str, protocol: str = "classic") -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "log_level": 0}
    if protocol == "classic":
        settings["session.timeout.ms"] = 10_000  # type: ignore[assignment]
    return Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})


def read(member: Consumer, count: int) -> list[int]:
    """Return the offsets of the next records."""
    found: list[int] = []

    def poll() -> bool:
        message = member.poll(0.05)
        if message is not None and message.error() is None:
            found.append(message.offset())
        return len(found) >= count

    await_that(poll, f"{count} records are read")
    return found


def told(gateway: GatewayProcess, topic: str) -> PartitionBacklog:
    (row,) = ask(gateway.data_dir, BacklogRequest(topic)).partitions
    return row


def reader_in(row: PartitionBacklog, group: str) -> BacklogReader:
    return next(reader for reader in row.readers if reader.group == group)


def reader_of(gateway: GatewayProcess, topic: str, group: str) -> BacklogReader:
    return reader_in(told(gateway, topic), group)


def await_moved(
    gateway: GatewayProcess, topic: str, group: str, behind: int, *, begun_at: int | None = None
) -> BacklogReader:
    """Wait until the group has skipped all records from `begun_at` (or `behind`) on. Return the reader of the
    answer that shows it.

    A skip counts once it is durable, so two answers can differ: judge one answer as a whole.
    """
    begun_at = behind if begun_at is None else begun_at
    seen: list[PartitionBacklog] = []

    def is_moved() -> bool:
        seen[:] = [told(gateway, topic)]
        reader = reader_in(seen[0], group)
        is_counted = reader.skipped == {"backlog.quota.bytes": reader.offset - begun_at}
        return reader.offset > behind and is_counted and seen[0].backlog_bytes <= QUOTA_BYTES

    await_that(is_moved, f"{group} is moved")
    return reader_in(seen[0], group)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_group_comes_back_behind_what_was_skipped(
    evicting_gateway: GatewayProcess, protocol: str
) -> None:
    bootstrap = evicting_gateway.bootstrap
    topic = fresh_topic(bootstrap, "evicted", configs=EVICT)
    group = f"group-of-{topic}"
    produce(bootstrap, topic, 10)
    member = consumer(bootstrap, group, protocol)
    member.subscribe([topic])
    assert read(member, 10) == list(range(10))
    member.commit(asynchronous=False)
    member.close()
    produce(bootstrap, topic, 100)
    moved = await_moved(evicting_gateway, topic, group, 10)
    assert moved.skipped == {"backlog.quota.bytes": moved.offset - 10}
    member = consumer(bootstrap, group, protocol)
    member.subscribe([topic])
    assert read(member, 110 - moved.offset) == list(range(moved.offset, 110))
    member.commit(asynchronous=False)
    member.close()
    assert reader_of(evicting_gateway, topic, group).offset == 110
    batches = stored_batches(bootstrap, topic)
    expect_unbroken(batches, 110)


def test_a_member_that_reads_behind_the_move_goes_on(evicting_gateway: GatewayProcess) -> None:
    bootstrap = evicting_gateway.bootstrap
    topic = fresh_topic(bootstrap, "behind", configs=EVICT)
    group = f"group-of-{topic}"
    produce(bootstrap, topic, 10)
    member = consumer(bootstrap, group)
    member.subscribe([topic])
    assert read(member, 5) == list(range(5))
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    produce(bootstrap, topic, 60)
    moved = await_moved(evicting_gateway, topic, group, 5)
    assert moved.skipped == {"backlog.quota.bytes": moved.offset - 5}
    assert read(member, 65) == list(range(5, 70))
    member.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    again = await_moved(evicting_gateway, topic, group, 6, begun_at=5)
    assert again.skipped == {"backlog.quota.bytes": again.offset - 5}, "what is skipped twice counts once"
    member.close()


def test_a_share_group_goes_on_behind_what_was_skipped(
    evicting_gateway: GatewayProcess, tmp_path: Path
) -> None:
    bootstrap = evicting_gateway.bootstrap
    topic = fresh_topic(bootstrap, "shared", configs=EVICT)
    with share_readers(bootstrap, topic, tmp_path) as readers:
        set_group_configs(bootstrap, readers.group, READ_FROM_THE_START)
        begin_share_group(bootstrap, readers.group, topic)
        sent = [f"{number:0100d}" for number in range(60)]
        readers.produce(sent)
        moved = await_moved(evicting_gateway, topic, readers.group, 0)
        assert moved.is_share
        assert moved.skipped == {"backlog.quota.bytes": moved.offset}
        readers.start()
        readers.await_delivered(sent[moved.offset :])
        assert readers.delivered == dict.fromkeys(sent[moved.offset :], 1)


def begin_share_group(bootstrap: str, group: str, topic: str) -> None:
    """Create a share group that starts at offset 0, with AlterShareGroupOffsets."""
    topics = [{"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}]

    def is_begun() -> bool:
        with Wire(bootstrap) as wire:
            answer = wire.call("alter_share_group_offsets", 0, group_id=group, topics=topics).fields
        return bool(answer["error_code"] == 0)

    await_that(is_begun, "the share group begins")


def test_killed_while_groups_are_moved(tmp_path: Path) -> None:
    seed = uuid.uuid4().int & 0xFFFF
    rng = Random(seed)
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "killed", configs=EVICT)
        begin_share_group(gateway.bootstrap, "sharers", topic)
        slow = consumer(gateway.bootstrap, "slow")
        slow.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        slow.close()
        seen = {"slow": 0, "sharers": 0}
        count = 0
        for _ in range(3):
            # these records make each of the two groups skip at least once
            moves = len(moves_in(gateway)) + rng.randint(0, 2)
            produce(gateway.bootstrap, topic, 40)
            count += 40
            await_that(lambda moves=moves: len(moves_in(gateway)) >= moves, "some are moved")
            gateway.restart(kill=True)
            for reader in told(gateway, topic).readers:
                assert seen[reader.group] <= reader.offset <= count, f"seed {seed}"
                seen[reader.group] = reader.offset
            assert len(told(gateway, topic).readers) == 2
        await_that(lambda: told(gateway, topic).backlog_bytes <= QUOTA_BYTES, "the quota is kept")
        row = told(gateway, topic)
        assert all(0 < reader.offset < count for reader in row.readers)
        expect_unbroken(stored_batches(gateway.bootstrap, topic), count)
        assert "Traceback" not in gateway.stderr_text()


def moves_in(gateway: GatewayProcess) -> list[str]:
    return re.findall(r"group (\S+) skips", gateway.stderr_text())
