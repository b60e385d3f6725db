"""The check at the start refuses stores on which two writers could both win."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import AlreadyThere, Changed, Entry, Refused, StoreFailed
from seqgate.gateway.cluster.objects.probe import RACERS, probe
from tests.simulation.loop import SimulatedLoop
from tests.support.simulated_objects import (
    ROUGH,
    Faults,
    SimulatedBucket,
    SimulatedObjects,
    Stored,
    version_of,
)


def in_virtual_time(work: Coroutine[Any, Any, None]) -> float:
    """Run to the end, and return how long it took."""
    loop = SimulatedLoop(Random(1))
    try:
        loop.run_until_complete(work)
        return loop.time()
    finally:
        loop.close()


class Overwriting(SimulatedBucket):
    """A store that takes conditional writes and keeps no condition."""

    def create(self, key: str, content: bytes, now_s: float) -> None:
        self.objects[key] = Stored(content, now_s, now_s)


class Replacing(SimulatedBucket):
    """A store that respects the condition of a creation and ignores the condition of a replacement."""

    def replace(self, key: str, content: bytes, version: str | None, now_s: float) -> str:
        self.objects[key] = Stored(content, now_s, now_s)
        return version_of(content)


class LastWins(SimulatedBucket):
    """A store that tells one racer that it has won, and keeps the content of another."""

    def create(self, key: str, content: bytes, now_s: float) -> None:
        is_lost = key in self.objects
        self.objects[key] = Stored(content, now_s, now_s)
        if is_lost:
            raise AlreadyThere(key)


class Forgetting(SimulatedBucket):
    """A store that loses what it has created."""

    def create(self, key: str, content: bytes, now_s: float) -> None:
        if any(deleted == key for deleted, _ in self.deleted):
            raise AlreadyThere(key)
        super().create(key, content, now_s)
        self.delete(key, now_s)


class Hiding(SimulatedBucket):
    """A store whose listings lack objects."""

    def page(self, prefix: str, after: str, at_s: float) -> list[Entry]:
        return [entry for entry in super().page(prefix, after, at_s) if not entry.key.endswith("created")]


class Unconditional(SimulatedBucket):
    """A store that refuses every replacement of a version."""

    def replace(self, key: str, content: bytes, version: str | None, now_s: float) -> str:
        if version is not None:
            raise Changed(key)
        return super().replace(key, content, version, now_s)


async def test_a_sound_store_passes_and_is_left_empty() -> None:
    objects = SimulatedObjects(faults=Faults(latency_s=(0, 0.001)))
    await probe(objects, "fresh")
    assert objects.bucket.keys() == []
    assert [call.operation for call in objects.bucket.calls].count("create") == RACERS


async def test_a_directory_passes_and_is_left_empty(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    await probe(objects, "fresh")
    assert [entry async for entry in objects.list("")] == []


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            Overwriting,
            r"^of 16 creations of one object, the store carried out [0-9]+ instead of 1; use a store with",
        ),
        (
            Replacing,
            r"^of 16 replacements of one object, the store carried out [0-9]+ instead of 1; use a store",
        ),
        (
            LastWins,
            (
                r"^of 16 creations of one object, the store says that it has carried out one, but the object has "
                r"another"
            ),
        ),
        (Forgetting, r"^of 16 creations .*, but the object is missing; use a store with conditional writes"),
    ],
)
async def test_an_unsafe_store_is_refused(kind: type[SimulatedBucket], sentence: str) -> None:
    bucket = kind()
    with pytest.raises(Refused, match=sentence):
        await probe(SimulatedObjects(bucket, faults=Faults(latency_s=(0, 0.002))), "fresh")
    assert bucket.keys() == []


def test_a_store_without_replacements_is_refused() -> None:
    async def story() -> None:
        with pytest.raises(StoreFailed, match="has carried out none of 16 replacements"):
            await probe(SimulatedObjects(Unconditional()), "fresh")

    in_virtual_time(story())


def test_a_store_that_hides_objects_is_not_trusted() -> None:
    async def story() -> None:
        with pytest.raises(StoreFailed, match=r"^it lists \['probe/fresh-4/replaced'\] instead of"):
            await probe(SimulatedObjects(Hiding()), "fresh")

    in_virtual_time(story())


async def test_a_refusal_of_the_store_is_reported() -> None:
    objects = SimulatedObjects()
    objects.refusal = "the bucket does not exist"
    with pytest.raises(Refused, match="the bucket does not exist"):
        await probe(objects, "fresh")


def test_an_unreachable_store_is_asked_several_times(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        objects = SimulatedObjects(SimulatedBucket(outages=[(0, 1e9)]))
        with pytest.raises(StoreFailed):
            await probe(objects, "fresh")

    assert in_virtual_time(story()) < 300
    assert caplog.text.count("The object store is checked again") == 4


def test_a_store_that_comes_back_passes(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        bucket = SimulatedBucket(outages=[(0, 2)])
        await probe(SimulatedObjects(bucket), "fresh")
        assert bucket.keys() == []

    in_virtual_time(story())
    assert "The object store is checked again" in caplog.text


def test_a_sound_store_is_never_refused_for_its_faults() -> None:
    outcomes = []
    faults = replace(ROUGH, stale_listing=0)

    async def story(seed: int) -> None:
        try:
            await probe(SimulatedObjects(seed=seed, faults=faults), "fresh")
        except StoreFailed:
            outcomes.append("failed")
        else:
            outcomes.append("passed")

    for seed in range(150):
        in_virtual_time(story(seed))
    assert outcomes.count("passed") > 100
