"""The events of share groups: what members got and said about it, and the letters of the records that died.
Pure values, as those of `history.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tests.simulation.history import Event, TopicPartition


class Said(enum.IntEnum):
    """The types of acknowledgements, in Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


ENDS = frozenset({Said.ACCEPT, Said.REJECT})
"""After these acknowledgements nobody gets the record again."""


@dataclass(frozen=True)
class ShareGroupBegun(Event):
    """The configs of a share group are set, before it has a member. `delays_ms`: after the first, the second
    … delivery; the last one is repeated.
    """

    group: str
    delays_ms: tuple[int, ...]
    limit: int
    """The most deliveries of a record."""
    lock_ms: int
    copies: bool
    """Whether letters have the content of their records."""

    def delay_ms(self, first_count: int, count: int) -> int:
        """Return the least time from the end of a delivery to a later one, by their delivery counts."""
        delays = self.delays_ms
        return sum(delays[min(each, len(delays)) - 1] for each in range(first_count, count))


@dataclass(frozen=True)
class Delivered(Event):
    """A ShareFetch was answered: the member acquired these records, (offset, delivery count) each."""

    group: str
    member: str
    partition: TopicPartition
    records: tuple[tuple[int, int], ...]
    asked_at_ms: int


@dataclass(frozen=True)
class FoundNothing(Event):
    """A ShareFetch waited for its whole time, and the leader of the partition had nothing for the member."""

    group: str
    member: str
    partition: TopicPartition
    asked_at_ms: int


@dataclass(frozen=True)
class Saying(Event):
    """A member sends what it says about records, (offset, what) each. The outcome is not known yet."""

    group: str
    member: str
    partition: TopicPartition
    records: tuple[tuple[int, Said], ...]


@dataclass(frozen=True)
class SaidDurably(Event):
    """What a member said was answered with success; `asked_at_ms` is the time of its `Saying`."""

    group: str
    member: str
    partition: TopicPartition
    records: tuple[tuple[int, Said], ...]
    asked_at_ms: int


@dataclass(frozen=True)
class HolderGone(Event):
    """The share session of a member has ended, or may have: its records may have been released at any time
    since `since_ms`, and records that it never heard of may have been acquired for it until now.
    """

    group: str
    member: str
    since_ms: int


@dataclass(frozen=True)
class LettersRefused(Event):
    """A client asks that the dead-letter topic take no letters of this group."""

    group: str


@dataclass(frozen=True)
class LettersAllowed(Event):
    """The dead-letter topic takes letters again."""

    group: str


@dataclass(frozen=True)
class GroupDone(Event):
    """The group has done all records of all partitions: nobody gets another one, and no letter is missing."""

    group: str


@dataclass(frozen=True)
class LetterRead(Event):
    """A record of the dead-letter topic, read at the end. `headers` are those of the letter alone."""

    group: str
    offset: int
    headers: tuple[tuple[str, str], ...]
    key: bytes | None
    value: bytes | None
