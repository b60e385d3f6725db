"""The limits of a group follow its configs, and the coordinators apply them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.sharing import share_group
from seqgate.gateway.metadata.image import GROUP_RESOURCE
from seqgate.log import PartitionLog, Storage
from tests.gateway.handlers.requests import alter
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.runtime.absent_segments import Bucket
from tests.gateway.runtime.coordinators.test_share_coordinator import (
    GROUP,
    TOPIC,
    acknowledge,
    acquired,
    begin,
    fetch,
    write,
)

SETTINGS = ("share.coordinator.state.topic.num.partitions=1", "offsets.topic.num.partitions=1")
RENEW = 4


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *SETTINGS) as node:
        yield node


async def configure(node: Node, **configs: str) -> None:
    values: dict[str, str | None] = {
        f"share.{name.replace('_', '.')}": value for name, value in configs.items()
    }
    assert (await alter(node, GROUP_RESOURCE, GROUP, values)).error_code == 0


async def test_a_change_holds_at_once_for_its_group_only(node: Node) -> None:
    configs = node.services.coordinators.group_configs
    assert configs.of("g").consumer.session_timeout_ms == 45_000
    await alter(node, GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": "50000"})
    assert configs.of("g").consumer.session_timeout_ms == 50_000
    await alter(node, GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": "55000"})
    assert configs.of("g").consumer.session_timeout_ms == 55_000
    assert configs.of("other").consumer.session_timeout_ms == 45_000
    await alter(node, GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": None})
    assert configs.of("g").consumer.session_timeout_ms == 45_000


async def test_members_are_told_their_groups_interval_and_have_its_session(node: Node) -> None:
    await begin(node)
    await configure(node, heartbeat_interval_ms="7000", session_timeout_ms="50000")

    def joins(_: Any) -> dict[str, Any]:
        member = {"group_id": GROUP, "member_id": "m", "member_epoch": 0}
        return {**member, "rack_id": None, "subscribed_topic_names": (TOPIC,)}

    answer = await node.ask(share_group.SHARE_GROUP_HEARTBEAT_API, 1, joins)
    assert answer.heartbeat_interval.total_seconds() == 7
    group = node.services.coordinators.shares.group(GROUP)
    assert group is not None
    assert group.members["m"].session_deadline_ms == NOW_MS + 50_000


async def test_locks_last_as_long_as_the_group_says(node: Node) -> None:
    topic_id = await begin(node)
    await configure(node, record_lock_duration_ms="20000", partition_max_record_locks="100")
    await write(node, 150)
    answer = await fetch(node, topic_id)
    assert answer.acquisition_lock_timeout.total_seconds() == 20
    assert acquired(answer) == [(0, 99)]
    (found,) = node.services.coordinators.shares.known(GROUP).values()
    assert found.next_deadline_ms() == NOW_MS + 20_000


async def test_deliveries_are_counted_against_the_groups_limit(node: Node) -> None:
    topic_id = await begin(node)
    await configure(node, delivery_count_limit="2")
    await write(node, 1)
    for _ in range(2):
        assert acquired(await fetch(node, topic_id)) == [(0, 0)]
        node.services.coordinators.shares.release_member(GROUP, "a")
    assert acquired(await fetch(node, topic_id)) == []


@pytest.mark.parametrize(("enabled", "error"), [("true", "none"), ("false", "invalid_record_state")])
async def test_locks_are_renewed_where_the_group_may(node: Node, enabled: str, error: str) -> None:
    topic_id = await begin(node)
    await configure(node, renew_acknowledge_enable=enabled)
    await write(node, 1)
    await fetch(node, topic_id)
    answer = await acknowledge(node, topic_id, 0, 0, RENEW, is_renew_ack=True)
    assert answer.responses[0].partitions[0].error_code.name == error


@pytest.mark.parametrize(
    ("reset", "begins_at"),
    [
        ("earliest", 0),
        ("latest", 3),
        ("by_duration:PT1M", 1),
        ("by_duration:PT0S", 3),
        ("by_duration:P9D", 0),
    ],
)
async def test_where_a_group_begins(node: Node, reset: str, begins_at: int) -> None:
    topic_id = await begin(node)
    await configure(node, auto_offset_reset=reset)
    for age_ms in (3_600_000, 60_000, 1):
        await write(node, 1, NOW_MS - age_ms)
    await fetch(node, topic_id)
    (found,) = node.services.coordinators.shares.known(GROUP).values()
    assert found.start_offset == begins_at


async def test_no_client_waits_while_a_bucket_tells_where_a_group_begins(tmp_path: Path) -> None:
    bucket = Bucket()
    async with open_node(tmp_path, *SETTINGS, storage=Storage(disk=bucket.disk)) as node:
        topic_id = await begin(node)
        await configure(node, auto_offset_reset="by_duration:PT1M")
        partition = node.services.partitions.registry.get(TOPIC, 0)
        assert partition is not None
        partition.log.update_config(replace(partition.log.config, segment_bytes=200))
        for age_ms in (3_600_000, 60_000, 1):
            await write(node, 1, NOW_MS - age_ms)
        bucket.take_first_segment(partition.log)
        found = await node.services.coordinators.shares.open(SharePartitionKey(GROUP, topic_id, 0), partition)
        assert found.start_offset == 1
        assert bucket.fetched


@pytest.mark.parametrize(("level", "got"), [("read_committed", [(0, 0)]), ("read_uncommitted", [(0, 1)])])
async def test_a_group_that_reads_what_is_committed_stops_at_the_last_stable_offset(
    node: Node, level: str, got: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = await begin(node)
    await configure(node, isolation_level=level)
    for _ in range(2):
        await write(node, 1)
    monkeypatch.setattr(PartitionLog, "last_stable_offset", property(lambda _: 1))
    assert acquired(await fetch(node, topic_id)) == got


async def test_answers_while_a_change_is_written_are_the_old_or_the_new(node: Node) -> None:
    configs = node.services.coordinators.group_configs
    await alter(node, GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": "50000"})
    change = asyncio.create_task(alter(node, GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": "55000"}))
    seen = set()
    while not change.done():
        seen.add(configs.of("g").consumer.session_timeout_ms)
        await asyncio.sleep(0)
    assert seen <= {50_000, 55_000}
    assert configs.of("g").consumer.session_timeout_ms == 55_000
