"""Share groups (KIP-932) with Kafka's own share consumer and kafka-share-groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat.groups.members import await_that
from tests.compat.groups.share_members import ShareReaders, share_readers
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.kafka_tools import ToolRun, run_tool

DELIVERY_LIMIT = 3
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "2000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "10000",
    "group.share.session.timeout.ms": "10000",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "share.coordinator.state.topic.num.partitions": "4",
}
PATIENT = {
    **SETTINGS,
    "group.share.max.record.lock.duration.ms": "600000",
    "group.share.record.lock.duration.ms": "600000",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
}
"""Settings with which locks and sessions outlast a test."""


@pytest.fixture(scope="module")
def share_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("shares") / "data", settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.stderr_text()


@pytest.fixture
def patient_readers(tmp_path: Path) -> Iterator[ShareReaders]:
    """Return readers whose locks and sessions outlast the test."""
    with GatewayProcess(tmp_path / "data", settings=PATIENT) as gateway:
        topic = fresh_topic(gateway.bootstrap, "patient")
        with share_readers(gateway.bootstrap, topic, tmp_path) as started:
            set_group_configs(started.bootstrap, started.group, READ_FROM_THE_START)
            yield started
        assert "Traceback" not in gateway.stderr_text()


@pytest.fixture
def readers(share_gateway: GatewayProcess, tmp_path: Path) -> Iterator[ShareReaders]:
    """A topic with one partition, and members of one group."""
    topic = fresh_topic(share_gateway.bootstrap, "shared")
    with share_readers(share_gateway.bootstrap, topic, tmp_path) as started:
        set_group_configs(started.bootstrap, started.group, READ_FROM_THE_START)
        yield started


def values(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def share_groups(readers: ShareReaders, *arguments: str) -> ToolRun:
    return run_tool(
        "kafka-share-groups", "--bootstrap-server", readers.bootstrap, *arguments
    ).expect_success()


def start_and_lag(readers: ShareReaders) -> tuple[str, str] | None:
    """Return START-OFFSET and LAG of the partition as kafka-share-groups prints them."""
    told = share_groups(readers, "--describe", "--group", readers.group).stdout
    found = re.search(rf"{readers.group}\s+{readers.topic}\s+0\s+(\S+)\s+(\S+)", told)
    return None if found is None else (found[1], found[2])


def await_all_done(readers: ShareReaders, count: int) -> None:
    await_that(lambda: readers.offset_and_lag() == (count, 0), f"all {count} are done")
    assert start_and_lag(readers) == (str(count), "0")


@pytest.mark.tier("test")
def test_two_members_share_one_partition(patient_readers: ShareReaders) -> None:
    readers = patient_readers
    sent = values("v", 300)
    readers.start()
    second = readers.start()
    readers.produce(sent[:10])
    readers.await_delivered(sent[:10])
    readers.produce(sent[10:])
    readers.await_delivered(sent)
    await_all_done(readers, len(sent))
    second.end()
    assert readers.delivered == dict.fromkeys(sent, 1)
    assert start_and_lag(readers) == ("300", "0")


def test_what_a_killed_member_had_is_read_by_another(readers: ShareReaders) -> None:
    sent = values("much" * 250, 300)
    readers.produce(sent)
    first = readers.start(is_stuck=True)
    await_that(lambda: first.values, "the first reads")
    first.kill()
    assert 0 < len(first.values) < len(sent)
    second = readers.start()
    await_all_done(readers, len(sent))
    assert sorted(second.values) == sorted(sent)


def test_what_a_killed_member_had_needs_no_lock_to_run_out(patient_readers: ShareReaders) -> None:
    readers = patient_readers
    sent = values("much" * 250, 300)
    readers.produce(sent)
    first = readers.start(is_stuck=True)
    await_that(lambda: first.values, "the first reads")
    first.kill()
    second = readers.start()
    await_all_done(readers, len(sent))
    assert sorted(second.values) == sorted(sent)


def test_a_member_killed_while_it_waits_takes_nothing_with_it(patient_readers: ShareReaders) -> None:
    readers = patient_readers
    first, second = readers.start(), readers.start()
    before = values("before", 40)
    readers.produce(before)
    readers.await_delivered(before)
    await_all_done(readers, len(before))
    first.kill()
    after = values("after", 40)
    readers.produce(after)
    await_all_done(readers, len(before + after))
    assert set(after) <= set(second.values)


def test_what_is_rejected_does_not_come_back(readers: ShareReaders) -> None:
    bad, good = values("bad", 20), values("good", 20)
    readers.produce(bad)
    rejecting = readers.start("--reject")
    readers.await_delivered(bad)
    await_all_done(readers, len(bad))
    rejecting.end()
    accepting = readers.start()
    readers.produce(good)
    await_all_done(readers, len(bad + good))
    assert sorted(accepting.values) == sorted(good)


def test_what_is_released_comes_back_until_it_is_given_up(readers: ShareReaders) -> None:
    sent = values("v", 20)
    readers.produce(sent)
    readers.start("--release")
    await_all_done(readers, len(sent))
    assert readers.delivered == dict.fromkeys(sent, DELIVERY_LIMIT)


def test_nothing_is_lost_nor_comes_back_when_the_gateway_is_killed(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "killed")
        with share_readers(gateway.bootstrap, topic, tmp_path) as readers:
            set_group_configs(gateway.bootstrap, readers.group, READ_FROM_THE_START)
            before, between, after = values("before", 100), values("between", 300), values("after", 50)
            readers.produce(before)
            readers.start()
            await_all_done(readers, len(before))
            readers.produce(between)
            gateway.restart(kill=True)
            readers.produce(after)
            await_all_done(readers, len(before + between + after))
            delivered = readers.delivered
            assert delivered.keys() == set(before + between + after)
            assert all(delivered[value] == 1 for value in before)
        assert "Traceback" not in gateway.stderr_text()


def members_and_epochs(readers: ShareReaders) -> tuple[str, str]:
    """Return the members' rows (ids, epochs, partitions) and the group's row (epochs)."""
    group = ("--describe", "--group", readers.group, "--verbose")
    members = share_groups(readers, *group, "--members").stdout
    state = share_groups(readers, *group, "--state").stdout
    return "\n".join(sorted(members.split("\n"))), state


def is_settled(members: str, state: str, topic: str) -> bool:
    """Return whether two members have the partition, at the group's epoch: a heartbeat tells a member of it."""
    epochs = [line.split()[5] for line in members.split("\n") if f"{topic}:0" in line]
    return epochs == [state.split()[-3]] * 2


