"""A sweep finds and removes every kind of leak planted in a running gateway. A healthy gateway has none."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.sweep import (
    ALL,
    LeakRow,
    StateSweep,
    SweepPage,
    SweepRequest,
    SweepResultRequest,
    Sweeps,
)
from seqgate.gateway.admin.tasks import ListTasksRequest, TaskRow
from seqgate.gateway.cli import app
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.share.records import SharePartitionKey, StateBatch
from seqgate.gateway.coordinator.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    ShareLimits,
    SharePartition,
)
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.sharing.share_group_offsets import begin_group
from seqgate.gateway.handlers.transactions.init_producer_id import begin_producer
from seqgate.gateway.runtime.upkeep.background_jobs import FileDeletion
from seqgate.log.stopped import LeakKind
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch, delete_records

AGE_MS = 60_000
FEW_PARTITIONS = (
    "offsets.topic.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
)
HOUR_AGO_S = NOW_MS / 1000 - 3600


@asynccontextmanager
async def swept_node(path: Path) -> AsyncIterator[Node]:
    async with open_node(path, *FEW_PARTITIONS) as node:
        await create(node, "orders", 2, configs={"file.delete.delay.ms": "0"})
        await append(node, "orders")
        yield node


async def sweep(node: Node, *, remove: bool = False, unknown: bool = False) -> SweepPage:
    sweeps = Sweeps(node.services)
    task = sweeps.begin(SweepRequest(remove=remove, unknown=unknown, min_age_ms=AGE_MS))
    async with asyncio.timeout(60):
        while not (page := sweeps.result(SweepResultRequest(task.number))).task.ended:
            await asyncio.sleep(0)
    assert page.task.failure is None
    return page


def plant(path: Path, content: bytes = b"x") -> Path:
    if path.name.endswith(("-0", "-9", "-delete")):
        path.mkdir()
        (path / "00000000000000000000.log").write_bytes(content)
    else:
        path.write_bytes(content)
    os.utime(path, (HOUR_AGO_S, HOUR_AGO_S))
    return path


def age_all(path: Path) -> None:
    for found in path.rglob("*"):
        os.utime(found, (HOUR_AGO_S, HOUR_AGO_S))


async def append(node: Node, topic: str, index: int = 0) -> None:
    partition = node.services.partitions.registry.get(topic, index)
    assert partition is not None
    info = partition.append(batch(), NOW_MS)
    assert await partition.persisted(info.last_offset)


async def commit(node: Node, group: str, topic: str, partition: int = 0, *, topic_id: bytes = b"") -> None:
    """Commit an offset of a topic that may be deleted. Such an offset remains if the log could not be written
    at the deletion.
    """
    await node.services.coordinators.groups.ensure_topic()
    value = CommittedOffset(7, -1, "", NOW_MS, topic_id=topic_id)
    record = OffsetCommitRecord(group, topic, partition, value)
    await node.services.coordinators.groups.run(
        group, lambda shard, effects: shard.commits.commit([record], effects)
    )


def share_key(node: Node, topic: str | None, partition: int = 0, group: str = "sharers") -> SharePartitionKey:
    topics = node.services.topics.metadata_log.image.topics_by_name
    return SharePartitionKey(group, uuid.UUID(int=99) if topic is None else topics[topic].topic_id, partition)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("gone-0", LeakKind.PARTITION),
            ("orders-9", LeakKind.PARTITION),
            ("gone-0.0123-delete", LeakKind.DELETED),
            ("meta.properties.tmp", LeakKind.TEMPORARY),
            ("orders-0/00000000000000000000.log.deleted", LeakKind.DELETED),
            ("orders-0/00000000000000000007.index", LeakKind.INDEX),
            ("orders-0/00000000000000000007.timeindex", LeakKind.INDEX),
            ("orders-0/00000000000000000007.txnindex", LeakKind.INDEX),
            ("orders-0/00000000000000000007.snapshot", LeakKind.SNAPSHOT),
            ("orders-0/leader-epoch-checkpoint.tmp", LeakKind.TEMPORARY),
            ("orders-0/00000000000000000000.log.cleaned", LeakKind.TEMPORARY),
        ],
    )
    async def test_found_and_removed(self, tmp_path: Path, name: str, kind: LeakKind) -> None:
        async with swept_node(tmp_path) as node:
            planted = plant(tmp_path / name)
            page = await sweep(node)
            assert [(leak.kind, leak.place, leak.removed) for leak in page.leaks] == [(kind, name, False)]
            assert planted.exists()
            page = await sweep(node, remove=True)
            assert [leak.removed for leak in page.leaks] == [True]
            assert not planted.exists() or kind is LeakKind.DELETED
            job = FileDeletion(node.services.node.config, node.clock, node.services.partitions.log_directory)
            await job.run()
            job.stop()
            assert not planted.exists()
            assert not list(tmp_path.rglob("*.deleted"))
            assert not list(tmp_path.glob("*-delete"))
            assert (await sweep(node)).leaks == []
            await append(node, "orders")

    async def test_a_partition_that_another_process_may_have_created_stays(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            directory = node.services.partitions.log_directory
            directory.share = directory.share._replace(is_whole=False, tells_of="metadata")
            planted = plant(tmp_path / "gone-0")
            page = await sweep(node, remove=True, unknown=True)
            assert [(leak.place, leak.removed) for leak in page.leaks] == [("gone-0", False)]
            assert planted.exists()

    @pytest.mark.parametrize("name", ["orders-0/00000000000000000007.log", "00000000000000000007.log"])
    async def test_records_are_never_removed(self, tmp_path: Path, name: str) -> None:
        async with swept_node(tmp_path) as node:
            planted = plant(tmp_path / name)
            page = await sweep(node, remove=True, unknown=True)
            assert page.leaks == [LeakRow(LeakKind.SEGMENT, name, 1, removable=False, removed=False)]
            assert planted.exists()

    @pytest.mark.parametrize("name", ["notes.txt", "orders-0/notes.txt"])
    async def test_unknown_files_go_only_when_that_is_said(self, tmp_path: Path, name: str) -> None:
        async with swept_node(tmp_path) as node:
            planted = plant(tmp_path / name)
            page = await sweep(node, remove=True)
            assert page.leaks == [LeakRow(LeakKind.UNKNOWN, name, 1, removable=True, removed=False)]
            assert planted.exists()
            assert (await sweep(node, remove=True, unknown=True)).leaks[0].removed
            assert not planted.exists()


class TestState:
    async def test_offsets_of_a_topic_that_is_gone(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            await commit(node, "readers", "orders")
            await commit(node, "readers", "gone")
            await commit(node, "readers", "orders", 5)
            page = await sweep(node)
            assert {leak.place for leak in page.leaks} == {"readers: gone-0", "readers: orders-5"}
            assert {leak.kind for leak in page.leaks} == {"committed offset without a topic"}
            assert all(leak.removed for leak in (await sweep(node, remove=True)).leaks)
            assert (await sweep(node)).leaks == []
            shard = node.services.coordinators.groups.shards.of("readers").shard
            assert set(shard.offsets.of("readers")) == {("orders", 0)}

    async def test_offsets_of_an_earlier_topic_of_the_name(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            await commit(node, "readers", "orders", topic_id=uuid.UUID(int=99).bytes)
            await commit(node, "readers", "orders", 1, topic_id=share_key(node, "orders").topic_id.bytes)
            page = await sweep(node, remove=True)
            assert [(leak.place, leak.removed) for leak in page.leaks] == [("readers: orders-0", True)]
            shard = node.services.coordinators.groups.shards.of("readers").shard
            assert set(shard.offsets.of("readers")) == {("orders", 1)}

    async def test_share_state_of_a_topic_that_is_gone(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            shares = node.services.coordinators.shares
            await node.services.coordinators.groups.ensure_topic()
            await shares.ensure_topic()
            await begin_group(node.services.coordinators, share_key(node, "orders"), "orders", 3)
            gone = share_key(node, None)
            await begin_group(node.services.coordinators, gone, "gone", 3)
            page = await sweep(node)
            assert {leak.place for leak in page.leaks} == {f"sharers: {gone.topic_id}-0", "sharers: gone"}
            assert all(leak.removed for leak in (await sweep(node, remove=True)).leaks)
            assert (await sweep(node)).leaks == []
            assert set(shares.known("sharers")) == {share_key(node, "orders")}

    async def test_share_state_whose_dead_letters_are_not_written(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            shares = node.services.coordinators.shares
            node.services.coordinators.letters.stop()
            await node.services.coordinators.groups.ensure_topic()
            await shares.ensure_topic()
            gone = share_key(node, None)
            await begin_group(node.services.coordinators, gone, "gone", 0)
            state_sweep, task = StateSweep(node.services), node.services.node.tasks.begin("sweep")
            leaks = await state_sweep.find(task, 10)
            assert {leak.partition for leak in leaks} == {0, ALL}
            limits = ShareLimits(has_dead_letters=True)

            def reject(found: SharePartition) -> Sequence[StateBatch]:
                found.acquire("m", [(0, 0)], 1, limits, NOW_MS)
                said = Acknowledgement(0, 0, (AcknowledgeType.REJECT,))
                return found.acknowledge("m", [said], limits, NOW_MS)

            await shares.stored.change(gone, reject)
            assert {leak.partition for leak in await state_sweep.find(task, 10)} == {ALL}
            await state_sweep.remove(leaks, task)
            assert shares.known("sharers")[gone].is_sending
            assert await state_sweep.find(task, 10) == []

    async def test_a_transaction_that_nobody_ended(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            transactions = node.services.coordinators.transactions
            await transactions.ensure_topic()
            producer = await begin_producer(transactions, "copier", 1000, Producer())
            await transactions.add_partitions("copier", producer, frozenset({("orders", 0)}), 0)
            await delete(node, "orders")
            assert (await sweep(node)).leaks == [], (
                "a transaction within its timeout must stay: its producer may still end it"
            )
            node.clock.time_ms += 120_000
            page = await sweep(node, remove=True)
            assert [(leak.kind, leak.place) for leak in page.leaks] == [
                ("transaction without a topic", "copier: orders-0")
            ]


class TestHealthy:
    async def test_a_busy_gateway_has_no_leak(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            shares, transactions = node.services.coordinators.shares, node.services.coordinators.transactions
            for topic in ("small", "going"):
                await create(
                    node, topic, configs={"internal.segment.bytes": "200", "file.delete.delay.ms": "60000"}
                )
            for _ in range(20):
                await append(node, "small")
                await append(node, "going")
            log = node.services.partitions.log_directory.get("small", 0)
            assert log is not None
            delete_records(log, 15)
            await commit(node, "readers", "small")
            await commit(node, "readers", "going")
            await shares.ensure_topic()
            await begin_group(node.services.coordinators, share_key(node, "small"), "small", 3)
            await begin_group(node.services.coordinators, share_key(node, "going"), "going", 3)
            await transactions.ensure_topic()
            producer = await begin_producer(transactions, "copier", 60_000, Producer())
            await transactions.add_partitions("copier", producer, frozenset({("small", 0)}), 0)
            await delete(node, "going")
            age_all(tmp_path)
            assert list(tmp_path.glob("going-0.*-delete"))
            assert list(tmp_path.glob("small-0/*.deleted"))
            page = await sweep(node)
            assert page.leaks == []
            assert page.task.done > 0

    async def test_while_topics_come_and_go(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            age_all(tmp_path)

            async def come_and_go() -> None:
                for number in range(8):
                    await create(node, f"t{number}", 8)
                    for index in range(8):
                        assert node.services.partitions.registry.get(f"t{number}", index) is not None
                    age_all(tmp_path)
                    await delete(node, f"t{number}")
                    age_all(tmp_path)

            busy = asyncio.create_task(come_and_go())
            while not busy.done():
                assert (await sweep(node)).leaks == []
            await busy

    async def test_what_the_sweep_removes_is_not_what_comes_under_its_name(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            plant(tmp_path / "orders-0" / "leader-epoch-checkpoint.tmp")
            await sweep(node, remove=True)
            fresh = tmp_path / "orders-0" / "leader-epoch-checkpoint.tmp"
            fresh.write_bytes(b"of a log that goes on")
            job = FileDeletion(node.services.node.config, node.clock, node.services.partitions.log_directory)
            await job.run()
            job.stop()
            assert fresh.exists()


class TestRequests:
    async def test_one_at_a_time(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            sweeps = Sweeps(node.services)
            sweeps.begin(SweepRequest())
            with pytest.raises(ControlError, match="under way"):
                sweeps.begin(SweepRequest())
            assert [task.name for task in (await answer(node, ListTasksRequest())).tasks] == ["sweep"]
            await node.services.node.tasks.stop()

    async def test_refusals(self, tmp_path: Path) -> None:
        async with swept_node(tmp_path) as node:
            sweeps = Sweeps(node.services)
            with pytest.raises(ControlError, match="min_age_ms must be 0 or higher, not -1"):
                sweeps.begin(SweepRequest(min_age_ms=-1))
            with pytest.raises(ControlError, match="no sweep with number 9"):
                sweeps.result(SweepResultRequest(9))
            with pytest.raises(ControlError, match="position must be 0 or higher, not -1"):
                sweeps.result(SweepResultRequest(1, position=-1))


def test_a_worker_whose_sweep_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    page = SweepPage("running", TaskRow(1, "sweep", 0, 0, 0, None, ended=True, failure=None), 0, [])
    missing = "the worker on node 1 gave no answer: the sweep failed: EIO"
    monkeypatch.setattr(Client, "at_each_worker", lambda *_: ([page], [missing]))
    result = CliRunner().invoke(app, ["sweep", "--data-dir", "anywhere", "--dry-run", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["unswept"] == [missing]
