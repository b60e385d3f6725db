"""The share partitions whose state one partition of `__share_group_state` holds."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.coordinator.share.records import (
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
                found.restore(record.start_offset, record.batches)
        elif record.value is None:
            self.drop(record.key)
        else:
            fresh = SharePartition(record.value.start_offset)
            self.put(record.key, fresh)
            fresh.restore(record.value.start_offset, record.value.batches)

    def stored_keys(self) -> Iterator[SharePartitionKey]:
        """Yield the key of every record that the log must hold."""
        yield from self.partitions

    def records_of(self, key: SharePartitionKey) -> list[ShareRecord]:
        """Return the record of a key as it would be written now; none when the key no longer exists."""
        found = self.partitions.get(key)
        if found is None:
            return []
        return [ShareSnapshot(key, ShareState(found.start_offset, tuple(found.stored_batches())))]
