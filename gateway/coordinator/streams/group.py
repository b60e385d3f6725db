"""One streams group (KIP-1071): the coordinator assigns the tasks of a Kafka Streams application to its
members.

The state is NotReady, before Assigning, while the topics that exist do not fit the topology, or internal
topics are missing. The group epoch rises also with changes of assignment configurations. Source: Kafka's
`StreamsGroup`, `StreamsGroupMember`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.group.epoch_group import (
    LEAVING_FOR_A_WHILE,
    NEVER_ASSIGNED,
    NOT_READY,
    AssignmentEpoch,
    EpochGroup,
    EpochMember,
)
from seqgate.gateway.coordinator.places import TopicPartition, Topics
from seqgate.gateway.coordinator.streams.internal_topics import ConfiguredTopology
from seqgate.gateway.coordinator.streams.records import (
    NEW_GROUP,
    ROWS,
    StreamsCurrentValue,
    StreamsGroupValue,
    StreamsMemberState,
    StreamsMemberValue,
)
from seqgate.gateway.coordinator.streams.task_assignor import ASSIGNOR_NAME, TaskAssignment, TaskId, Tasks
from seqgate.gateway.coordinator.streams.topology import Topology
from seqgate.gateway.coordinator.streams.topology_description import Asking, StoredDescription

STREAMS: Final = "streams"
"""The type of a streams group, and the type of its members' protocol."""


class HeldByProcesses(NamedTuple):
    """The tasks that the members of a group have, or have not revoked yet."""

    active: Tasks
    """The active tasks of all processes."""
    active_here: Tasks
    """The active tasks of one process."""
    standby_here: Tasks
    """The standby tasks of that process."""
    warmup_here: Tasks
    """The warm-up tasks of that process."""


