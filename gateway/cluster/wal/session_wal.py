"""The write-ahead log of the session that this process runs: creates its objects and confirms them in order.

`SessionWal.put` returns at once. A task for each object calls the store until the object is known to be ours
or the session is fenced. A call is repeated for ever, always with the same bytes, because repeating is safe:
the object can only be created once, and its bytes tell whose it is.

`Confirmations` has the rules: what is created next, what a failure means, what is confirmed. An object is
confirmed once this object and all before it are known to be in the store and to be the session's own. A
create that failed says nothing about the store: the store may have carried the call out, may carry it out
later, or may have refused it because an earlier attempt came through. So a read of the object decides:

    call                              next
    create: done                      the object is ours
    create: failed, or already there  look
    look: the object is ours          the object is ours
    look: missing                     create the same bytes again
    look: a seal                      fenced: another gateway ended the session
    look: anything else               fenced: another program wrote into the session's log
    look: failed                      look again

The rules know no asyncio, no clock and no store.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Buffer,
    Missing,
    ObjectStore,
    Refused,
    StoreFailed,
)
from seqgate.gateway.cluster.wal.persistence import Backoff, StoreOutage
from seqgate.gateway.cluster.wal.sessions import Session
from seqgate.gateway.cluster.wal.wal_object import (
    END_BYTES,
    FOOTER_BYTES,
    CorruptWalObject,
    RowData,
    Seal,
    WalObject,
    WalRow,
    decode_index,
    encode,
    encode_seal,
    identify,
    object_key,
)
from seqgate.gateway.tasks import end_tasks
from seqgate.log import IncompatibleFormat

logger = logging.getLogger(__name__)


class ObjectOutcome(enum.Enum):
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


class ObjectStep(enum.Enum):
    CREATE = enum.auto()
    LOOK = enum.auto()
    REST = enum.auto()
    """The object is the session's own, or the session is fenced, so that the object does not matter."""


_NEXT: Final = {
    ObjectOutcome.CREATED: ObjectStep.REST,
    ObjectOutcome.UNKNOWN: ObjectStep.LOOK,
    ObjectOutcome.TAKEN: ObjectStep.LOOK,
    ObjectOutcome.OURS: ObjectStep.REST,
    ObjectOutcome.MISSING: ObjectStep.CREATE,
    ObjectOutcome.SEALED: ObjectStep.REST,
    ObjectOutcome.FOREIGN: ObjectStep.REST,
    ObjectOutcome.UNREAD: ObjectStep.LOOK,
}
_OWN: Final = frozenset({ObjectOutcome.CREATED, ObjectOutcome.OURS})
_FENCING: Final = frozenset({ObjectOutcome.SEALED, ObjectOutcome.FOREIGN})


class Confirmations:
    """The objects of one session: seqs ascend from 0, and at most `window` are sent and unconfirmed."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.next_seq = 0
        self.sent_end = 0
        """The objects below were sent at least once."""
        self.confirmed_end = 0
        self.is_fenced = False
        self._own: set[int] = set()
        """The objects from `confirmed_end` on that are known to be the session's own."""

    def add(self) -> int:
        seq = self.next_seq
        self.next_seq += 1
        return seq

    def due(self) -> range:
        """Return the objects to send now for the first time, in order. They count as sent from now on."""
        begin = self.sent_end
        if not self.is_fenced:
            self.sent_end = max(begin, min(self.next_seq, self.confirmed_end + self.window))
        return range(begin, self.sent_end)

    def after(self, seq: int, outcome: ObjectOutcome) -> ObjectStep:
        """Note how a call for an object ended; return what to do next about the object."""
        if self.is_fenced:
            return ObjectStep.REST
        if outcome in _FENCING:
            self.is_fenced = True
        elif outcome in _OWN and seq >= self.confirmed_end:
            self._own.add(seq)
        return _NEXT[outcome]

    def confirm(self) -> range:
        """Return the newly confirmed objects, in order. A fenced session confirms nothing more."""
        begin = self.confirmed_end
        if not self.is_fenced:
            while self.confirmed_end in self._own:
                self._own.remove(self.confirmed_end)
                self.confirmed_end += 1
        return range(begin, self.confirmed_end)


def judge(end: bytes, footer: bytes, key: str) -> tuple[ObjectOutcome, str]:
    """Return whose object the key has, and a sentence about any other object than our own. `end` is the end
    of the object in the store, and `footer` that of our own. The footer has the nonce of the session and the
    checksum of the index, and the index the checksums of all data, so equal footers mean equal objects.
    """
    if end[-FOOTER_BYTES:] == footer:
        return ObjectOutcome.OURS, ""
    try:
        identity = identify(end, key)
        found = decode_index(end, key) if identity.is_seal else None
    except CorruptWalObject as error:
        return ObjectOutcome.FOREIGN, f"The session's next object is not its own: {error}"
    except IncompatibleFormat as error:
        return ObjectOutcome.FOREIGN, f"A later release ended the session: {error}"
    if isinstance(found, Seal):
        return ObjectOutcome.SEALED, f"Node {found.by} sealed the session at {key}: {found.reason}"
    return (
        ObjectOutcome.FOREIGN,
        f"{key} is an object of another writer, with the nonce {identity.nonce.hex()}.",
    )