def test_members_do_not_notice_that_the_gateway_was_killed(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=PATIENT) as gateway:
        topic = fresh_topic(gateway.bootstrap, "unnoticed")
        with share_readers(gateway.bootstrap, topic, tmp_path) as readers:
            set_group_configs(gateway.bootstrap, readers.group, READ_FROM_THE_START)
            first, second = values("first", 20), values("second", 20)
            readers.start()
            readers.start()
            await_that(
                lambda: is_settled(*members_and_epochs(readers), topic), "both are at the group's epoch"
            )
            readers.produce(first)
            await_all_done(readers, len(first))
            before = members_and_epochs(readers)
            gateway.restart(kill=True)
            assert members_and_epochs(readers) == before, (
                "the restarted gateway must know the members before they send a heartbeat"
            )
            readers.produce(second)
            await_all_done(readers, len(first + second))
            assert members_and_epochs(readers) == before
            assert readers.delivered == dict.fromkeys(first + second, 1)
            told = "".join(path.read_text() for path in sorted(tmp_path.glob("share-*.stderr")))
            assert "UNKNOWN_MEMBER_ID" not in told
            assert "FENCED_MEMBER_EPOCH" not in told
        assert "Traceback" not in gateway.stderr_text()


def test_a_group_begins_where_kafka_configs_told_it(share_gateway: GatewayProcess, tmp_path: Path) -> None:
    topic = fresh_topic(share_gateway.bootstrap, "begun")
    with share_readers(share_gateway.bootstrap, topic, tmp_path) as readers:
        sent = values("v", 10)
        readers.produce(sent)
        entity = ("--entity-type", "groups", "--entity-name", readers.group)
        run_tool(
            "kafka-configs",
            *("--bootstrap-server", readers.bootstrap, *entity),
            *("--alter", "--add-config", "share.auto.offset.reset=earliest"),
        ).expect_success()
        readers.start()
        readers.await_delivered(sent)
        await_all_done(readers, len(sent))


def test_a_group_without_configurations_begins_at_the_end(
    share_gateway: GatewayProcess, tmp_path: Path
) -> None:
    topic = fresh_topic(share_gateway.bootstrap, "ended")
    with share_readers(share_gateway.bootstrap, topic, tmp_path) as readers:
        old, new = values("old", 5), values("new", 5)
        readers.produce(old)
        readers.start()
        await_that(lambda: start_and_lag(readers) == (str(len(old)), "0"), "it has begun")
        readers.produce(new)
        readers.await_delivered(new)
        assert sorted(readers.delivered) == sorted(new)


def test_the_tool_for_share_groups(readers: ShareReaders) -> None:
    group = ("--group", readers.group)
    sent = values("v", 10)
    readers.produce(sent)
    member = readers.start()
    await_all_done(readers, len(sent))
    assert readers.group in share_groups(readers, "--list").stdout.split()
    assert "Stable" in share_groups(readers, "--describe", *group, "--state").stdout
    told = share_groups(readers, "--describe", *group, "--members").stdout
    assert re.search(rf"{readers.topic}:0", told), told
    member.end()
    await_that(
        lambda: "Empty" in share_groups(readers, "--describe", *group, "--state").stdout, "it has left"
    )
    topic = ("--topic", readers.topic)
    share_groups(readers, "--reset-offsets", *group, *topic, "--to-earliest", "--execute")
    assert start_and_lag(readers) == ("0", "10")
    again = readers.start()
    await_all_done(readers, len(sent))
    again.end()
    assert sorted(again.values) == sorted(sent)
    await_that(
        lambda: "Empty" in share_groups(readers, "--describe", *group, "--state").stdout, "it has left"
    )
    share_groups(readers, "--delete-offsets", *group, *topic)
    assert start_and_lag(readers) is None
    share_groups(readers, "--delete", *group)
    assert readers.group not in share_groups(readers, "--list").stdout.split()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_records_of_aborted_transactions(patient_readers: ShareReaders, level: str) -> None:
    """The log contains the aborted records, but no member acquires them."""
    readers = patient_readers
    set_group_configs(readers.bootstrap, readers.group, {"share.isolation.level": level})
    producer = Producer({"bootstrap.servers": readers.bootstrap, "transactional.id": readers.topic})
    producer.init_transactions()
    sent: dict[bool, list[str]] = {False: [], True: []}
    for number in range(12):
        is_committed = number % 3 == 0
        producer.begin_transaction()
        for value in values(f"transaction {number}, record ", 3):
            producer.produce(readers.topic, value)
            sent[is_committed].append(value)
        producer.flush()
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    expected = sent[True] if level == "read_committed" else [*sent[True], *sent[False]]
    readers.start()
    readers.await_delivered(expected)
    readers.produce(["the last"])
    readers.await_delivered([*expected, "the last"])
    assert readers.delivered == dict.fromkeys([*expected, "the last"], 1)
    await_that(lambda: (start_and_lag(readers) or ("", ""))[1] == "0", "all is done")
