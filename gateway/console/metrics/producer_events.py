"""Turns samples of producers' sequences, and verdicts, into events over time. Pure."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

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


@dataclass(slots=True)
class _Last:
    """A producer as it was last seen, and the time from which on its events are known."""

    since_ms: int
    epoch: int
    sequence: int


class ProducerEvents:
    """Compares each sample of producers with the one before. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Last] = OrderedDict()
        self._events: deque[tuple[int, str, Event]] = deque(maxlen=MOST_EVENTS)
        self._newest = 0
        self._all_since_ms: int | None = None
        """The time since which all producers are sampled."""

    def see(self, time_ms: int, rows: Iterable[ProducerRow], *, is_all: bool | None = None) -> None:
        """Note what producers wrote since they were last seen. `is_all`: these are all, or the sampler can't
        ask for all; None for the producers of a page.
        """
        with self._lock:
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
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def _seen(self, time_ms: int, row: ProducerRow) -> Event | None:
        """Note a row. Counting begins with the first row of a producer, unless the producer is new."""
        key = key_of(row.topic, row.partition, row.producer_id)
        now = (row.producer_epoch, row.last_sequence)
        last = self._known.get(key)
        first, records = -1, None
        if last is None:
            since_ms = time_ms if self._all_since_ms is None else self._all_since_ms
            self._known[key] = _Last(since_ms, *now)
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

    def since_ms(self, key: str) -> int | None:
        """Return the time from which on the events of a producer are known."""
        with self._lock:
            last = self._known.get(key)
            return self._all_since_ms if last is None else last.since_ms


def _is_older(now: tuple[int, int], last: _Last) -> bool:
    """Return whether a row was read before the last one: a page shows rows that are some seconds old."""
    if now[0] != last.epoch:
        return now[0] < last.epoch
    return (now[1] - last.sequence) % SEQUENCES > SEQUENCES // 2