CALL_LIMIT_S: Final = 60.0
"""A call that takes longer counts as failed. The store may still carry it out, which the rules allow for."""
_EXPECTED: Final = (StoreFailed, Refused, TimeoutError, OSError)
"""Failures of a call. A store that refuses calls may accept them again after its settings are corrected."""
NEVER_S: Final = float("-inf")
_FAILED: Final = frozenset({ObjectOutcome.UNKNOWN, ObjectOutcome.UNREAD})


class SessionFenced(Exception):
    """Another gateway ended the session; the message says who. Nothing more is ever confirmed."""


@dataclass(slots=True, eq=False)
class _Pending:
    seq: int
    key: str
    content: Sequence[Buffer]
    footer: bytes
    size_bytes: int
    confirmed: Callable[[], None]
    sent_s: float = NEVER_S


class SessionWal:
    """The objects of one session, in one event loop. `seconds` is a clock that is never set."""

    def __init__(
        self,
        objects: ObjectStore,
        session: Session,
        *,
        puts_in_flight: int,
        seconds: Callable[[], float] | None = None,
        chance: random.Random | None = None,
        call_limit_s: float = CALL_LIMIT_S,
    ) -> None:
        """Begin without objects. A call to the store that takes more than `call_limit_s` counts as failed."""
        self._loop = asyncio.get_running_loop()
        self._objects = objects
        self.session = session
        self._rules = Confirmations(puts_in_flight)
        self._call_limit_s = call_limit_s
        self._seconds = seconds or self._loop.time
        self._chance = chance or random.Random()
        self._outage = StoreOutage(self._seconds)
        self._pending: dict[int, _Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        """The tasks that wait until no object is pending."""
        self._is_ending = False
        self._is_closed = False
        self._is_held = False
        self._end: int | None = None
        self._fenced_by = ""
        self.on_fenced: list[Callable[[str], None]] = []
        """Called once with a sentence when another gateway has ended the session."""
        self.unconfirmed_bytes = 0
        """The bytes of all objects that were put and are not confirmed, sent or not; they are in memory."""
        self.last_confirmed_sent_s = NEVER_S
        """When the last confirmed object was sent for the first time; no other session was in force then."""

    @property
    def in_flight(self) -> int:
        """The number of objects that were put and are not confirmed, sent or not."""
        return len(self._pending)

    @property
    def is_fenced(self) -> bool:
        return self._rules.is_fenced

    @property
    def next_seq(self) -> int:
        return self._rules.next_seq

    @property
    def confirmed_end(self) -> int:
        """The seq of the first object that is not confirmed."""
        return next(iter(self._pending), self._rules.next_seq)

    def hold(self) -> int:
        """Confirm nothing until `release`; return the seq of the first object that is not confirmed. Objects
        are created all the time. Raises SessionFenced.
        """
        if self.is_fenced:
            raise SessionFenced(self._fenced_by)
        self._is_held = True
        return self.confirmed_end

    def release(self) -> None:
        """Confirm what the store has taken since `hold`."""
        self._is_held = False
        self._confirm()

    async def barrier(self) -> None:
        """Return when an object that is put now is confirmed: the session was in force after everything that
        happened before the call. Raises SessionFenced, RuntimeError if the session is closed meanwhile.
        """
        seq = self.next_seq
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(done)
        self.put((), (), lambda: None if done.done() else done.set_result(None))
        if not self.is_fenced:
            await done
        if self.is_fenced:
            raise SessionFenced(self._fenced_by)
        if self.confirmed_end <= seq:
            raise RuntimeError(
                f"session {self.session.session} was closed with {len(self._pending)} objects undecided"
            )

    def put(self, rows: Sequence[WalRow], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        """Create the next object of the log, and return without waiting.

        Calls `confirmed` when the bucket is known to hold this object and all earlier ones of this session.

        The caller must not change the data before that. A fenced session takes the object and never confirms
        it. Raises ValueError for rows that no reader would accept.
        """
        if self._is_ending:
            raise RuntimeError(f"session {self.session.session} is ending; nothing can be put into its log")
        _, node_id, nonce, *_ = self.session
        made = WalObject(node_id, self.session.session, self._rules.next_seq, nonce, rows, data)
        content = encode(made)
        if not self.is_fenced:
            self._add(content, confirmed)

    async def seal(self, reason: str) -> int:
        """End the session: wait until all objects are confirmed, then seal the log; return the seq of the
        seal. Nothing can be put any more. Raises SessionFenced if another gateway ended the session first,
        RuntimeError if the session is closed meanwhile.
        """
        self._is_ending = True
        await self._emptied()
        if self._end is None:
            self._end = end = self._rules.next_seq
            number, node_id, nonce, *_ = self.session
            self._add([encode_seal(Seal(node_id, number, end, nonce, node_id, reason))], lambda: None)
            await self._emptied()
        return self._end

    async def close(self) -> None:
        """Stop all calls. What is not confirmed stays undecided: the store may have it or not."""
        self._is_ending = self._is_closed = True
        await end_tasks(*self._tasks)
        self._wake()

    async def _emptied(self) -> None:
        while self._pending and not self.is_fenced:
            if self._is_closed:
                raise RuntimeError(
                    f"session {self.session.session} was closed with {len(self._pending)} objects undecided"
                )
            done: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(done)
            await done
        if self.is_fenced:
            raise SessionFenced(self._fenced_by)

    def _add(self, content: Sequence[Buffer], confirmed: Callable[[], None]) -> None:
        seq = self._rules.add()
        footer = bytes(content[-1][-FOOTER_BYTES:])
        size_bytes = sum(map(len, content))
        key = object_key(self.session.node_id, self.session.session, seq)
        self._pending[seq] = _Pending(seq, key, content, footer, size_bytes, confirmed)
        self.unconfirmed_bytes += size_bytes
        self._send_due()

    def _send_due(self) -> None:
        for seq in self._rules.due():
            pending = self._pending[seq]
            pending.sent_s = self._seconds()
            task = self._loop.create_task(self._make_ours(pending), name=f"create {pending.key}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _make_ours(self, pending: _Pending) -> None:
        """Call the store until the object is known to be the session's own or the session is fenced."""
        creates, looks = Backoff(self._chance), Backoff(self._chance)
        step = ObjectStep.CREATE
        while step is not ObjectStep.REST:
            outcome, sentence = await self._call(pending, step)
            if self.is_fenced:
                return
            step = self._rules.after(pending.seq, outcome)
            if outcome in _FAILED:
                await asyncio.sleep(looks.next_s())
            elif outcome is ObjectOutcome.MISSING:  # the store answers, but it may be in trouble with creates
                looks.reset()
                await asyncio.sleep(creates.next_s())
        if self.is_fenced:
            self._fence(sentence)
        else:
            pending.content = ()  # The object is the session's own, so its bytes are not sent again.
            self._confirm()

    async def _call(self, pending: _Pending, step: ObjectStep) -> tuple[ObjectOutcome, str]:
        """Create an object, or look at it; return how that ended, and a sentence as `judge` does."""
        try:
            async with asyncio.timeout(self._call_limit_s):
                if step is ObjectStep.CREATE:
                    await self._objects.create(pending.key, pending.content)
                    found = ObjectOutcome.CREATED, ""
                else:
                    end = await self._objects.get_end(pending.key, END_BYTES)
                    found = judge(end, pending.footer, pending.key)
        except AlreadyThere:
            found = ObjectOutcome.TAKEN, ""
        except Missing:
            found = ObjectOutcome.MISSING, ""
        except Exception as error:  # noqa: BLE001 - whatever it was, the call is made again
            self._failed(pending, error)
            return ObjectOutcome.UNKNOWN if step is ObjectStep.CREATE else ObjectOutcome.UNREAD, ""
        self._outage.succeeded()
        return found

    def _failed(self, pending: _Pending, error: Exception) -> None:
        """Note a failed call, which is made again: whatever the error, the state of the store is unknown."""
        if not isinstance(error, _EXPECTED):
            logger.error("the store failed in an unexpected way at %s", pending.key, exc_info=error)
        waiting = f"{len(self._pending)} objects with {self.unconfirmed_bytes} bytes wait to become durable"
        self._outage.failed(error, waiting)

    def _confirm(self) -> None:
        if self._is_held:
            return
        for seq in self._rules.confirm():
            pending = self._pending.pop(seq)
            self.unconfirmed_bytes -= pending.size_bytes
            self.last_confirmed_sent_s = pending.sent_s
            try:
                pending.confirmed()
            except Exception:
                logger.exception("what follows the confirmation of %s failed", pending.key)
        self._send_due()
        if not self._pending:
            self._wake()

    def _fence(self, sentence: str) -> None:
        if self._fenced_by:
            return
        self._fenced_by = sentence
        logger.error("This gateway's session has ended, and it must stop: %s", sentence)
        self._pending.clear()
        self.unconfirmed_bytes = 0
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        for fenced in self.on_fenced:
            try:
                fenced(sentence)
            except Exception:
                logger.exception("what follows the fencing of the session failed")
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for done in waiters:
            if not done.done():
                done.set_result(None)
