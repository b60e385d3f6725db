"""All share partitions whose state one partition of `__share_group_state` holds."""

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
    """By group and partition; what a member acquired is known here, but not stored."""

    def __init__(self) -> None:
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
        self.groups: dict[str, dict[SharePartitionKey, SharePartition]] = {}
        """The same by group."""

    def put(self, key: SharePartitionKey, partition: SharePartition) -> None:
        """Know a partition, in place of what was known of it."""
        self.partitions[key] = self.groups.setdefault(key.group_id, {})[key] = partition

    def drop(self, key: SharePartitionKey) -> bool:
        """Forget a partition; whether it was known."""
        if self.partitions.pop(key, None) is None:
            return False
        of_group = self.groups[key.group_id]
        del of_group[key]
        if not of_group:
            del self.groups[key.group_id]
        return True

    def replay(self, record: ShareRecord, now_ms: int) -> None:
        """Fold in a record of the log as it is loaded."""
        del now_ms  # nothing stored ends with time
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
        """What the log must hold a record of."""
        yield from self.partitions

    def records_of(self, key: SharePartitionKey) -> list[ShareRecord]:
        """The records for a key as they would be written now; none when it is gone."""
        found = self.partitions.get(key)
        if found is None:
            return []
        return [ShareSnapshot(key, ShareState(found.start_offset, tuple(found.stored_batches())))]
