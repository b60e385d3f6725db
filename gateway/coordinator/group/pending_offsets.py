"""The offsets committed in open transactions, which take effect when the transaction is committed.

    event                                         effect on a pending offset of the same group and partition
    its transaction is committed                  becomes the committed offset, unless superseded
    its transaction is aborted                    is dropped
    a commit written later takes effect           is superseded: stays pending, and never takes effect
    the committed offset is deleted               is dropped

Source: Kafka's `OffsetMetadataManager.replay`, `replayEndTransactionMarker` (KIP-98, KIP-447). Kafka compares the
offsets of the records in the log; this module keeps the order in which the records came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transactional import Pending


class HeldOffset(NamedTuple):
    """A pending offset as lists show it: its producer, and whether it is superseded."""

    producer_id: int
    producer_epoch: int
    record: OffsetCommitRecord
    is_superseded: bool


@dataclass(slots=True)
class _Held:
    pending: Pending
    superseded: bool = False


class PendingOffsets:
    """The pending offsets by group, (topic, partition) and producer id.

    Those of one place are in the order of writing.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, dict[int, _Held]]] = {}
        self._producers: dict[int, set[tuple[str, TopicPartition]]] = {}
        self.count = 0
        """The number of pending offsets; one place may have several."""

    def hold(self, pending: Pending) -> None:
        """Hold an offset until its transaction ends."""
        record: OffsetCommitRecord = pending.record
        place = record.topic, record.partition
        holders = self._groups.setdefault(record.group_id, {}).setdefault(place, {})
        holders.pop(pending.producer_id, None)  # the newest pending offset must be the last entry
        holders[pending.producer_id] = _Held(pending)
        places = self._producers.setdefault(pending.producer_id, set())
        self.count -= len(places)
        places.add((record.group_id, place))
        self.count += len(places)

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetCommitRecord]:
        """End a producer's transaction: drop its pending offsets, and return those that a commit makes valid."""
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
            self.count -= 1
            self._drop_if_empty(group_id, place)
        return committed

    def supersede(self, group_id: str, place: TopicPartition) -> None:
        """Mark the offsets of a place as superseded: a later commit has taken effect."""
        if self._groups:
            for held in self._groups.get(group_id, {}).get(place, {}).values():
                held.superseded = True

    def forget(self, group_id: str, place: TopicPartition) -> None:
        """Drop the offsets of a place, because the committed offset is deleted."""
        holders = self._groups.get(group_id, {}).get(place)
        if holders is None:
            return
        for producer_id in holders:
            self._producers[producer_id].remove((group_id, place))
            self.count -= 1
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
        """Yield the groups that have pending offsets."""
        yield from self._groups

    def places(self, group_id: str) -> Iterator[TopicPartition]:
        """Yield the partitions in which the group has pending offsets."""
        yield from self._groups.get(group_id, ())

    def at(self, group_id: str, place: TopicPartition) -> list[Pending]:
        """Return the pending offsets of a place that may take effect, in the order of writing."""
        holders = self._groups.get(group_id, {}).get(place, {})
        return [held.pending for held in holders.values() if not held.superseded]

    def is_held(self, group_id: str, place: TopicPartition) -> bool:
        """Return whether an open transaction has an offset at this place, so that the committed one may soon change."""
        return place in self._groups.get(group_id, {})

    def of_group(self, group_id: str) -> dict[TopicPartition, list[HeldOffset]]:
        """Return the pending offsets of a group, in the order of writing."""
        return {
            place: [_told(held) for held in holders.values()]
            for place, holders in self._groups.get(group_id, {}).items()
        }

    def of_producer(self, producer_id: int) -> list[HeldOffset]:
        """Return the pending offsets of a producer's transaction, in no order."""
        places = self._producers.get(producer_id, ())
        return [_told(self._groups[group_id][place][producer_id]) for group_id, place in places]


def _told(held: _Held) -> HeldOffset:
    return HeldOffset(*held.pending, is_superseded=held.superseded)
