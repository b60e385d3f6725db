"""A partition as one share group reads it: which records are acquired, by which member, and which are done.

    acquire      available ──► acquired, until its lock times out
    accept       acquired ──► acknowledged
    release      acquired ──► available, or archived after too many deliveries; so does a lock that times out.
                 With a retry backoff the record is available only after the delay of its delivery count
    reject       acquired ──► archived
    renew        restarts the lock
    bury         acquired ──► archiving ──► archived, in place of the latter, where the group has a topic for
                 dead letters: a record is archiving until its letter is written

All offsets before `start_offset` are done; it moves over done offsets. Offsets from `end_offset` on were
never handed out. With delayed records, records that are not due are skipped and stay available. Later records
are then handed out first. With these, and with a retry backoff, the limit of locks counts the offsets handed
out and not done, wherever they are.

Dead letters are written in rounds, one batch each, and a round belongs to the stored state: its number, and
which offsets it has. So after a crash the same round is written again, as the same batch of the same
producer, and the log of the dead-letter topic recognizes a duplicate. The next round begins with the change
that ends the one before. `letters.py` has what a letter says, `records.py` how the state is stored. Source:
Kafka's `SharePartition`, KIP-932, KIP-1191 (dead letters), KIP-1222 (renew).
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

import msgspec

from seqgate.gateway.coordinator.deadlines import NEVER, moved

LETTERS_PER_ROUND: Final = 500
"""Dead letters written with one batch; the rest go with the next one."""


class AcknowledgeType(enum.IntEnum):
    """The acknowledgement of a member for an offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class InvalidRecordState(Exception):
    """A member acknowledges an offset that it has not acquired."""


class NeverAcquired(Exception):
    """A member acknowledges an offset that nobody has acquired yet."""


