"""A session's write-ahead log over real stores that answer badly: what is confirmed is there, in order, and a
sealed session ends.
"""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import pytest

from seqgate.gateway.cluster.objects.objects import StoreFailed
from seqgate.gateway.cluster.wal.session_wal import ObjectOutcome, ObjectStep, SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, register
from seqgate.gateway.cluster.wal.wal_object import DataRow, WalObject, decode, object_key
from tests.compat.objects.conftest import Server
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.sealing import seal_earlier
from tests.support.seeds import chosen_seed

FACTS = SessionFacts("cluster", 0, "host", "release")
TOPIC = UUID(int=7)
OBJECTS = 32
LIMIT_S = 60.0
BAD = [
    Fault.BUSY_BEFORE,
    Fault.BUSY_AFTER,
    Fault.CONFLICT_BEFORE,
    Fault.CONFLICT_AFTER,
    Fault.RESET_BEFORE,
    Fault.RESET_AFTER,
    Fault.LATE,
    Fault.STRANGE_404,
]


class Writer:
    """A session that writes one numbered record after another."""

    def __init__(self, wal: SessionWal) -> None:
        self.wal = wal
        self.confirmed: list[int] = []
        self.fenced = asyncio.Event()
        self._changed = asyncio.Event()
        wal.on_fenced.append(lambda _: self.fenced.set())
        self.lost_answers = 0
        """Objects whose creates all failed, and that the store had nevertheless."""
        self._after, wal._rules.after = wal._rules.after, self._after_call  # type: ignore[method-assign]

    def put(self, number: int) -> None:
        content = b"%08d" % number
        row = DataRow(TOPIC, 0, 0, number, number + 1, 0, 8 * number, len(content))
        self.wal.put([row], [content], lambda: self._note(number))

    def _after_call(self, seq: int, outcome: ObjectOutcome) -> ObjectStep:
        self.lost_answers += outcome is ObjectOutcome.OURS
        return self._after(seq, outcome)

    def _note(self, number: int) -> None:
        self.confirmed.append(number)
        self._changed.set()

    async def reach(self, count: int) -> None:
        """Wait until so many records are confirmed."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.confirmed) < count:
                self._changed.clear()
                await self._changed.wait()


async def test_a_session_survives_bad_answers_and_ends_by_a_seal(
    server: Server, proxy: FaultProxy, prefix: str
) -> None:
    chance = Random(chosen_seed())
    behind, direct = server.objects(prefix, port=proxy.port), server.objects(prefix)
    session = await register(behind, 1, FACTS)
    writer = Writer(SessionWal(behind, session, puts_in_flight=4, chance=chance))
    for method in ("PUT", "GET"):
        proxy.plan(method, *(chance.choice([*[Fault.NONE] * 3 * len(BAD), *BAD]) for _ in range(2 * OBJECTS)))
    for number in range(OBJECTS):
        writer.put(number)
    await writer.reach(OBJECTS)
    assert writer.confirmed == list(range(OBJECTS))
    assert writer.lost_answers > 0

    # Another gateway takes over. A request that is held up arrives after its seal.
    proxy.forget_plans()
    proxy.plan("PUT", Fault.LATE)
    with pytest.raises(StoreFailed):
        await behind.create(object_key(1, session.session, OBJECTS), b"late")
    taker = await register(direct, 2, FACTS)
    [(earlier, sealed)] = await seal_earlier(direct, taker, "a test")
    assert (earlier.session, sealed.first_seq, sealed.end_seq) == (session.session, 0, OBJECTS)
    proxy.release()
    for seq in range(OBJECTS):
        key = object_key(1, session.session, seq)
        found = decode(await direct.get(key), key)
        assert isinstance(found, WalObject)
        assert (found.nonce, b"".join(found.data)) == (session.nonce, b"%08d" % seq)

    writer.put(OBJECTS)
    async with asyncio.timeout(LIMIT_S):
        await writer.fenced.wait()
    assert writer.confirmed == list(range(OBJECTS))
    await writer.wal.close()
