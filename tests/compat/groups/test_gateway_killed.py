"""The gateway is killed while members of a group consume: the members continue, and committed offsets stay
committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.groups.conftest import PARTITIONS, SETTINGS
from tests.compat.groups.members import (
    CLIENTS,
    CONFLUENT,
    LIBRARIES,
    GroupMember,
    Members,
    await_that,
    members_of,
)
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess

KILLS = 2
SESSION_TIMEOUT_MS = 10_000


def _acknowledged(*members: GroupMember) -> dict[int, int]:
    """Return the largest acknowledged commit of each partition."""
    largest: dict[int, int] = {}
    for member in members:
        for partition, offset in member.committed:
            largest[partition] = max(largest.get(partition, 0), offset)
    return largest


def _expect_not_behind(held: dict[int, int], promised: dict[int, int]) -> None:
    behind = {partition: (held.get(partition), offset) for partition, offset in promised.items()}
    assert all(held.get(partition, -1) >= offset for partition, offset in promised.items()), behind


@pytest.mark.parametrize("client", LIBRARIES)
def test_members_go_on_and_no_committed_offset_goes_back(tmp_path: Path, client: str) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "killed", partitions=PARTITIONS)
        with members_of(gateway.bootstrap, topic, PARTITIONS, tmp_path) as members:
            first = members.start(client, "first", session_timeout_ms=SESSION_TIMEOUT_MS)
            second = members.start(client, "second", session_timeout_ms=SESSION_TIMEOUT_MS)
            members.await_shared(first, second)
            told: dict[int, int] = {}
            for _ in range(KILLS):
                members.produce(20)
                await_that(lambda: first.committed and second.committed, "both have committed")
                before = _acknowledged(first, second)
                gateway.restart(kill=True)
                members.connect_anew()
                held = members.committed_offsets()
                _expect_not_behind(held, before)
                _expect_not_behind(held, told)
                told = held
                members.deliver(20)
            await_that(
                lambda: members.committed_offsets() == members.end_offsets(),
                f"everything is committed\n{members.account()}",
            )
            members.await_shared(first, second)
            first.leave()
            second.leave()
        assert "Traceback" not in gateway.stderr_text()


def test_a_stable_group_outlives_the_gateway_without_a_rebalance(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "outlived", partitions=PARTITIONS)
        with members_of(gateway.bootstrap, topic, PARTITIONS, tmp_path) as members:
            joined = [members.start(CONFLUENT, name, session_timeout_ms=30_000) for name in ("a", "b")]
            held = members.await_shared(*joined)
            await_that(lambda: all(member.told("assigned") for member in joined), "both know their part")
            changes = [member.changes for member in joined]
            gateway.restart(kill=True)
            members.connect_anew()
            members.deliver(5)
            await_that(lambda: members.committed_offsets() == members.end_offsets(), "all is committed")
            assert members.assignments() == held
            assert [member.changes for member in joined] == changes


def test_every_client_resumes_from_the_offsets_of_before(tmp_path: Path) -> None:
    """One client commits, the gateway is killed, and all other clients continue in turn from the committed
    offset."""
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "resumed", partitions=PARTITIONS)
        with members_of(gateway.bootstrap, topic, PARTITIONS, tmp_path) as members:
            for client in CLIENTS:
                members.produce(5)
                member = _reads_to_the_end(members, client)
                assert len(member.records) == 5 * PARTITIONS
                assert members.committed_offsets() == members.end_offsets()
                gateway.restart(kill=True)
                members.connect_anew()
                assert members.committed_offsets() == members.end_offsets()


def _reads_to_the_end(members: Members, client: str) -> GroupMember:
    member = members.start(client, client)
    members.await_all_delivered()
    member.leave()
    return member
