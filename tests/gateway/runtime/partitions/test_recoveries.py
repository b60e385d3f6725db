"""Partitions are recovered in threads while the gateway serves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import LogError, Recovery, StorageFailed
from seqgate.log.files.file_names import LOG_SUFFIX, PARTITION_METADATA, TRANSACTION_INDEX_SUFFIX, offset_name
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch


async def offline(node: Node) -> Partition:
    """Return a partition with a durable record and one that was only written, after a failed flush."""
    await create(node, "orders")
    partition = node.services.partitions.registry.get("orders", 0)
    assert partition is not None
    assert await partition.persisted(partition.append(batch(), NOW_MS).last_offset)
    partition.log.go_offline("a test says so")
    return partition


class Held:
    """Holds the recovery threads until `release`, and notes on which threads they ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.begun, self._may_go = threading.Event(), threading.Event()
        run: Callable[[Recovery], None] = Recovery.run

        def held(recovery: Recovery) -> None:
            self.threads.append(threading.get_ident())
            self.begun.set()
            self._may_go.wait()
            run(recovery)

        monkeypatch.setattr(Recovery, "run", held)

    async def wait_for_a_recovery(self) -> None:
        await asyncio.to_thread(self.begun.wait)

    def release(self) -> None:
        self._may_go.set()


async def test_a_reopened_partition_is_recovered_in_a_thread_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        partition = await offline(node)
        held, recoveries = Held(monkeypatch), node.services.partitions.recoveries
        both = [asyncio.create_task(recoveries.reopen(partition.log, partition)) for _ in range(2)]
        await held.wait_for_a_recovery()
        with pytest.raises(StorageFailed, match="offline"):
            partition.append(batch(), NOW_MS)
        held.release()
        await asyncio.gather(*both)
        assert len(held.threads) == 1
        assert held.threads[0] != threading.get_ident()
        assert partition.append(batch(), NOW_MS).base_offset == 1


async def test_a_reopened_partition_is_still_led_in_its_epoch(tmp_path: Path) -> None:
    """Although the epoch has no records yet: an offset of it must be found."""
    async with open_node(tmp_path) as node:
        partition = await offline(node)
        await node.services.partitions.recoveries.reopen(partition.log, partition)
        partition.begin_leader_epoch(5)
        partition.log.go_offline("a test says so")
        await node.services.partitions.recoveries.reopen(partition.log, partition)
        assert partition.log.epochs.end_offset(5, partition.log.log_end_offset) == (5, 1)


async def test_a_caller_that_goes_away_stops_no_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        partition = await offline(node)
        held, recoveries = Held(monkeypatch), node.services.partitions.recoveries
        caller = asyncio.create_task(recoveries.reopen(partition.log, partition))
        await held.wait_for_a_recovery()
        caller.cancel()
        held.release()
        await recoveries.finish()
        assert not partition.log.offline


async def test_the_name_of_a_deleted_topic_is_taken_until_its_recovery_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        partition = await offline(node)
        held, recoveries = Held(monkeypatch), node.services.partitions.recoveries
        reopened = asyncio.create_task(recoveries.reopen(partition.log, partition))
        await held.wait_for_a_recovery()
        await delete(node, "orders")
        await create(node, "orders")
        registry = node.services.partitions.registry
        assert registry.get("orders", 0) is None
        held.release()
        with pytest.raises((LogError, OSError)):
            await reopened
        assert partition.log.offline
        again = registry.get("orders", 0)
        assert again is not None
        assert again.append(batch(), NOW_MS).base_offset == 0


@pytest.mark.parametrize("damage", ["torn", "topic id", "transaction index"])
async def test_a_log_that_changed_since_the_clean_stop_is_recovered_in_the_background(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_node(tmp_path) as node:
        partition = await offline(node)
        await node.services.partitions.recoveries.reopen(partition.log, partition)
    path = tmp_path / "orders-0"
    if damage == "torn":
        with (path / offset_name(0, LOG_SUFFIX)).open("ab") as file:
            file.write(b"torn")
    elif damage == "transaction index":
        (path / offset_name(0, TRANSACTION_INDEX_SUFFIX)).write_bytes(b"not an entry")
    else:
        (path / PARTITION_METADATA).write_bytes(b"?")
    async with open_node(tmp_path) as node:
        held, services = Held(monkeypatch), node.services.partitions
        assert services.registry.get("orders", 0) is None
        assert services.registry.get("orders", 0) is None
        await held.wait_for_a_recovery()
        held.release()
        await services.recoveries.finish()
        found = services.registry.get("orders", 0)
        assert found is not None
        assert found.append(batch(), NOW_MS).base_offset == 1
        assert len(held.threads) == 1


async def test_a_recovery_that_fails_in_an_unexpected_way_is_logged_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_node(tmp_path) as node:
        partition = await offline(node)
        await node.services.partitions.recoveries.reopen(partition.log, partition)
    with (tmp_path / "orders-0" / offset_name(0, LOG_SUFFIX)).open("ab") as file:
        file.write(b"torn")
    async with open_node(tmp_path) as node:
        services = node.services.partitions
        run = Recovery.run

        def fail(recovery: Recovery) -> None:
            raise MemoryError

        monkeypatch.setattr(Recovery, "run", fail)
        assert services.registry.get("orders", 0) is None
        await services.recoveries.finish()
        monkeypatch.setattr(Recovery, "run", run)
        assert "the recovery of orders-0 failed in an unexpected way" in caplog.text
        assert services.registry.get("orders", 0) is None
        await services.recoveries.finish()
        assert services.registry.get("orders", 0) is not None
