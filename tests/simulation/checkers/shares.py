"""Checks share groups by a naive model: each record has deliveries, what members said about them, and in the
end an acceptance or one letter.

A client does not know when the gateway did what it asked for: at the earliest when the request was sent, and
at the latest when its answer came. So a breach is what no time in between explains. A delivery ends when a
member says so, when the lock runs out, or when the member's session does; after a crash it has not happened,
unless what the member said about it was answered with success.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from tests.simulation.checkers.facts import Facts, place
from tests.simulation.events_of_clusters import NodeCrashed, NodeStarted
from tests.simulation.events_of_shares import (
    ENDS,
    Delivered,
    FoundNothing,
    GroupDone,
    HolderGone,
    LetterRead,
    LettersAllowed,
    LettersRefused,
    Said,
    SaidDurably,
    Saying,
    ShareGroupBegun,
)
from tests.simulation.history import GatewayCrashed, GatewayStarted, TopicPartition

ROUNDED_MS: Final = 2
"""Times of events are rounded, and so is the gateway's clock."""
LATE_MS: Final = 6_000
"""Time after the end of a connection in which the gateway may still carry out what was sent over it."""
STEP_MS: Final = 100
"""Time in which the gateway notices that a delay is over."""
REJECTED, TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


class _OfOneGroup(Protocol):
    @property
    def group(self) -> str: ...


OfGroup = TypeVar("OfGroup", bound=_OfOneGroup)


@dataclass
class Delivery:
    """A delivery of a record, and what the member said about it, if anything."""

    count: int
    member: str
    asked_at_ms: int
    at_ms: int
    word: Word | None = None


@dataclass
class Word:
    """A member's acknowledgement of a record. `at_ms` is the time of the successful answer, infinite without."""

    said: Said
    member: str
    asked_at_ms: int
    at_ms: float = math.inf

    @property
    def is_durable(self) -> bool:
        return self.at_ms < math.inf


@dataclass
class SharedRecord:
    """A record of a share group."""

    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def words(self) -> list[Word]:
        return [each.word for each in self.deliveries if each.word is not None]

    def durably(self, *said: Said) -> list[Word]:
        return [word for word in self.words if word.said in said and word.is_durable]


class SharedRecords:
    """The records of one share group, by partition and offset."""

    def __init__(self, facts: Facts, rules: ShareGroupBegun) -> None:
        self.rules = rules
        self.in_cluster = bool(facts.all(NodeStarted))
        self.records: dict[tuple[TopicPartition, int], SharedRecord] = defaultdict(SharedRecord)
        lives = (GatewayCrashed, GatewayStarted, NodeCrashed, NodeStarted)
        self.restarts = sorted(each.at_ms for kind in lives for each in facts.all(kind))
        self._gone: dict[str, list[HolderGone]] = defaultdict(list)
        for gone in _of(facts.all(HolderGone), rules):
            self._gone[gone.member].append(gone)
        self.gone_ms = sorted(gone.at_ms for gone in _of(facts.all(HolderGone), rules))
        held: dict[tuple[str, TopicPartition, int], Delivery] = {}
        for event in facts.history.events:
            if not isinstance(event, Delivered | Saying | SaidDurably) or event.group != rules.group:
                continue
            for offset, number in event.records:
                where = event.member, event.partition, offset
                if isinstance(event, Delivered):
                    held[where] = Delivery(number, event.member, event.asked_at_ms, event.at_ms)
                    self.records[event.partition, offset].deliveries.append(held[where])
                elif isinstance(event, Saying):
                    held[where].word = Word(Said(number), event.member, event.at_ms)
                elif (word := held[where].word) is not None and self._is_timely(held[where], event):
                    word.at_ms = event.at_ms

    def _is_timely(self, delivery: Delivery, answered: SaidDurably) -> bool:
        """Return whether what the member said came while it certainly had the record. What comes later, also
        because the network is slow, is answered with success too where the group is done with all records up
        to this one, as in Kafka.
        """
        return answered.at_ms <= delivery.asked_at_ms + self.rules.lock_ms

    def restarted_between(self, first_ms: float, last_ms: float) -> bool:
        """Return whether a gateway crashed or started."""
        index = bisect_left(self.restarts, first_ms)
        return index < len(self.restarts) and self.restarts[index] <= last_ms

    def earliest_end_ms(self, delivery: Delivery) -> float:
        """Return the earliest time at which a delivery may have ended."""
        word = delivery.word
        if word is not None and word.said is Said.RELEASE and word.is_durable:
            return word.asked_at_ms
        if self.in_cluster:
            return delivery.asked_at_ms  # the leader may have dropped its state at any time
        index = bisect_left(self.restarts, delivery.asked_at_ms)
        ends = [delivery.asked_at_ms + self.rules.lock_ms, *self.restarts[index : index + 1]]
        ends += [word.asked_at_ms] if word is not None else []
        ends += [
            max(gone.since_ms, delivery.asked_at_ms)
            for gone in self._gone[delivery.member]
            if gone.at_ms >= delivery.at_ms
        ]
        return min(ends)


