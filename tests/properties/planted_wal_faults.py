"""Mistakes in the code of the write-ahead log, one at a time; the histories must show each of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from seqgate.gateway.cluster.objects.objects import AlreadyThere, ObjectStore, StoreFailed
from seqgate.gateway.cluster.wal import ended, session_wal, sessions
from seqgate.gateway.cluster.wal.session_wal import Confirmations, ObjectOutcome, ObjectStep, SessionWal
from seqgate.gateway.cluster.wal.wal_object import Seal, WalObject, encode, encode_seal
from tests.properties import wal_history

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledged_before_contiguity(patch: pytest.MonkeyPatch) -> None:
    """an object is confirmed although one before it is not known to be in the store"""

    def confirm(self: Confirmations) -> range:
        begin = self.confirmed_end
        if self._own:
            self.confirmed_end = max(self._own) + 1
            self._own.clear()
        return range(begin, self.confirmed_end)

    patch.setattr(Confirmations, "confirm", confirm)


def confirmed_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """objects that become confirmed together are reported from the last to the first"""
    honest = Confirmations.confirm
    patch.setattr(Confirmations, "confirm", lambda self: honest(self)[::-1])


def already_there_is_success(patch: pytest.MonkeyPatch) -> None:
    """AlreadyThere counts as the session's own object, without a look"""
    patch.setattr(session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.TAKEN})
    patch.setattr(session_wal, "_NEXT", {**session_wal._NEXT, ObjectOutcome.TAKEN: ObjectStep.REST})


def already_there_is_a_fence(patch: pytest.MonkeyPatch) -> None:
    """AlreadyThere counts as a seal, without a look"""
    patch.setattr(session_wal, "_FENCING", session_wal._FENCING | {ObjectOutcome.TAKEN})
    patch.setattr(session_wal, "_NEXT", {**session_wal._NEXT, ObjectOutcome.TAKEN: ObjectStep.REST})


def failed_create_is_success(patch: pytest.MonkeyPatch) -> None:
    """a create without an answer counts as carried out"""
    patch.setattr(session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.UNKNOWN})
    patch.setattr(session_wal, "_NEXT", {**session_wal._NEXT, ObjectOutcome.UNKNOWN: ObjectStep.REST})


def failed_create_is_given_up(patch: pytest.MonkeyPatch) -> None:
    """a create that failed and had no effect is not tried again"""
    patch.setattr(session_wal, "_NEXT", {**session_wal._NEXT, ObjectOutcome.MISSING: ObjectStep.REST})


def any_object_is_our_own(patch: pytest.MonkeyPatch) -> None:
    """a look does not compare what it finds"""
    patch.setattr(session_wal, "judge", lambda *_: (ObjectOutcome.OURS, ""))


def seal_confirms(patch: pytest.MonkeyPatch) -> None:
    """a session that finds a seal continues behind it"""
    patch.setattr(session_wal, "_FENCING", frozenset())
    patch.setattr(session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.SEALED})


def other_bytes_in_a_retry(patch: pytest.MonkeyPatch) -> None:
    """a create is tried again with newer content"""
    honest = SessionWal._call

    async def call(self: SessionWal, pending: Any, step: ObjectStep) -> Any:
        outcome = await honest(self, pending, step)
        if outcome[0] is ObjectOutcome.UNKNOWN:
            row = wal_history.DataRow(wal_history._TOPIC, 0, 0, 0, 1, 0, 0, 3)
            number, node_id, nonce, _ = self.session
            pending.content = encode(WalObject(node_id, number, pending.seq, nonce, [row], [b"999"]))
        return outcome

    patch.setattr(SessionWal, "_call", call)


def another_place_in_a_retry(patch: pytest.MonkeyPatch) -> None:
    """a create is tried again under the next key"""
    honest = SessionWal._call

    async def call(self: SessionWal, pending: Any, step: ObjectStep) -> Any:
        outcome = await honest(self, pending, step)
        if outcome[0] is ObjectOutcome.UNKNOWN:
            number, node_id, *_ = self.session
            pending.key = session_wal.object_key(node_id, number, pending.seq + 1)
        return outcome

    patch.setattr(SessionWal, "_call", call)


def lease_from_the_last_attempt(patch: pytest.MonkeyPatch) -> None:
    """the time of an object is that of its last create, which may be after a taker has seen the object"""
    honest = SessionWal._call

    async def call(self: SessionWal, pending: Any, step: ObjectStep) -> Any:
        if step is ObjectStep.CREATE:
            pending.sent_s = self._seconds()
        return await honest(self, pending, step)

    patch.setattr(SessionWal, "_call", call)


