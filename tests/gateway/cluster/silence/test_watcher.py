from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from seqgate.gateway.cluster import silence as watcher_module
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.silence import (
    CHECKS_PER_LEASE,
    Lease,
    Watch,
    Watched,
    Watcher,
    WatchResult,
    conviction_s,
)
from seqgate.gateway.cluster.wal.ended import SealedWal, seal
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import encode_boundary
from seqgate.gateway.cluster.wal.wal_object import WalObject, boundary_key, encode, object_key
from tests.gateway.cluster.silence.scene import BEAT_S, LEASE_S, Member, Scene, watched
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import CALM, ROUGH, SimulatedObjects

BOUND_S = conviction_s(LEASE_S) + BEAT_S + 3 * LEASE_S / CHECKS_PER_LEASE
"""The longest time from the death of a gateway to its end in the metadata, over a calm store."""


def test_gateways_that_beat_are_not_convicted() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2, 3):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(20 * LEASE_S)
        assert not cluster.endings
        assert cluster.members[1].watcher.watched == [watched(2, 2), watched(3, 3)]
        await cluster.close()

    in_virtual_time(scene())


def test_a_busy_gateway_is_not_convicted() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2):
            cluster.add(Member(cluster, node_id))
        for _ in range(400):
            cluster.members[2].wal.put((), (), lambda: None)
            await asyncio.sleep(0.1)
        assert not cluster.endings
        await cluster.close()

    in_virtual_time(scene())


def test_a_gateway_that_dies_is_taken_over_once_within_the_bound() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2, 3):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(3 * LEASE_S)
        died_s = asyncio.get_running_loop().time()
        cluster.members[2].stop_beating()
        await cluster.members[2].watcher.stop()
        await cluster.until(lambda: bool(cluster.endings), 3 * LEASE_S)
        assert [node_id for node_id, _ in cluster.endings] == [2]
        assert cluster.endings[0][1] - died_s <= BOUND_S
        await asyncio.sleep(3 * LEASE_S)
        assert len(cluster.endings) == 1
        assert cluster.stale == []
        assert cluster.members[3].watcher.watched == [watched(1, 1)]
        await cluster.close()

    in_virtual_time(scene())


def test_a_gateway_that_dies_with_its_watcher_is_found_by_another() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2, 3, 4):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(LEASE_S)
        for node_id in (1, 2):
            cluster.members[node_id].stop_beating()
            await cluster.members[node_id].watcher.stop()
        await cluster.until(lambda: len(cluster.endings) == 2, 4 * LEASE_S)
        assert [node_id for node_id, _ in cluster.endings] == [1, 2]
        assert cluster.stale == []
        await cluster.close()

    in_virtual_time(scene())


def test_a_watch_that_fails_in_an_unexpected_way_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    verdict, failures = Watch.verdict, [MemoryError()]

    async def fail_once(watch: Watch) -> WatchResult:
        if failures:
            raise failures.pop()
        return await verdict(watch)

    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(LEASE_S)
        cluster.members[2].stop_beating()
        await cluster.members[2].watcher.stop()
        await cluster.until(lambda: bool(cluster.endings), 4 * LEASE_S)
        assert cluster.stale == []
        await cluster.close()

    monkeypatch.setattr(Watch, "verdict", fail_once)
    in_virtual_time(scene())
    assert "session 2 of node 2 can't be watched or ended" in caplog.text


def test_an_outage_of_the_store_convicts_nobody() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2, 3):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(LEASE_S)
        now_s = asyncio.get_running_loop().time()
        cluster.bucket.outages.append((now_s, now_s + 10 * LEASE_S))
        await asyncio.sleep(9 * LEASE_S)
        assert all(member.lease.is_over() for member in cluster.members.values())
        await asyncio.sleep(4 * LEASE_S)
        assert not cluster.endings
        assert not any(member.lease.is_over() for member in cluster.members.values())
        await cluster.close()

    in_virtual_time(scene())


def test_a_gateway_that_alone_is_cut_off_is_taken_over_and_convicts_nobody() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2, 3):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(LEASE_S)
        cluster.members[1].objects.is_cut_off = True
        await cluster.until(lambda: bool(cluster.endings), 4 * LEASE_S)
        assert [node_id for node_id, _ in cluster.endings] == [1]
        assert cluster.stale == []
        cluster.members[1].objects.is_cut_off = False
        await cluster.until(lambda: cluster.members[1].wal.is_fenced, 10 * LEASE_S)
        await cluster.close()

    in_virtual_time(scene())


def test_a_sealed_session_is_ended_by_its_watcher_if_its_taker_is_gone() -> None:
    async def scene() -> None:
        cluster = Scene()
        for node_id in (1, 2):
            cluster.add(Member(cluster, node_id))
        await asyncio.sleep(LEASE_S)
        other = SimulatedObjects(cluster.bucket, seed=9, faults=CALM, name="9")
        await seal(other, 2, 2, 9, "a taker that dies after the seal")
        await cluster.until(lambda: bool(cluster.endings), 4 * LEASE_S)
        assert cluster.stale == []
        await cluster.close()

    in_virtual_time(scene())