def _of(events: Iterable[OfGroup], rules: ShareGroupBegun) -> Iterator[OfGroup]:
    return (event for event in events if event.group == rules.group)


def _groups(facts: Facts) -> list[SharedRecords]:
    return [SharedRecords(facts, rules) for rules in facts.all(ShareGroupBegun)]


def _name(group: SharedRecords, partition: TopicPartition, offset: int) -> str:
    return f"{place(partition, offset)} in {group.rules.group}"


def done_again(facts: Facts) -> list[str]:
    """Find records that a member got, or said the last word about, after another last word was durable."""
    breaches = []
    for group in _groups(facts):
        for (partition, offset), record in group.records.items():
            ends = record.durably(*ENDS)
            for end in ends:
                breaches += [
                    f"{each.at_ms} ms: {_name(group, partition, offset)} went to {each.member}, asked for at "
                    f"{each.asked_at_ms} ms, and {end.member} had its {end.said.name} answered at "
                    f"{end.at_ms} ms"
                    for each in record.deliveries
                    if each.asked_at_ms > end.at_ms
                ]
            if len(ends) > 1:
                told = ", ".join(f"{end.said.name} of {end.member} at {end.at_ms} ms" for end in ends)
                breaches.append(f"{_name(group, partition, offset)} was done twice: {told}")
    return breaches


def retried_early(facts: Facts) -> list[str]:
    """Find records that a member got before the delay of their delivery count was over."""
    breaches = []
    for group in _groups(facts):
        for (partition, offset), record in group.records.items():
            for later in record.deliveries:
                for before in record.deliveries:
                    if not _comes_before(group, before, later):
                        continue
                    delay_ms = group.rules.delay_ms(before.count, later.count)
                    end_ms = group.earliest_end_ms(before)
                    if later.at_ms + ROUNDED_MS < end_ms + delay_ms:
                        breaches.append(
                            f"{later.at_ms} ms: {_name(group, partition, offset)} went to {later.member} as "
                            f"delivery {later.count}; delivery {before.count} of {before.member} ended at "
                            f"{end_ms} ms or later, and {delay_ms} ms had to pass"
                        )
    return breaches


def _comes_before(group: SharedRecords, before: Delivery, later: Delivery) -> bool:
    if before.count >= later.count or before.asked_at_ms > later.at_ms:
        return False
    if group.in_cluster:
        return before.at_ms <= later.asked_at_ms
    return not group.restarted_between(later.asked_at_ms, later.at_ms)


