"""What gateways do for a backup of their bucket: confirm nothing for a moment, and delete nothing meanwhile.

**Holds.** A backup needs the end of every session's write-ahead log at one moment. No order in which the ends
are read gives that: the coordinator of a transaction and its partitions are on several gateways, and each
writes what depends on the others. So all gateways stop confirming, say where they stand, and go on. Whatever
a gateway told another one, or a client, was confirmed first. Therefore the ends, taken while all hold, are
what the bucket has if all gateways die at that moment, and a start recovers that. A hold that ended by itself
before its release spoils the cut, and the backup tries again.

**The pin** is an object that asks gateways to delete nothing. It saves the backup from reading again, and is
no part of the proof: a backup has every object that it needs, or fails. For gateways the pin ends by itself
when the command that renews it is gone, by the clocks of the machines, which may differ by minutes.

The next backup needs no clock of another machine. It watches the pin for longer than a living command needs
to renew it, and then takes the pin over by a conditional replacement. A command that lived on all the same
finds the pin of another backup, or none, when it renews its own, and fails.

    version | backup (who) | host | until_ms: parts stay | logs_until_ms: write-ahead logs stay, too
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Changed,
    Missing,
    ObjectStore,
    Refused,
    StoreFailed,
)
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.wal_object import registration_key
from seqgate.gateway.tasks import end_tasks

logger = logging.getLogger(__name__)

LONGEST_HOLD_S: Final = 2.0
"""The longest hold, and a third of the lease if that is shorter: so readers are served all the time."""
PIN_KEY: Final = "backup/pin"
PIN_MS: Final = 900_000
"""The time after which a pin that nobody renews has ended."""
RENEWED_EVERY_S: Final = 5.0
UNRENEWED_S: Final = 30.0
"""How long the next backup watches a pin that nobody renews; then it takes the pin over."""
LOOK_EVERY_S: Final = 1.0
"""The time between two looks at the pin of another backup."""
_MOST_AHEAD_MS: Final = 4 * PIN_MS
"""A pin that ends later than this was written by a clock that is wrong, and counts for nothing."""
_VERSION: Final = 1


class HoldRefused(Exception):
    """The session can't be held; the message is a sentence."""


class HeldEnd(NamedTuple):
    """A session that is held, its nonce in hexadecimal, and the seq of the first object that it has not
    confirmed.
    """

    node_id: int
    session: int
    nonce: str
    end_seq: int


