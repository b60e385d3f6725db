"""How many records each group was moved over unread, since the gateway started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.coordinator.places import TopicPartition
from gateway.quota.backlog import Limit, Move, Reader


@dataclass(slots=True)
class Skipped:
    """Records by what they were skipped for; `up_to` is the highest offset that the group was moved to."""

    records: dict[Limit, int] = field(default_factory=dict)
    up_to: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.records.values())


NOTHING = Skipped()


class SkippedRecords:
    """By group and partition, for as long as the group reads it.

    What a group skips twice, because a member went back and committed behind the move, counts once.
    """

    def __init__(self) -> None:
        self._skipped: dict[tuple[str, TopicPartition], Skipped] = {}

    def note(self, place: TopicPartition, move: Move, records: int) -> int:
        """Take account of a move over as many records; returns how many of them count."""
        skipped = self._skipped.setdefault((move.reader.group, place), Skipped())
        counted = max(0, min(records, move.to_offset - skipped.up_to))
        skipped.records[move.limit] = skipped.records.get(move.limit, 0) + counted
        skipped.up_to = max(skipped.up_to, move.to_offset)
        return counted

    def of(self, group: str, place: TopicPartition) -> Skipped:
        """What a group skipped in a partition."""
        return self._skipped.get((group, place), NOTHING)

    def keep_only(self, readers: Mapping[TopicPartition, Iterable[Reader]]) -> None:
        """Forget groups that no longer read."""
        if self._skipped:
            known = {(reader.group, place) for place, entries in readers.items() for reader in entries}
            self._skipped = {key: value for key, value in self._skipped.items() if key in known}
