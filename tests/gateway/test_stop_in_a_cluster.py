"""A gateway in a cluster stops: the next start uses the data directory only if the bucket has all of its
records.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from seqgate.gateway import gateway as gateway_module
from seqgate.gateway.cluster.objects.objects import Buffer, ObjectStore, StoreFailed
from seqgate.gateway.config import Config, load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.support.batches import Batch, records
from tests.support.wire import Wire

TOPIC = "orders"


class Machines(Machine):
    """A machine whose store takes no further object once `is_away`."""

    is_away = False

    def objects(self, config: Config) -> ObjectStore:
        store = super().objects(config)
        create = store.create

        async def maybe(key: str, content: bytes | Sequence[Buffer]) -> None:
            if self.is_away:
                raise StoreFailed("a test says so")
            await create(key, content)

        store.create = maybe  # type: ignore[method-assign]
        return store


def settings(path: Path) -> Config:
    (path / "bucket").mkdir(exist_ok=True)
    return load_config(
        overrides=[
            f"log.dirs={path / 'cache'}",
            f"seqgate.cluster=file://{path / 'bucket'}",
            "listeners=PLAINTEXT://127.0.0.1:0",
        ]
    )


async def serve(path: Path, machine: Machine | None = None) -> tuple[Gateway, Partition]:
    gateway = Gateway(settings(path), machine)
    await gateway.start()
    address = gateway.services.node.bound["PLAINTEXT"].shown
    await asyncio.to_thread(create, address)
    partition = gateway.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    return gateway, partition


def create(bootstrap: str) -> None:
    with Wire(bootstrap, timeout_s=60) as wire:
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
        wire.call("create_topics", 7, topics=[topic], timeout=10_000)


async def write(gateway: Gateway, partition: Partition) -> bool:
    """Append a batch of three records, and wait for it."""
    info = partition.append(Batch(records(3)).encode(), gateway.clock.now_ms())
    return await partition.persisted(info.last_offset)


async def end_offsets(path: Path, *, without_disk: bool) -> tuple[int, int]:
    """Return the log end offset and the high watermark after a start."""
    if without_disk:
        shutil.rmtree(path / "cache")
    gateway, partition = await serve(path)
    found = partition.log.log_end_offset, partition.log.high_watermark
    await gateway.stop()
    return found


@pytest.mark.parametrize("without_disk", [False, True])
async def test_a_clean_stop_keeps_all_records(tmp_path: Path, without_disk: bool) -> None:
    gateway, partition = await serve(tmp_path)
    assert await write(gateway, partition)
    await gateway.stop()
    assert await end_offsets(tmp_path, without_disk=without_disk) == (3, 3)


async def test_records_that_only_the_directory_has_are_not_used(tmp_path: Path) -> None:
    """Otherwise the next records would follow on bytes that the bucket lacks, and nobody could rebuild the
    partition.
    """
    gateway, partition = await serve(tmp_path)
    assert await write(gateway, partition)
    partition.log.append(Batch(records(3)).encode(), now_ms=gateway.clock.now_ms())
    partition.log.go_offline("a test says so")
    await gateway.stop()
    gateway, partition = await serve(tmp_path)
    assert partition.log.log_end_offset == 3
    assert await write(gateway, partition)
    await gateway.stop()
    assert await end_offsets(tmp_path, without_disk=True) == (6, 6)


async def test_a_stop_waits_for_a_store_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "STORE_TIMEOUT_S", 0.05)
    machine = Machines()
    gateway, partition = await serve(tmp_path, machine)
    assert await write(gateway, partition)
    machine.is_away = True
    waiting = asyncio.create_task(write(gateway, partition))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await gateway.stop()
        assert not await waiting, "the producer must not get an acknowledgement"
    assert await end_offsets(tmp_path, without_disk=False) == (3, 3)
