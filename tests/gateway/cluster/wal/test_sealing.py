from __future__ import annotations

import asyncio
import logging

import pytest

from seqgate.gateway.cluster.objects.objects import ObjectStore, Refused
from seqgate.gateway.cluster.wal.ended import FIRST_READS, MOST_READS, seal, sealed_at
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, decode_boundary, encode_boundary, register
from seqgate.gateway.cluster.wal.wal_object import (
    SESSIONS_BOUNDARY_KEY,
    CorruptWalObject,
    Seal,
    WalObject,
    boundary_key,
    decode,
    encode,
    object_key,
)
from seqgate.log import IncompatibleFormat
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.sealing import seal_earlier
from tests.support.simulated_objects import CALM, ROUGH, Fate, Faults, SimulatedBucket, SimulatedObjects

NONCE = bytes(16)
FACTS = SessionFacts("cluster-a", 1_700_000_000_000, "host-1", "0.1.0")


def filled(*seqs: int) -> SimulatedBucket:
    """Return a bucket with these objects of session 4 of node 1."""
    bucket = SimulatedBucket()
    for seq in seqs:
        bucket.create(object_key(1, 4, seq), b"".join(encode(WalObject(1, 4, seq, NONCE, [], []))), 0)
    return bucket


def objects(bucket: SimulatedBucket, *, seed: int = 1, faults: Faults = CALM) -> SimulatedObjects:
    return SimulatedObjects(bucket, seed=seed, faults=faults, name=f"client-{seed}")


class TestSeal:
    @pytest.mark.parametrize("end", [0, 1, FIRST_READS - 1, FIRST_READS, FIRST_READS + 1, 3 * MOST_READS])
    def test_the_first_empty_place_is_sealed(self, end: int) -> None:
        bucket = filled(*range(end), end + 1, end + 2)
        sealed = in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over"))
        assert sealed[:2] == (0, end)
        assert (sealed.seal.by, sealed.seal.reason) == (2, "taken over")
        content = bucket.content(object_key(1, 4, end))
        assert content is not None
        assert decode(content, "key") == sealed.seal

    def test_a_second_taker_finds_the_seal(self) -> None:
        bucket = filled(0, 1, 2)
        first = in_virtual_time(seal(objects(bucket), 1, 4, 2, "first"))
        before = set(bucket.objects)
        assert in_virtual_time(seal(objects(bucket), 1, 4, 3, "second")) == first
        assert set(bucket.objects) == before

    @pytest.mark.parametrize(
        "fate", [fate for fate in Fate if fate is not Fate.CARRIED_OUT], ids=lambda fate: fate.name
    )
    def test_a_failed_create_seals_the_same_place(self, fate: Fate) -> None:
        async def scene() -> None:
            bucket = filled(0, 1)
            store = objects(bucket, faults=Faults(late_s=0.5))
            store.plan("create", fate)
            sealed = await seal(store, 1, 4, 2, "taken over")
            await asyncio.sleep(1)
            assert sealed.end_seq == 2
            assert len(bucket.keys("wal/")) == 3

        in_virtual_time(scene())

    def test_an_object_that_lands_first_is_before_the_seal(self) -> None:
        async def scene() -> None:
            bucket = filled(0)
            taker = objects(bucket)
            taker.plan("create", Fate.LANDS_LATE)
            sealing = asyncio.ensure_future(seal(taker, 1, 4, 2, "taken over"))
            await asyncio.sleep(0.001)
            while not any(call.operation == "create" for call in bucket.calls):
                await asyncio.sleep(0.001)
            for seq in (1, 2):
                content = b"".join(encode(WalObject(1, 4, seq, NONCE, [], [])))
                bucket.create(object_key(1, 4, seq), content, 0)
            assert (await sealing).end_seq == 3

        in_virtual_time(scene())

    @pytest.mark.parametrize("seed", range(10))
    def test_takers_agree(self, seed: int) -> None:
        async def scene() -> None:
            bucket = filled(*range(seed))
            clients = [objects(bucket, seed=seed * 10 + number, faults=ROUGH) for number in range(4)]
            sealed = await asyncio.gather(
                *(seal(client, 1, 4, number, f"by {number}") for number, client in enumerate(clients))
            )
            assert {each.end_seq for each in sealed} == {seed}
            assert len({each.seal for each in sealed}) == 1

        in_virtual_time(scene(), seed)

    def test_a_taker_that_died_is_replaced_at_any_call(self) -> None:
        async def scene(most_calls: int) -> bool:
            bucket = filled(0, 1)
            dying = asyncio.ensure_future(seal(objects(bucket), 1, 4, 2, "dies"))
            while not dying.done() and len(bucket.calls) < most_calls:
                await asyncio.sleep(0.0001)
            is_alive = not dying.done()
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)
            sealed = await seal(objects(bucket, seed=2), 1, 4, 3, "follows")
            assert sealed[:2] == (0, 2)
            return is_alive

        calls = 1
        while in_virtual_time(scene(calls)):
            calls += 1
        assert calls > FIRST_READS

    def test_a_refusal_is_passed_on(self) -> None:
        store = objects(filled(0))
        store.refusal = "wrong credentials"
        with pytest.raises(Refused, match="wrong credentials"):
            in_virtual_time(seal(store, 1, 4, 2, "taken over"))

    def test_an_outage_is_waited_out_and_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        bucket = filled(0)
        bucket.outages.append((0.0, 100.0))
        sealed = in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over"))
        assert sealed.end_seq == 1
        assert "the gateway waits to seal session 4 of node 1" in caplog.text


