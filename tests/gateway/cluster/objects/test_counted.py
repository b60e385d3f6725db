"""Calls to an object store are counted, with what they cost."""

from __future__ import annotations

import pytest

from seqgate.gateway.cluster.objects.objects import AlreadyThere, CountedObjects, Counts, Missing, StoreFailed
from tests.support.simulated_objects import Fate, Faults, SimulatedObjects

QUICK = Faults(latency_s=(0, 0))


async def test_each_call_is_counted_and_passed_on() -> None:
    below = SimulatedObjects(faults=QUICK)
    objects = CountedObjects(below)
    await objects.create("a", [b"01234", memoryview(b"56789")])
    version = await objects.replace("b", b"123", None)
    assert await objects.replace("b", b"1234", version) != version
    assert await objects.get("a", 2, 3) == b"234"
    assert await objects.get_end("a", 4) == b"6789"
    assert (await objects.read("b"))[0] == b"1234"
    assert [entry.key async for entry in objects.list("", "a")] == ["b"]
    await objects.delete("a")
    assert objects.counts == Counts(
        puts=3, gets=3, lists=1, deletes=1, bytes_up=17, bytes_down=11, failures=0
    )
    await objects.close()
    assert below.is_closed


async def test_only_failures_are_failures() -> None:
    below = SimulatedObjects(faults=QUICK)
    objects = CountedObjects(below)
    await objects.create("a", b"1")
    with pytest.raises(AlreadyThere):
        await objects.create("a", b"1")
    with pytest.raises(Missing):
        await objects.get("b")
    assert objects.counts.failures == 0
    below.plan("create", Fate.FAILS_AFTER)
    below.plan("list", Fate.FAILS_BEFORE)
    with pytest.raises(StoreFailed):
        await objects.create("c", b"1")
    with pytest.raises(StoreFailed):
        assert [entry async for entry in objects.list("")]
    assert objects.counts == Counts(puts=3, gets=1, lists=1, bytes_up=3, failures=2)


async def test_pages_of_a_listing_are_counted() -> None:
    below = SimulatedObjects(faults=QUICK)
    for number in range(1001):
        below.bucket.create(f"a/{number:05}", b"", 0)
    objects = CountedObjects(below)
    assert len([entry async for entry in objects.list("a/")]) == 1001
    assert objects.counts.lists == 2


def test_the_price_is_amazons() -> None:
    assert Counts(puts=26_000_000).us_dollars == pytest.approx(130)
    assert Counts(gets=5_200_000).us_dollars == pytest.approx(2.08)
    assert Counts(lists=1000, deletes=1000).us_dollars == pytest.approx(0.005)


def test_counts_of_two_stores_are_added() -> None:
    both = Counts(puts=1, bytes_up=5) + Counts(puts=2, gets=3, failures=1)
    assert both == Counts(puts=3, gets=3, bytes_up=5, failures=1)


async def test_puts_are_timed_failed_ones_included() -> None:
    below, now_s = SimulatedObjects(faults=QUICK), 0.0

    def seconds() -> float:
        nonlocal now_s
        now_s += 1
        return now_s

    objects = CountedObjects(below, seconds=seconds)
    await objects.create("a", b"1")
    await objects.replace("b", b"1", None)
    await objects.get("a")
    with pytest.raises(AlreadyThere):
        await objects.create("a", b"1")
    below.plan("create", Fate.FAILS_AFTER)
    with pytest.raises(StoreFailed):
        await objects.create("c", b"1")
    times = objects.counts.put_times
    assert (times.count, times.sum_s) == (objects.counts.puts, 4.0)
