"""The records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's formats.

A null value deletes. Source: Kafka's StreamsGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from seqgate.gateway.coordinator.group.epoch_group import (
    ASSIGNMENT_EPOCH,
    FIRST_EPOCH,
    NEVER_ASSIGNED,
    GroupRows,
)
from seqgate.gateway.coordinator.rows import (
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    PAIR,
    PAIRS,
    STRING,
    UINT16,
    Field,
    Row,
    Tag,
    array,
    converted,
    epochs_of,
    nullable,
    partitions_of,
    structure,
)
from seqgate.gateway.coordinator.streams.task_assignor import HeldTasks, TaskAssignment, TaskId, Tasks
from seqgate.gateway.coordinator.streams.topology import TOPOLOGY_TYPE
from seqgate.gateway.coordinator.streams.topology_description import DESCRIPTION, NO_EPOCH

NOT_VALIDATED: Final = -1
"""The validated topology epoch of a group whose topics do not fit its topology."""


class StreamsMemberState(enum.IntEnum):
    """The step of a member towards its target; the numbers are Kafka's."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """The member must revoke tasks before it gets others."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that others have not revoked."""
    UNKNOWN = 127
    """A later release wrote the state."""


_STATES: Final[dict[int, StreamsMemberState]] = {int(state): state for state in StreamsMemberState}


class StreamsGroupValue(NamedTuple):
    """The epochs of a group, and the topics and configurations for which its last assignment was made."""

    group_epoch: int
    metadata_hash: int
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: tuple[tuple[str, str], ...] = ()
    stored_description_epoch: int = NO_EPOCH
    """The topology epoch of the stored description (KIP-1331)."""
    failed_description_epoch: int = NO_EPOCH
    """The topology epoch of the description that was refused for good."""


class StreamsEndpoint(NamedTuple):
    """The address at which an instance of the application answers interactive queries."""

    host: str
    port: int


class StreamsMemberValue(NamedTuple):
    """A member's own description. `rebalance_timeout_ms` and `topology_epoch` are -1 before they are sent."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: StreamsEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class StreamsCurrentValue(NamedTuple):
    """The epoch and tasks of a member, and the tasks that it must revoke."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTasks = HeldTasks()
    pending_revocation: HeldTasks = HeldTasks()


def _current(member_epoch: int, previous_member_epoch: int, state: int, *roles: Any) -> StreamsCurrentValue:
    """Return a decoded value. Active tasks without an assignment epoch have the member epoch."""

    def held(active: Mapping[TaskId, int | None], standby: Tasks, warmup: Tasks) -> HeldTasks:
        epochs = {task: member_epoch if epoch is None else epoch for task, epoch in active.items()}
        return HeldTasks(epochs, standby, warmup)

    member_state = _STATES.get(state, StreamsMemberState.UNKNOWN)
    return StreamsCurrentValue(
        member_epoch, previous_member_epoch, member_state, held(*roles[:3]), held(*roles[3:])
    )


NEW_GROUP: Final = StreamsGroupValue(FIRST_EPOCH, 0, 0)
_TASKS: Final = partitions_of(STRING, TaskId)
_ACTIVE: Final = epochs_of(STRING, TaskId)
_CONFIGS: Final = converted(array(PAIR, nullable=True), tuple, lambda configs: configs or ())
_ENDPOINT: Final = structure(StreamsEndpoint, Field("host", STRING), Field("port", UINT16))
GROUP: Final = Row(
    17,
    structure(
        StreamsGroupValue,
        Field("group_epoch", INT32),
        # Seqgate's own hash: where Kafka's differs, Kafka only makes a new assignment
        Field("metadata_hash", INT64),
        Tag(0, "validated_topology_epoch", INT32, NOT_VALIDATED),
        Tag(1, "assignment_configs", _CONFIGS, (), is_always_written=True),
        Tag(2, "stored_description_epoch", INT32, NO_EPOCH),
        Tag(3, "failed_description_epoch", INT32, NO_EPOCH),
    ),
    "value",
    empty=NEW_GROUP,
)
MEMBER: Final = Row(
    19,
    structure(
        StreamsMemberValue,
        Field("instance_id", NULLABLE_STRING),
        Field("rack_id", NULLABLE_STRING),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("rebalance_timeout_ms", INT32),
        Field("topology_epoch", INT32),
        Field("process_id", STRING),
        Field("user_endpoint", nullable(_ENDPOINT)),
        Field("client_tags", PAIRS),
    ),
    "value",
    names=2,
)
ASSIGNMENT: Final = Row(20, ASSIGNMENT_EPOCH, "assignment", empty=NEVER_ASSIGNED)
TARGET: Final = Row(
    21,
    structure(TaskAssignment, Field("active", _TASKS), Field("standby", _TASKS), Field("warmup", _TASKS)),
    names=2,
)
CURRENT: Final = Row(
    22,
    structure(
        _current,
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("state", INT8),
        Field("assigned.active", _ACTIVE),
        Field("assigned.standby", _TASKS),
        Field("assigned.warmup", _TASKS),
        Field("pending_revocation.active", _ACTIVE),
        Field("pending_revocation.standby", _TASKS),
        Field("pending_revocation.warmup", _TASKS),
    ),
    "current",
    names=2,
)
TOPOLOGY: Final = Row(23, TOPOLOGY_TYPE, "topology")


ROWS: Final = GroupRows((GROUP, TOPOLOGY, DESCRIPTION, ASSIGNMENT), MEMBER, TARGET, CURRENT)
"""The records of the group in `__consumer_offsets`, in Kafka's formats but for the description; all values
have version 0.
"""