def delivered_too_often(facts: Facts) -> list[str]:
    """Find deliveries beyond the limit of the group, and counts that don't rise."""
    breaches = []
    for group in _groups(facts):
        for (partition, offset), record in group.records.items():
            name = _name(group, partition, offset)
            breaches += [
                f"{each.at_ms} ms: {name} went to {each.member} as delivery {each.count} of at most "
                f"{group.rules.limit}"
                for each in record.deliveries
                if each.count > group.rules.limit
            ]
            for before in record.deliveries:
                word = before.word
                for later in record.deliveries:
                    if later.count > before.count or later is before:
                        continue
                    kept_ms = before.at_ms if word is None else word.at_ms
                    is_kept = (word is not None and word.is_durable) or not (
                        group.in_cluster or group.restarted_between(before.asked_at_ms, later.at_ms)
                    )
                    if is_kept and later.asked_at_ms > kept_ms:
                        breaches.append(
                            f"{later.at_ms} ms: {name} went to {later.member} as delivery {later.count}, and "
                            f"to {before.member} at {before.at_ms} ms as delivery {before.count}"
                        )
    return breaches


def letters(facts: Facts) -> list[str]:
    """Find records that were neither accepted nor have a letter, letters of accepted records, second letters,
    and letters that say something wrong.
    """
    breaches = []
    for group in _groups(facts):
        if not list(_of(facts.all(GroupDone), group.rules)):
            continue
        found: dict[tuple[TopicPartition, int], list[LetterRead]] = defaultdict(list)
        for letter in _of(facts.all(LetterRead), group.rules):
            said = dict(letter.headers)
            where = TopicPartition(
                said.get("__dlq.errors.topic", ""), int(said.get("__dlq.errors.partition", -1))
            )
            found[where, int(said.get("__dlq.errors.offset", -1))].append(letter)
        excused_until_ms = _letters_refused_until_ms(facts, group)
        for partition, reading in facts.uncommitted.items():
            for offset, value in reading.records:
                record = group.records[partition, offset]
                of_record = found.pop((partition, offset), [])
                told = _name(group, partition, offset)
                breaches += [
                    f"{told} {breach}"
                    for breach in _letters_of(facts, group, record, of_record, value, excused_until_ms)
                ]
        for (partition, offset), rest in found.items():
            breaches.append(f"{_name(group, partition, offset)} is no record, and has {len(rest)} letters")
    return breaches


def _letters_refused_until_ms(facts: Facts, group: SharedRecords) -> float:
    """Return until when the death of a record may leave no letter, because the topic took none."""
    if not list(_of(facts.all(LettersRefused), group.rules)):
        return -1
    return max((each.at_ms for each in _of(facts.all(LettersAllowed), group.rules)), default=math.inf)


def _letters_of(
    facts: Facts,
    group: SharedRecords,
    record: SharedRecord,
    found: list[LetterRead],
    value: bytes,
    excused_until_ms: float,
) -> Iterator[str]:
    if not record.deliveries:
        yield "was never delivered"
        return
    if len(found) > 1:
        yield f"has {len(found)} letters, at {', '.join(str(letter.offset) for letter in found)}"
    accepted = record.durably(Said.ACCEPT)
    if accepted and found:
        yield f"has a letter, and {accepted[0].member} accepted it at {accepted[0].at_ms} ms"
    rejected = record.durably(Said.REJECT)
    may_be_accepted = any(word.said is Said.ACCEPT for word in record.words) and not rejected
    is_excused = max(each.asked_at_ms for each in record.deliveries) <= excused_until_ms
    if not found and not may_be_accepted and not is_excused:
        yield f"has no letter, and nobody accepted it; it was delivered {len(record.deliveries)} times"
    for letter in found:
        yield from _wrong_in(facts, group, record, letter, value)


