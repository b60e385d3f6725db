"""Offsets committed in transactions that are still open: they count when the transaction is committed.

    what happens                                    to a pending offset of the same group and partition
    its transaction is committed                    becomes the committed offset, unless superseded
    its transaction is aborted                      vanishes
    another commit that was written later counts    is superseded: it stays pending, and never counts
    the committed offset is deleted                 vanishes

Source: Kafka's `OffsetMetadataManager.replay`, `replayEndTransactionMarker` (KIP-98, KIP-447). Kafka compares the
offsets of the records in the log; here the order in which they came is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transactional import Pending


class HeldOffset(NamedTuple):
    """An offset as those who list them see it: whose it is, and whether it can't come to count any more."""

    producer_id: int
    producer_epoch: int
    record: OffsetCommitRecord
    is_superseded: bool


@dataclass(slots=True)
class _Held:
    pending: Pending
    superseded: bool = False


class PendingOffsets:
    """By group and (topic, partition), and there by producer id in the order they were written."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, dict[int, _Held]]] = {}
        self._producers: dict[int, set[tuple[str, TopicPartition]]] = {}

    @property
    def count(self) -> int:
        """How many are pending, some of them at the same place."""
        return sum(map(len, self._producers.values()))

    def hold(self, pending: Pending) -> None:
        """Keep an offset until its transaction ends."""
        record: OffsetCommitRecord = pending.record
        place = record.topic, record.partition
        holders = self._groups.setdefault(record.group_id, {}).setdefault(place, {})
        holders.pop(pending.producer_id, None)  # the newest is the last
        holders[pending.producer_id] = _Held(pending)
        self._producers.setdefault(pending.producer_id, set()).add((record.group_id, place))

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetCommitRecord]:
        """Give up what a producer has pending; returns what of it is committed."""
        committed = []
        for group_id, place in self._producers.pop(producer_id, ()):
            holders = self._groups[group_id][place]
            if is_commit and not holders[producer_id].superseded:
                committed.append(holders[producer_id].pending.record)
                for other, held in holders.items():
                    if other == producer_id:
                        break
                    held.superseded = True
            del holders[producer_id]
            self._drop_if_empty(group_id, place)
        return committed

    def supersede(self, group_id: str, place: TopicPartition) -> None:
        """A later commit counts already."""
        for held in self._groups.get(group_id, {}).get(place, {}).values():
            held.superseded = True

    def forget(self, group_id: str, place: TopicPartition) -> None:
        """The committed offset is deleted, and what is pending with it."""
        holders = self._groups.get(group_id, {}).get(place)
        if holders is None:
            return
        for producer_id in holders:
            self._producers[producer_id].discard((group_id, place))
            if not self._producers[producer_id]:
                del self._producers[producer_id]
        holders.clear()
        self._drop_if_empty(group_id, place)

    def _drop_if_empty(self, group_id: str, place: TopicPartition) -> None:
        places = self._groups[group_id]
        if not places[place]:
            del places[place]
        if not places:
            del self._groups[group_id]

    def groups(self) -> Iterator[str]:
        """The groups that have any."""
        yield from self._groups

    def places(self, group_id: str) -> Iterator[TopicPartition]:
        """Where a group has any."""
        yield from self._groups.get(group_id, ())

    def at(self, group_id: str, place: TopicPartition) -> list[Pending]:
        """What is pending at a place and may come to count, in the order it was written."""
        holders = self._groups.get(group_id, {}).get(place, {})
        return [held.pending for held in holders.values() if not held.superseded]

    def is_held(self, group_id: str, place: TopicPartition) -> bool:
        """Whether an open transaction has an offset here, so that what is committed may soon change."""
        return place in self._groups.get(group_id, {})

    def of_group(self, group_id: str) -> dict[TopicPartition, list[HeldOffset]]:
        """What is pending in a group, in the order it was written."""
        return {
            place: [_told(held) for held in holders.values()]
            for place, holders in self._groups.get(group_id, {}).items()
        }

    def of_producer(self, producer_id: int) -> list[HeldOffset]:
        """What the transaction of a producer holds, in no order."""
        places = self._producers.get(producer_id, ())
        return [_told(self._groups[group_id][place][producer_id]) for group_id, place in places]


def _told(held: _Held) -> HeldOffset:
    return HeldOffset(*held.pending, is_superseded=held.superseded)
