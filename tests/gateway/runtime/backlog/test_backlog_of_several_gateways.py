"""Backlog quotas where the leader of a partition and the coordinators of its groups are different gateways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.image import GROUP_RESOURCE
from seqgate.gateway.metadata.records import BrokerRegistrationChangeRecord, TopicRecord
from seqgate.gateway.protocol.messages import encode_request, request_schema
from seqgate.gateway.runtime.backlog import KEPT_MS, RemoteReaders
from seqgate.gateway.runtime.coordinators.group_moves import MOVER
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import alter
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, partition
from tests.gateway.handlers.two_gateways import Cluster, open_cluster
from tests.gateway.runtime.backlog.test_backlog import (
    BATCH_BYTES,
    EVICT,
    REFUSE,
    RETRY,
    SETTINGS,
    TOPIC,
    answer,
    batch,
    commit,
    committed,
    configure,
    produce,
    write,
)
from tests.gateway.runtime.share_requests import acknowledge, beat, fetch

ACCEPT = 1
LIST_GROUPS = 16
HEADER_BYTES = 15
"""The size of a frame and its header v2, without a client id."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Node 1 leads the partition; node 2 coordinates all groups."""
    async with open_cluster(tmp_path, *SETTINGS) as cluster:
        await cluster.store_state()
        for node in (cluster.here, cluster.there):
            node.services.upkeep.backlog.start()
        await cluster.commit(TopicRecord(TOPIC, TOPIC_ID), partition(TOPIC_ID, 0, THIS))
        yield cluster


async def limited(cluster: Cluster, policy: str, quota: int = 3 * BATCH_BYTES) -> Partition:
    """Set a quota on the topic, write four records, and let a group read none of them."""
    await configure(cluster.here, backlog_quota_bytes=str(quota), backlog_quota_policy=policy)
    await cluster.settled()
    led = cluster.here.services.partitions.registry.get(TOPIC, 0)
    assert led is not None
    await write(cluster.here, led, 4)
    await commit(cluster.there, "slow", 0)
    return led


async def measured(cluster: Cluster) -> int:
    """Measure the backlog at the leader; return the error of the next record."""
    await cluster.here.services.upkeep.backlog.measure_all()
    return int((await answer(produce(cluster.here, batch())))["error_code"])


async def test_producers_are_refused_until_a_group_of_another_gateway_catches_up(cluster: Cluster) -> None:
    await limited(cluster, REFUSE)
    assert await measured(cluster) == RETRY
    await commit(cluster.there, "slow", 4)
    assert await measured(cluster) == 0


async def test_share_groups_count_as_well(cluster: Cluster) -> None:
    await alter(cluster.here, GROUP_RESOURCE, "readers", {"share.auto.offset.reset": "earliest"})
    await cluster.settled()
    await beat(cluster.there, "a", 0, TOPIC)
    await limited(cluster, REFUSE)
    await commit(cluster.there, "slow", 4)
    assert await measured(cluster) == 0
    await fetch(cluster.here, TOPIC_ID, max_records=1)
    assert await measured(cluster) == RETRY
    await acknowledge(cluster.here, TOPIC_ID, 0, 0, ACCEPT)
    await fetch(cluster.here, TOPIC_ID, session_epoch=2)
    await acknowledge(cluster.here, TOPIC_ID, 1, 4, ACCEPT, session_epoch=3)
    assert await measured(cluster) == 0


async def test_a_silent_coordinator_counts_by_its_last_answer_for_a_while(cluster: Cluster) -> None:
    await limited(cluster, REFUSE)
    assert await measured(cluster) == RETRY
    cluster.silent.add(OTHER)
    cluster.here.clock.time_ms += KEPT_MS
    assert await measured(cluster) == RETRY
    cluster.here.clock.time_ms += 1
    assert await measured(cluster) == 0


async def test_a_clock_that_is_set_back_makes_no_answer_count_for_longer(cluster: Cluster) -> None:
    await limited(cluster, REFUSE)
    assert await measured(cluster) == RETRY
    cluster.silent.add(OTHER)
    cluster.here.clock.time_ms -= 10 * KEPT_MS
    assert await measured(cluster) == 0


async def test_a_coordinator_that_never_answered_limits_nobody(cluster: Cluster) -> None:
    cluster.silent.add(OTHER)
    await limited(cluster, REFUSE)
    assert await measured(cluster) == 0