class SessionHolds:
    """The holds of one session, one at a time. Each ends by itself after a while."""

    def __init__(
        self, objects: ObjectStore, wal: SessionWal, lease_s: float, next_seq: Callable[[], int]
    ) -> None:
        """`next_seq` returns the number of the first object of `meta/` that this process has not read."""
        self._objects = objects
        self._wal = wal
        self._longest_s = min(LONGEST_HOLD_S, lease_s / 3)
        self._next_seq = next_seq
        self._backup: str | None = None
        """The backup that holds the session."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, backup: str) -> HeldEnd:
        """Hold the session for a backup. Raises HoldRefused."""
        if self._backup is not None:
            raise HoldRefused("another backup of the bucket begins at this moment")
        try:
            end_seq = self._wal.hold()
        except SessionFenced as error:
            raise HoldRefused(f"its session has ended: {error}") from error
        self._backup = backup
        self._timer = asyncio.get_running_loop().call_later(self._longest_s, self.end, backup)
        session = self._wal.session
        return HeldEnd(session.node_id, session.session, session.nonce.hex(), end_seq)

    def end(self, backup: str) -> bool:
        """Let the session confirm again; return whether it was held for this backup until now."""
        if self._backup != backup:
            return False
        self._backup = None
        if self._timer is not None:
            self._timer.cancel()
        is_intact = not self._wal.is_fenced
        self._wal.release()
        return is_intact

    async def metadata_end(self) -> int:
        """Return the number behind the last object of `meta/`. Raises StoreFailed, Refused. Waits for no turn
        of the metadata log, as a change may wait for what is held.
        """
        seq = self._next_seq()
        while True:
            try:
                await self._objects.get_end(registration_key(seq), 1)
            except Missing:
                return seq
            seq += 1


class _Pin(msgspec.Struct, frozen=True):
    backup: str
    host: str
    until_ms: int
    logs_until_ms: int
    version: int = _VERSION


async def is_pinned(reads: PersistentReads, now_ms: int, *, logs: bool = False) -> bool:
    """Return whether a backup needs the parts of the bucket, or with `logs` the objects of write-ahead logs.
    Waits until the store answers. Raises Refused.
    """
    pin = _decoded(await reads.find(PIN_KEY))
    if pin is None:
        return False
    return now_ms < (pin.logs_until_ms if logs else pin.until_ms) <= now_ms + _MOST_AHEAD_MS


def _decoded(content: bytes | None) -> _Pin | None:
    """Return the pin; None for an object that is none, which nobody needs to heed."""
    if content is not None:
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            return msgspec.json.decode(content, type=_Pin)
    return None


class PinTaken(Exception):
    """Another backup of the bucket is under way, or took the place of this one; the message is a sentence."""


class PinnedBucket:
    """The pin of one backup."""

    def __init__(self, reads: PersistentReads, backup: str, host: str, now_ms: Callable[[], int]) -> None:
        self._reads = reads
        self._backup = backup
        self._host = host
        self._now_ms = now_ms
        self._keeps_logs = True
        self._turn = asyncio.Lock()
        self._lost: str | None = None
        """Why this backup has the pin no more."""

    @asynccontextmanager
    async def pinned(self) -> AsyncIterator[None]:
        """Create the pin, renew it meanwhile, and delete it at the end, unless another backup has taken it.
        Waits until the store answers, and until a pin that is there has ended. Raises PinTaken, Refused.
        """
        await self._take()
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            await end_tasks(renewing)
            with contextlib.suppress(StoreFailed, Refused, Missing):
                found, _ = await self._read()
                if found is not None and found.backup == self._backup:
                    await self._reads.objects.delete(PIN_KEY)

    def check(self) -> None:
        """Raise PinTaken if a renewal has found that the backup lost its pin."""
        if self._lost is not None:
            raise PinTaken(self._lost)

    async def renew(self) -> None:
        """Renew the pin now. Raises PinTaken, Refused."""
        async with self._turn:
            self.check()
            conflicts = self._reads.conflicts()
            is_renewed = await self._reads.answered(self._try_renew)
            while not is_renewed:
                await asyncio.sleep(conflicts.next_s())
                is_renewed = await self._reads.answered(self._try_renew)

    async def release_logs(self) -> None:
        """Let gateways delete objects of write-ahead logs again. Raises PinTaken, Refused."""
        self._keeps_logs = False
        await self.renew()

    async def keep_logs(self) -> None:
        """Let gateways delete no objects of write-ahead logs, as at first. Raises PinTaken, Refused."""
        if not self._keeps_logs:
            self._keeps_logs = True
            await self.renew()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            try:
                await self.renew()
            except PinTaken:
                return  # `check` says it to the backup
            except Refused as error:
                logger.warning("the pin of the backup can't be renewed: %s", error)

    async def _take(self) -> None:
        """Create the pin, or take over one that is not renewed. Raises PinTaken, Refused."""
        watched: str | None = None
        """The version of the pin of another backup."""
        looks = 0  # counts no time in which the store did not answer: nobody could renew a pin then
        while True:
            found, version = await self._reads.answered(self._read)
            is_free = found is None or found.backup == self._backup
            if found is not None and not is_free:
                if watched is None:
                    watched = version
                    logger.warning(
                        "a backup of the bucket, begun on %s, has not ended; if that command gives no sign "
                        "of life for %.0f s, this one takes its place",
                        found.host,
                        UNRENEWED_S,
                    )
                elif watched != version:
                    raise PinTaken(
                        f"another backup of the bucket is under way on {found.host}; wait until it ends"
                    )
                is_free = looks >= UNRENEWED_S / LOOK_EVERY_S
                looks += 1
            if is_free and await self._reads.answered(partial(self._try_replace, version)):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self) -> tuple[_Pin | None, str | None]:
        """Return the pin, and the version of the object. Raises StoreFailed, Refused."""
        try:
            content, version = await self._reads.objects.read(PIN_KEY)
        except Missing:
            return None, None
        return _decoded(content), version

    async def _try_renew(self) -> bool:
        """Replace the backup's own pin; return False if its version was another one. Raises PinTaken also."""
        found, version = await self._read()
        if found is None or found.backup != self._backup:
            whose = "another backup" if found is None else f"a backup on {found.host}"
            self._lost = (
                f"{whose} has taken its place, because it gave no sign of life for {UNRENEWED_S:.0f} s; "
                "run the command again"
            )
            self.check()
        return await self._try_replace(version)

    async def _try_replace(self, version: str | None) -> bool:
        """Create the pin, or replace this version; return False if somebody else was first."""
        until_ms = self._now_ms() + PIN_MS
        pin = _Pin(self._backup, self._host, until_ms, until_ms if self._keeps_logs else 0)
        try:
            await self._reads.objects.replace(PIN_KEY, msgspec.json.encode(pin), version)
        except (Changed, AlreadyThere):
            return False
        return True
