"""Turns samples of producers' sequences, and verdicts, into events over time. Their frames keep the events
over a restart of the console. Pure.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from seqgate.gateway.admin.producers import ProducerRow
from seqgate.gateway.admin.verdicts import VerdictRow

ACCEPTED: Final = "accepted"
DUPLICATE: Final = "duplicate"
REFUSED: Final = "refused"
SEQUENCES: Final = 1 << 31
"""Sequences run from 0 to 2**31 - 1, and begin again at 0."""
MOST_EVENTS: Final = 20_000
"""Events of all producers that are kept; the oldest go first."""
MOST_KNOWN: Final = 5_000
"""Producers whose last sequence is kept; the one that was seen longest ago goes first."""
KEPT_MS: Final = 20 * 60_000
"""The time that a strip may show, and that is kept over a restart of the console."""
MOST_GAPS: Final = 20
"""Times in which no console watched that are kept; the oldest go first."""


class Event(NamedTuple):
    """Batches of a producer with the same fate; `first` and `last` are sequences, -1 where nobody knows them.

    `records` is None for a producer whose earlier sequences nobody has seen. `offset` is that of the last
    accepted record or of a duplicate's original, -1 if unknown. `outcome` names the error of a refused batch.
    """

    time_ms: int
    kind: str
    first: int
    last: int
    records: int | None
    offset: int
    epoch: int
    outcome: str = ""


def key_of(topic: str, partition: int, producer_id: int) -> str:
    return f"{partition}/{producer_id}/{topic}"


def judged(row: VerdictRow) -> Event:
    is_duplicate = row.outcome == DUPLICATE
    known = row.base_sequence >= 0 and row.last_sequence >= 0
    return Event(
        time_ms=row.time_ms,
        kind=DUPLICATE if is_duplicate else REFUSED,
        first=row.base_sequence,
        last=row.last_sequence,
        records=(row.last_sequence - row.base_sequence) % SEQUENCES + 1 if known else None,
        offset=row.base_offset,
        epoch=row.producer_epoch,
        outcome="" if is_duplicate else row.outcome,
    )


class Watched(msgspec.Struct, array_like=True):
    """A producer as it was last seen, and the time from which on its events are known."""

    since_ms: int
    epoch: int
    sequence: int


class Strips(msgspec.Struct, tag="p", array_like=True):
    """A frame of producers in the history file. `known` has the producers that are new since the last frame,
    `events` their events, with the numbers of `ProducerEvents`. No console watched during `gaps`. All
    producers are sampled since `all_since_ms`.
    """

    time_ms: int
    all_since_ms: int | None
    known: dict[str, Watched]
    events: list[tuple[int, str, Event]]
    gaps: list[tuple[int, int]]


class ProducerEvents:
    """Compares each sample of producers with the one before. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Forget all, as for the producers of another cluster."""
        with self._lock:
            self._known: OrderedDict[str, Watched] = OrderedDict()
            self._events: deque[tuple[int, str, Event]] = deque(maxlen=MOST_EVENTS)
            self._gaps: deque[tuple[int, int]] = deque(maxlen=MOST_GAPS)
            self._newest = 0
            self._all_since_ms: int | None = None
            """The time since which all producers are sampled."""
            self._restored_ms: int | None = None
            """The time of the last frame that was restored, until a sample follows."""
            self._new: OrderedDict[str, None] = OrderedDict()
            """The producers that no frame has yet."""
            self._written = 0
            """The number of the newest event that a frame has."""

    def see(self, time_ms: int, rows: Iterable[ProducerRow], *, is_all: bool | None = None) -> None:
        """Note what producers wrote since they were last seen. `is_all`: these are all, or the sampler can't
        ask for all; None for the producers of a page.
        """
        with self._lock:
            self._end_gap(time_ms)
            for row in rows:
                event = self._seen(time_ms, row)
                if event is not None:
                    self._newest = max(self._newest + 1, time_ms)
                    key = key_of(row.topic, row.partition, row.producer_id)
                    self._events.append((self._newest, key, event))
            if is_all is False:
                self._all_since_ms = None
            elif is_all and self._all_since_ms is None:
                self._all_since_ms = time_ms
            self._evict()

    def _evict(self) -> None:
        """Drop the producers beyond MOST_KNOWN that were seen longest ago."""
        while len(self._known) > MOST_KNOWN:
            self._new.pop(self._known.popitem(last=False)[0], None)

    def _end_gap(self, time_ms: int) -> None:
        """Note the time since the last sample that was restored. After a long one all is new again."""
        restored_ms, self._restored_ms = self._restored_ms, None
        if restored_ms is None or restored_ms >= time_ms:
            return
        if time_ms - restored_ms > KEPT_MS:
            self._known.clear()
            self._events.clear()
            self._all_since_ms = None
        self._gaps.append((restored_ms, time_ms))

    def _seen(self, time_ms: int, row: ProducerRow) -> Event | None:
        """Note a row. Counting begins with the first row of a producer, unless the producer is new."""
        key = key_of(row.topic, row.partition, row.producer_id)
        now = (row.producer_epoch, row.last_sequence)
        last = self._known.get(key)
        first, records = -1, None
        if last is None:
            since_ms = time_ms if self._all_since_ms is None else self._all_since_ms
            self._known[key] = Watched(since_ms, *now)
            self._new[key] = None
            if self._all_since_ms is None:
                return None
        else:
            self._known.move_to_end(key)
            if now == (last.epoch, last.sequence) or _is_older(now, last):
                return None
            if last.epoch == now[0]:
                first, records = (last.sequence + 1) % SEQUENCES, (now[1] - last.sequence) % SEQUENCES
            else:
                first, records = 0, now[1] + 1
            last.epoch, last.sequence = now
        if now[1] < 0:
            return None
        offset = -1 if row.last_offset is None else row.last_offset
        return Event(time_ms, ACCEPTED, first, now[1], records, offset, now[0])

    def after(self, number: int, keys: Collection[str]) -> tuple[int, dict[str, list[Event]]]:
        """Return the number of the newest event, and the events of producers after a number, oldest first.
        Numbers grow with each event, and are times in milliseconds or a little more.
        """
        found: dict[str, list[Event]] = {key: [] for key in keys}
        with self._lock:
            for at, key, event in self._events:
                if at > number and key in found:
                    found[key].append(event)
            return self._newest, found

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The times in which no console watched, between two that did."""
        with self._lock:
            return list(self._gaps)

    def frame(self, time_ms: int, kept_ms: int | None = None) -> Strips:
        """Return the producers and events since the last frame; with `kept_ms` all of that time, for a file
        that begins anew. The next frame leaves them out, so the caller must write this one.
        """
        with self._lock:
            after = self._written if kept_ms is None else time_ms - kept_ms
            keys = self._new if kept_ms is None else self._known
            frame = Strips(
                time_ms,
                self._all_since_ms,
                {key: msgspec.structs.replace(self._known[key]) for key in keys},
                [event for event in self._events if event[0] > after],
                [gap for gap in self._gaps if kept_ms is None or gap[1] > after],
            )
            self._new.clear()
            self._written = self._newest
            return frame

    def restore(self, frames: Iterable[Strips]) -> None:
        """Take what `frame` returned. Of a producer that a page has seen meanwhile, the frames know more."""
        with self._lock:
            seen, happened = self._known, self._events
            self._known, self._events = OrderedDict(), deque(maxlen=MOST_EVENTS)
            for frame in frames:
                self._all_since_ms = frame.all_since_ms
                self._gaps = deque(frame.gaps, MOST_GAPS)
                self._restored_ms = frame.time_ms
                self._known.update(frame.known)
                for number, key, event in frame.events:
                    self._newest = self._written = number
                    self._events.append((number, key, event))
                    if key in self._known:
                        self._known.move_to_end(key)
                        self._known[key].epoch, self._known[key].sequence = event.epoch, event.last
            self._events.extend(each for each in happened if each[1] not in self._known)
            self._newest = max([self._newest, *(number for number, _, _ in self._events)])
            self._new = OrderedDict.fromkeys(key for key in seen if key not in self._known)
            self._known.update((key, seen[key]) for key in self._new)
            self._evict()

    def since_ms(self, key: str) -> int | None:
        """Return the time from which on the events of a producer are known."""
        with self._lock:
            last = self._known.get(key)
            return self._all_since_ms if last is None else last.since_ms


def _is_older(now: tuple[int, int], last: Watched) -> bool:
    """Return whether a row was read before the last one: a page shows rows that are some seconds old."""
    if now[0] != last.epoch:
        return now[0] < last.epoch
    return (now[1] - last.sequence) % SEQUENCES > SEQUENCES // 2
