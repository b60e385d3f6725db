"""What must hold in every history of sessions and takers."""

from __future__ import annotations

from collections.abc import Iterator

from seqgate.gateway.cluster.wal.wal_object import WalObject, decode, object_key
from tests.properties.wal_history import History, Life


def breaches(history: History) -> list[str]:
    """Return a sentence for each thing that does not hold."""
    found = list(history.errors)
    for life in history.lives:
        found += _of_life(history, life)
        found += _of_takers(history, life)
        found += life.sent_too_late
    if len({life.session.session for life in history.lives}) != len(history.lives):
        found.append("number: two gateways have the same session")
    return found


def _of_life(history: History, life: Life) -> Iterator[str]:
    number = life.session.session
    if life.confirmed != life.put[: len(life.confirmed)]:
        yield f"order: session {number} put {life.put} and confirmed {life.confirmed}"
    is_last = number == max(other.session.session for other in history.lives)
    if is_last and not life.is_over and len(life.confirmed) < len(life.put):
        yield f"liveness: {len(life.put)} objects were put into session {number}, {len(life.confirmed)} are confirmed"
    if not is_last and not life.is_over and life.put and not life.fenced_by:
        yield f"liveness: session {number} was sealed, and its gateway never noticed"
    if life.fenced_by and not any("sealed the session" in sentence for sentence in life.fenced_by):
        yield f"fence: nobody has sealed session {number}: {life.fenced_by}"
    for seq, put in enumerate(life.put):
        content = history.bucket.content(object_key(1, number, seq))
        if content is not None:
            stored = decode(content, f"session {number}, {seq}")
            if isinstance(stored, WalObject) and [bytes(data) for data in stored.data] != [b"%d" % put]:
                yield f"content: object {put} was put, and {stored.data} was stored"


def _of_takers(history: History, life: Life) -> Iterator[str]:
    number = life.session.session
    for other in history.lives:
        if other.session.session > number and other.put and not _took(history, other, life):
            yield f"taken: session {other.session.session} runs and has not read session {number}"
    ends = {taken.end_seq for taken in history.taken if taken.session == number}
    if life.claimed_end is not None:
        ends.add(life.claimed_end)
    if len(ends) > 1:
        yield f"ends: session {number} ended at different places: {sorted(ends)}"
    for taken in history.taken:
        if taken.session != number:
            continue
        for seq, read in taken.numbers.items():
            if seq >= len(life.put) or life.put[seq] != read:
                yield f"read: session {taken.by} read {read} at {seq} of session {number}"
        for seq, confirmed in enumerate(life.confirmed):
            if seq >= taken.end_seq:
                yield f"sealed: {confirmed} is confirmed at {seq}, behind the seal at {taken.end_seq}"
            elif seq >= taken.uploaded and seq not in taken.numbers:
                yield f"lost: {confirmed} is confirmed, and session {taken.by} has not read it"


def _took(history: History, taker: Life, life: Life) -> bool:
    return any(
        (taken.by, taken.session) == (taker.session.session, life.session.session) for taken in history.taken
    )
