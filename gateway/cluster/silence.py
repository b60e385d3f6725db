"""Silent gateways: who watches whom, when a session is convicted and sealed, and how long its lease lasts.

`Silence` counts how long a session has been silent. Only time between two looks that the store answered
counts. So a store that is away convicts nobody, and neither does a watcher that was stopped: of a long pause
between two looks only one step counts. What counts is never more than the time that really passed.

The rule knows no asyncio, no clock and no store.

`Watcher` watches the next gateways in the ring. It seals the sessions of those gone, then ends them in the
metadata. Two takers at once come to the same end: the first seal counts, and the metadata ends a session
once.

`end_earlier` ends the earlier sessions of a node that starts again. A start seals the earlier sessions of its
own node id, and of no other. If one of them may still run somewhere, the start waits until that session's
lease is over: from the seal on no object of it is confirmed, so a lease lasts at most as long from then.

`Lease` says until when a gateway may answer as the leader of its partitions. The lease begins anew with each
confirmed object of the session's log, at the time at which the object was *sent*: no seal was there then.
Another gateway takes over only after the log was silent for longer than a lease lasts on any clock, so no
lease is left when the new leader serves. Writes need no lease: after a seal no object is confirmed, however
long a process was stopped.

The clock counts the time in which the machine is suspended, and is never set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore, Refused, StoreFailed
from seqgate.gateway.cluster.wal.ended import SealedWal, seal, seal_all
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, Session, decode_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    FOOTER_BYTES,
    CorruptWalObject,
    boundary_key,
    identify,
    object_key,
)
from seqgate.gateway.tasks import end_tasks
from seqgate.log import IncompatibleFormat, StorageFailed

logger = logging.getLogger(__name__)


WATCHED: Final = 2
"""The gateways that each gateway watches, so that one which dies together with its watcher is still found."""


class Silence:
    """The silence of one session, in looks at the first empty place of its log."""

    def __init__(self, longest_step_s: float) -> None:
        self._longest_step_s = longest_step_s
        self._last_s: float | None = None
        self.silent_s = 0.0

    def begin(self, now_s: float) -> None:
        """Begin anew: the end of the log was found just now, or has moved."""
        self.silent_s = 0.0
        self._last_s = now_s

    def still_empty(self, now_s: float) -> None:
        """Note a look that began at `now_s` and found the place empty."""
        if self._last_s is not None:
            self.silent_s += min(max(0.0, now_s - self._last_s), self._longest_step_s)
        self._last_s = now_s

    def failed(self) -> None:
        """Note a look that the store did not answer: the time around it does not count."""
        self._last_s = None


def watched_by(node_id: int, live: Iterable[int]) -> list[int]:
    """Return the live gateways that this one watches: the next in the ring of node ids."""
    others = sorted(other for other in live if other != node_id)
    after = [other for other in others if other > node_id]
    ring = after + [other for other in others if other < node_id]
    return ring[:WATCHED]


# Watches the write-ahead log of one session of another gateway, until the session has ended or is convicted.

CHECKS_PER_LEASE: Final = 6
_STEPS: Final = 2
"""How many times as long as planned the time between two looks may be, and still counts as a whole."""
_NO_ANSWER: Final = (StoreFailed, Refused, TimeoutError, OSError, CorruptWalObject, IncompatibleFormat)
"""Looks that tell nothing."""


class Watched(NamedTuple):
    """A session of another gateway, and how long its lease lasts."""

    node_id: int
    session: int
    lease_s: float


class WatchResult(NamedTuple):
    end_seq: int
    """The first empty place of the log, or that of its seal."""
    is_sealed: bool
    """Whether the session was sealed by itself or by another taker."""
    silent_s: float


class Watch:
    """The watch over one session. `seconds` counts the time of a suspended machine, and is never set."""

    def __init__(self, objects: ObjectStore, watched: Watched, seconds: Callable[[], float]) -> None:
        self._objects = objects
        self._watched = watched
        self._needed_s = conviction_s(watched.lease_s)
        self._step_s = watched.lease_s / CHECKS_PER_LEASE
        self._seconds = seconds
        self._silence = Silence(self._step_s * _STEPS)
        self._seq = 0
        """The first place that was empty when it was looked at."""

    @property
    def silent_s(self) -> float:
        return self._silence.silent_s

    async def verdict(self) -> WatchResult:
        """Watch until the session is sealed, or has been silent for so long that its lease is over."""
        is_known = False
        while True:
            try:
                is_sealed = await (self._check() if is_known else self._find_end())
                is_known = True
            except _NO_ANSWER as error:
                logger.debug("a look at session %d failed: %s", self._watched.session, error)
                self._silence.failed()
                is_sealed = False
            if is_sealed or self.silent_s >= self._needed_s:
                return WatchResult(self._seq, is_sealed, self.silent_s)
            await asyncio.sleep(self._step_s)

    async def _check(self) -> bool:
        """Look at the first empty place; return whether it has the seal. Raises the errors of the store."""
        now_s = self._seconds()
        found = await self._at(self._seq)
        if found is not None:
            self._silence.begin(now_s)
            return found or await self._find_end()
        if self.silent_s > self._needed_s / 2 and await self._boundary() > self._seq:
            # The session has used the place, and has collected its object since.
            self._silence.begin(now_s)
            return await self._find_end()
        self._silence.still_empty(now_s)
        return False

    async def _find_end(self) -> bool:
        """Find the first empty place by doubling steps; return whether the place before it has the seal."""
        last = max(self._seq, await self._boundary()) - 1
        """The last place that is known to be used."""
        step = 1
        while (found := await self._at(last + step)) is not None:
            last += step
            if found:
                self._seq = last
                return True
            step *= 2
        empty = last + step
        while empty - last > 1:
            middle = (last + empty) // 2
            found = await self._at(middle)
            if found:
                self._seq = middle
                return True
            last, empty = (last, middle) if found is None else (middle, empty)
        self._seq = empty
        self._silence.begin(self._seconds())
        return False

    async def _at(self, seq: int) -> bool | None:
        """Return whether the object at this place is a seal; None without an object."""
        key = object_key(self._watched.node_id, self._watched.session, seq)
        try:
            async with asyncio.timeout(self._needed_s):
                end = await self._objects.get_end(key, FOOTER_BYTES)
        except Missing:
            return None
        return identify(end, key).is_seal

    async def _boundary(self) -> int:
        key = boundary_key(self._watched.node_id, self._watched.session)
        try:
            async with asyncio.timeout(self._needed_s):
                return decode_boundary(await self._objects.get(key), key)
        except Missing:
            return 0


RETRIED_AFTER_S: Final = 1.0
"""How long a taker waits before it tries again to end a session, when that has failed."""

EndSession = Callable[[int, int], Awaitable[object]]
"""Ends a session of a node in the metadata, whose log is sealed."""


class Watcher:
    """The watches of this gateway. Call `follow` after each change of the live gateways."""

    def __init__(
        self, objects: ObjectStore, node_id: int, seconds: Callable[[], float], end_session: EndSession
    ) -> None:
        self._objects = objects
        self._node_id = node_id
        self._seconds = seconds
        self._end_session = end_session
        self._tasks: dict[Watched, asyncio.Task[None]] = {}

    @property
    def watched(self) -> list[Watched]:
        return sorted(self._tasks)

    def follow(self, live: Mapping[int, Watched]) -> None:
        """Watch the next of the live gateways; `live` has the session of each node, this one included."""
        wanted = {live[node_id] for node_id in watched_by(self._node_id, live)}
        for watched in self._tasks.keys() - wanted:
            self._tasks.pop(watched).cancel()
        for watched in wanted - self._tasks.keys():
            self._tasks[watched] = asyncio.create_task(
                self._watch(watched), name=f"watch over session {watched.session} of node {watched.node_id}"
            )

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await end_tasks(*tasks)

    async def _watch(self, watched: Watched) -> None:
        verdict: WatchResult | None = None
        while True:
            try:
                verdict = verdict or await Watch(self._objects, watched, self._seconds).verdict()
                await self._take_over(watched, verdict)
            except StorageFailed as error:
                logger.warning(
                    "session %d of node %d can't be ended now: %s", watched.session, watched.node_id, error
                )
            except Exception:
                logger.exception(
                    "session %d of node %d can't be watched or ended", watched.session, watched.node_id
                )
            # The task is cancelled once the metadata shows the end of the session.
            await asyncio.sleep(RETRIED_AFTER_S)

    async def _take_over(self, watched: Watched, verdict: WatchResult) -> None:
        node_id, session, lease_s = watched
        if verdict.is_sealed:
            # Whoever sealed it also ends it in the metadata. If not, its lease is over by then.
            await asyncio.sleep(conviction_s(lease_s))
        else:
            reason = f"node {self._node_id} saw no sign of life for {verdict.silent_s:.1f} s"
            logger.warning("node %d is taken over: %s", node_id, reason)
            sealed = await seal(self._objects, node_id, session, self._node_id, reason)
            if sealed.end_seq > verdict.end_seq:
                # The session lived on after the watch, so its lease may last until now.
                await asyncio.sleep(conviction_s(lease_s))
        await self._end_session(node_id, session)


async def end_earlier(
    objects: ObjectStore,
    own: Session,
    earlier: Sequence[RegisteredSession],
    reason: str,
    *,
    lease_s: float,
    may_serve: Callable[[int], bool],
) -> list[tuple[RegisteredSession, SealedWal]]:
    """Seal the earlier sessions of the node, and wait until none serves; return them as `seal_all`.

    `may_serve` says for the number of a session whether its process may still answer clients: not if the
    metadata shows its end, and not if the lock of this data directory proves that the process is dead. Waits
    until the store answers. Raises as `seal_all`.
    """
    own_earlier = [
        session for session in earlier if session.node_id == own.node_id and session.session < own.session
    ]
    ended = await seal_all(objects, own, own_earlier, reason)
    # A session that has sealed itself, by a clean stop, answers nobody any more.
    must_wait = any(
        sealed.seal.nonce != session.nonce and may_serve(session.session) for session, sealed in ended
    )
    if must_wait:
        wait_s = conviction_s(lease_s)
        logger.info(
            "an earlier session of node %d may still answer clients; waiting %.1f s until its lease is over",
            own.node_id,
            wait_s,
        )
        await asyncio.sleep(wait_s)
    return ended


DRIFT: Final = 0.1
"""How much faster a taker's clock may run than that of the gateway it takes over, as a share of the time."""


def conviction_s(lease_s: float) -> float:
    """Return how long a session must be silent on a taker's clock for its lease to be over on its own."""
    return lease_s * (1 + DRIFT)


class Lease:
    """The lease of this gateway. `seconds` is the clock that the log uses, too."""

    def __init__(self, wal: SessionWal, lease_s: float, seconds: Callable[[], float]) -> None:
        self._wal = wal
        self._lease_s = lease_s
        self._seconds = seconds

    def is_over(self) -> bool:
        """Whether another gateway may lead the partitions by now. Ask before you read what is answered."""
        return self._seconds() >= self._wal.last_confirmed_sent_s + self._lease_s

    @property
    def left_s(self) -> float:
        """The time until the lease is over; 0 once it is."""
        return max(0.0, self._wal.last_confirmed_sent_s + self._lease_s - self._seconds())