def test_a_place_that_was_used_and_collected_is_no_silence() -> None:
    async def scene() -> None:
        cluster = Scene()
        cluster.add(Member(cluster, 1))
        bucket = cluster.bucket
        other = watched(7, 4)
        watch = Watch(
            SimulatedObjects(bucket, seed=3, faults=CALM, name="w"), other, asyncio.get_running_loop().time
        )
        judged = asyncio.create_task(watch.verdict())
        # The session creates and collects its objects between two looks: only its boundary tells.
        for seq in range(1, 60):
            await asyncio.sleep(0.5)
            content = encode_boundary(seq)
            key = boundary_key(other.node_id, other.session)
            stored = bucket.objects.get(key)
            now_s = asyncio.get_running_loop().time()
            if stored is not None:
                bucket.delete(key, now_s)
            bucket.create(key, content, now_s)
        assert not judged.done()
        verdict = await judged
        assert verdict.end_seq >= 58
        await cluster.close()

    in_virtual_time(scene())


@pytest.mark.parametrize("end", [0, 1, 2, 3, 7, 8, 100])
def test_the_end_of_a_log_is_found(end: int) -> None:
    async def scene() -> WatchResult:
        cluster = Scene()
        now_s = asyncio.get_running_loop().time
        for seq in range(end):
            content = b"".join(encode(WalObject(7, 4, seq, bytes(16), [], [])))
            cluster.bucket.create(object_key(7, 4, seq), content, 0)
        store = SimulatedObjects(cluster.bucket, seed=3, faults=CALM, name="w")
        return await Watch(store, watched(7, 4), now_s).verdict()

    verdict = in_virtual_time(scene())
    assert verdict[:2] == (end, False)
    assert verdict.silent_s >= conviction_s(LEASE_S)


def late_lives(
    seed: int,
    lease_type: Callable[[SessionWal, Callable[[], float]], Lease] | None = None,
    watcher_type: type[Watcher] = Watcher,
) -> list[str]:
    """Return the breaches of one seed: two gateways over a bad store, with clocks that drift, one cut off
    again and again.
    """

    async def scene() -> list[str]:
        chance = Random(seed)
        cluster = Scene(seed)
        bad = replace(ROUGH, slow=0.3, slow_latency_s=5.0) if chance.random() < 0.3 else CALM
        slow = replace(bad, slow=0.6, slow_latency_s=5.0)
        for node_id, faults in ((1, bad), (2, slow)):
            rate = chance.uniform(1.0, 1.09) if node_id == 1 else 1.0
            made = Member(
                cluster,
                node_id,
                clock_rate=rate,
                faults=faults,
                lease_type=lease_type,
                watcher_type=watcher_type,
            )
            cluster.add(made)
        await cluster.members[2].watcher.stop()
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(chance.uniform(0.1, 2 * LEASE_S))
            cluster.members[2].objects.is_cut_off = chance.random() < 0.5
        cluster.members[2].objects.is_cut_off = False
        await asyncio.sleep(chance.uniform(0.1, 2 * LEASE_S))
        cluster.members[2].objects.is_cut_off = True
        await asyncio.sleep(5 * LEASE_S)
        await cluster.close()
        return cluster.stale

    return in_virtual_time(scene(), seed)


SEEDS = range(40)


def test_no_session_is_ended_before_its_lease_is_over() -> None:
    assert [breach for seed in SEEDS for breach in late_lives(seed)] == []


class _ConfirmedNow(Lease):
    """A planted error: a lease that begins when an object is confirmed."""

    def __init__(self, wal: SessionWal, seconds: Callable[[], float]) -> None:
        super().__init__(wal, LEASE_S, seconds)
        self._seen = wal.last_confirmed_sent_s
        self._wal_log = wal
        self._began_s = wal.last_confirmed_sent_s

        confirm = wal._confirm

        def confirmed() -> None:
            confirm()
            self._began_s = seconds()

        wal._confirm = confirmed  # type: ignore[method-assign]

    def is_over(self) -> bool:
        return self._seconds() >= self._began_s + LEASE_S


def test_a_lease_from_the_time_of_the_confirmation_would_be_found() -> None:
    assert [breach for seed in SEEDS for breach in late_lives(seed, _ConfirmedNow)]


def test_a_conviction_without_waiting_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "conviction_s", lambda lease_s: lease_s / 2)
    assert [breach for seed in SEEDS for breach in late_lives(seed)]


def test_a_taker_that_ignores_a_seal_behind_its_watch_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(objects: ObjectStore, node_id: int, session: int, by: int, reason: str) -> SealedWal:
        # The session lives on for a moment between the verdict and the seal.
        await asyncio.sleep(2 * BEAT_S)
        return await seal(objects, node_id, session, by, reason)

    class Hasty(Watcher):
        async def _take_over(self, watched: Watched, verdict: WatchResult) -> None:
            await super()._take_over(watched, verdict._replace(end_seq=1 << 40))

    def breaches(watcher_type: type[Watcher]) -> list[str]:
        async def scene() -> list[str]:
            cluster = Scene()
            for node_id in (1, 2):
                cluster.add(Member(cluster, node_id, watcher_type=watcher_type))
            await cluster.members[2].watcher.stop()
            await asyncio.sleep(LEASE_S)
            cluster.members[2].stop_beating()
            # The session writes again just after its conviction.
            await asyncio.sleep(conviction_s(LEASE_S))
            while not cluster.endings:
                cluster.members[2].is_stopped = False
                await asyncio.sleep(0.5)
            await cluster.close()
            return cluster.stale

        return in_virtual_time(scene())

    monkeypatch.setattr(watcher_module, "seal", late)
    assert breaches(Watcher) == []
    assert breaches(Hasty)
