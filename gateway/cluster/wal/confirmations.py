"""The rules of a session's write-ahead log: which objects are created next, what a failed call means, what is confirmed.

An object is confirmed once this object and all before it are known to be in the store and to be the session's own. A create that
failed says nothing about the store: the store may have carried the call out, may carry it out later, or may have refused it because
an earlier attempt came through. So the object is looked up, and its bytes decide:

    call                              next
    create: done                      the object is ours
    create: failed, or already there  look
    look: the object is ours          the object is ours
    look: missing                     create the same bytes again
    look: a seal                      fenced: another gateway ended the session
    look: anything else               fenced: another program wrote into the session's log
    look: failed                      look again

Pure: knows no asyncio, no clock and no store.
"""

from __future__ import annotations

import enum
from typing import Final

from gateway.cluster.wal.wal_object import (
    FOOTER_BYTES,
    CorruptWalObject,
    Seal,
    decode_index,
    identify,
)
from log import IncompatibleFormat


class Outcome(enum.Enum):
    """How a call for one object ended."""

    CREATED = enum.auto()
    UNKNOWN = enum.auto()
    """The create failed, and the store may or may not have carried it out."""
    TAKEN = enum.auto()
    """The create failed because the key has an object."""
    OURS = enum.auto()
    MISSING = enum.auto()
    SEALED = enum.auto()
    FOREIGN = enum.auto()
    UNREAD = enum.auto()
    """The look failed."""


class Step(enum.Enum):
    """What to do next about one object."""

    CREATE = enum.auto()
    LOOK = enum.auto()
    REST = enum.auto()
    """The object is the session's own, or the session is fenced, so that the object does not matter."""


_NEXT: Final = {
    Outcome.CREATED: Step.REST,
    Outcome.UNKNOWN: Step.LOOK,
    Outcome.TAKEN: Step.LOOK,
    Outcome.OURS: Step.REST,
    Outcome.MISSING: Step.CREATE,
    Outcome.SEALED: Step.REST,
    Outcome.FOREIGN: Step.REST,
    Outcome.UNREAD: Step.LOOK,
}
_OWN: Final = frozenset({Outcome.CREATED, Outcome.OURS})
_FENCING: Final = frozenset({Outcome.SEALED, Outcome.FOREIGN})


class Confirmations:
    """The objects of one session: seqs ascend from 0, and at most `window` objects are sent and not confirmed."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.next_seq = 0
        """The seq of the next object."""
        self.sent_end = 0
        """The objects below were sent at least once."""
        self.confirmed_end = 0
        """The objects below are confirmed."""
        self.is_fenced = False
        self._own: set[int] = set()
        """The objects from `confirmed_end` on that are known to be the session's own."""

    def add(self) -> int:
        """Return the seq of a new object."""
        seq = self.next_seq
        self.next_seq += 1
        return seq

    def due(self) -> range:
        """Return the objects to send now for the first time, in order. They count as sent from now on."""
        begin = self.sent_end
        if not self.is_fenced:
            self.sent_end = max(begin, min(self.next_seq, self.confirmed_end + self.window))
        return range(begin, self.sent_end)

    def after(self, seq: int, outcome: Outcome) -> Step:
        """Note how a call for an object ended; return what to do next about the object."""
        if self.is_fenced:
            return Step.REST
        if outcome in _FENCING:
            self.is_fenced = True
        elif outcome in _OWN and seq >= self.confirmed_end:
            self._own.add(seq)
        return _NEXT[outcome]

    def confirm(self) -> range:
        """Return the objects that are confirmed now and were not before, in order. A fenced session confirms nothing more."""
        begin = self.confirmed_end
        if not self.is_fenced:
            while self.confirmed_end in self._own:
                self._own.remove(self.confirmed_end)
                self.confirmed_end += 1
        return range(begin, self.confirmed_end)


def judge(end: bytes, footer: bytes, key: str) -> tuple[Outcome, str]:
    """Return whose object the key has, and a sentence about any other object than our own.

    `end` is the end of the object in the store, and `footer` that of our own. The footer has the nonce of the session and the
    checksum of the index, and the index the checksums of all data, so equal footers mean equal objects.
    """
    if end[-FOOTER_BYTES:] == footer:
        return Outcome.OURS, ""
    try:
        identity = identify(end, key)
        found = decode_index(end, key) if identity.is_seal else None
    except CorruptWalObject as error:
        return Outcome.FOREIGN, f"The session's next object is not its own: {error}"
    except IncompatibleFormat as error:
        return Outcome.FOREIGN, f"A later release ended the session: {error}"
    if isinstance(found, Seal):
        return Outcome.SEALED, f"Node {found.by} sealed the session at {key}: {found.reason}"
    return Outcome.FOREIGN, f"{key} is an object of another writer, with the nonce {identity.nonce.hex()}."
