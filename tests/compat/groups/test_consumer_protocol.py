"""Real clients with `group.protocol=consumer` (KIP-848): librdkafka and the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.groups.conftest import PARTITIONS
from tests.compat.groups.members import (
    CONSOLE_CONSUMER,
    GroupMember,
    Members,
    await_that,
    members_of,
    once_each,
)
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool

LIBRDKAFKA = "confluent-kafka"
CLIENTS = (LIBRDKAFKA, CONSOLE_CONSUMER)
SETTINGS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[tuple[GatewayProcess, Members]]:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "consumers", partitions=PARTITIONS)
        with members_of(gateway.bootstrap, topic, PARTITIONS, tmp_path) as members:
            yield gateway, members
        assert "Traceback" not in gateway.stderr_text()


Consumers = tuple[GatewayProcess, Members]


def _start(members: Members, client: str, name: str, **options: str) -> GroupMember:
    return members.start(client, name, protocol="consumer", **options)


def _describe(gateway: GatewayProcess, members: Members, *options: str) -> str:
    arguments = ("--bootstrap-server", gateway.bootstrap, "--describe", "--group", members.group)
    return run_tool("kafka-consumer-groups", *arguments, *options).expect_success().stdout


@pytest.mark.parametrize("client", CLIENTS)
def test_the_others_take_over_from_a_member_that_is_killed(consumers: Consumers, client: str) -> None:
    _, members = consumers
    first, second = _start(members, client, "first"), _start(members, client, "second")
    members.await_shared(first, second)
    members.produce(10)
    members.await_all_delivered()
    assert first.records
    assert second.records
    members.produce(10)
    first.kill()
    members.produce(10)
    members.await_all_delivered()
    members.await_shared(second)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clean_hand_over_delivers_nothing_twice(consumers: Consumers, client: str) -> None:
    _, members = consumers
    first, second = _start(members, client, "first"), _start(members, client, "second")
    members.await_shared(first, second)
    members.produce(10)
    members.await_all_delivered()
    first.begin_leaving()
    members.produce(10)
    first.await_end()
    members.await_shared(second)
    members.produce(10)
    members.await_all_delivered()
    assert once_each(members.sent, members.delivered)
    second.leave()
    assert members.committed_offsets() == members.end_offsets()


@pytest.mark.parametrize("client", CLIENTS)
def test_the_gateway_is_killed_while_a_group_works(consumers: Consumers, client: str) -> None:
    """The members stay members, each with what it had, and no record is lost."""
    gateway, members = consumers
    joined = [_start(members, client, name) for name in ("first", "second")]
    held = members.await_shared(*joined)
    members.produce(10)
    members.await_all_delivered()
    gateway.restart(kill=True)
    members.connect_anew()
    members.produce(10)
    members.await_all_delivered()
    assert members.await_shared(*joined) == held


def test_the_gateway_is_killed_while_partitions_move(consumers: Consumers) -> None:
    gateway, members = consumers
    joined = [_start(members, LIBRDKAFKA, "first")]
    members.await_shared(*joined)
    for name in ("second", "third"):
        members.produce(10)
        joined.append(_start(members, LIBRDKAFKA, name))
        await_that(lambda: joined[-1].name in members.partition_counts(), "the newcomer is a member")
        gateway.restart(kill=True)
        members.connect_anew()
        members.await_shared(*joined)
    members.produce(10)
    members.await_all_delivered()
    for member in joined:
        member.leave()
    assert members.committed_offsets() == members.end_offsets()


def test_librdkafka_and_the_jvm_in_one_group(consumers: Consumers) -> None:
    _, members = consumers
    joined = [_start(members, client, client) for client in CLIENTS]
    members.await_shared(*joined)
    members.produce(10)
    members.await_all_delivered()
    assert all(member.records for member in joined)


def test_a_static_member_that_is_started_again_keeps_its_part(consumers: Consumers) -> None:
    _, members = consumers
    first = _start(members, LIBRDKAFKA, "first", instance_id="i")
    second = _start(members, LIBRDKAFKA, "second")
    held = members.await_shared(first, second)
    first.leave()
    again = _start(members, LIBRDKAFKA, "first", instance_id="i")
    assert members.await_shared(again, second) == held
    members.produce(5)
    members.await_all_delivered()


@pytest.mark.parametrize("client", CLIENTS)
def test_topics_by_a_regular_expression(consumers: Consumers, client: str) -> None:
    """One that exists and one that comes later."""
    gateway, members = consumers
    prefix = members.topic.partition("-")[0]
    regex = f"{prefix}-.*" if client == CONSOLE_CONSUMER else f"^{prefix}-.*"
    member = _start(members, client, "reader", regex=regex)
    members.produce(5)
    members.await_all_delivered()
    fresh_topic(gateway.bootstrap, "other", partitions=2)
    fresh_topic(gateway.bootstrap, prefix, partitions=2)
    await_that(
        lambda: sum(members.partition_counts().values()) == PARTITIONS + 2,
        f"the new topic is assigned\n{members.account()}",
    )
    member.leave()


def test_the_group_as_kafkas_tools_show_it(consumers: Consumers) -> None:
    gateway, members = consumers
    joined = [_start(members, LIBRDKAFKA, name) for name in ("first", "second")]
    members.await_shared(*joined)
    members.produce(5)
    members.await_all_delivered()
    await_that(lambda: members.committed_offsets() == members.end_offsets(), "all is committed")
    state = _describe(gateway, members, "--state", "--verbose").split()
    assert {"uniform", "Stable"} <= set(state)
    assert state[-1] == "2"
    rows = [
        line.split()
        for line in _describe(gateway, members, "--members", "--verbose").splitlines()
        if line.startswith(members.group)
    ]
    assert sorted(row[3] for row in rows) == ["first", "second"]
    assert all(f"{members.topic}:" in row[-1] for row in rows)
    lags = [
        line.split()[5] for line in _describe(gateway, members).splitlines() if line.startswith(members.group)
    ]
    assert lags == ["0"] * PARTITIONS
    listed = run_tool(
        "kafka-consumer-groups", "--bootstrap-server", gateway.bootstrap, "--list", "--state", "--type"
    ).expect_success()
    assert [members.group, "Consumer", "Stable"] in [line.split() for line in listed.stdout.splitlines()]