def own_seal_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """a clean stop reports its end before its objects and its seal are in the store"""

    async def emptied(_: SessionWal) -> None:
        return

    patch.setattr(SessionWal, "_emptied", emptied)


def no_look_at_the_boundary_after_the_seal(patch: pytest.MonkeyPatch) -> None:
    """a taker believes a seal in a place whose object was confirmed and deleted"""
    honest = ended.read_boundary
    calls: dict[Any, int] = {}

    async def read_boundary(reads: Any, node_id: int, session: int) -> int:
        calls[reads] = calls.get(reads, 0) + 1
        boundary = await honest(reads, node_id, session)
        return boundary if calls[reads] == 1 else 0

    patch.setattr(ended, "read_boundary", read_boundary)


def seal_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """a taker whose create of the seal failed counts the place as sealed"""

    async def create_at(self: Any, seq: int) -> Seal:
        made = Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)
        key = ended.object_key(self._node_id, self._session, seq)
        with contextlib.suppress(AlreadyThere, StoreFailed):
            await self._reads.objects.create(key, encode_seal(made))
        return made

    patch.setattr(ended._Taker, "_create_at", create_at)


def end_without_a_seal(patch: pytest.MonkeyPatch) -> None:
    """a taker ends the log at the first missing object and creates no seal"""

    async def create_at(self: Any, seq: int) -> Seal:
        return Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason)

    patch.setattr(ended._Taker, "_create_at", create_at)


def sealed_before_the_registration(patch: pytest.MonkeyPatch) -> None:
    """a gateway seals the sessions that it knows, and then registers its own"""
    honest = wal_history.register
    known: dict[Any, Any] = {}

    async def register(objects: ObjectStore, node_id: int, facts: Any, *, chance: random.Random) -> Any:
        before = await sessions.sessions(objects, chance=chance)
        session = await honest(objects, node_id, facts, chance=chance)
        known[session.nonce] = before
        return session

    async def seal_earlier(
        objects: ObjectStore, own: Any, reason: str, *, chance: random.Random
    ) -> list[tuple[Any, Any]]:
        return [
            (each, await ended.seal(objects, each.node_id, each.session, 1, reason, chance=chance))
            for each in known[own.nonce]
        ]

    patch.setattr(wal_history, "register", register)
    patch.setattr(wal_history, "seal_earlier", seal_earlier)


def taken_number_is_our_own(patch: pytest.MonkeyPatch) -> None:
    """a gateway whose registration finds the number taken uses the number nevertheless"""

    async def create(reads: Any, key: str, content: bytes) -> bytes:
        with contextlib.suppress(AlreadyThere, StoreFailed):
            await reads.objects.create(key, content)
        return content

    patch.setattr(sessions, "create_or_read", create)


def listing_believed(patch: pytest.MonkeyPatch) -> None:
    """a gateway takes a listing of the sessions for all sessions"""

    async def read_on(reads: Any, content: Any) -> None:
        end = await reads.answered(lambda: sessions._listed_end(reads.objects, content.end_seq))
        for number in range(content.end_seq, end):
            content.add(await reads.find(sessions.registration_key(number)))

    patch.setattr(sessions, "read_on", read_on)


class Fault(NamedTuple):
    """A mistake, what the checks say about it (a regular expression), and a seed that shows it."""

    plant: Plant
    words: str
    seed: int


FAULTS: Mapping[str, Fault] = {
    fault.plant.__name__: fault
    for fault in (
        Fault(acknowledged_before_contiguity, "sealed: ", 0),
        Fault(confirmed_out_of_order, "order: ", 0),
        Fault(already_there_is_success, "sealed: ", 0),
        Fault(already_there_is_a_fence, "fence: |liveness: ", 0),
        Fault(failed_create_is_success, "lost: |sealed: |order: ", 1),
        Fault(failed_create_is_given_up, "liveness: ", 1),
        Fault(any_object_is_our_own, "sealed: ", 0),
        Fault(seal_confirms, "sealed: ", 0),
        Fault(other_bytes_in_a_retry, "content: ", 1),
        Fault(another_place_in_a_retry, "sealed: |read: |fence: |liveness: |a gateway failed", 1),
        Fault(lease_from_the_last_attempt, "was in the store before it was sent", 1),
        Fault(own_seal_does_not_wait, "ends: ", 7),
        Fault(no_look_at_the_boundary_after_the_seal, "sealed: |lost: |ends: ", 762),
        Fault(seal_not_looked_at, "sealed: |ends: ", 27),
        Fault(end_without_a_seal, "sealed: |ends: ", 0),
        Fault(sealed_before_the_registration, "taken: ", 1),
        Fault(taken_number_is_our_own, "number: ", 0),
        Fault(listing_believed, "taken: ", 42),
    )
}
"""The faults by name."""
