"""The write-ahead log of the session that this process runs: creates its objects in the store, and confirms them in order.

`put` returns at once. A task for each object calls the store until the object is known to be ours or the session is fenced;
`confirmations.py` has the rules. A call is repeated for ever, always with the same bytes, because repeating is safe: the
object can only be created once, and its bytes tell whose it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.cluster.objects.objects import AlreadyThere, Buffer, Missing, ObjectStore, Refused, StoreFailed
from gateway.cluster.wal.backoff import Backoff
from gateway.cluster.wal.confirmations import Confirmations, Outcome, Step, judge
from gateway.cluster.wal.keys import object_key
from gateway.cluster.wal.row_data import RowData
from gateway.cluster.wal.sessions import Session
from gateway.cluster.wal.store_outage import StoreOutage
from gateway.cluster.wal.wal_object import (
    END_BYTES,
    FOOTER_BYTES,
    Row,
    Seal,
    WalObject,
    encode,
    encode_seal,
)

logger = logging.getLogger(__name__)

CALL_LIMIT_S: Final = 60.0
"""A call that takes longer counts as failed. The store may still carry it out, which the rules allow for."""
_EXPECTED: Final = (StoreFailed, Refused, TimeoutError, OSError)
"""Failures of a call. A store that refuses calls may accept them again after its settings are corrected."""
NEVER_S: Final = float("-inf")
_FAILED: Final = frozenset({Outcome.UNKNOWN, Outcome.UNREAD})


class SessionFenced(Exception):
    """Another gateway ended the session; the message says who. Nothing more is ever confirmed."""


@dataclass(slots=True)
class WalCounters:
    """What the session did, for the status of the gateway."""

    confirmed_objects: int = 0
    confirmed_bytes: int = 0
    failed_calls: int = 0
    lost_answers: int = 0
    """Objects whose creates all failed, and that the store had nevertheless."""


@dataclass(slots=True, eq=False)
class _Pending:
    """An object that is not confirmed."""

    seq: int
    key: str
    content: Sequence[Buffer]
    footer: bytes
    size_bytes: int
    confirmed: Callable[[], None]
    sent_s: float = NEVER_S
    """When its first create was sent."""


class SessionWal:
    """The objects of one session. All methods belong to one event loop; `seconds` is a clock that is never set."""

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
        """Begin without objects. A call to the store that takes longer than `call_limit_s` counts as failed."""
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
        self._end: int | None = None
        self._fenced_by = ""
        self.on_fenced: list[Callable[[str], None]] = []
        """Called once with a sentence when another gateway has ended the session."""
        self.unconfirmed_bytes = 0
        """The bytes of all objects that were put and are not confirmed, sent or not; they are in memory."""
        self.last_confirmed_sent_s = NEVER_S
        """When the last confirmed object was sent for the first time; no other session was in force then."""
        self.counters = WalCounters()

    @property
    def in_flight(self) -> int:
        """The number of objects that were put and are not confirmed, sent or not."""
        return len(self._pending)

    @property
    def is_fenced(self) -> bool:
        """Whether another gateway ended the session."""
        return self._rules.is_fenced

    @property
    def next_seq(self) -> int:
        """The seq of the next object."""
        return self._rules.next_seq

    @property
    def confirmed_end(self) -> int:
        """The seq of the first object that is not confirmed."""
        return next(iter(self._pending), self._rules.next_seq)

    async def barrier(self) -> None:
        """Return when an object that is put now is confirmed: the session was in force after everything that happened before the call.

        Raises SessionFenced, RuntimeError if the session is closed meanwhile.
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

    def put(self, rows: Sequence[Row], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        """Create the next object of the log, and return without waiting.

        Calls `confirmed` when the bucket is known to hold this object and all earlier ones as this session wrote them.

        The caller must not change the data before that. A fenced session takes the object and never confirms it. Raises ValueError for
        rows that no reader would accept.
        """
        if self._is_ending:
            raise RuntimeError(f"session {self.session.session} is ending; nothing can be put into its log")
        _, node_id, nonce, *_ = self.session
        made = WalObject(node_id, self.session.session, self._rules.next_seq, nonce, rows, data)
        content = encode(made)
        if not self.is_fenced:
            self._add(content, confirmed)

    async def seal(self, reason: str) -> int:
        """End the session: wait until all objects are confirmed, then seal the log; return the seq of the seal.

        Nothing can be put any more. Raises SessionFenced if another gateway ended the session first, RuntimeError if the session is closed
        meanwhile.
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
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
        step = Step.CREATE
        while step is not Step.REST:
            if step is Step.CREATE:
                outcome, sentence = await self._create(pending)
            else:
                outcome, sentence = await self._look(pending)
            if self.is_fenced:
                return
            step = self._rules.after(pending.seq, outcome)
            if outcome in _FAILED:
                await asyncio.sleep(looks.next_s())
            elif outcome is Outcome.MISSING:  # the store answers, but it may be in trouble with creates
                looks.reset()
                await asyncio.sleep(creates.next_s())
        if self.is_fenced:
            self._fence(sentence)
        else:
            pending.content = ()  # The object is the session's own, so its bytes are not sent again.
            self.counters.lost_answers += outcome is Outcome.OURS
            self._confirm()

    async def _create(self, pending: _Pending) -> tuple[Outcome, str]:
        try:
            async with asyncio.timeout(self._call_limit_s):
                await self._objects.create(pending.key, pending.content)
        except AlreadyThere:
            outcome = Outcome.TAKEN
        except _EXPECTED as error:
            self._failed(error)
            return Outcome.UNKNOWN, ""
        except Exception as error:
            logger.exception("the store failed in an unexpected way to create %s", pending.key)
            self._failed(error)
            return Outcome.UNKNOWN, ""
        else:
            outcome = Outcome.CREATED
        self._outage.succeeded()
        return outcome, ""

    async def _look(self, pending: _Pending) -> tuple[Outcome, str]:
        try:
            async with asyncio.timeout(self._call_limit_s):
                end = await self._objects.get_end(pending.key, END_BYTES)
        except Missing:
            found = Outcome.MISSING, ""
        except _EXPECTED as error:
            self._failed(error)
            return Outcome.UNREAD, ""
        except Exception as error:
            logger.exception("the store failed in an unexpected way to read %s", pending.key)
            self._failed(error)
            return Outcome.UNREAD, ""
        else:
            found = judge(end, pending.footer, pending.key)
        self._outage.succeeded()
        return found

    def _failed(self, error: Exception) -> None:
        """Note a failed call. Whatever the error was, the state of the store is unknown, and the call is made again."""
        self.counters.failed_calls += 1
        waiting = f"{len(self._pending)} objects with {self.unconfirmed_bytes} bytes wait to become durable"
        self._outage.failed(error, waiting)

    def _confirm(self) -> None:
        for seq in self._rules.confirm():
            pending = self._pending.pop(seq)
            self.unconfirmed_bytes -= pending.size_bytes
            self.last_confirmed_sent_s = pending.sent_s
            self.counters.confirmed_objects += 1
            self.counters.confirmed_bytes += pending.size_bytes
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