def _wrong_in(
    facts: Facts, group: SharedRecords, record: SharedRecord, letter: LetterRead, value: bytes
) -> Iterator[str]:
    said = dict(letter.headers)
    count, message = said.get("__dlq.errors.delivery.count"), said.get("__dlq.errors.message")
    if len(letter.headers) != 6 or said.get("__dlq.errors.group") != group.rules.group:
        yield f"has a letter with the headers {said}"
    counts = set()
    if message == TOO_OFTEN:
        counts = {str(group.rules.limit)}
    elif message == REJECTED:
        rejected = [each for each in record.deliveries if each.word and each.word.said is Said.REJECT]
        durably = [each for each in rejected if each.word and each.word.is_durable]
        counts = {str(each.count) for each in durably or rejected}
    if count not in counts:
        yield f"has a letter that says {message!r} after {count} deliveries, not after {sorted(counts)}"
    name = facts.name(value)
    key = None if name is None else facts.sent[name].key
    if group.rules.copies and (letter.key or b"", letter.value) != (key, value):
        yield f"has a letter with the content {letter.key!r}: {letter.value!r}"
    if not group.rules.copies and (letter.key is not None or letter.value is not None):
        yield f"has a letter with the content {letter.key!r}: {letter.value!r}, and the group copies none"


def held_up(facts: Facts) -> list[str]:
    """Find records that nobody had, and that a member did not get although it waited for records: new ones,
    and released ones whose delay was over.
    """
    breaches = []
    for group in _groups(facts):
        nothing: dict[TopicPartition, list[FoundNothing]] = defaultdict(list)
        for event in _of(facts.all(FoundNothing), group.rules):
            nothing[event.partition].append(event)
        for events in nothing.values():
            events.sort(key=lambda event: event.asked_at_ms)
        for free in _free(facts, group):
            events = nothing[free.partition]
            first = bisect_left(events, free.since_ms, key=lambda event: event.asked_at_ms)
            for event in events[first:]:
                if event.at_ms >= free.until_ms:
                    break
                if not _may_be_held(group, free, event):
                    breaches.append(
                        f"{event.at_ms} ms: {event.member} got nothing, asked for at {event.asked_at_ms} ms, "
                        f"and {_name(group, free.partition, free.offset)} {free.why}"
                    )
                    break
    return breaches


class _Free(NamedTuple):
    """A record that members could get from `since_ms` on, and that none got before `until_ms`, as far as they
    know. `left`: deliveries before the record dies.
    """

    partition: TopicPartition
    offset: int
    since_ms: float
    until_ms: float
    left: int
    why: str


def _free(facts: Facts, group: SharedRecords) -> Iterator[_Free]:
    limit = group.rules.limit
    for event in facts.acknowledged.values():
        record = group.records[event.partition, event.offset]
        until_ms = min((each.asked_at_ms for each in record.deliveries), default=math.inf)
        why = f"was there since {event.at_ms} ms"
        yield _Free(event.partition, event.offset, event.at_ms, until_ms, limit, why)
    for (partition, offset), record in group.records.items():
        for delivery in record.deliveries:
            word, left = delivery.word, limit - delivery.count
            if word is None or word.said is not Said.RELEASE or not word.is_durable or not left:
                continue
            due_ms = word.at_ms + group.rules.delay_ms(delivery.count, delivery.count + 1) + STEP_MS
            later = [each.asked_at_ms for each in record.deliveries if each.count > delivery.count]
            until_ms = min(later, default=math.inf)
            yield _Free(partition, offset, due_ms, until_ms, left, f"was released by {word.at_ms} ms")


def _may_be_held(group: SharedRecords, free: _Free, event: FoundNothing) -> bool:
    """Return whether a session that has ended may have had the record, or so many had it that it is dead."""
    rules, gone_ms = group.rules, group.gone_ms
    held_ms = rules.lock_ms + max(rules.delays_ms) + LATE_MS
    until = bisect_left(gone_ms, event.at_ms + LATE_MS)
    recently = until - bisect_left(gone_ms, event.asked_at_ms - held_ms)
    return recently > 0 or until - bisect_left(gone_ms, free.since_ms) >= free.left
