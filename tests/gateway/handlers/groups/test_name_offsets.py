"""OffsetFetch of the group that stands for a producer name: its last persisted sequence id, in every version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.handlers.groups import offset_fetch
from seqgate.gateway.handlers.groups.offset_commit import commit_offsets
from seqgate.gateway.runtime.loop import slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.upkeep import name_keeping
from seqgate.log import PartitionLog, StorageFailed
from seqgate.log.state.record_states import RecordStates
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import Plain, build, entity, plain

TOPIC, PLAIN_TOPIC = "ledger", "plain"
TOPIC_RESOURCE = 2
TRANSACTIONAL = 0x10
LOADING = ErrorCode.coordinator_load_in_progress.value
NOT_AVAILABLE = ErrorCode.coordinator_not_available.value
UNSTABLE = ErrorCode.unstable_offset_commit.value
VERSIONS = range(1, 11)
BATCHED, BY_ID = 8, 10
GONE_ID = "12345678-0000-0000-0000-000000000000"
Rows = dict[tuple[str, int], tuple[int, str, int]]
"""(committed offset, metadata, error) by topic and partition."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, "offsets.topic.num.partitions=1") as opened:
        await create(opened, TOPIC, 3, configs=dict(DEDUPLICATED))
        await create(opened, PLAIN_TOPIC)
        yield opened


def partition_of(node: Node, index: int = 0, topic: str = TOPIC) -> Partition:
    partition = node.services.partitions.registry.get(topic, index)
    assert partition is not None
    return partition


async def write(node: Node, batch: Batch, index: int = 0, topic: str = TOPIC) -> None:
    """Append a batch and flush it."""
    partition = partition_of(node, index, topic)
    append(partition, batch)
    await node.services.partitions.flusher.flushed(partition.log, partition)


def append(partition: Partition, batch: Batch) -> None:
    partition.append(replace(batch, base_timestamp=NOW_MS).encode(), NOW_MS)


async def ask(
    node: Node,
    version: int,
    groups: Sequence[str],
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    *,
    stable: bool = False,
) -> Plain:
    by_name = node.services.partitions.registry.by_name
    wanted: list[Plain] | None = None
    if topics is not None:
        wanted = [{"name": name, "partition_indexes": list(indexes)} for name, indexes in topics]
        if version >= BY_ID:
            wanted = [
                {
                    "topic_id": str(by_name[name].topic_id) if name in by_name else GONE_ID,
                    "partition_indexes": list(indexes),
                }
                for name, indexes in topics
            ]
    fields: Plain = {"group_id": groups[0], "topics": wanted}
    if version >= BATCHED:
        fields = {
            "groups": [
                {"group_id": group, "topics": wanted, "member_id": None, "member_epoch": -1}
                for group in groups
            ]
        }
    request = build(entity("offset_fetch", version, EntityType.request), {**fields, "require_stable": stable})
    context = node.context(offset_fetch.API, version)
    answer: Plain = plain(await offset_fetch.handle(context, request))
    return answer


def rows_of(node: Node, version: int, answer: Plain, group: str) -> tuple[int, Rows]:
    """Return the group's error, and its rows."""
    told = answer
    if version >= BATCHED:
        (told,) = (entry for entry in answer["groups"] if entry["group_id"] == group)
    names = {str(topic.topic_id): name for name, topic in node.services.partitions.registry.by_name.items()}
    return told.get("error_code", 0), {
        (topic["name"] if version < BY_ID else names.get(topic["topic_id"], "?"), row["partition_index"]): (
            row["committed_offset"],
            row["metadata"],
            row["error_code"],
        )
        for topic in told["topics"]
        for row in topic["partitions"]
    }


async def offsets(node: Node, version: int, name: str, **more: Any) -> tuple[int, Rows]:
    group = f"seqgate-name:{name}"
    return rows_of(node, version, await ask(node, version, [group], **more), group)


NOTHING = (-1, "", 0)


