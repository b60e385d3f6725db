"""Whether a gateway is ready, and the sentences that say why it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.metrics.health import NAMED
from seqgate.gateway.sizes import size_in_words
from tests.gateway.metrics.scene import Scene, running


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with running(tmp_path) as scene:
        yield scene


async def reasons(scene: Scene) -> list[str]:
    """Return the sentences of /readyz; the metric must say the same."""
    reply = await scene.get("/readyz")
    is_ready = (await scene.values()).of("seqgate_ready")
    assert reply.status == (200 if is_ready else 503)
    assert (await scene.get("/healthz")).status == 200, "the process answers all the same"
    return [] if reply.status == 200 else reply.text.splitlines()


async def test_a_gateway_that_has_started_is_ready(scene: Scene) -> None:
    assert await reasons(scene) == []


async def test_a_short_disk(scene: Scene) -> None:
    room = scene.services.upkeep.disk_room
    room.is_disk_short = True
    assert await reasons(scene) == [
        (
            f"the disk has less than {size_in_words(room.min_free_bytes)} free (seqgate.log.min.free.bytes); producers "
            "are refused"
        )
    ]
    room.is_disk_short = False
    assert await reasons(scene) == []


async def test_a_bucket_that_is_behind(scene: Scene) -> None:
    scene.services.upkeep.disk_room.is_bucket_behind = True
    (reason,) = await reasons(scene)
    assert reason.startswith("too many records are not in the bucket yet")


async def test_a_lease_that_is_over(scene: Scene) -> None:
    lease: Any = SimpleNamespace(is_over=lambda: True)
    scene.services.partitions.registry.lease = lease
    (reason,) = await reasons(scene)
    scene.services.partitions.registry.lease = None
    assert reason == "the lease of this gateway is over; another gateway may lead its partitions"


async def test_offline_partitions_are_named_up_to_a_limit(scene: Scene) -> None:
    async with scene.wire() as wire:
        await wire.create("a", 2 * NAMED)
    registry = scene.services.partitions.registry
    opened = [registry.get("a", index) for index in range(2 * NAMED)]
    for number, partition in enumerate(opened):
        assert partition is not None
        partition.log.go_offline("a write failed")
        if number == 0:
            assert await reasons(scene) == ["a-0 is offline: a write failed"]
    found = await reasons(scene)
    assert len(found) == NAMED + 1
    assert found[-1] == f"{NAMED} more reasons"
    for partition in opened:
        assert partition is not None
        await scene.services.partitions.recoveries.reopen(partition.log, partition)
    assert await reasons(scene) == []


async def test_a_partition_that_cannot_be_opened(scene: Scene) -> None:
    async with scene.wire() as wire:
        await wire.create("a")
    scene.services.partitions.registry.by_name["a"].failed.add(0)
    assert await reasons(scene) == ["a-0 can't be opened"]
    assert (await scene.values()).of("seqgate_offline_partitions") == 1


async def test_producer_ids_that_are_exhausted(tmp_path: Path) -> None:
    async with running(tmp_path, "seqgate.producer.id.block.size=2") as scene, scene.wire() as wire:
        allocator = scene.services.coordinators.producer_ids

        async def refusing(*_: object) -> None:
            raise OSError("the store is gone")

        allocator._store = SimpleNamespace(claim=refusing)  # type: ignore[assignment]
        fields = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        while not (await wire.call("init_producer_id", 4, **fields))["error_code"]:
            pass
        (reason,) = await reasons(scene)
        assert reason == "no producer ids are left, and no block can be claimed: the store is gone"
        values = await scene.values()
        assert values.of("seqgate_producer_ids_left") == 0
        assert values.of("seqgate_producer_id_claims_failed_total") >= 1
        assert values.of("seqgate_producer_id_blocks_claimed_total") >= 1
