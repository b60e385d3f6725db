"""Counts the unread records that each group has skipped since the gateway started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.coordinator.places import TopicPartition
from gateway.quota.backlog import Limit, Move, Reader


@dataclass(slots=True)
class Skipped:
    """Skipped records by the limit that skipped them; `up_to` is the highest offset to which the group was moved."""

    records: dict[Limit, int] = field(default_factory=dict)
    up_to: int = 0

    @property
    def total(self) -> int:
        """The number of skipped records, for all limits together."""
        return sum(self.records.values())


NOTHING = Skipped()


class SkippedRecords:
    """The skipped records by group and partition, for as long as the group reads the partition.

    A record that a group skips twice, because a member committed an offset behind the move, counts once.
    """

    def __init__(self) -> None:
        self._skipped: dict[tuple[str, TopicPartition], Skipped] = {}

    def note(self, place: TopicPartition, move: Move, records: int) -> int:
        """Add a move over `records` records; return how many of them were not counted before."""
        skipped = self._skipped.setdefault((move.reader.group, place), Skipped())
        counted = max(0, min(records, move.to_offset - skipped.up_to))
        skipped.records[move.limit] = skipped.records.get(move.limit, 0) + counted
        skipped.up_to = max(skipped.up_to, move.to_offset)
        return counted

    def of(self, group: str, place: TopicPartition) -> Skipped:
        """Return the records that a group skipped in a partition."""
        return self._skipped.get((group, place), NOTHING)

    def keep_only(self, readers: Mapping[TopicPartition, Iterable[Reader]]) -> None:
        """Drop the groups that no longer read a partition."""
        if self._skipped:
            known = {(reader.group, place) for place, entries in readers.items() for reader in entries}
            self._skipped = {key: value for key, value in self._skipped.items() if key in known}