class TestEveryVersion:
    async def test_the_last_persisted_sequence_of_each_partition_asked_for(self, node: Node) -> None:
        await write(node, named("a", 3, 7, 40))
        await write(node, named("a", 8, epoch=2), 1)
        asked = [(TOPIC, [0, 1, 2, 9]), (PLAIN_TOPIC, [0]), ("gone", [0])]
        for version in VERSIONS:
            error, rows = await offsets(node, version, "a", topics=asked)
            assert error == 0
            assert rows[TOPIC, 0][0] == 40
            assert json.loads(rows[TOPIC, 0][1]) == {"persisted": 40, "epoch": None}
            assert json.loads(rows[TOPIC, 1][1]) == {"persisted": 8, "epoch": 2}
            assert rows[TOPIC, 2] == rows[TOPIC, 9] == rows[PLAIN_TOPIC, 0] == NOTHING
            if version < BY_ID:
                assert rows["gone", 0] == NOTHING
            else:
                assert rows["?", 0][2] == ErrorCode.unknown_topic_id.value

    async def test_a_name_that_nobody_knows(self, node: Node) -> None:
        await write(node, named("a", 3))
        for version in VERSIONS:
            assert await offsets(node, version, "b", topics=[(TOPIC, [0])]) == (0, {(TOPIC, 0): NOTHING})

    async def test_all_partitions_of_a_name(self, node: Node) -> None:
        await create(node, "other", configs=dict(DEDUPLICATED))
        await write(node, named("Köln", 1), 2)
        await write(node, named("Köln", 5), topic="other")
        await write(node, named("Köln", 7), topic=PLAIN_TOPIC)
        for version in VERSIONS[1:]:
            error, rows = await offsets(node, version, "Köln", topics=None)
            told = {place: row[0] for place, row in rows.items()}
            assert (error, told) == (0, {(TOPIC, 2): 1, ("other", 0): 5})

    async def test_a_name_in_replay_is_not_reported_as_unknown(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await be_behind(node)
        # the replay never reaches the end
        monkeypatch.setattr(RecordStates, "replay_names", lambda *_: False)
        monkeypatch.setattr(offset_fetch, "REQUEST_S", 0.02)
        for version in VERSIONS:
            error, rows = await offsets(node, version, "a", topics=[(PLAIN_TOPIC, [0])])
            assert error == (LOADING if version >= 2 else 0)
            # aiokafka reads only the rows of the answer, not its error
            assert rows == ({} if version >= BATCHED else {(PLAIN_TOPIC, 0): (-1, "", LOADING)})

    async def test_a_name_in_an_open_transaction_has_an_unstable_offset(self, node: Node) -> None:
        await write(node, named("a", 3))
        held = replace(named("a", 9).of(1000, 0, 0), attributes=TRANSACTIONAL)
        await write(node, held)
        for version in VERSIONS:
            _, rows = await offsets(node, version, "a", topics=[(TOPIC, [0])], stable=True)
            assert rows[TOPIC, 0][::2] == ((-1, UNSTABLE) if version >= 7 else (3, 0))
            _, rows = await offsets(node, version, "a", topics=[(TOPIC, [0])])
            assert rows[TOPIC, 0][::2] == (3, 0)

    async def test_a_partition_that_is_offline(self, node: Node) -> None:
        await write(node, named("a", 3))
        partition_of(node).log.offline_because = "No space left on device"
        for version in VERSIONS:
            error, rows = await offsets(node, version, "a", topics=[(TOPIC, [0])])
            assert error == (NOT_AVAILABLE if version >= 2 else 0)
            assert rows == ({} if version >= BATCHED else {(TOPIC, 0): (-1, "", NOT_AVAILABLE)})


async def be_behind(node: Node) -> None:
    """Turn deduplication on for a topic that already has records."""
    for sequence_id in range(5):
        await write(node, named("a", sequence_id), topic=PLAIN_TOPIC)
    configs: dict[str, str | None] = {**DEDUPLICATED, "message.deduplication.start": "earliest"}
    await alter(node, TOPIC_RESOURCE, PLAIN_TOPIC, configs)
    assert not partition_of(node, topic=PLAIN_TOPIC).log.record_states.names_ready


async def test_the_request_replays_the_log(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await be_behind(node)
    monkeypatch.setattr(name_keeping, "REPLAY_BYTES", 1)
    assert (await offsets(node, 8, "a", topics=[(PLAIN_TOPIC, [0])]))[1][PLAIN_TOPIC, 0][0] == 4


async def test_the_names_of_one_request_share_its_time_limit(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each name would get the whole time, and the request could take hours."""
    await write(node, named("a", 3))
    monkeypatch.setattr(offset_fetch, "REQUEST_S", 0.0)
    groups = ["seqgate-name:a", "seqgate-name:b"]
    answer = await ask(node, 8, groups, None)
    assert [rows_of(node, 8, answer, group) for group in groups] == [(LOADING, {})] * 2


async def test_only_durable_sequences_are_returned(node: Node) -> None:
    await write(node, named("a", 3))
    partition = partition_of(node)
    append(partition, named("a", 4))
    assert (await offsets(node, 9, "a", topics=[(TOPIC, [0])]))[1][TOPIC, 0][0] == 3
    await node.services.partitions.flusher.flushed(partition.log, partition)
    assert (await offsets(node, 9, "a", topics=[(TOPIC, [0])]))[1][TOPIC, 0][0] == 4


async def test_a_partition_that_can_not_be_opened_is_not_reported_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        await create(node, TOPIC, configs=dict(DEDUPLICATED))
        await write(node, named("a", 3))
    async with open_node(tmp_path) as node:
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "begin_leader_epoch", fail)
            for _ in range(2):
                assert (await offsets(node, 9, "a", topics=[(TOPIC, [0])]))[0] == NOT_AVAILABLE
                assert (await offsets(node, 9, "a", topics=None))[0] == NOT_AVAILABLE
        assert (await offsets(node, 9, "a", topics=None))[1][TOPIC, 0][0] == 3


def fail(*_: object) -> None:
    raise StorageFailed("the disk is broken")


async def test_names_and_groups_in_one_request(node: Node) -> None:
    await node.services.coordinators.groups.ensure_topic()
    await write(node, named("a", 3))
    await write(node, named("b", 8))
    record = OffsetCommitRecord("readers", TOPIC, 0, CommittedOffset(12, -1, "", NOW_MS))
    assert (
        await commit_offsets(node.services.coordinators.groups, Committer("readers"), [record])
        is ErrorCode.none
    )
    groups = ["seqgate-name:a", "readers", "seqgate-name:b"]
    answer = await ask(node, 8, groups, [(TOPIC, [0])])
    assert [rows_of(node, 8, answer, group)[1][TOPIC, 0][0] for group in groups] == [3, 12, 8]


@pytest.mark.parametrize("prefix", ["seqgate-name:", "group-"])
async def test_other_requests_run_between_the_groups_of_a_long_request(
    node: Node, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    await alter(node, TOPIC_RESOURCE, TOPIC, {"message.deduplication.enable": "false"})
    await ask(
        node, BATCHED, ["group-"], None
    )  # The first request creates the coordinator, so that it costs the measured request no time.
    monkeypatch.setattr(slices, "SLICE_S", -1.0)
    asking = asyncio.ensure_future(ask(node, BATCHED, [f"{prefix}{number}" for number in range(50)], None))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 50
    assert len(asking.result()["groups"]) == 50


async def test_only_requested_partitions_are_opened(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, TOPIC, 3, configs=dict(DEDUPLICATED))
        await write(node, named("a", 3))
        await write(node, named("a", 4), 1)
    async with open_node(tmp_path) as node:
        topic = node.services.partitions.registry.by_name[TOPIC]
        assert (await offsets(node, 9, "a", topics=[(TOPIC, [1, 2])]))[1][TOPIC, 1][0] == 4
        assert [partition.index for partition in topic.opened()] == [1]
        assert len((await offsets(node, 9, "a", topics=None))[1]) == 2
        assert [partition.index for partition in topic.opened()] == [0, 1]
