"""Histories of gateways that follow each other on one bucket, in virtual time, drawn from a seed.

Each gateway registers a session, seals the sessions before, reads their logs, and puts objects of its own, as
a gateway with `--cluster` does. Its calls fail, hang and land late; it is killed, stopped cleanly, or paused,
and resumed as a zombie while others have taken over. A session also uploads and deletes objects that it has
confirmed, as a later phase will.

`run_history` returns what everybody did; `wal_checks.py` says what must hold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeVar
from uuid import UUID

from seqgate.gateway.cluster.objects.objects import Buffer, Changed, Entry, Missing, StoreFailed
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import (
    Session,
    SessionFacts,
    decode_boundary,
    encode_boundary,
    register,
)
from seqgate.gateway.cluster.wal.wal_object import DataRow, WalObject, boundary_key, decode, object_key
from tests.simulation.loop import SimulatedLoop
from tests.support.sealing import seal_earlier
from tests.support.simulated_objects import CALM, ROUGH, Faults, SimulatedBucket, SimulatedObjects

T = TypeVar("T")
GATEWAYS: Final = 5
BUSY_OBJECTS: Final = 30
"""After so many objects a session puts others seldom."""
QUIET_S: Final = 600.0
"""The time at the end in which nothing fails any more."""
_TOPIC: Final = UUID(int=7)
FLAKY: Final = Faults(fails_before=0.1, fails_after=0.1, conflicts=0.05)
LATE: Final = Faults(lands_late=0.2, silent=0.1, slow=0.1, late_s=60.0)
SLUGGISH: Final = Faults(lands_late=0.4, late_s=0.5)
HOSTILE: Final = Faults(fails_before=0.2, fails_after=0.2, lands_late=0.1, conflicts=0.1, stale_listing=0.5)
_WEATHERS: Final = (CALM, ROUGH, FLAKY, LATE, SLUGGISH, HOSTILE)


class Pausable:
    """The store as a process sees it that may be paused: no call leaves, and no answer arrives, before it is
    resumed.
    """

    def __init__(self, objects: SimulatedObjects) -> None:
        self.objects = objects
        self.is_running = asyncio.Event()
        self.is_running.set()

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        await self._passing(lambda: self.objects.create(key, content))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        return await self._passing(lambda: self.objects.get(key, first, size_bytes))

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        return await self._passing(lambda: self.objects.get_end(key, size_bytes))

    async def read(self, key: str) -> tuple[bytes, str]:
        return await self._passing(lambda: self.objects.read(key))

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        return await self._passing(lambda: self.objects.replace(key, content, version))

    async def delete(self, key: str) -> None:
        await self._passing(lambda: self.objects.delete(key))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        await self.is_running.wait()
        async for entry in self.objects.list(prefix, after):
            await self.is_running.wait()
            yield entry

    async def close(self) -> None:
        await self.objects.close()

    async def _passing(self, call: Callable[[], Awaitable[T]]) -> T:
        await self.is_running.wait()
        try:
            return await call()
        finally:
            await self.is_running.wait()


@dataclass
class Life:
    """What one session did. Numbers of objects are unique in a history."""

    session: Session
    put: list[int] = field(default_factory=list)
    """The numbers of its objects; the place in the list is the seq."""
    confirmed: list[int] = field(default_factory=list)
    uploaded: int = 0
    """The seq below which its objects are in another place as well."""
    sent_too_late: list[str] = field(default_factory=list)
    fenced_by: list[str] = field(default_factory=list)
    claimed_end: int | None = None
    """The end that the session's own seal claimed."""
    is_over: bool = False
    """Whether the session was killed or stopped."""


@dataclass(frozen=True)
class Taken:
    """What one gateway read of the log of an earlier session."""

    by: int
    session: int
    end_seq: int
    numbers: dict[int, int]
    """The numbers of the objects that it read, by seq."""
    uploaded: int
    """The uploads that it found after the seal."""


