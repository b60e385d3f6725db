"""Which sessions have ended, as the registrations and the metadata tell."""

from __future__ import annotations

from functools import partial

from seqgate.gateway.cluster.wal.ended import ABANDONED_AFTER_MS, SessionState, StoredSessions, seal
from seqgate.gateway.cluster.wal.sessions import (
    RegisteredSession,
    SessionFacts,
    encode_boundary,
    register,
    sessions,
)
from seqgate.gateway.cluster.wal.wal_object import SESSIONS_BOUNDARY_KEY, object_key
from tests.support.simulated_objects import SimulatedObjects

NOW_MS = 10_000_000


async def test_ended_and_abandoned_sessions_are_told_from_running_ones() -> None:
    objects = SimulatedObjects()
    facts = SessionFacts("cluster", NOW_MS - ABANDONED_AFTER_MS, "host", "test")
    states = [SessionState.ENDED, SessionState.RUNNING, SessionState.NO_BROKER, SessionState.NO_BROKER]
    own, *_ = [await register(objects, node_id, facts) for node_id in range(3)]
    young = await register(objects, 3, facts._replace(now_ms=NOW_MS - 1))
    await seal(objects, 0, own.session, 9, "silent")
    last = await register(objects, 4, facts)

    def state(session: RegisteredSession) -> SessionState:
        return states[session.session]

    stored = StoredSessions(objects, last, partial(sessions, objects), state, lambda: True, lambda: NOW_MS)
    found = await stored.ended()
    assert [(each.session, each.end_seq) for each in found] == [(0, 0), (2, 0)]
    assert objects.bucket.content(object_key(2, 2, 0)) is not None
    assert objects.bucket.content(object_key(3, young.session, 0)) is None
    assert await stored.first_running() == 1
    states[1] = SessionState.ENDED
    assert [each.session for each in await stored.ended()] == [0, 1, 2]
    assert await stored.first_running() == 3


async def test_sessions_below_the_boundary_are_left_out() -> None:
    objects = SimulatedObjects()
    facts = SessionFacts("cluster", NOW_MS, "host", "test")
    made = [await register(objects, 1, facts) for _ in range(4)]
    objects.bucket.create(SESSIONS_BOUNDARY_KEY, encode_boundary(2), 0)
    passed: list[int] = []
    stored = StoredSessions(
        objects,
        made[3],
        partial(sessions, objects),
        lambda _: SessionState.ENDED,
        lambda: True,
        lambda: NOW_MS,
        passed.append,
    )
    assert [each.session for each in await stored.ended()] == [2]
    assert await stored.first_running() == 3
    assert set(passed) == {2}
