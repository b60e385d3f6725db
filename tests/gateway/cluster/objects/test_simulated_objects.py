"""The simulated object store does to a call what the call's fate says, and the same seed does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

import pytest

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Changed,
    Entry,
    Missing,
    Refused,
    StoreFailed,
)
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import Process
from tests.support.simulated_objects import ROUGH, Fate, Faults, SimulatedBucket, SimulatedObjects, outcomes

T = TypeVar("T")


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    loop = SimulatedLoop(Random(1))
    try:
        result = loop.run_until_complete(work)
        assert loop.unhandled == []
        return result
    finally:
        loop.close()


async def entries_of(objects: SimulatedObjects, prefix: str = "", after: str = "") -> list[Entry]:
    return [entry async for entry in objects.list(prefix, after)]


@pytest.mark.parametrize(
    ("fate", "error", "is_there"),
    [
        (Fate.CARRIED_OUT, None, True),
        (Fate.FAILS_BEFORE, StoreFailed, False),
        (Fate.FAILS_AFTER, StoreFailed, True),
        (Fate.LANDS_LATE, StoreFailed, False),
        (Fate.SILENT_BEFORE, StoreFailed, False),
        (Fate.SILENT_AFTER, StoreFailed, True),
        (Fate.CONFLICTS_BEFORE, AlreadyThere, False),
        (Fate.CONFLICTS_AFTER, AlreadyThere, True),
    ],
)
def test_each_fate_of_a_creation(fate: Fate, error: type[Exception] | None, is_there: bool) -> None:
    async def story() -> None:
        objects = SimulatedObjects(faults=Faults(late_s=600))
        objects.plan("create", fate)
        if error is None:
            await objects.create("a", b"content")
        else:
            with pytest.raises(error):
                await objects.create("a", b"content")
        assert (objects.bucket.content("a") is not None) == is_there
        await asyncio.sleep(700)
        assert (objects.bucket.content("a") is not None) == (is_there or fate is Fate.LANDS_LATE)

    in_virtual_time(story())


def test_silence_lasts_until_the_clients_timeout() -> None:
    async def story() -> float:
        objects = SimulatedObjects(timeout_s=30)
        objects.plan("get", Fate.SILENT_BEFORE)
        with pytest.raises(StoreFailed, match=r"get 'a': no answer in 30 s"):
            await objects.get("a")
        return asyncio.get_running_loop().time()

    assert in_virtual_time(story()) == pytest.approx(30)


def test_a_slow_creation_lands_after_the_client_gave_up() -> None:
    async def story() -> None:
        objects = SimulatedObjects(faults=Faults(latency_s=(40, 50)), timeout_s=30)
        with pytest.raises(StoreFailed):
            await objects.create("a", [b"two ", memoryview(b"parts")])
        assert objects.bucket.content("a") is None
        await asyncio.sleep(30)
        assert objects.bucket.content("a") == b"two parts"

    in_virtual_time(story())


def test_the_write_of_a_dead_process_lands() -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        process = Process("gateway")
        process.begin(SimulatedObjects(bucket).create("a", b"content"))
        await asyncio.sleep(0.0001)
        process.die()
        await asyncio.sleep(1)
        assert bucket.content("a") == b"content"
        process.bury()

    in_virtual_time(story())


def test_a_cancelled_creation_lands() -> None:
    async def story() -> None:
        objects = SimulatedObjects()
        creation = asyncio.ensure_future(objects.create("a", b"content"))
        await asyncio.sleep(0.0001)
        creation.cancel()
        await asyncio.sleep(1)
        assert objects.bucket.content("a") == b"content"

    in_virtual_time(story())


def test_a_replaced_version_is_replaced_once() -> None:
    async def story() -> None:
        objects = SimulatedObjects()
        first = await objects.replace("a", b"1", None)
        second = await objects.replace("a", b"2", first)
        for stale in (None, first):
            with pytest.raises(Changed):
                await objects.replace("a", b"3", stale)
        assert await objects.read("a") == (b"2", second)
        with pytest.raises(Changed):
            await objects.replace("b", b"", first)
        with pytest.raises(Missing):
            await objects.read("b")

    in_virtual_time(story())


def test_an_outage_and_a_cut_off_client() -> None:
    async def story() -> None:
        bucket = SimulatedBucket(outages=[(10, 20)])
        one, other = SimulatedObjects(bucket, name="one"), SimulatedObjects(bucket, name="other")
        await one.create("a", b"")
        await asyncio.sleep(10)
        with pytest.raises(StoreFailed):
            await one.get("a")
        await asyncio.sleep(40)
        one.is_cut_off = True
        with pytest.raises(StoreFailed):
            await one.get("a")
        assert await other.get("a") == b""
        one.is_cut_off = False
        assert await one.get("a") == b""
        one.refusal = "no such bucket"
        with pytest.raises(Refused, match="no such bucket"):
            await one.get("a")

    in_virtual_time(story())


def test_a_client_beyond_its_rate_is_throttled() -> None:
    async def story() -> list[type[BaseException] | None]:
        objects = SimulatedObjects(faults=Faults(writes_per_second=3))
        calls = (objects.create(f"a/{number}", b"") for number in range(5))
        results = await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(1)
        await objects.create("a/9", b"")
        return [None if result is None else type(result) for result in results]

    assert in_virtual_time(story()) == [None, None, None, StoreFailed, StoreFailed]


def test_listings_have_pages_and_can_be_stale() -> None:
    async def story() -> None:
        bucket = SimulatedBucket(page_size=2)
        objects = SimulatedObjects(bucket, faults=Faults(latency_s=(0, 0)))
        for key in ("a/1", "a/2", "a/3", "ab/1", "a/4", "b"):
            await objects.create(key, key.encode())
        await objects.delete("a/2")
        assert [entry.key for entry in await entries_of(objects, "a/")] == ["a/1", "a/3", "a/4"]
        assert [entry.key for entry in await entries_of(objects, "a/", "a/1")] == ["a/3", "a/4"]
        assert [entry.key for entry in await entries_of(objects)] == ["a/1", "a/3", "a/4", "ab/1", "b"]
        await asyncio.sleep(10)
        await objects.delete("a/1")
        await objects.create("a/5", b"")
        objects.faults = Faults(latency_s=(0, 0), stale_listing=1, stale_s=5)
        assert [entry.key for entry in await entries_of(objects, "a/")] == ["a/1", "a/3", "a/4"]

    in_virtual_time(story())


def rough_story(seed: int) -> list[str]:
    """Return a history of many calls with all faults, as text."""

    async def story() -> list[str]:
        objects = SimulatedObjects(seed=seed, faults=ROUGH)
        for number in range(400):
            calls = [
                objects.create(f"a/{number // 2}", b"%d" % number),
                objects.get(f"a/{number // 3}"),
                objects.delete(f"a/{number // 4}"),
                objects.replace(f"b/{number // 8}", b"", None),
                entries_of(objects, "a/"),
            ]
            await asyncio.gather(*calls, return_exceptions=True)
        counts = outcomes(objects.bucket.calls)
        assert set(counts) == {"ok", "AlreadyThere", "StoreFailed", "Missing", "Changed"}
        assert {call.fate for call in objects.bucket.calls} == set(Fate)
        return [str(call) for call in objects.bucket.calls]

    return in_virtual_time(story())


def test_the_same_seed_gives_the_same_history() -> None:
    assert rough_story(1) == rough_story(1)
    assert rough_story(1) != rough_story(2)


async def test_the_store_runs_on_a_loop_in_real_time() -> None:
    objects = SimulatedObjects(faults=Faults(latency_s=(0, 0.0001)))
    await objects.create("a", b"content")
    assert await objects.get("a", 3, 2) == b"te"
    assert await objects.get_end("a", 3) == b"ent"
    assert await objects.get_end("a", 30) == b"content"


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "..", "a/../b", ".a", "a/.b", "a b", "ä", "a" * 513])
async def test_a_wrong_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is no key of an object"):
        await SimulatedObjects().create(key, b"")
