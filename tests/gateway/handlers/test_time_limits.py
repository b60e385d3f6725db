"""Administrative requests while the disk hangs: they are answered when time is up, and carried out when the
disk continues.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.tasks import ListTasksRequest
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.admin.log_dirs import DESCRIBE_LOG_DIRS_API
from seqgate.gateway.handlers.groups import offset_delete
from seqgate.gateway.handlers.groups.groups import DELETE_GROUPS_API, LIST_GROUPS_API
from seqgate.gateway.handlers.records import delete_records
from seqgate.gateway.handlers.sharing import share_group_offsets
from seqgate.gateway.handlers.sharing.share_group_offsets import begin_group
from seqgate.gateway.handlers.transactions import describe_producers
from seqgate.gateway.handlers.transactions.init_producer_id import begin_producer
from seqgate.gateway.handlers.transactions.transactions import LIST_TRANSACTIONS_API
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, TOPIC_RESOURCE
from seqgate.gateway.runtime.loop import slices
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from seqgate.log import Storage
from seqgate.log.files.storage import DataFile
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import alter, create, delete, grow
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch

PATIENCE_S = 120.0
SETTINGS = (
    "offsets.topic.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
)
Ask = Callable[[Node], Awaitable[Any]]


class SlowDisk(Storage):
    """A disk whose flushes wait until the test lets them continue."""

    def __init__(self) -> None:
        super().__init__()
        self.may_flush = threading.Event()
        self.may_flush.set()

    def _sync(self, file: DataFile) -> None:
        assert self.may_flush.wait(PATIENCE_S)
        super()._sync(file)

    def fsync_path(self, path: str) -> None:
        assert self.may_flush.wait(PATIENCE_S)
        super().fsync_path(path)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def node(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[Node]:
    """A node with a record in a topic, a group that has read it, and a share group that has begun to read the
    topic.
    """
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        services = node.services
        await create(node, "orders")
        partition = services.partitions.registry.get("orders", 0)
        assert partition is not None
        info = partition.append(batch(3, producer_id=7, base_sequence=0), NOW_MS)
        assert await partition.persisted(info.last_offset)
        await services.coordinators.groups.ensure_topic()
        await services.coordinators.shares.ensure_topic()
        record = OffsetCommitRecord("readers", "orders", 0, CommittedOffset(1, -1, "", NOW_MS))
        await services.coordinators.groups.run(
            "readers", lambda shard, effects: shard.commits.commit([record], effects)
        )
        await begin_group(services.coordinators, share_key(node), "orders", 1)
        yield node
        disk.may_flush.set()


def allow_ms(node: Node, time_ms: int) -> None:
    node.services.node.config.set_dynamic({"seqgate.admin.timeout.ms": str(time_ms)}, all_brokers=False)


class LeapingLoop:
    """The event loop with a clock on which an hour passes between any two readings."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._looks = 0

    def time(self) -> float:
        self._looks += 1
        return self._loop.time() + 3600 * self._looks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@contextmanager
def time_leaps(node: Node) -> Iterator[None]:
    loop = node.services.node.loop
    node.services.node.loop = cast("asyncio.AbstractEventLoop", LeapingLoop(loop))
    try:
        yield
    finally:
        node.services.node.loop = loop


def share_key(node: Node) -> SharePartitionKey:
    return SharePartitionKey("sharers", node.services.partitions.registry.by_name["orders"].topic_id, 0)


async def create_one(node: Node) -> Any:
    return (await create(node, "more")).error_code


async def delete_one(node: Node) -> Any:
    return (await delete(node, "orders"))[0].error_code


async def grow_one(node: Node) -> Any:
    return (await grow(node, "orders", 2)).error_code


async def alter_one(node: Node) -> Any:
    return (await alter(node, TOPIC_RESOURCE, "orders", {"retention.ms": "5000"})).error_code


