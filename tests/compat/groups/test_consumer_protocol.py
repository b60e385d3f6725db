"""Real clients with `group.protocol=consumer` (KIP-848): librdkafka and the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.groups.conftest import PARTITIONS
from tests.compat.groups.hand_over import finish_hand_over, kill_and_take_over, read_together
from tests.compat.groups.members import (
    CONFLUENT,
    CONSOLE_CONSUMER,
    GroupMember,
    Members,
    await_that,
    members_of,
)
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.tiers import in_tiers

CLIENTS = (CONFLUENT, CONSOLE_CONSUMER)
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "300",
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


@pytest.mark.parametrize("client", in_tiers(CLIENTS, test=[CONSOLE_CONSUMER]))
def test_the_others_take_over_from_a_member_that_is_killed(consumers: Consumers, client: str) -> None:
    _, members = consumers
    first, second = _start(members, client, "first"), _start(members, client, "second")
    kill_and_take_over(members, first, second)


@pytest.mark.parametrize("client", in_tiers(CLIENTS, test=[CONFLUENT]))
def test_a_clean_hand_over_delivers_nothing_twice(consumers: Consumers, client: str) -> None:
    _, members = consumers
    first, second = _start(members, client, "first"), _start(members, client, "second")
    members.await_shared(first, second)
    members.deliver(10)
    first.begin_leaving()
    members.produce(10)
    finish_hand_over(members, first, second)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_gateway_is_killed_while_a_group_works(consumers: Consumers, client: str) -> None:
    """The members stay in the group with their partitions, and no record is lost."""
    gateway, members = consumers
    joined = [_start(members, client, name) for name in ("first", "second")]
    held = members.await_shared(*joined)
    members.deliver(10)
    gateway.restart(kill=True)
    members.connect_anew()
    members.deliver(10)
    assert members.await_shared(*joined) == held


def test_the_gateway_is_killed_while_partitions_move(consumers: Consumers) -> None:
    gateway, members = consumers
    joined = [_start(members, CONFLUENT, "first")]
    members.await_shared(*joined)
    for name in ("second", "third"):
        members.produce(10)
        joined.append(_start(members, CONFLUENT, name))
        await_that(lambda: joined[-1].name in members.partition_counts(), "the newcomer is a member")
        gateway.restart(kill=True)
        members.connect_anew()
        members.await_shared(*joined)
    members.deliver(10)
    for member in joined:
        member.leave()
    assert members.committed_offsets() == members.end_offsets()


def test_librdkafka_and_the_jvm_in_one_group(consumers: Consumers) -> None:
    _, members = consumers
    joined = [_start(members, client, client) for client in CLIENTS]
    read_together(members, *joined)


def test_a_static_member_that_is_started_again_keeps_its_part(consumers: Consumers) -> None:
    _, members = consumers
    first = _start(members, CONFLUENT, "first", instance_id="i")
    second = _start(members, CONFLUENT, "second")
    held = members.await_shared(first, second)
    first.leave()
    again = _start(members, CONFLUENT, "first", instance_id="i")
    assert members.await_shared(again, second) == held
    members.deliver(5)


@pytest.mark.parametrize("client", CLIENTS)
def test_topics_by_a_regular_expression(consumers: Consumers, client: str) -> None:
    """The expression matches one topic that exists and one that is created later."""
    gateway, members = consumers
    prefix = members.topic.partition("-")[0]
    regex = f"{prefix}-.*" if client == CONSOLE_CONSUMER else f"^{prefix}-.*"
    member = _start(members, client, "reader", regex=regex)
    members.deliver(5)
    fresh_topic(gateway.bootstrap, "other", partitions=2)
    fresh_topic(gateway.bootstrap, prefix, partitions=2)
    await_that(
        lambda: sum(members.partition_counts().values()) == PARTITIONS + 2,
        f"the new topic is assigned\n{members.account()}",
    )
    member.leave()


def test_the_group_as_kafkas_tools_show_it(consumers: Consumers) -> None:
    gateway, members = consumers
    joined = [_start(members, CONFLUENT, name) for name in ("first", "second")]
    members.await_shared(*joined)
    members.deliver(5)
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
