from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.wal.sessions import (
    CLUSTER_VERSION,
    CorruptRegistration,
    RegisteredSession,
    SessionFacts,
    decode_registration,
    encode_registration,
    register,
    sessions,
)
from seqgate.log import IncompatibleFormat
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import CALM, ROUGH, Fate, Faults, SimulatedBucket, SimulatedObjects

FACTS = SessionFacts("cluster-a", 1_700_000_000_000, "host-1", "0.1.0")
KNOWN = RegisteredSession(3, 1, bytes(range(16)), "cluster-a", 1, 5, "host-1", "0.1.0")


def objects(
    *, seed: int = 1, faults: Faults = CALM, bucket: SimulatedBucket | None = None
) -> SimulatedObjects:
    return SimulatedObjects(bucket, seed=seed, faults=faults, name=f"client-{seed}")


class TestRegister:
    def test_numbers_ascend_without_gaps(self) -> None:
        async def scene() -> None:
            store = objects()
            made = [await register(store, node_id, FACTS) for node_id in (1, 1, 2)]
            assert [session.session for session in made] == [0, 1, 2]
            assert len({session.nonce for session in made}) == 3
            found = await sessions(store)
            assert [(each.session, each.node_id, each.nonce) for each in found] == [
                (each.session, each.node_id, each.nonce) for each in made
            ]
            assert store.bucket.keys() == [f"meta/{number:020}" for number in range(3)]

        in_virtual_time(scene())

    def test_the_first_session_names_the_cluster(self) -> None:
        async def scene() -> None:
            store = objects()
            await register(store, 1, FACTS)
            second = await register(store, 1, FACTS._replace(cluster_id="another"))
            assert second.cluster_id == "cluster-a"
            assert [each.cluster_id for each in await sessions(store)] == ["cluster-a"] * 2

        in_virtual_time(scene())

    @pytest.mark.parametrize(
        "fate", [fate for fate in Fate if fate is not Fate.CARRIED_OUT], ids=lambda fate: fate.name
    )
    def test_a_failed_create_registers_once(self, fate: Fate) -> None:
        async def scene() -> None:
            store = objects(faults=Faults(late_s=0.5))
            store.plan("create", fate)
            made = await register(store, 1, FACTS)
            await asyncio.sleep(1)
            found = await sessions(store)
            assert [(each.session, each.nonce) for each in found] == [(0, made.nonce)]

        in_virtual_time(scene())

    @pytest.mark.parametrize("seed", range(20))
    def test_gateways_that_register_together_get_numbers_of_their_own(self, seed: int) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            clients = [objects(seed=seed * 10 + number, faults=ROUGH, bucket=bucket) for number in range(5)]
            made = await asyncio.gather(
                *(
                    register(client, number, FACTS._replace(cluster_id=f"of-{number}"))
                    for number, client in enumerate(clients)
                )
            )
            found = await sessions(objects(bucket=bucket))
            assert sorted(each.session for each in made) == [0, 1, 2, 3, 4]
            assert len({each.cluster_id for each in made}) == 1
            by_number = {each.session: each for each in found}
            assert len(found) == 5
            for each in made:
                assert (by_number[each.session].nonce, by_number[each.session].node_id) == (
                    each.nonce,
                    each.node_id,
                )

        in_virtual_time(scene(), seed)


class TestSessions:
    def test_an_empty_bucket_has_none(self) -> None:
        assert in_virtual_time(sessions(objects())) == []

    def test_a_stale_listing_hides_none(self) -> None:
        async def scene() -> None:
            store = objects(faults=Faults(stale_listing=1.0, stale_s=1e6))
            for node_id in range(40):
                await register(store, node_id, FACTS)
            assert [each.node_id for each in await sessions(store)] == list(range(40))

        in_virtual_time(scene())

    def test_other_objects_in_meta_are_no_sessions(self) -> None:
        async def scene() -> None:
            store = objects()
            await register(store, 1, FACTS)
            await store.create("meta/boundary", b"0")
            await store.create("meta/snapshot/00000000000000000007", b"")
            assert len(await sessions(store)) == 1

        in_virtual_time(scene())

    def test_a_deleted_registration_is_an_error(self) -> None:
        async def scene() -> None:
            store = objects()
            for node_id in range(3):
                await register(store, node_id, FACTS)
            await store.delete("meta/00000000000000000001")
            with pytest.raises(CorruptRegistration, match="meta/00000000000000000001 is missing, and later"):
                await sessions(store)

        in_virtual_time(scene())

    def test_a_refusal_is_passed_on(self) -> None:
        async def scene() -> None:
            store = objects()
            store.refusal = "there is no bucket b"
            with pytest.raises(Refused, match="there is no bucket b"):
                await sessions(store)
            with pytest.raises(Refused, match="there is no bucket b"):
                await register(store, 1, FACTS)

        in_virtual_time(scene())


class TestContent:
    @given(
        st.builds(
            RegisteredSession,
            st.integers(0, 10**18),
            st.integers(0, 2**31 - 1),
            st.binary(min_size=16, max_size=16),
            st.text(),
            st.just(CLUSTER_VERSION),
            st.integers(0, 2**62),
            st.text(),
            st.text(),
        )
    )
    def test_round_trip(self, registered: RegisteredSession) -> None:
        assert decode_registration(encode_registration(registered), registered.session) == registered

    @pytest.mark.parametrize("field", ["version", "cluster_version"])
    def test_a_later_version_is_refused_whatever_else_it_has(self, field: str) -> None:
        later = json.dumps(
            {"version": 1, "cluster_version": 1, field: CLUSTER_VERSION + 1, "new": True}
        ).encode()
        with pytest.raises(IncompatibleFormat, match=r"meta/00000000000000000003 .* run that release"):
            decode_registration(later, 3)

    def test_a_later_release_stops_a_registration(self) -> None:
        async def scene() -> None:
            store = objects()
            later = KNOWN._replace(session=0, cluster_version=CLUSTER_VERSION + 1)
            await store.create("meta/00000000000000000000", encode_registration(later))
            with pytest.raises(IncompatibleFormat):
                await register(store, 1, FACTS)
            assert len(store.bucket.objects) == 1

        in_virtual_time(scene())

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"[]",
            b"{}",
            encode_registration(KNOWN)[:-1],
            encode_registration(KNOWN._replace(node_id=-1)),
            encode_registration(KNOWN._replace(nonce=b"short")),
            encode_registration(KNOWN._replace(cluster_version=0)),
            encode_registration(KNOWN).replace(b'"nonce":"0001', b'"nonce":"0x01'),
        ],
    )
    def test_damage_is_named(self, content: bytes) -> None:
        with pytest.raises(CorruptRegistration, match="meta/00000000000000000003 is damaged"):
            decode_registration(content, 3)
