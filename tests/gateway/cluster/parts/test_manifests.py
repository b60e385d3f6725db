from __future__ import annotations

from collections.abc import Awaitable
from random import Random
from typing import TypeVar

import msgspec
import pytest

from seqgate.gateway.cluster.parts.manifest import (
    Manifest,
    Manifests,
    NoLongerLed,
    Overtaken,
    PartitionKey,
    decode_manifest,
    manifest_key,
)
from tests.gateway.cluster.parts.test_manifest import MANIFEST
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import CALM, ROUGH, Faults, SimulatedBucket, SimulatedObjects

T = TypeVar("T")


def manifests(bucket: SimulatedBucket, seed: int = 1, faults: Faults = CALM) -> Manifests:
    return Manifests(
        SimulatedObjects(bucket, seed=seed, faults=faults, name=f"client {seed}"), chance=Random(seed)
    )


def of_session(session: int, end_offset: int = 9) -> Manifest:
    return msgspec.structs.replace(MANIFEST, session=session, end_offset=end_offset)


def stored(bucket: SimulatedBucket) -> Manifest:
    key = manifest_key(MANIFEST.key)
    return decode_manifest(bucket.get(key), key)


async def each(*calls: Awaitable[T]) -> list[T]:
    return [await call for call in calls]


def test_generations_count_the_replacements() -> None:
    bucket = SimulatedBucket()

    async def work() -> None:
        ours = manifests(bucket)
        for generation in range(3):
            assert (await ours.replace(of_session(4))).generation == generation
        assert ours.partitions() == [MANIFEST.key]

    in_virtual_time(work())
    assert stored(bucket).generation == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_replacement_happens_once_whatever_the_store_does(seed: int) -> None:
    bucket = SimulatedBucket()

    async def work() -> None:
        ours = manifests(bucket, seed, ROUGH)
        for end in (9, 10, 11):
            await ours.replace(of_session(4, end))
            assert stored(bucket).end_offset == end
            assert stored(bucket) == ours.of(MANIFEST.key)

    in_virtual_time(work())


def test_the_manifest_of_an_earlier_session_is_replaced() -> None:
    bucket = SimulatedBucket()

    async def work() -> None:
        ours, zombies = manifests(bucket, 1), manifests(bucket, 2)
        await zombies.replace(of_session(3))
        await ours.load(MANIFEST.key)
        await zombies.replace(of_session(3, 10))
        replaced = await ours.replace(of_session(4, 11))
        assert (replaced.generation, replaced.session) == (2, 4)

    in_virtual_time(work())
    assert stored(bucket).end_offset == 11


def test_the_manifest_of_a_later_session_stays() -> None:
    bucket = SimulatedBucket()

    async def work() -> None:
        zombies, theirs = manifests(bucket, 1), manifests(bucket, 2)
        await zombies.replace(of_session(3))
        await theirs.replace(of_session(4, 11))
        with pytest.raises(Overtaken, match="session 4 has replaced"):
            await zombies.replace(of_session(3, 12))

    in_virtual_time(work())
    assert stored(bucket).end_offset == 11


def test_a_deleted_manifest_is_gone() -> None:
    bucket = SimulatedBucket()

    async def work() -> None:
        ours = manifests(bucket)
        await ours.replace(of_session(4))
        await ours.delete(MANIFEST.key)
        assert ours.partitions() == []
        assert await ours.load(MANIFEST.key) is None

    in_virtual_time(work())
    assert not bucket.objects


def test_the_restored_manifest_counts_until_ours_is_stored() -> None:
    """The session that has ended stood still amid its upload, and replaced the manifest after ours was
    restored.
    """
    bucket = SimulatedBucket()

    async def work() -> None:
        restored = await manifests(bucket).replace(of_session(2, 9))
        await manifests(bucket).replace(of_session(3, 11))
        ours = Manifests(SimulatedObjects(bucket), restored={restored.key: restored}, chance=Random(1))
        basis = await ours.load(restored.key)
        assert basis == msgspec.structs.replace(restored, generation=1)
        assert (await ours.replace(of_session(4, 10))).generation == 2

    in_virtual_time(work())
    assert stored(bucket) == msgspec.structs.replace(of_session(4, 10), generation=2)


def test_the_own_uploads_go_on_from_the_restored_manifest() -> None:
    """They may have deleted what the restored one names. It may come later than `Manifests` begins."""
    bucket = SimulatedBucket()

    async def work() -> None:
        restored = await manifests(bucket).replace(of_session(2, 9))
        taken_in: dict[PartitionKey, Manifest] = {}
        ours = Manifests(SimulatedObjects(bucket), restored=taken_in, session=4, chance=Random(1))
        taken_in[restored.key] = restored
        await manifests(bucket).replace(of_session(3, 11))
        assert await ours.load(restored.key) == msgspec.structs.replace(restored, generation=1)
        stored = await ours.replace(of_session(4, 20))
        ours.forget(restored.key)
        assert await ours.load(restored.key) == stored

    in_virtual_time(work())


def test_the_restored_manifest_does_not_hide_a_later_session() -> None:
    bucket = SimulatedBucket()

    async def work() -> None:
        restored = await manifests(bucket).replace(of_session(2))
        await manifests(bucket).replace(of_session(5))
        ours = Manifests(SimulatedObjects(bucket), restored={restored.key: restored}, chance=Random(1))
        with pytest.raises(Overtaken):
            await ours.replace(of_session(4))

    in_virtual_time(work())


class TestLeaders:
    """A partition with several leaders: their leader epochs count, whatever the numbers of their sessions
    are.
    """

    def of_leader(self, leader_epoch: int, session: int, end_offset: int = 9) -> Manifest:
        made = of_session(session, end_offset)
        return msgspec.structs.replace(made, leader_epoch=leader_epoch)

    def test_a_manifest_of_an_earlier_leader_is_replaced_and_replaces_nothing(self) -> None:
        bucket = SimulatedBucket()

        async def work() -> None:
            first, second = manifests(bucket, 1), manifests(bucket, 2)
            await first.replace(self.of_leader(1, 8))
            await second.load(MANIFEST.key)
            await first.replace(self.of_leader(1, 8, 10))
            await second.replace(self.of_leader(2, 3, 11))
            with pytest.raises(NoLongerLed, match="session 3 leads the partition in epoch 2"):
                await first.replace(self.of_leader(1, 8, 12))

        in_virtual_time(work())
        assert (stored(bucket).leader_epoch, stored(bucket).end_offset) == (2, 11)

    def test_the_same_node_in_a_later_session_ends_the_session(self) -> None:
        bucket = SimulatedBucket()

        async def work() -> None:
            first, second = manifests(bucket, 1), manifests(bucket, 2)
            await first.replace(self.of_leader(1, 8))
            await second.replace(self.of_leader(1, 9))
            with pytest.raises(Overtaken):
                await first.replace(self.of_leader(1, 8))

        in_virtual_time(work())

    def test_a_partition_that_comes_back_is_read_again(self) -> None:
        bucket = SimulatedBucket()

        async def work() -> None:
            first, second = manifests(bucket, 1), manifests(bucket, 2)
            await first.replace(self.of_leader(1, 8))
            await second.replace(self.of_leader(2, 3, 11))
            first.forget(MANIFEST.key)
            found = await first.load(MANIFEST.key)
            assert found is not None
            assert found.end_offset == 11

        in_virtual_time(work())
