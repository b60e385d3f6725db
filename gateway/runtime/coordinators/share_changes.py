"""Changes of the delivery state of share groups, with the records that make the changes durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.share.records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareStates,
    ShareUpdate,
)
from seqgate.gateway.coordinator.share.share_partition import ShareLimits, SharePartition, StateBatch
from seqgate.gateway.runtime.operations.operations import Operation


def changed(
    states: ShareStates,
    key: SharePartitionKey,
    act: Callable[[SharePartition], Sequence[StateBatch]],
    wake: Callable[[SharePartitionKey], None],
) -> Change[None]:
    """Change the delivery state of a known partition; call `wake` if the state has changed."""
    found = states.partitions[key]
    before = found.start_offset
    batches = tuple(act(found))
    if not batches and found.start_offset == before:
        return Change(None)
    wake(key)
    return Change(
        None, [ShareUpdate(key, found.start_offset, batches, found.leader_epoch)], is_folded_in=True
    )


def forgetting(keys: Sequence[SharePartitionKey]) -> Operation[ShareStates, None]:
    """Return an operation that deletes the delivery states of these partitions, if they have any."""

    def operation(states: ShareStates, _: int) -> Change[None]:
        return Change(None, [ShareSnapshot(key, None) for key in keys if key in states.partitions])

    return operation


def expire(found: SharePartition, now_ms: int, limits: ShareLimits) -> Sequence[StateBatch]:
    """Release the records whose lock has timed out."""
    return found.expire(limits, now_ms)


def go_on_at(found: SharePartition, offset: int) -> Sequence[StateBatch]:
    """Move the start offset forward. The rest of the stored state stays."""
    found.log_starts_at(offset)
    return ()
