"""A gateway that starts again on its data directory, while other gateways had its partitions meanwhile."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.backends.bucket_start import rebuild_directory
from seqgate.gateway.backends.cluster_membership import ClusterMembership
from seqgate.gateway.config import Config, load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.gateway.test_stop_in_a_cluster import TOPIC, create, write

PATIENCE_S = 120.0


def settings(path: Path, node_id: int) -> Config:
    (path / "bucket").mkdir(exist_ok=True)
    return load_config(
        overrides=[
            f"log.dirs={path / f'cache-{node_id}'}",
            f"node.id={node_id}",
            f"seqgate.cluster=file://{path / 'bucket'}",
            "seqgate.cluster.metadata.poll.ms=20",
            "seqgate.cluster.balance.enable=false",
            "listeners=PLAINTEXT://127.0.0.1:0",
        ]
    )


async def started(path: Path, node_id: int) -> Gateway:
    gateway = Gateway(settings(path, node_id))
    await gateway.start()
    return gateway


async def served(gateway: Gateway) -> Partition:
    """Wait until the gateway serves the partition; return it."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := gateway.services.partitions.registry.get(TOPIC, 0)) is None:
            await asyncio.sleep(0.01)
    return found


async def test_records_that_others_took_after_a_clean_stop_are_there_after_the_next_start(
    tmp_path: Path,
) -> None:
    first = await started(tmp_path, 1)
    await asyncio.to_thread(create, first.services.node.bound["PLAINTEXT"].shown)
    other = await started(tmp_path, 2)
    await first.stop()
    first = await started(tmp_path, 1)  # now the session with the highest number, and it leads nothing
    assert await write(other, await served(other))
    await first.stop()
    assert await write(other, await served(other))
    await other.stop()
    again = await started(tmp_path, 1)
    try:
        assert (await served(again)).log.log_end_offset == 6
    finally:
        await again.stop()


async def test_records_that_another_took_and_left_during_a_start_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await started(tmp_path, 1)
    await asyncio.to_thread(create, first.services.node.bound["PLAINTEXT"].shown)
    assert await write(first, await served(first))
    await first.stop()

    async def meanwhile(*arguments: Any, **named: Any) -> Any:
        made = await rebuild_directory(*arguments, **named)
        patched.undo()
        other = await started(tmp_path, 2)
        assert await write(other, await served(other))
        await other.stop()
        return made

    patched = monkeypatch
    patched.setattr("seqgate.gateway.backends.bucket_start.rebuild_directory", meanwhile)
    shutil.rmtree(tmp_path / "cache-1")
    again = await started(tmp_path, 1)
    try:
        assert (await served(again)).log.log_end_offset == 6
    finally:
        await again.stop()


async def test_nothing_is_served_before_the_gateway_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await started(tmp_path, 1)
    await asyncio.to_thread(create, first.services.node.bound["PLAINTEXT"].shown)
    assert await write(first, await served(first))
    await first.stop()
    may_join, asked = asyncio.Event(), asyncio.Event()
    join = ClusterMembership.join

    async def late(membership: ClusterMembership, **named: Any) -> None:
        asked.set()
        await may_join.wait()
        await join(membership, **named)

    monkeypatch.setattr(ClusterMembership, "join", late)
    again = Gateway(settings(tmp_path, 1))
    starting = asyncio.create_task(again.start())
    await asked.wait()
    assert again.services.partitions.registry.get(TOPIC, 0) is None
    may_join.set()
    await starting
    assert (await served(again)).log.log_end_offset == 3
    await again.stop()