class TestSealedAt:
    def test_only_the_place_of_the_seal_counts(self) -> None:
        async def scene() -> None:
            store = objects(filled(0, 1))
            await seal(store, 1, 4, 2, "taken over")
            assert [await sealed_at(store, 1, 4, seq) for seq in range(4)] == [False, False, True, False]
            assert not await sealed_at(store, 1, 5, 0)

        in_virtual_time(scene())


class TestBoundary:
    def test_objects_below_it_need_not_be_there(self) -> None:
        bucket = filled(3, 4)
        bucket.replace(boundary_key(1, 4), encode_boundary(3), None, 0)
        assert in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over"))[:2] == (3, 5)

    def test_a_place_that_was_used_and_emptied_is_not_the_end(self, caplog: pytest.LogCaptureFixture) -> None:
        """The session confirms and deletes its objects 0 and 1 after the taker has read the boundary."""
        caplog.set_level(logging.INFO)

        async def scene() -> None:
            bucket = filled()
            sealing = asyncio.ensure_future(seal(objects(bucket), 1, 4, 2, "taken over"))
            while not any(call.ended_s is not None for call in bucket.calls):
                await asyncio.sleep(0.0001)
            bucket.replace(boundary_key(1, 4), encode_boundary(2), None, 0)
            for seq in (2, 3):
                content = b"".join(encode(WalObject(1, 4, seq, NONCE, [], [])))
                bucket.create(object_key(1, 4, seq), content, 0)
            assert (await sealing)[:2] == (2, 4)
            assert bucket.keys("wal/1/4/0") == [object_key(1, 4, seq) for seq in (0, 2, 3, 4)]

        in_virtual_time(scene())
        assert "The seal at 0 of session 4 came too late; the boundary is 2" in caplog.text

    def test_content(self) -> None:
        assert decode_boundary(encode_boundary(7), "key") == 7

    @pytest.mark.parametrize(
        "content", [b"", b"7", b"{}", b'{"version":1,"boundary":-1}', b'{"version":0,"boundary":1}']
    )
    def test_damage_is_named(self, content: bytes) -> None:
        with pytest.raises(CorruptWalObject, match="wal/1/4/boundary is damaged"):
            decode_boundary(content, "wal/1/4/boundary")

    def test_a_later_version_is_refused(self) -> None:
        with pytest.raises(IncompatibleFormat, match="has version 2"):
            decode_boundary(b'{"version":2}', "key")


