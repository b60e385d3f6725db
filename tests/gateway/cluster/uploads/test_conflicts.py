"""A store that answers 409 again and again, without an effect: calls are repeated, but not as quickly as the
store answers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from seqgate.gateway.cluster.parts.manifest import Manifest, Manifests, PartitionKey
from seqgate.gateway.cluster.rebuild.unfinished_import import UnfinishedImport, begin_import
from seqgate.gateway.cluster.uploads.collection import Collection
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, UploadPorts
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import decode_boundary
from seqgate.gateway.cluster.wal.wal_object import boundary_key
from seqgate.log import PartitionLog, Storage
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import Fate, SimulatedObjects

KEY = PartitionKey(uuid.UUID(int=5), 0)
STORM_S = 60.0
CALLS = 200
"""The most calls in a storm. Without pauses there would be some thousands."""


async def _create_part(objects: SimulatedObjects) -> None:
    async def flushed(_: PartitionLog) -> None: ...

    ports = UploadPorts(objects, Storage(), Manifests(objects), 0, lambda: 0, flushed)
    await PartitionUploads(ports)._create(KEY, "files-" + "a" * 32, b"content", [])


async def _replace_manifest(objects: SimulatedObjects) -> None:
    await Manifests(objects).replace(Manifest(*KEY, "flights", 0, 0, 0, 0, (), ()))


async def _move_boundary(objects: SimulatedObjects) -> None:
    await Collection(objects).collect(1, 0, 1)
    key = boundary_key(1, 0)
    assert decode_boundary(await objects.get(key), key) == 1


async def _begin_import(objects: SimulatedObjects) -> None:
    reads = PersistentReads(objects, "the test waits")
    await begin_import(reads, UnfinishedImport("cluster", "directory", "data", "host"))


@pytest.mark.parametrize("change", [_create_part, _replace_manifest, _move_boundary, _begin_import])
def test_a_storm_of_conflicts_is_waited_out(change: Callable[[SimulatedObjects], Awaitable[None]]) -> None:
    async def work() -> None:
        objects = SimulatedObjects()
        for operation in ("create", "replace"):
            objects.plan(operation, *[Fate.CONFLICTS_BEFORE] * 100_000)
        changing = asyncio.ensure_future(change(objects))
        await asyncio.sleep(STORM_S)
        assert not changing.done()
        assert len(objects.bucket.calls) < CALLS
        objects._planned.clear()
        await changing

    in_virtual_time(work())
