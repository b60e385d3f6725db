from __future__ import annotations

import asyncio

import pytest

from seqgate.gateway.cluster.silence import conviction_s, end_earlier
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, register, sessions
from tests.gateway.cluster.silence.scene import LEASE_S
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import CALM, SimulatedBucket, SimulatedObjects

FACTS = SessionFacts("cluster-a", 1_700_000_000_000, "host-1", "0.1.0")


async def waited_s(*, may_serve: bool, stops_cleanly: bool = False, of_other_node: bool = False) -> float:
    """Return how long a start waits for the earlier session of its node, and check that the session has
    ended.
    """
    store = SimulatedObjects(SimulatedBucket(), seed=1, faults=CALM, name="1")
    first = await register(store, 1, FACTS)
    other = await register(store, 2, FACTS)
    wal = SessionWal(store, first, puts_in_flight=4)
    await wal.barrier()
    if stops_cleanly:
        await wal.seal("the gateway stopped")
    own = await register(store, 2 if of_other_node else 1, FACTS)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    earlier = (await sessions(store))[: own.session]
    ended = await end_earlier(
        store, own, earlier, "another start", lease_s=LEASE_S, may_serve=lambda _: may_serve
    )
    taken_s = loop.time() - begun_s
    assert [session.session for session, _ in ended] == [other.session if of_other_node else first.session]
    if of_other_node:
        await wal.barrier()
    elif not stops_cleanly:
        with pytest.raises(SessionFenced):
            await wal.barrier()
    await wal.close()
    return taken_s


def test_a_start_waits_for_the_lease_of_an_earlier_session_that_may_serve() -> None:
    assert in_virtual_time(waited_s(may_serve=True)) >= conviction_s(LEASE_S)


def test_a_start_does_not_wait_for_a_process_that_is_dead() -> None:
    assert in_virtual_time(waited_s(may_serve=False)) < 1.0


def test_a_start_does_not_wait_for_a_session_that_stopped_cleanly() -> None:
    assert in_virtual_time(waited_s(may_serve=True, stops_cleanly=True)) < 1.0


def test_sessions_of_other_nodes_stay() -> None:
    assert in_virtual_time(waited_s(may_serve=False, of_other_node=True)) < 1.0