async def test_a_coordinator_that_is_fenced_counts_no_more(cluster: Cluster) -> None:
    await limited(cluster, REFUSE)
    assert await measured(cluster) == RETRY
    await cluster.commit(BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
    assert await measured(cluster) == 0


async def test_a_group_is_moved_forward_by_its_coordinator(cluster: Cluster) -> None:
    led = await limited(cluster, EVICT)
    await commit(cluster.there, "fast", 4)
    await cluster.here.services.upkeep.backlog.measure_all()
    moved = committed(cluster.there, "slow")
    assert 0 < moved < led.log.log_end_offset
    assert committed(cluster.there, "fast") == 4
    assert cluster.here.services.upkeep.backlog.skipped.of("slow", (TOPIC, 0)).total == moved


async def test_a_share_group_is_moved_forward_by_the_leader(cluster: Cluster) -> None:
    await alter(cluster.here, GROUP_RESOURCE, "readers", {"share.auto.offset.reset": "earliest"})
    await cluster.settled()
    await beat(cluster.there, "a", 0, TOPIC)
    await limited(cluster, EVICT)
    await fetch(cluster.here, TOPIC_ID, max_records=1)
    await cluster.here.services.upkeep.backlog.measure_all()
    (found,) = cluster.there.services.coordinators.shares.stored.known("readers").values()
    assert found.start_offset > 0


async def test_an_offset_never_moves_back_and_a_move_creates_no_group(cluster: Cluster) -> None:
    await limited(cluster, EVICT)
    await commit(cluster.there, "fast", 4)
    for group_id, code in (
        ("fast", ErrorCode.unstable_offset_commit),
        ("new", ErrorCode.unstable_offset_commit),
    ):
        entry = {
            "partition_index": 0,
            "committed_offset": 2,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        told = await Asking(cluster.there).ask(
            "offset_commit",
            8,
            group_id=group_id,
            generation_id_or_member_epoch=2**31 - 1,
            member_id=MOVER,
            group_instance_id=None,
            topics=[{"name": TOPIC, "partitions": [entry]}],
        )
        assert told["topics"][0]["partitions"][0]["error_code"] == int(code)
    (shard,) = cluster.there.services.coordinators.groups.loaded_shards()
    assert sorted(shard.offsets.groups()) == ["fast", "slow"]


class ManyGroups:
    """A gateway that coordinates 120 groups of each kind, and reads requests as a listener does."""

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = 0) -> Any:
        del node_id, timeout_s
        schema = request_schema(request.__api_key__, request.__version__)
        schema.read_large(memoryview(encode_request(request, 1, b"")), HEADER_BYTES)
        if request.__api_key__ == LIST_GROUPS:
            rows = [
                SimpleNamespace(group_id=f"{kind}-{number}", group_type=kind)
                for kind in ("consumer", "share")
                for number in range(120)
            ]
            return SimpleNamespace(error_code=0, groups=rows)
        offset = {"partition_index": 9_999, "committed_offset": 1, "start_offset": 1, "error_code": 0}
        topic = SimpleNamespace(name=TOPIC, topic_name=TOPIC, partitions=[SimpleNamespace(**offset)])
        return SimpleNamespace(
            groups=[
                SimpleNamespace(group_id=group.group_id, error_code=0, topics=[topic])
                for group in request.groups
            ]
        )


async def test_the_groups_of_many_partitions_are_asked_for_in_requests_that_are_read() -> None:
    """One with more items than a request may name closes the connection, and no group counted."""
    topic = SimpleNamespace(served_here=lambda: range(10_000))
    partitions: Any = SimpleNamespace(by_name={TOPIC: topic})
    brokers: Any = SimpleNamespace(is_alone=False, others=lambda: [OTHER])
    clock: Any = SimpleNamespace(now_ms=lambda: 0)
    found: Any = {}
    await RemoteReaders(clock, partitions, brokers, ManyGroups()).add_to(found, {TOPIC})
    readers = found[TOPIC, 9_999]
    expected = sorted(
        (f"{kind}-{number}", kind == "share") for kind in ("consumer", "share") for number in range(120)
    )
    assert sorted((reader.group, reader.is_share) for reader in readers) == expected
