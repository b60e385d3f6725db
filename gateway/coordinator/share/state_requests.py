"""Decisions of the share coordinator about requests of share-partition leaders, and of group coordinators (KIP-932).

    initialize   begin the state of a partition, or begin it anew: a group is assigned the partition, or its offsets were altered
    read         a leader takes the partition over; what members had acquired from the leader before is available again
    write        the leader stores changes; a leader of an earlier leader epoch, or of a state before the last beginning, is refused
    delete       the group, or its offsets in a topic, are deleted
    summarize    the start offset, for those who describe the group

Source: Kafka's `ShareCoordinatorShard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Change
from gateway.coordinator.share.ranges import DONE, StateBatch
from gateway.coordinator.share.records import (
    NOT_BEGUN,
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareUpdate,
    can_be_stored,
)
from gateway.coordinator.share.share_partition import SharePartition
from gateway.coordinator.share.states import ShareStates, stored

ANY_EPOCH: Final = -1
"""The epoch of a request that is not compared."""
READ_TOO_EARLY: Final = "Read operation on uninitialized share partition not allowed."
WRITTEN_TOO_EARLY: Final = "Write operation on uninitialized share partition not allowed."
WRONG_BATCH: Final = (
    "A batch of the request has offsets, a delivery state or a delivery count that no state has."
)
MESSAGES: Final = {
    ErrorCode.fenced_leader_epoch: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.fenced_state_epoch: "The share coordinator rejected the request because the share-group state epoch did not match.",
}


class Refusal(NamedTuple):
    """Why a request about one partition changes nothing."""

    error_code: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """The changes of one partition's state that a leader asks for. A start offset of -1 stays as it is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class Summary(NamedTuple):
    """The state of a partition without its batches. `done` counts the offsets from the start offset on that are done; -1 without a start."""

    start_offset: int = NOT_BEGUN
    state_epoch: int = 0
    leader_epoch: int = 0
    done: int = -1


def initialize(
    states: ShareStates, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
) -> Change[Refusal | None]:
    """Begin the state of a partition at an offset, without batches."""
    found = states.partitions.get(key)
    if found is not None and state_epoch != ANY_EPOCH and state_epoch < found.state_epoch:
        return Change(_refusal(ErrorCode.fenced_state_epoch))
    if start_offset < NOT_BEGUN:
        return Change(Refusal(ErrorCode.invalid_request, f"The start offset {start_offset} is negative."))
    leader_epoch = 0 if found is None else found.leader_epoch
    state = ShareState(start_offset, (), state_epoch, now_ms, leader_epoch)
    return Change(None, [ShareSnapshot(key, state)])


def read(states: ShareStates, key: SharePartitionKey, leader_epoch: int) -> Change[ShareState | Refusal]:
    """Return the state of a partition to its leader. A new leader epoch is stored, so that the leader before is refused."""
    found = states.partitions.get(key)
    if found is None:
        return Change(Refusal(ErrorCode.invalid_request, READ_TOO_EARLY))
    if leader_epoch <= found.leader_epoch:
        return Change(stored(found))
    found.forget_members()
    found.leader_epoch = leader_epoch
    taken_over = ShareUpdate(key, NOT_BEGUN, (), leader_epoch)
    return Change(stored(found), [taken_over], is_folded_in=True)


def write(states: ShareStates, key: SharePartitionKey, wanted: Write) -> Change[Refusal | None]:
    """Store the changes of a leader."""
    found = states.partitions.get(key)
    if found is None:
        return Change(Refusal(ErrorCode.invalid_request, WRITTEN_TOO_EARLY))
    if wanted.leader_epoch != ANY_EPOCH and wanted.leader_epoch < found.leader_epoch:
        return Change(_refusal(ErrorCode.fenced_leader_epoch))
    if wanted.state_epoch != ANY_EPOCH and wanted.state_epoch < found.state_epoch:
        return Change(_refusal(ErrorCode.fenced_state_epoch))
    begins = max(found.start_offset, wanted.start_offset)
    if not all(map(can_be_stored, wanted.batches)) or (wanted.batches and begins == NOT_BEGUN):
        return Change(Refusal(ErrorCode.invalid_request, WRONG_BATCH))
    leader_epoch = max(wanted.leader_epoch, found.leader_epoch)
    start_offset = max(wanted.start_offset, NOT_BEGUN)
    return Change(None, [ShareUpdate(key, start_offset, tuple(wanted.batches), leader_epoch)])


def delete(states: ShareStates, key: SharePartitionKey) -> Change[None]:
    """Delete the state of a partition, if it has any."""
    return Change(None, [ShareSnapshot(key, None)] if key in states.partitions else ())


def summarize(states: ShareStates, key: SharePartitionKey) -> Change[Summary]:
    """Return the start offset of a partition."""
    found = states.partitions.get(key)
    return Change(Summary() if found is None else summary_of(found))


def summary_of(found: SharePartition) -> Summary:
    """Return the summary of a state."""
    is_begun = found.start_offset != NOT_BEGUN
    done = sum(len(run) for run in found.runs if run.state in DONE) if is_begun else -1
    return Summary(found.start_offset, found.state_epoch, found.leader_epoch, done)


def _refusal(error_code: ErrorCode) -> Refusal:
    return Refusal(error_code, MESSAGES[error_code])