async def delete_records_of_one(node: Node) -> Any:
    def make(module: Any) -> dict[str, Any]:
        partition = module.DeleteRecordsPartition(partition_index=0, offset=2)
        topic = module.DeleteRecordsTopic(name="orders", partitions=(partition,))
        return {"topics": (topic,), "timeout": timedelta(seconds=60)}

    return (await node.ask(delete_records.API, 2, make)).topics[0].partitions[0].error_code


async def delete_group(node: Node) -> Any:
    answer = await node.ask(DELETE_GROUPS_API, 2, lambda _: {"groups_names": ("readers",)})
    return answer.results[0].error_code


async def delete_share_group(node: Node) -> Any:
    answer = await node.ask(DELETE_GROUPS_API, 2, lambda _: {"groups_names": ("sharers",)})
    return answer.results[0].error_code


async def delete_offsets(node: Node) -> Any:
    def make(module: Any) -> dict[str, Any]:
        partition = module.OffsetDeleteRequestPartition(partition_index=0)
        topic = module.OffsetDeleteRequestTopic(name="orders", partitions=(partition,))
        return {"group_id": "readers", "topics": (topic,)}

    return (await node.ask(offset_delete.API, 0, make)).error_code


async def begin_elsewhere(node: Node) -> Any:
    def make(module: Any) -> dict[str, Any]:
        partition = module.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
        topic = module.AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=(partition,))
        return {"group_id": "sharers", "topics": (topic,)}

    return (
        (await node.ask(share_group_offsets.ALTER_SHARE_GROUP_OFFSETS_API, 0, make))
        .responses[0]
        .partitions[0]
        .error_code
    )


async def forget_topic(node: Node) -> Any:
    def make(module: Any) -> dict[str, Any]:
        topic = module.DeleteShareGroupOffsetsRequestTopic(topic_name="orders")
        return {"group_id": "sharers", "topics": (topic,)}

    return (
        (await node.ask(share_group_offsets.DELETE_SHARE_GROUP_OFFSETS_API, 0, make)).responses[0].error_code
    )


def offsets_of(node: Node) -> Any:
    return node.services.coordinators.groups.shards.of("readers").shard.offsets.of("readers")


DONE: dict[Ask, Callable[[Node], bool]] = {
    create_one: lambda node: node.services.partitions.registry.has("more", 0),
    delete_one: lambda node: not node.services.partitions.registry.has("orders", 0),
    grow_one: lambda node: node.services.partitions.registry.has("orders", 1),
    alter_one: lambda node: (
        node.services.topics.metadata_log.image.topic_configs("orders") == {"retention.ms": "5000"}
    ),
    delete_records_of_one: lambda node: (
        (log := node.services.partitions.log_directory.opened("orders", 0)) is not None
        and log.log_start_offset == 2
    ),
    delete_group: lambda node: node.services.coordinators.groups.find("readers") is None,
    delete_share_group: lambda node: node.services.coordinators.shares.group("sharers") is None,
    delete_offsets: lambda node: not offsets_of(node),
    begin_elsewhere: lambda node: (
        (found := node.services.coordinators.shares.find(share_key(node))) is not None
        and found.start_offset == 2
    ),
    forget_topic: lambda node: not node.services.coordinators.shares.known("sharers"),
}