class TestDamage:
    def test_an_object_that_can_not_be_read_stops_the_taker(self) -> None:
        bucket = filled(0)
        bucket.create(object_key(1, 4, 1), b"rubbish", 0)
        with pytest.raises(CorruptWalObject, match="wal/1/4/00000000000000000001 is cut short"):
            in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over"))

    def test_an_object_of_another_place_stops_the_taker(self) -> None:
        bucket = filled(0)
        bucket.create(object_key(1, 4, 1), b"".join(encode(WalObject(1, 4, 7, NONCE, [], []))), 0)
        with pytest.raises(CorruptWalObject, match="an object of another place: node 1, session 4, seq 7"):
            in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over"))

    def test_objects_of_two_writers_stop_the_taker(self) -> None:
        bucket = filled(0)
        other = WalObject(1, 4, 1, bytes(15) + b"x", [], [])
        bucket.create(object_key(1, 4, 1), b"".join(encode(other)), 0)
        with pytest.raises(CorruptWalObject, match="has another nonce than its session"):
            in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over"))

    def test_the_nonce_of_the_registration_counts(self) -> None:
        bucket = filled(0, 1)
        assert in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over", nonce=NONCE)).end_seq == 2
        with pytest.raises(CorruptWalObject, match="00000000000000000000 has another nonce than its session"):
            in_virtual_time(seal(objects(filled(0)), 1, 4, 2, "taken over", nonce=bytes(15) + b"x"))

    def test_what_lies_behind_the_end_is_of_no_interest(self) -> None:
        bucket = filled(0)
        bucket.create(object_key(1, 4, 3), b"rubbish", 0)
        assert in_virtual_time(seal(objects(bucket), 1, 4, 2, "taken over")).end_seq == 1


class TestSessionsAndTakers:
    def test_sessions_below_the_boundary_of_sessions_are_left_out(self) -> None:
        async def scene() -> None:
            store = SimulatedObjects(seed=1)
            for _ in range(3):
                own = await register(store, 1, FACTS)
            await store.create(SESSIONS_BOUNDARY_KEY, encode_boundary(1))
            assert [found.session for found, _ in await seal_earlier(store, own, "started")] == [1]
            assert not await sealed_at(store, 1, 0, 0)

        in_virtual_time(scene())

    def test_a_session_that_sealed_itself_is_found_sealed(self) -> None:
        async def scene() -> None:
            store: ObjectStore = objects(SimulatedBucket())
            session = await register(store, 1, FACTS)
            wal = SessionWal(store, session, puts_in_flight=4)
            for _ in range(3):
                wal.put([], [], lambda: None)
            assert await wal.seal("stopped") == 3
            own = await register(store, 1, FACTS)
            [(found, sealed)] = await seal_earlier(store, own, "started")
            assert found.nonce == session.nonce
            assert sealed[:2] == (0, 3)
            assert sealed.seal == Seal(1, 0, 3, session.nonce, 1, "stopped")

        in_virtual_time(scene())

    def test_many_sessions_are_sealed_in_the_time_of_few(self) -> None:
        async def scene() -> None:
            store = objects(SimulatedBucket())
            for _ in range(40):
                await register(store, 1, FACTS)
            own = await register(store, 1, FACTS)
            began_s = asyncio.get_running_loop().time()
            sealed = await seal_earlier(store, own, "started")
            assert asyncio.get_running_loop().time() - began_s < 2
            assert [known.session for known, _ in sealed] == list(range(40))
            assert all(log[:2] == (0, 0) for _, log in sealed)

        in_virtual_time(scene())

    def test_a_refusal_ends_the_sealing_of_all(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            store = objects(bucket)
            for _ in range(20):
                await register(store, 1, FACTS)
            own = await register(store, 1, FACTS)
            bucket.create(object_key(1, 3, 0), b"rubbish", 0)
            with pytest.raises(CorruptWalObject, match="wal/1/3/"):
                await seal_earlier(store, own, "started")
            calls = len(bucket.calls)
            await asyncio.sleep(100)
            assert len(bucket.calls) == calls

        in_virtual_time(scene())

    def test_of_gateways_that_start_together_the_last_one_runs(self) -> None:
        async def start(store: SimulatedObjects) -> SessionWal:
            session = await register(store, 1, FACTS)
            await seal_earlier(store, session, "started")
            return SessionWal(store, session, puts_in_flight=4)

        async def scene() -> None:
            bucket = SimulatedBucket()
            started = await asyncio.gather(*(start(objects(bucket, seed=seed)) for seed in range(4)))
            confirmed: list[int] = []
            for wal in started:
                wal.put([], [], lambda number=wal.session.session: confirmed.append(number))  # type: ignore[misc]
            await asyncio.sleep(1)
            assert confirmed == [3]
            assert sorted(wal.session.session for wal in started if wal.is_fenced) == [0, 1, 2]
            fenced = next(wal for wal in started if wal.is_fenced)
            with pytest.raises(SessionFenced):
                await fenced.seal("stop")

        in_virtual_time(scene())
