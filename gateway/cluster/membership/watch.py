"""Watches the write-ahead log of one session of another gateway, until the session has ended or is convicted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.cluster.membership.lease import conviction_s
from gateway.cluster.membership.silence import Silence
from gateway.cluster.objects.objects import Missing, ObjectStore, Refused, StoreFailed
from gateway.cluster.wal.boundary import decode_boundary
from gateway.cluster.wal.keys import boundary_key, object_key
from gateway.cluster.wal.wal_object import FOOTER_BYTES, CorruptWalObject, identify
from log import IncompatibleFormat

logger = logging.getLogger(__name__)

LOOKS_PER_LEASE: Final = 6
_STEPS: Final = 2
"""How many times as long as planned the time between two looks may be, and still counts as a whole."""
_NO_ANSWER: Final = (StoreFailed, Refused, TimeoutError, OSError, CorruptWalObject, IncompatibleFormat)
"""Looks that tell nothing."""


class Watched(NamedTuple):
    """A session of another gateway, and how long its lease lasts."""

    node_id: int
    session: int
    lease_s: float


class Verdict(NamedTuple):
    """The end of a watch."""

    end_seq: int
    """The first empty place of the log, or that of its seal."""
    is_sealed: bool
    """Whether the session was sealed by itself or by another taker."""
    silent_s: float


class Watch:
    """The watch over one session. `seconds` counts the time in which the machine is suspended, and is never set."""

    def __init__(self, objects: ObjectStore, watched: Watched, seconds: Callable[[], float]) -> None:
        self._objects = objects
        self._watched = watched
        self._needed_s = conviction_s(watched.lease_s)
        self._step_s = watched.lease_s / LOOKS_PER_LEASE
        self._seconds = seconds
        self._silence = Silence(self._step_s * _STEPS)
        self._seq = 0
        """The first place that was empty when it was looked at."""

    @property
    def silent_s(self) -> float:
        """The time for which the session has been silent."""
        return self._silence.silent_s

    async def verdict(self) -> Verdict:
        """Watch until the session is sealed, or has been silent for so long that its lease is over."""
        is_known = False
        while True:
            try:
                is_sealed = await (self._look() if is_known else self._find_end())
                is_known = True
            except _NO_ANSWER as error:
                logger.debug("a look at session %d failed: %s", self._watched.session, error)
                self._silence.failed()
                is_sealed = False
            if is_sealed or self.silent_s >= self._needed_s:
                return Verdict(self._seq, is_sealed, self.silent_s)
            await asyncio.sleep(self._step_s)

    async def _look(self) -> bool:
        """Look at the first empty place; return whether it has the seal. Raises what a call to the store raises."""
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
        """Find the first empty place by steps that double; return whether the place before it has the seal."""
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