@dataclass(slots=True, eq=False)
class StreamsMember(EpochMember):
    """A member, its own description, and its tasks. Deadlines in ms."""

    member_id: str
    value: StreamsMemberValue = field(default_factory=StreamsMemberValue)
    current: StreamsCurrentValue = field(default_factory=StreamsCurrentValue)
    session_deadline_ms: int = NEVER
    revocation_deadline_ms: int = NEVER
    task_offsets: Mapping[TaskId, int] = field(default_factory=dict)
    """How far the member has read the changelogs of tasks, as it last reported; not stored."""
    task_end_offsets: Mapping[TaskId, int] = field(default_factory=dict)
    """How far these changelogs go."""

    @property
    def is_away(self) -> bool:
        """Whether the member is static, and has left for a while."""
        return self.current.member_epoch == LEAVING_FOR_A_WHILE

    @property
    def must_revoke(self) -> bool:
        """Whether the member must revoke tasks in its rebalance timeout."""
        return self.current.state is StreamsMemberState.UNREVOKED_TASKS and not self.is_away

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member has all of its target of this epoch and nothing else."""
        return is_reconciled(self.current, assignment_epoch)

    def assignment_epoch_of(self, task: TaskId) -> int | None:
        """Return the epoch at which the member was assigned an active task that it has; None for others."""
        epoch = self.current.assigned.active.get(task)
        return self.current.pending_revocation.active.get(task) if epoch is None else epoch


def is_reconciled(current: StreamsCurrentValue, assignment_epoch: int) -> bool:
    """Return whether a member owns exactly the tasks of its target and acknowledged `assignment_epoch`."""
    return current.state is StreamsMemberState.STABLE and current.member_epoch == assignment_epoch


@dataclass(slots=True)
class StreamsGroup(EpochGroup[StreamsMember, TaskAssignment]):
    """A streams group: records change it, live and at replay. Fields from `configured` on are not stored."""

    type: ClassVar = STREAMS
    rows: ClassVar = ROWS
    new_member: ClassVar = StreamsMember
    assignor: ClassVar = ASSIGNOR_NAME
    when_topics_change: ClassVar = "topics of the topology or configurations changed"
    subscription: ClassVar = "description"
    when_late: ClassVar = "it did not revoke tasks in its rebalance timeout"

    group_id: str
    value: StreamsGroupValue = NEW_GROUP
    assignment: AssignmentEpoch = NEVER_ASSIGNED
    topology: Topology | None = None
    description: StoredDescription | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    targets: dict[str, TaskAssignment] = field(default_factory=dict)
    configured: ConfiguredTopology | None = None
    """The topology compared with the topics of the last heartbeat that had one; None after a restart."""
    topics_changed: bool = True
    """Whether topics were created, deleted or enlarged since the topology was configured."""
    initial_delay_deadline_ms: int = NEVER
    """The end of the delay in which an empty group gathers members before it assigns tasks."""
    shutdown_member_id: str | None = None
    """The member that asked the whole application to shut down."""
    endpoint_epoch: int = 0
    """A number that rises when the tasks of a member with an endpoint change."""
    asking: Asking = field(default_factory=Asking)
    """When members are asked for the description of the topology again."""

    @property
    def group_epoch(self) -> int:
        return self.value.group_epoch

    @property
    def state_text(self) -> str:
        """The word of ListGroups for the state."""
        epoch = None if self.topology is None else self.topology.epoch
        is_ready = epoch == self.value.validated_topology_epoch
        return NOT_READY if self.members and not is_ready else self.state_of_members

    @property
    def is_delayed(self) -> bool:
        """Whether the group still gathers members before it assigns tasks."""
        return self.initial_delay_deadline_ms != NEVER

    def subscription_test(self) -> Callable[[str], bool]:
        """Return a function that returns whether the members' topology has a topic."""
        topics = self.topology.subtopology_of if self.members and self.topology is not None else {}
        return topics.__contains__

    def held(self, process_id: str) -> HeldByProcesses:
        """Return the tasks that members have or have not revoked yet, those of one process apart."""
        active: set[TaskId] = set()
        here = TaskAssignment()
        for member in self.members.values():
            for held in (member.current.assigned, member.current.pending_revocation):
                active.update(held.active)
                if member.value.process_id == process_id:
                    here = here.union(held.tasks)
        return HeldByProcesses(frozenset(active), *here)

    def may_commit(
        self,
        member_id: str,
        member_epoch: int,
        places: Iterable[TopicPartition],
        topics: Topics,  # noqa: ARG002 - tasks name topics, not topic ids
    ) -> bool:
        """Return whether an offset commit at a member epoch may be stored for all these partitions
        (KIP-1251).

        The member's own epoch may commit any partition. An older one may commit partitions of tasks that the
        member has been assigned at that epoch or earlier. Source: Kafka's
        `StreamsGroup.validateOffsetCommit`.
        """
        member = self.members[member_id]
        if member_epoch >= member.current.member_epoch:
            return member_epoch == member.current.member_epoch
        subtopology_of = {} if self.topology is None else self.topology.subtopology_of
        for topic, partition in places:
            subtopology_id = subtopology_of.get(topic)
            task = None if subtopology_id is None else TaskId(subtopology_id, partition)
            epoch = None if task is None else member.assignment_epoch_of(task)
            if epoch is None or member_epoch < epoch:
                return False
        return True

    def next_deadline_ms(self) -> int:
        """Return the earliest time at which a deadline of the group passes."""
        return min(EpochGroup.next_deadline_ms(self), self.initial_delay_deadline_ms)

    def clock_was_set(self, by_ms: int) -> None:
        EpochGroup.clock_was_set(self, by_ms)
        self.initial_delay_deadline_ms = moved(self.initial_delay_deadline_ms, by_ms)
        self.asking.clock_was_set(by_ms)

    def forget_what_is_not_stored(self) -> None:
        """Drop the fields that are not stored, as Kafka does after a new group's first heartbeat. The next
        heartbeat computes them again.
        """
        self.configured = None
        self.shutdown_member_id = None
        self.endpoint_epoch = 0
        for member in self.members.values():
            member.task_offsets, member.task_end_offsets = {}, {}

    def raised(self, group_epoch: int) -> StreamsGroupValue:
        return self.value._replace(group_epoch=group_epoch)

    def forget(self, member_id: str) -> None:
        EpochGroup.forget(self, member_id)
        if not self.members:
            self.shutdown_member_id = None