class ShareLimits(msgspec.Struct, frozen=True):
    """The limits of a share partition: the settings `group.share.*` in `docs/configuration.md`."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    may_renew: bool = True
    retry_backoff_ms: tuple[int, ...] = ()
    """The delays after the first, the second … delivery; the last one is repeated. Empty for none."""
    has_dead_letters: bool = False
    """Whether the group has a dead-letter topic."""
    max_stretches: int = 20_000
    """Runs of offsets kept; with so many, no offsets are handed out for the first time."""


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of offsets, both inclusive: one type for all, or one type for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class SharePartition:
    """The delivery state of one partition in one share group."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.state_epoch = 0
        """Rises when the group begins anew at another offset."""
        self.leader_epoch = 0
        """The newest leader epoch of the partition in which its leader used this state."""
        self.runs = RunList()
        self.letter_round = 0
        """The number of the newest round of dead letters; 0 before the first one."""
        self.letters_since_ms = 0
        """When the first round began. It tells this state from one of a deleted group of the same name."""
        self.is_sending = False
        """Whether the newest round is not over."""
        self._has_more_letters = False
        """Whether records may wait for a later round."""
        self.waits = False
        """Whether released records may wait for the end of their delay."""
        self._nothing_before = 0, 0
        """(offset, mark): no offset below can be acquired unless a delayed record came due after the mark."""
        self._delays: DelayedOffsets | None = None

    @property
    def end_offset(self) -> int:
        """The offset before which every offset was handed out at least once, or passed over."""
        return self.runs.end_offset or self.start_offset

    def next_offset(self, delays: DelayedOffsets | None = None) -> int:
        """Return the first offset that can be acquired: a fetch starts there."""
        if delays is None:
            return self._first_available(None, self.start_offset)
        known, mark = self._nothing_before if delays is self._delays else (0, 0)
        released, now = delays.released_since(mark)
        offset = self._first_available(delays, max(self.start_offset, min(known, released)))
        self._nothing_before, self._delays = (offset, now), delays
        return offset

    def _first_available(self, delays: DelayedOffsets | None, from_offset: int) -> int:
        for run in self.runs.starting_at(from_offset):
            if not run.is_available:
                continue
            offset = max(run.first_offset, from_offset)
            if delays is not None:
                offset = delays.first_due(offset)
            if offset <= run.last_offset:
                return offset
        offset = max(self.end_offset, from_offset)
        return offset if delays is None else delays.first_due(offset)

    def _given_out(self) -> int:
        return sum(len(run) for run in self.runs if run.delivery_count and run.state not in DONE)

    # --- acquiring

    def acquire(
        self,
        member_id: str,
        batches: Sequence[tuple[int, int]],
        max_records: int,
        limits: ShareLimits,
        now_ms: int,
        *,
        is_strict: bool = False,
        batch_size: int = NEVER,
        delays: DelayedOffsets | None = None,
        read_from: int = 0,
    ) -> list[Acquired]:
        """Hand out to a member the available offsets of these batches of the log, (base_offset, last_offset)
        in order.

        The batches are all that the log has from `next_offset` (or from `read_from` if that is higher) to the
        last batch: offsets between them are not in the log. With `delays`, only records that are due are
        handed out. The call stops after the batch that reaches `max_records`; with `is_strict` it stops at
        exactly that number. Offsets handed out for the first time are returned in runs that end with the
        batch of the log that makes them `batch_size` long.
        """
        acquired: list[Acquired] = []
        first_new = self.end_offset
        left = max_records
        position = max(self.next_offset(delays), read_from)
        room = Room(
            limits.max_record_locks,
            delays,
            read_from,
            given_out=None if delays is None and not limits.retry_backoff_ms else self._given_out(),
            is_full=len(self.runs) >= limits.max_stretches,
        )
        for base_offset, last_offset in batches:
            if left <= 0:
                break
            self._archive_gap(position, base_offset - 1)
            position = max(position, last_offset + 1)
            for first, last in due_parts(delays, max(base_offset, self.start_offset), last_offset):
                for run in self._available(first, last, room, left if is_strict else None):
                    run.state = DeliveryState.ACQUIRED
                    run.delivery_count += 1
                    run.member_id = member_id
                    run.deadline_ms = now_ms + limits.lock_duration_ms
                    acquired.append(Acquired(run.first_offset, run.last_offset, run.delivery_count))
                    left -= len(run)
        return joined(acquired, first_new, batch_size)

    def _archive_gap(self, first_offset: int, last_offset: int) -> None:
        """Archive available offsets that the log lacks. A restart forgets which offsets were missing."""
        last_offset = min(last_offset, self.end_offset - 1)
        if first_offset > last_offset:
            return
        for run in self.runs.within(first_offset, last_offset):
            if run.state is DeliveryState.AVAILABLE:
                _end(run, DeliveryState.ARCHIVED)

    def _available(self, first_offset: int, last_offset: int, room: Room, most: int | None) -> list[Run]:
        """Return the runs between the two offsets that can be acquired, with at most `most` offsets."""
        found: list[Run] = []
        end_offset = self.end_offset
        if first_offset < end_offset:
            for run in self.runs.within(first_offset, min(last_offset, end_offset - 1)):
                allowed = room.for_known(run) if run.is_available else 0
                allowed = allowed if most is None else min(allowed, most)
                if not allowed:
                    continue
                known = self.runs.within(run.first_offset, run.first_offset + allowed - 1)[0]
                room.take(known)
                most = None if most is None else most - allowed
                found.append(known)
        new_first = max(first_offset, end_offset)
        locks = room.for_new(end_offset - self.start_offset)
        new_last = min(last_offset, new_first + (locks if most is None else min(locks, most)) - 1)
        if new_first <= new_last:
            self._pass_over(new_first, room)
            run = Run(new_first, new_last, DeliveryState.AVAILABLE)
            self.runs.append(run)
            room.take(run)
            found.append(run)
            last_known = min(last_offset, new_first + locks - 1)
            if new_last < last_known:
                # the later offsets of the batch become available, too
                self.runs.append(Run(new_last + 1, last_known, DeliveryState.AVAILABLE))
        return found

    def _pass_over(self, new_first: int, room: Room) -> None:
        """Extend the runs up to `new_first`. Offsets that are not due, or were not read, become available;
        offsets missing in the log become archived.
        """
        unread_end = min(max(self.end_offset, room.read_from), new_first)
        if self.end_offset < unread_end:
            self.runs.append(Run(self.end_offset, unread_end - 1, DeliveryState.AVAILABLE))
        for first, last in () if room.delays is None else room.delays.waiting(self.end_offset, new_first - 1):
            if self.end_offset < first:
                self.runs.append(Run(self.end_offset, first - 1, DeliveryState.ARCHIVED))
            self.runs.append(Run(first, last, DeliveryState.AVAILABLE))
        if self.end_offset < new_first:
            self.runs.append(Run(self.end_offset, new_first - 1, DeliveryState.ARCHIVED))

    # --- acknowledging

    def acknowledge(
        self, member_id: str, said: Sequence[Acknowledgement], limits: ShareLimits, now_ms: int
    ) -> list[StateBatch]:
        """Apply a member's acknowledgements, all or none; return the changes that must be stored. Raises
        InvalidRecordState, NeverAcquired.
        """
        end_offset = None
        for acknowledgement in said:
            if end_offset is not None and acknowledgement.first_offset < end_offset:
                raise InvalidRecordState(
                    f"offset {acknowledgement.first_offset} is acknowledged twice in one request"
                )
            end_offset = acknowledgement.last_offset + 1
            self._check(member_id, acknowledgement)
            if not limits.may_renew and AcknowledgeType.RENEW in acknowledgement.types:
                raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
        changed: list[StateBatch] = []
        for first_offset, last_offset, types in said:
            if len(types) == 1:
                changed += self._apply(first_offset, last_offset, types[0], limits, now_ms)
                continue
            for number, kind in enumerate(types):
                offset = first_offset + number
                changed += self._apply(offset, offset, kind, limits, now_ms)
        return self._advance_start(changed, now_ms)

    def _check(self, member_id: str, said: Acknowledgement) -> None:
        first_offset = max(said.first_offset, self.start_offset)
        if said.last_offset < first_offset:
            return
        if not self.runs.end_offset and said.first_offset >= self.start_offset:
            raise InvalidRecordState(
                f"offset {said.first_offset} is not acquired: the group has acquired no offset"
            )
        if said.last_offset >= self.end_offset:
            raise NeverAcquired(f"offset {said.last_offset} was never acquired")
        for run in self.runs.overlapping(first_offset, said.last_offset):
            if run.state is not DeliveryState.ACQUIRED or run.member_id != member_id:
                raise InvalidRecordState(f"offset {run.first_offset} is not acquired by this member")

    def _apply(
        self, first_offset: int, last_offset: int, kind: int, limits: ShareLimits, now_ms: int
    ) -> list[StateBatch]:
        first_offset = max(first_offset, self.start_offset)
        if last_offset < first_offset:
            return []
        changed = []
        for run in self.runs.within(first_offset, last_offset):
            if kind == AcknowledgeType.RENEW:
                run.deadline_ms = now_ms + limits.lock_duration_ms
                continue
            if kind == AcknowledgeType.ACCEPT:
                _end(run, DeliveryState.ACKNOWLEDGED)
            elif kind == AcknowledgeType.RELEASE:
                self._release(run, limits, now_ms)
            elif kind == AcknowledgeType.REJECT:
                self._bury(run, limits, is_rejected=True)
            else:
                _end(run, DeliveryState.ARCHIVED)
            changed.append(run.stored())
        return changed

    def release(self, member_id: str, limits: ShareLimits, now_ms: int) -> list[StateBatch]:
        """Release all that a member has acquired; return the changes that must be stored."""
        return self._release_those(
            [run for run in self.runs if run.state is DeliveryState.ACQUIRED and run.member_id == member_id],
            limits,
            now_ms,
        )

    def expire(self, limits: ShareLimits, now_ms: int) -> list[StateBatch]:
        """Release the runs whose lock timed out, and make those available whose delay is over; return the
        changes that must be stored.
        """
        due = [run for run in self.runs if run.deadline_ms <= now_ms]
        for run in due:
            if run.state is DeliveryState.AVAILABLE:
                self._make_available(run, NEVER)
        self.waits = self.waits and any(run.is_waiting for run in self.runs)
        locked = [run for run in due if run.state is DeliveryState.ACQUIRED]
        return self._release_those(locked, limits, now_ms) if locked else []

    def _release_those(self, runs: list[Run], limits: ShareLimits, now_ms: int) -> list[StateBatch]:
        for run in runs:
            self._release(run, limits, now_ms)
        return self._advance_start([run.stored() for run in runs], now_ms)

    def _release(self, run: Run, limits: ShareLimits, now_ms: int) -> None:
        if run.is_skipped or run.delivery_count >= limits.delivery_count_limit:
            self._bury(run, limits, is_rejected=False)
            return
        delays = limits.retry_backoff_ms
        delay_ms = delays[min(run.delivery_count, len(delays)) - 1] if delays else 0
        due_ms = -(-(now_ms + delay_ms) // RETRY_STEP_MS) * RETRY_STEP_MS
        self._make_available(run, due_ms if delay_ms else NEVER)

    def _make_available(self, run: Run, due_ms: int) -> None:
        _end(run, DeliveryState.AVAILABLE)
        run.deadline_ms = due_ms
        self.waits = self.waits or due_ms != NEVER
        known, mark = self._nothing_before
        self._nothing_before = min(known, run.first_offset), mark

    def clock_was_set(self, by_ms: int) -> None:
        """Move all deadlines by the change of the clock, so that every lock keeps its time left."""
        for run in self.runs:
            run.deadline_ms = moved(run.deadline_ms, by_ms)

    def next_deadline_ms(self) -> int:
        """Return the earliest time at which a lock times out or a delay is over: `expire` must run then."""
        return min((run.deadline_ms for run in self.runs), default=NEVER)

    def _advance_start(
        self, changed: list[StateBatch], now_ms: int, letters: int = LETTERS_PER_ROUND
    ) -> list[StateBatch]:
        """Move the start offset over done offsets, and begin a round of up to `letters` dead letters if there
        are any and no round is under way; return the changes at or after the start offset.
        """
        self._pass_done()
        self.runs.join_alike()
        kept = [batch for batch in changed if batch.last_offset >= self.start_offset]
        if self._has_more_letters and not self.is_sending:
            kept += self._begin_round(letters, now_ms)
        return kept

    def _pass_done(self) -> None:
        """Move the start offset over done offsets."""
        self.start_offset = self.runs.pop_done() or self.start_offset

    def log_starts_at(self, offset: int) -> bool:
        """Drop offsets that were deleted from the log; return whether that changes anything. Call `move_to`
        where there may be dead letters.
        """
        if offset <= self.start_offset:
            return False
        self.runs.drop_before(offset)
        self.start_offset = offset
        self._pass_done()
        return True

    def move_to(self, offset: int) -> list[StateBatch]:
        """Move the start offset forward; return the changes of batches. A record whose dead letter is not
        written stays, and so do those that members hold behind it: the start offset follows later. What
        members hold is not delivered again, as in Kafka below its start offset.
        """
        is_archiving = (run.state is DeliveryState.ARCHIVING for run in self.runs)
        if not (self.is_sending or self._has_more_letters) or not any(is_archiving):
            self.log_starts_at(offset)
            return []
        changed = []
        if self.end_offset < offset:
            self.runs.append(Run(self.end_offset, offset - 1, DeliveryState.AVAILABLE))
        for run in self.runs.within(self.start_offset, offset - 1):
            if run.state is DeliveryState.AVAILABLE:
                _end(run, DeliveryState.ARCHIVED)
                changed.append(run.stored())
            elif run.state is DeliveryState.ACQUIRED:
                run.is_skipped = True
                changed.append(run.stored())
        self._pass_done()
        return [batch for batch in changed if batch.last_offset >= self.start_offset]

    # --- dead letters

    def _bury(self, run: Run, limits: ShareLimits, *, is_rejected: bool) -> None:
        """Archive a record, after its dead letter if the group has a topic for dead letters."""
        if run.is_skipped or not limits.has_dead_letters:
            _end(run, DeliveryState.ARCHIVED)
            return
        _end(run, DeliveryState.ARCHIVING)
        run.is_rejected = is_rejected
        self._has_more_letters = True

    def letters(self) -> list[Letter]:
        """Return the records of the present round, ascending; none when no round is under way."""
        return [
            Letter(run.first_offset, run.last_offset, run.delivery_count, run.is_rejected)
            for run in (self.runs if self.is_sending else ())
            if run.is_sending
        ]

    def _begin_round(self, most: int, now_ms: int) -> list[StateBatch]:
        """Choose the first `most` records for the next round; return the changes that must be stored."""
        chosen: list[Run] = []
        self._has_more_letters = False
        for run in self.runs:
            if run.state is not DeliveryState.ARCHIVING:
                continue
            if not most:
                self._has_more_letters = True
                break
            size = min(most, len(run))
            self._has_more_letters |= size < len(run)
            chosen += self.runs.within(run.first_offset, run.first_offset + size - 1)
            most -= size
        if not chosen:
            return []
        for run in chosen:
            run.is_sending = True
        self.is_sending = True
        self.letter_round += 1
        self.letters_since_ms = self.letters_since_ms or now_ms
        return [*(run.stored() for run in chosen), self._round_stored()]

    def _round_stored(self) -> StateBatch:
        """Return the round as the log stores it, among the batches, in a form that every batch has."""
        return StateBatch(self.letter_round, max(self.letter_round, self.letters_since_ms), LETTER_ROUND, 0)

    def end_round(
        self, number: int, since_ms: int, now_ms: int, most: int = LETTERS_PER_ROUND
    ) -> list[StateBatch]:
        """Archive the records of a round, whose letters are written; return the changes that must be stored.
        The next round has up to `most` letters. A round that is not under way changes nothing, nor does one
        of a state that began anew meanwhile.
        """
        changed = self._end_sending(number, since_ms, DeliveryState.ARCHIVED)
        return self._advance_start(changed, now_ms, most) if changed else []

    def split_round(self, number: int, since_ms: int, now_ms: int) -> list[StateBatch]:
        """Put half of a round off to the next one, because its letters don't fit a batch; return the changes
        that must be stored. Nothing of the round may be in the dead-letter topic.
        """
        most = sum(letter.last_offset - letter.first_offset + 1 for letter in self.letters()) // 2
        changed = self._end_sending(number, since_ms, DeliveryState.ARCHIVING)
        return changed + self._begin_round(max(1, most), now_ms) if changed else []

    def _end_sending(self, number: int, since_ms: int, state: DeliveryState) -> list[StateBatch]:
        if (number, since_ms) != (self.letter_round, self.letters_since_ms) or not self.is_sending:
            return []
        sent = [run for run in self.runs if run.is_sending]
        for run in sent:
            run.state, run.is_sending = state, False
            run.is_rejected = run.is_rejected and state is DeliveryState.ARCHIVING
        self.is_sending = False
        return [run.stored() for run in sent]

    def undone_before(self, offset: int) -> int:
        """Return how many offsets from the start offset up to `offset` (exclusive) are not done."""
        done = sum(
            min(run.last_offset + 1, offset) - run.first_offset
            for run in self.runs
            if run.state in DONE and run.first_offset < offset
        )
        return max(0, offset - self.start_offset - done)

    def forget_members(self) -> None:
        """Make all acquired records available, as after a restart: another gateway leads now."""
        batches = self.stored_batches()
        self.runs = RunList()
        self._nothing_before = 0, 0
        self.restore(self.start_offset, batches)

    # --- stored records

    def stored_batches(self) -> list[StateBatch]:
        """Return all state that must be stored in addition to the start offset."""
        batches: list[StateBatch] = []
        for run in self.runs:
            batch = run.stored()
            if batch.state == DeliveryState.AVAILABLE and not batch.delivery_count:
                continue
            batches.append(batch)
        if self.letter_round:
            batches.append(self._round_stored())
        return batches

    def restore(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        """Replay a stored change: a new start offset, and new states of some offsets."""
        for batch in batches:
            if batch.state == LETTER_ROUND:
                self.letter_round, self.letters_since_ms = batch.first_offset, batch.last_offset
                continue
            if batch.last_offset < start_offset:
                continue
            end_offset = self.end_offset
            if batch.first_offset > end_offset:
                self.runs.append(Run(end_offset, batch.first_offset - 1, DeliveryState.AVAILABLE))
            if batch.last_offset >= self.end_offset:
                self.runs.append(Run(self.end_offset, batch.last_offset, DeliveryState.AVAILABLE))
            for run in self.runs.within(max(batch.first_offset, self.start_offset), batch.last_offset):
                run.take(batch)
        if start_offset > self.start_offset:
            if start_offset >= self.end_offset:
                self.runs = RunList()
            else:
                self.runs.drop_before(start_offset)
            self.start_offset = start_offset
        self.runs.join_alike()
        archiving = [run for run in self.runs if run.state is DeliveryState.ARCHIVING]
        self.is_sending = any(run.is_sending for run in archiving)
        self._has_more_letters = not all(run.is_sending for run in archiving)
        self.waits = any(run.is_waiting for run in self.runs)
        self._delays = None


def _end(run: Run, state: DeliveryState) -> None:
    """Leave the run to no member, at no time."""
    run.state, run.is_skipped = state, False
    run.member_id, run.deadline_ms = "", NEVER


# Delayed records as a share partition sees them, and the number of offsets that may be handed out.


class DelayedOffsets(Protocol):
    """The offsets of records that are not due yet; all other offsets may be handed out."""

    def first_due(self, offset: int) -> int:
        """Return the first offset from `offset` on that is due."""
        ...

    def released_since(self, mark: int) -> tuple[int, int]:
        """Return (lowest offset, mark): the lowest offset that has come due since `mark`, and the mark for
        the next call.

        The first call passes mark 0. The offset may be too low, never too high.
        """
        ...

    def waiting(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets between the two that are not due, ascending and inclusive."""
        ...


def due_parts(
    delays: DelayedOffsets | None, first_offset: int, last_offset: int
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of due offsets (inclusive) between two offsets."""
    position = first_offset
    for first, last in () if delays is None else delays.waiting(first_offset, last_offset):
        if position < first:
            yield position, first - 1
        position = last + 1
    if position <= last_offset:
        yield position, last_offset


class Room:
    """The number of offsets that may still be handed out for the first time.

    Without delays the limit is the distance from the first offset that is not done to the last one handed
    out. With delayed records, or a retry backoff, one record that waits would hold up all others behind it,
    so the limit is the number of offsets handed out and not done.
    """

    def __init__(
        self,
        max_record_locks: int,
        delays: DelayedOffsets | None,
        read_from: int,
        *,
        given_out: int | None,
        is_full: bool,
    ) -> None:
        """Start with `given_out` offsets, or with None to limit the distance; an `is_full` share partition
        hands out nothing beyond its end.
        """
        self.delays = delays
        self.read_from = read_from
        """The log was read from this offset on; earlier offsets were not due when they were passed over."""
        self._locks = max_record_locks
        self._counts = given_out is not None
        self._left = max(0, max_record_locks - (given_out or 0))
        self._is_full = is_full

    def for_known(self, run: Run) -> int:
        """Return how many offsets of an available run may be handed out."""
        if not self._counts or run.delivery_count:
            return len(run)
        return min(len(run), self._left)

    def for_new(self, distance: int) -> int:
        """Return how many new offsets members may acquire; the partition spans `distance` offsets."""
        if not self._counts:
            return self._locks - distance
        return 0 if self._is_full else self._left

    def take(self, run: Run) -> None:
        """Count a run of offsets that a member acquires."""
        if not run.delivery_count:
            self._left -= len(run)


# The ranges of offsets that a share group hands out to a member.


class Acquired(NamedTuple):
    """A range of offsets (inclusive) that a member gets; `delivery_count` includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


def len_of(acquired: Acquired) -> int:
    return acquired.last_offset - acquired.first_offset + 1


def joined(acquired: list[Acquired], first_new: int, batch_size: int) -> list[Acquired]:
    """Join neighbours with the same delivery count; those handed out first only up to `batch_size`."""
    found: list[Acquired] = []
    for one in acquired:
        previous = found[-1] if found else None
        if (
            previous is not None
            and previous.delivery_count == one.delivery_count
            and previous.last_offset + 1 == one.first_offset
            and one.first_offset != first_new
            and (one.first_offset < first_new or len_of(previous) < batch_size)
        ):
            found[-1] = found[-1]._replace(last_offset=one.last_offset)
        else:
            found.append(one)
    return found


# Runs of neighbouring offsets in the same state of delivery.


class DeliveryState(enum.IntEnum):
    """The states of delivery; the numbers are those that Kafka stores."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Rejected, or given up after too many deliveries; the dead letter is not written yet."""
    ARCHIVED = 4
    """Rejected, given up after too many deliveries, or missing in the log."""


DONE: Final = frozenset((DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))
LETTER_ROUND: Final = 5
"""The state of a stored batch that is none: its offsets are the number of the newest round of dead letters,
and the time (ms) at which the first round began.
"""
RETRY_STEP_MS: Final = 10
"""Delays end at multiples of this time (ms), never early, so that many records come due at once."""
_REJECTED: Final = 1 << 14
_SENDING: Final = 1 << 13
_COUNT: Final = _SENDING - 1
"""The bits of the stored delivery count of an archiving record: why it died, whether it is in the newest
round, and the number of its deliveries.
"""


class Letter(NamedTuple):
    """Neighbouring records that died for the same reason; both offsets are inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool


class StateBatch(NamedTuple):
    """A run as the log stores it; `last_offset` is inclusive."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    due_ms: int = NEVER
    """When an available record may be acquired again, if that has to wait."""


class Run(msgspec.Struct):
    """The offsets `first_offset` to `last_offset`, both inclusive, with one state. The deadline (ms) of an
    acquired run is that of its lock; an available one waits until its deadline.
    """

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = NEVER
    is_rejected: bool = False
    """Whether a member rejected the archiving records; else they were delivered too often."""
    is_sending: bool = False
    """Whether the archiving records are in the newest round of dead letters."""
    is_skipped: bool = False
    """Whether the group has moved on over the acquired records: nobody gets them again."""

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def stored(self) -> StateBatch:
        """Return the run as the log stores it. An acquired run is stored as available, because after a crash
        no member has acquired it; one that was skipped is stored as archived.
        """
        if self.is_skipped:
            return StateBatch(
                self.first_offset, self.last_offset, DeliveryState.ARCHIVED, self.delivery_count
            )
        if self.state is DeliveryState.ACQUIRED:
            available = DeliveryState.AVAILABLE
            return StateBatch(self.first_offset, self.last_offset, available, self.delivery_count - 1)
        count = self.delivery_count
        if self.state is DeliveryState.ARCHIVING:
            count |= _REJECTED * self.is_rejected | _SENDING * self.is_sending
        return StateBatch(self.first_offset, self.last_offset, self.state, count, self.deadline_ms)

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the run."""
        return self.state is DeliveryState.AVAILABLE and self.deadline_ms == NEVER

    @property
    def is_waiting(self) -> bool:
        """Whether the run was released, and its delay is not over."""
        return self.state is DeliveryState.AVAILABLE and self.deadline_ms != NEVER

    def take(self, batch: StateBatch) -> None:
        """Replay a stored state of the run."""
        self.state, count = DeliveryState(batch.state), batch.delivery_count
        self.deadline_ms = batch.due_ms
        is_archiving = self.state is DeliveryState.ARCHIVING
        self.is_rejected = is_archiving and bool(count & _REJECTED)
        self.is_sending = is_archiving and bool(count & _SENDING)
        self.delivery_count = count & _COUNT if is_archiving else count

    def is_like(self, other: Run) -> bool:
        """Return whether two neighbouring runs can be joined."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.is_rejected is other.is_rejected
            and self.is_sending is other.is_sending
            and self.is_skipped is other.is_skipped
        )


class RunList:
    """Runs in ascending order without gaps between them."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def starting_at(self, offset: int) -> Iterator[Run]:
        """Return the runs from the one that holds `offset` on."""
        return islice(self._runs, self._index(offset), None)

    @property
    def end_offset(self) -> int | None:
        """The offset after the last run; None without any run."""
        return self._runs[-1].last_offset + 1 if self._runs else None

    def _index(self, offset: int) -> int:
        """Return the index of the run that holds the offset: the number of runs that end before it."""
        return bisect_left(self._runs, offset, key=attrgetter("last_offset"))

    def within(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs inside these offsets; runs that reach beyond either end are cut there first."""
        self._cut(first_offset)
        self._cut(last_offset + 1)
        return self._runs[self._index(first_offset) : self._index(last_offset + 1)]

    def overlapping(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs that hold any of these offsets."""
        start = self._index(first_offset)
        end = self._index(last_offset)
        return self._runs[start : end + 1] if start < len(self._runs) else []

    def _cut(self, offset: int) -> None:
        index = self._index(offset)
        if index == len(self._runs) or self._runs[index].first_offset >= offset:
            return
        run = self._runs[index]
        rest = msgspec.structs.replace(run, first_offset=offset)
        run.last_offset = offset - 1
        self._runs.insert(index + 1, rest)

    def append(self, run: Run) -> None:
        self._runs.append(run)

    def drop_before(self, offset: int) -> None:
        self._cut(offset)
        del self._runs[: self._index(offset)]

    def pop_done(self) -> int | None:
        """Remove the leading runs that are done; return the offset after them, None when there are none."""
        count = 0
        while count < len(self._runs) and self._runs[count].state in DONE:
            count += 1
        if not count:
            return None
        offset = self._runs[count - 1].last_offset + 1
        del self._runs[:count]
        return offset

    def join_alike(self) -> None:
        """Join neighbours in the same state to one run."""
        joined: list[Run] = []
        for run in self._runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last_offset = run.last_offset
            else:
                joined.append(run)
        self._runs = joined