@pytest.mark.parametrize("ask", DONE, ids=lambda ask: ask.__name__)
async def test_work_that_takes_too_long_is_reported_and_continues(
    node: Node, disk: SlowDisk, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """The change is in the log, too: a client with a short timeout must not change anything unseen."""
    allow_ms(node, 50)
    caplog.set_level("INFO", UNLIMITED)
    caplog.clear()
    disk.may_flush.clear()
    assert await ask(node) is ErrorCode.request_timed_out
    page = await answer(node, ListTasksRequest())
    assert [task.ended for task in page.tasks] == [False]
    assert page.tasks[0].name
    disk.may_flush.set()
    async with asyncio.timeout(PATIENCE_S):
        while any(task.ended_ms is None for task in node.services.node.tasks):
            await asyncio.sleep(0)
    assert DONE[ask](node)
    await asyncio.sleep(0)
    (line,) = [record.getMessage() for record in caplog.records if record.name == UNLIMITED]
    assert line.endswith(", by User:ANONYMOUS at 127.0.0.1:50312 (client 'test')")


@pytest.mark.parametrize("ask", DONE, ids=lambda ask: ask.__name__)
async def test_a_request_without_time_begins_no_work(node: Node, ask: Ask) -> None:
    with time_leaps(node):
        try:
            assert await ask(node) is ErrorCode.request_timed_out
        except IndexError:
            assert ask in {begin_elsewhere, forget_topic}, "these answer with one error for the whole request"
    assert not list(node.services.node.tasks)
    assert not DONE[ask](node)


async def list_all_groups(node: Node) -> Any:
    def make(_: Any) -> dict[str, Any]:
        return {"states_filter": (), "types_filter": ()}

    answer = await node.ask(LIST_GROUPS_API, 5, make)
    return answer.error_code, len(answer.groups)


async def list_all_transactions(node: Node) -> Any:
    def make(_: Any) -> dict[str, Any]:
        return {
            "state_filters": (),
            "producer_id_filters": (),
            "duration_filter": -1,
            "transactional_id_pattern": None,
        }

    answer = await node.ask(LIST_TRANSACTIONS_API, 2, make)
    return answer.error_code, len(answer.transaction_states)


async def describe_directory(node: Node) -> Any:
    answer = (await node.ask(DESCRIBE_LOG_DIRS_API, 4, lambda _: {"topics": None})).results[0]
    return answer.error_code, sum(len(topic.partitions) for topic in answer.topics)


async def describe_all_producers(node: Node) -> Any:
    def make(module: Any) -> dict[str, Any]:
        return {"topics": (module.TopicRequest(name="orders", partition_indexes=(0,)),)}

    answer = (await node.ask(describe_producers.API, 0, make)).topics[0].partitions[0]
    return answer.error_code, len(answer.active_producers)


LISTS = [list_all_groups, list_all_transactions, describe_directory, describe_all_producers]


class TestLists:
    @pytest.mark.parametrize("ask", LISTS, ids=lambda ask: ask.__name__)
    async def test_other_requests_run_between_two_rows_of_a_list(
        self, node: Node, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self._fill(node)
        monkeypatch.setattr(slices, "SLICE_S", -1.0)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        error_code, rows = await ask(node)
        counting.cancel()
        assert error_code is ErrorCode.none
        assert rows >= 20
        assert turns >= rows

    @pytest.mark.parametrize("ask", LISTS, ids=lambda ask: ask.__name__)
    async def test_a_list_has_a_time_limit(self, node: Node, ask: Ask) -> None:
        await self._fill(node)
        with time_leaps(node):
            assert await ask(node) == (ErrorCode.request_timed_out, 0)

    async def _fill(self, node: Node) -> None:
        services = node.services
        await create(node, "many", 20)
        await services.coordinators.transactions.ensure_topic()
        partition = services.partitions.registry.get("orders", 0)
        assert partition is not None
        for number in range(20):
            record = OffsetCommitRecord(f"g{number}", "orders", 0, CommittedOffset(1, -1, "", NOW_MS))
            await services.coordinators.groups.run(
                record.group_id, lambda shard, effects, record=record: shard.commits.commit([record], effects)
            )
            await begin_producer(services.coordinators.transactions, f"t{number}", 1000, Producer())
            partition.append(batch(1, producer_id=100 + number, base_sequence=0), NOW_MS)


async def test_the_partition_of_a_group_does_not_change(node: Node) -> None:
    answer = await grow(node, OFFSETS_TOPIC, 5)
    assert answer.error_code is ErrorCode.invalid_partitions
    assert "decides where each group" in answer.error_message
    assert not node.services.partitions.registry.has(OFFSETS_TOPIC, 1)
