"""The end of the shared metadata log, as this process knows it, and the way to extend it.

A change is created as the next object of `meta/`, if that place is empty. So changes of several gateways have one order, and each was
decided on all changes before it: its gateway had read these, otherwise the place were taken. A creation that failed is settled by reading
the place, and tried again with the same bytes, so a change is there once, or never.

Old objects are deleted once snapshots have what they say, so a place may be empty again. A boundary moves above such places first, and who
has created an object reads the boundary afterwards: below it, the object counts for nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

from gateway.cluster.metadata.change import (
    CHANGE,
    CorruptChange,
    StoredChange,
    decode_change,
    encode_change,
    placed_batch,
)
from gateway.cluster.objects.objects import Missing, ObjectStore
from gateway.cluster.wal.keys import registration_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sessions import (
    CHANGE_MAGIC,
    RegisteredSession,
    Session,
    check_not_shortened,
    create_or_read,
    decode_registration,
)

MOST_LOOKS: Final = 64
"""Objects that are requested at the same time. The number doubles up to this while no object is missing."""

NEVER_DELETED_S: Final = 3_600.0

Entry = StoredChange | RegisteredSession


def decode_entry(content: bytes, seq: int) -> Entry:
    """Return object `seq` of `meta/`. Raises CorruptChange, CorruptRegistration, IncompatibleFormat."""
    if content.startswith(CHANGE_MAGIC):
        return decode_change(content, seq)
    return decode_registration(content, seq)


class SharedLog:
    """The log from `next_seq` and `next_offset` on: what is before was read and folded in."""

    def __init__(
        self,
        objects: ObjectStore,
        session: Session,
        *,
        next_seq: int,
        next_offset: int,
        chance: random.Random | None = None,
    ) -> None:
        self._objects = objects
        self.seconds: Callable[[], float] = asyncio.get_running_loop().time
        """A clock that is never set, and that goes on while the process or the machine stands still."""
        self.kept_s = NEVER_DELETED_S
        """How long an object stays at least after it was created, by any clock that is not much too fast."""
        self._looked_s = -math.inf
        """When the last look began that found the end of the log. No object that is created later was deleted less than `kept_s` after it."""
        self._reads = PersistentReads(objects, "changes of the metadata wait for the store", chance)
        self._session = session
        self.next_seq = next_seq
        """The number of the first object that was not taken."""
        self.next_offset = next_offset
        """The offset of the next record of the metadata."""
        self.sessions: list[RegisteredSession] = []
        """The sessions that were registered before `next_seq`, but for those that nobody needs."""

    async def has_more(self) -> bool:
        """Return whether there is an object that was not taken, or may have been one. Raises StoreFailed, Refused."""
        began_s = self.seconds()
        try:
            await self._objects.get_end(registration_key(self.next_seq), 1)
        except Missing:
            if self._may_be_deleted(began_s):
                return True  # `read` finds out
            self._looked_s = began_s
            return False
        return True

    async def read(self, at_once: int = 1) -> Sequence[Entry]:
        """Return the next objects in order, at most so many; none at the end of the log. Waits until the store answers.

        Raises CorruptChange, CorruptRegistration, CorruptWalObject, LogShortened, IncompatibleFormat, Refused.
        """
        began_s = self.seconds()
        seqs = range(self.next_seq, self.next_seq + min(at_once, MOST_LOOKS))
        entries: list[Entry] = []
        for seq, content in zip(seqs, await asyncio.gather(*map(self._get, seqs)), strict=True):
            if content is None:
                break
            entries.append(decode_entry(content, seq))
        # An object in an emptied place was created by a gateway that stood still, and belongs to no log.
        if entries or self._may_be_deleted(began_s):
            await check_not_shortened(self._reads, self.next_seq)
        if not entries:
            self._looked_s = began_s
        return entries

    async def create(self, batch: bytes, kind: int = CHANGE) -> StoredChange | None:
        """Make a record batch the next change; return None if the place is taken. Waits until the store answers.

        The caller then passes the change, or what `read` returns, to `take`. Raises LogShortened, CorruptWalObject,
        IncompatibleFormat, Refused.
        """
        seq, offset, session = self.next_seq, self.next_offset, self._session
        change = StoredChange(
            kind, session.node_id, session.session, seq, session.nonce, offset, placed_batch(batch, offset)
        )
        content = encode_change(change)
        present = await create_or_read(self._reads, registration_key(seq), content, is_read_back=False)
        if present != content:
            return None
        # The place may have been empty because another change was there before, and was deleted.
        await check_not_shortened(self._reads, seq)
        return change

    def take(self, entry: Entry) -> None:
        """Move the end behind the next object. Raises CorruptChange if it does not follow."""
        if isinstance(entry, StoredChange):
            if (entry.seq, entry.base_offset) != (self.next_seq, self.next_offset):
                raise CorruptChange(
                    f"{registration_key(entry.seq)} begins at the offset {entry.base_offset}, and the changes before it end at {self.next_offset}."
                )
            self.next_offset = entry.end_offset
        else:
            self.sessions.append(entry)
        self.next_seq += 1

    def drop(self, sessions: Collection[int]) -> None:
        """Forget sessions that have ended, and whose write-ahead logs have no objects any more."""
        self.sessions = [each for each in self.sessions if each.session not in sessions]

    def _may_be_deleted(self, began_s: float) -> bool:
        """Return whether the next object may have been created and deleted since the last look at the end of the log."""
        return began_s - self._looked_s > self.kept_s / 2

    async def _get(self, seq: int) -> bytes | None:
        try:
            return await self._reads.get(registration_key(seq))
        except Missing:
            return None
