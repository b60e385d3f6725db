"""The share partitions whose state one partition of `__share_group_state` holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.coordinator.share.ranges import StateBatch
from gateway.coordinator.share.records import (
    NOT_BEGUN,
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
)
from gateway.coordinator.share.share_partition import SharePartition


class ShareStates:
    """The share partitions by key and by group; which member acquired a record is known here, but not stored."""

    def __init__(self) -> None:
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
        self.groups: dict[str, dict[SharePartitionKey, SharePartition]] = {}
        """The share partitions of each group."""

    def put(self, key: SharePartitionKey, partition: SharePartition) -> None:
        """Add a share partition, or replace the one with this key."""
        self.partitions[key] = self.groups.setdefault(key.group_id, {})[key] = partition

    def drop(self, key: SharePartitionKey) -> bool:
        """Drop a share partition; return whether there was one."""
        if self.partitions.pop(key, None) is None:
            return False
        of_group = self.groups[key.group_id]
        del of_group[key]
        if not of_group:
            del self.groups[key.group_id]
        return True

    def replay(self, record: ShareRecord, now_ms: int) -> None:
        """Replay a record while the log is loaded."""
        del now_ms  # no stored state depends on the time
        if not isinstance(record, ShareSnapshot):
            found = self.partitions.get(record.key)
            if found is not None:
                _restore(found, record.start_offset, record.batches)
                found.leader_epoch = max(found.leader_epoch, record.leader_epoch)
        elif record.value is None:
            self.drop(record.key)
        else:
            fresh = SharePartition(record.value.start_offset)
            fresh.state_epoch, fresh.leader_epoch = record.value.state_epoch, record.value.leader_epoch
            self.put(record.key, fresh)
            _restore(fresh, record.value.start_offset, record.value.batches)

    def stored_keys(self) -> Iterator[SharePartitionKey]:
        """Yield the key of every record that the log must hold."""
        yield from self.partitions

    def records_of(self, key: SharePartitionKey) -> list[ShareRecord]:
        """Return the record of a key as it would be written now; none when the key no longer exists."""
        found = self.partitions.get(key)
        if found is None:
            return []
        return [ShareSnapshot(key, stored(found))]


def _restore(found: SharePartition, start_offset: int, batches: Sequence[StateBatch]) -> None:
    """Replay a change of a state. A state that has not begun has no batches."""
    if max(found.start_offset, start_offset) != NOT_BEGUN:
        found.restore(start_offset, batches)


def stored(found: SharePartition) -> ShareState:
    """Return a delivery state as the log stores it: no member has acquired anything."""
    return ShareState(
        found.start_offset,
        tuple(found.stored_batches()),
        found.state_epoch,
        leader_epoch=found.leader_epoch,
    )