@dataclass
class History:
    """The events of all gateways and of the bucket in one run."""

    bucket: SimulatedBucket
    lives: list[Life] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def run_history(seed: int) -> History:
    """Run the history of a seed to its quiet end."""
    loop = SimulatedLoop(Random(seed))
    try:
        history = loop.run_until_complete(_Director(seed).direct())
        history.errors += loop.unhandled
        return history
    finally:
        loop.close()


class _Gateway:
    """One process of a gateway, with its session."""

    def __init__(self, history: History, number: int, chance: Random) -> None:
        self._history = history
        self._chance = chance
        client = SimulatedObjects(
            history.bucket,
            seed=chance.randrange(2**32),
            faults=chance.choice(_WEATHERS),
            name=f"gateway-{number}",
        )
        self.store = Pausable(client)
        self._number = number
        self.wal: SessionWal | None = None
        self.life: Life | None = None
        self.is_ending = False
        self.task = asyncio.get_running_loop().create_task(self._live())
        self._collects = chance.random() < 0.7

    async def _live(self) -> None:
        """Start as a gateway does, then put objects until the end."""
        facts = SessionFacts("cluster", 0, f"host-{self._number}", "1")
        session = await register(self.store, 1, facts, chance=self._chance)
        self.life = Life(session)
        self._history.lives.append(self.life)
        await self._take_over(session)
        self.wal = SessionWal(
            self.store, session, puts_in_flight=self._chance.randint(1, 4), chance=self._chance
        )
        self.wal.on_fenced.append(self.life.fenced_by.append)
        while not self.wal.is_fenced:
            for _ in range(self._chance.randint(1, 3)):
                self._put()
            is_busy = len(self.life.put) < BUSY_OBJECTS
            await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.1, 2.0)) if is_busy else QUIET_S / 5)
            if self._collects and self._chance.random() < 0.6:
                await self._collect()
            while self.wal.in_flight > 20:
                await asyncio.sleep(1)

    async def _take_over(self, session: Session) -> None:
        for earlier, log in await seal_earlier(self.store, session, "taken over", chance=self._chance):
            numbers = {}
            for seq in range(log.first_seq, log.end_seq):
                content = await self._content(object_key(1, earlier.session, seq))
                if content is not None:
                    made = decode(content, f"session {earlier.session}, {seq}")
                    assert isinstance(made, WalObject)
                    numbers[seq] = int(bytes(made.data[0]))
            lives = [life for life in self._history.lives if life.session.session == earlier.session]
            uploaded = lives[0].uploaded if lives else 0  # none: killed while it registered
            self._history.taken.append(
                Taken(session.session, earlier.session, log.end_seq, numbers, uploaded)
            )

    async def _content(self, key: str) -> bytes | None:
        while True:
            try:
                return await self.store.get(key)
            except Missing:
                return None
            except StoreFailed:
                await asyncio.sleep(1)

    def _put(self) -> None:
        assert self.wal is not None
        assert self.life is not None
        life, wal = self.life, self.wal
        number = 1_000_000 * (life.session.session + 1) + len(life.put)
        life.put.append(number)
        data = b"%d" % number
        row = DataRow(_TOPIC, 0, 0, number, number + 1, 0, 0, len(data))
        wal.put([row], [data], lambda: self._confirmed(number))

    def _confirmed(self, number: int) -> None:
        assert self.life is not None
        assert self.wal is not None
        life = self.life
        stored = self._history.bucket.objects.get(object_key(1, life.session.session, len(life.confirmed)))
        if stored is not None and self.wal.last_confirmed_sent_s > stored.created_s:
            life.sent_too_late.append(
                f"object {number} was in the store before it was sent, the session says"
            )
        life.confirmed.append(number)

    async def _collect(self) -> None:
        """Upload what is confirmed, move the boundary, and delete what is below, as a session may."""
        assert self.life is not None
        assert self.wal is not None
        life, number = self.life, self.life.session.session
        key = boundary_key(1, number)
        life.uploaded = uploaded = len(life.confirmed)
        try:
            before, version = await self._read_boundary(key)
            if before < uploaded:
                await self.store.replace(key, encode_boundary(uploaded), version)
            for seq in range(uploaded):
                if self._chance.random() < 0.8:
                    await self.store.delete(object_key(1, number, seq))
        except (StoreFailed, Changed):
            return

    async def _read_boundary(self, key: str) -> tuple[int, str | None]:
        try:
            content, version = await self.store.read(key)
        except Missing:
            return 0, None
        return decode_boundary(content, key), version

    async def end(self, *, cleanly: bool) -> None:
        """Stop the process, with a seal or as a kill does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.wal is None or self.life is None:
            return
        if cleanly:
            with contextlib.suppress(SessionFenced):
                self.life.claimed_end = await self.wal.seal("stopped")
        self.life.is_over = True
        await self.wal.close()


class _Director:
    """Draws the events of a random history and their times: gateways start, write, pause, stop and die."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"history {seed}")
        self._history = History(SimulatedBucket())
        self._gateways: list[_Gateway] = []
        self._endings: list[asyncio.Task[None]] = []

    async def direct(self) -> History:
        chance = self._chance
        for _ in range(chance.randint(2, GATEWAYS)):
            self._start()
            for _ in range(chance.randint(1, 6)):
                await asyncio.sleep(chance.choice((0.02, 0.1, 1.0, 20.0)))
                self._disturb()
        await self._become_quiet()
        self._check_errors()
        return self._history

    def _start(self) -> None:
        number = len(self._gateways)
        self._gateways.append(_Gateway(self._history, number, Random(self._chance.random())))

    def _disturb(self) -> None:
        chance = self._chance
        gateway = chance.choice(self._gateways)
        match chance.randrange(10):
            case 0 | 1:
                gateway.store.is_running.clear()
            case 2:
                gateway.store.is_running.set()
            case 3:
                gateway.store.objects.faults = chance.choice(_WEATHERS)
            case 4:
                gateway.store.objects.is_cut_off = not gateway.store.objects.is_cut_off
            case 5:
                now_s = asyncio.get_running_loop().time()
                self._history.bucket.outages.append((now_s, now_s + chance.choice((0.1, 3.0, 60.0))))
            case 6:
                self._end(gateway, cleanly=False)
            case _:
                self._end(gateway, cleanly=True)

    def _end(self, gateway: _Gateway, *, cleanly: bool) -> None:
        if not gateway.is_ending:
            gateway.is_ending = True
            self._endings.append(asyncio.get_running_loop().create_task(gateway.end(cleanly=cleanly)))

    async def _become_quiet(self) -> None:
        """Let the last gateway start without troubles, all zombies wake up, and all calls come to their end."""
        for gateway in self._gateways:
            gateway.store.objects.faults = CALM
            gateway.store.objects.is_cut_off = False
        last = _Gateway(self._history, len(self._gateways), Random(self._chance.random()))
        last.store.objects.faults = CALM
        await asyncio.sleep(self._chance.choice((0.1, QUIET_S)))
        for gateway in self._gateways:
            gateway.store.is_running.set()
        await asyncio.sleep(QUIET_S)
        await self._wait_for_endings()
        for gateway in [*self._gateways, last]:
            if gateway.wal is not None:
                gateway.task.cancel()
                await asyncio.sleep(QUIET_S)
        self._gateways.append(last)
        for gateway in self._gateways:
            if gateway.wal is not None:
                await gateway.wal.close()

    async def _wait_for_endings(self) -> None:
        if not self._endings:
            return
        ended, stuck = await asyncio.wait(self._endings, timeout=QUIET_S)
        for ending in stuck:
            self._history.errors.append("liveness: a clean stop came to no end")
            ending.cancel()
        for ending in ended:
            ending.result()

    def _check_errors(self) -> None:
        for gateway in self._gateways:
            if not gateway.task.done():
                self._history.errors.append("a gateway came to no end")
            elif not gateway.task.cancelled() and (error := gateway.task.exception()) is not None:
                self._history.errors.append(f"a gateway failed: {error!r}")
