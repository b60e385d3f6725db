"""The rules that consumer, share and streams groups have in common, which Kafka calls modern groups.

    group epoch        rises with every change of members, subscriptions or topics
    assignment epoch   the group epoch for which the present targets were made
    member epoch       the assignment epoch whose target the member has begun to follow

    group state   when
    Empty         no members
    Assigning     the targets are older than the group epoch
    Reconciling   some member does not have its target yet
    Stable        every member has its target

The records of the group's rows change the group when they are replayed. Source: Kafka's `ModernGroup`,
`ModernGroupMember`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.rows import INT32, INT64, Field, Row, RowRecord, Tag, structure

STATES: Final = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable")
EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = STATES
FIRST_EPOCH: Final = 1
"""The group epoch of a group before its first member."""
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that is away and may return."""
MAX_EXPIRED_AT_ONCE: Final = 100
"""Members removed in one call, so that their records fit into one batch; the next call removes the rest."""


class HeartbeatRefused(Exception):
    """A heartbeat is refused with this error code and message."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class GroupError(Exception):
    """A request is refused; `error_code` is Kafka's code for the reason."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


class AssignmentEpoch(NamedTuple):
    """The group epoch for which a group's targets were made, and when; 0 in a record of an older release."""

    epoch: int
    timestamp_ms: int = 0


NEVER_ASSIGNED: Final = AssignmentEpoch(FIRST_EPOCH)
ASSIGNMENT_EPOCH: Final = structure(
    AssignmentEpoch, Field("epoch", INT32), Tag(0, "timestamp_ms", INT64, absent=0)
)


class GroupRows:
    """The records of one kind of group: those of the group, of which the first deletes the group, and those
    of each member: its description, which deletes the member, its target, and what it has now.
    """

    def __init__(self, of_group: Sequence[Row], member: Row, target: Row, current: Row) -> None:
        self.of_group = of_group
        self.group, self.member, self.target = of_group[0], member, target
        self.assignment = next(row for row in of_group if row.attribute == "assignment")
        self._of_members = member, target, current
        self.by_kind = {row.kind: row for row in self}

    def __iter__(self) -> Iterator[Row]:
        yield from self.of_group
        yield from self._of_members

    def removal_records(self, group_id: str, member_id: str) -> list[RowRecord]:
        """Return the records that delete a member from the log."""
        return [row.of(group_id, member_id, None) for row in reversed(self._of_members)]

    def deletion_records(self, group: EpochGroup[Any, Any]) -> list[RowRecord]:
        """Return the records that delete a group and its members from the log."""
        members = [
            record
            for member_id in group.members
            for record in self.removal_records(group.group_id, member_id)
        ]
        return [*members, *(row.of(group.group_id, None) for row in reversed(self._stored_rows(group)))]

    def stored_keys(self, group: EpochGroup[Any, Any]) -> list[tuple[int, str]]:
        """Return (kind of key, member id) of every record of a group that the log must hold."""
        of_group = [(row.kind, "") for row in self._stored_rows(group)]
        members = [(row.kind, member_id) for member_id in group.members for row in self._of_members]
        return [*of_group[:-1], *members, of_group[-1]]

    def _stored_rows(self, group: EpochGroup[Any, Any]) -> list[Row]:
        """Return the rows of the group without those whose value is missing, such as a description."""
        return [row for row in self.of_group if group.stored(row) is not None]


class EpochMember:
    """A member of such a group; deadlines in ms. A member of a share group never has to revoke anything."""

    member_id: str
    session_deadline_ms: int
    revocation_deadline_ms: int
    value: Any
    """The member's own description."""
    current: Any
    """The epoch of the member, and what it was given."""

    @property
    def member_epoch(self) -> int:
        return int(self.current.member_epoch)

    @property
    def is_classic(self) -> bool:
        return False

    @property
    def group_instance_id(self) -> str | None:
        """The instance id of a static member; a share group has none."""
        instance_id: str | None = getattr(self.value, "instance_id", None)
        return instance_id

    @property
    def client_id(self) -> str:
        return str(self.value.client_id)

    @property
    def client_host(self) -> str:
        return str(self.value.client_host)

    @property
    def deadline_ms(self) -> int:
        """The time at which a member without a heartbeat, or without a due revocation, is removed."""
        return min(self.session_deadline_ms, self.revocation_deadline_ms)

    def clock_was_set(self, by_ms: int) -> None:
        """Move every deadline by the change of the clock, so that the member keeps the time it had left."""
        self.session_deadline_ms = moved(self.session_deadline_ms, by_ms)
        self.revocation_deadline_ms = moved(self.revocation_deadline_ms, by_ms)

    @property
    def must_revoke(self) -> bool:
        """Whether the member must revoke something in its rebalance timeout."""
        return False

    def set_revocation_deadline(self, now_ms: int) -> None:
        """Give a member that must revoke something its rebalance timeout from now; others get no deadline."""
        must = self.must_revoke
        self.revocation_deadline_ms = now_ms + max(0, self.value.rebalance_timeout_ms) if must else NEVER

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member has all of its target of this epoch and nothing else."""
        return self.member_epoch == assignment_epoch


M = TypeVar("M", bound=EpochMember)
T = TypeVar("T")
X = TypeVar("X")


class MembersById(Generic[X]):
    """The members of a group of any protocol."""

    __slots__ = ()

    members: dict[str, X]
    static_members: dict[str, str]
    """The member ids by instance id; none in a share group."""

    def check_member(self, member_id: str, group_instance_id: str | None) -> X:
        """Return the sender of a request. Raises GroupError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                raise GroupError(ErrorCode.unknown_member_id)
            if known != member_id:
                raise GroupError(ErrorCode.fenced_instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise GroupError(ErrorCode.unknown_member_id)
        return member

    def check_leaving(self, member_id: str, group_instance_id: str | None) -> X:
        """Return a member that leaves; an administrator may leave a static member's member id empty. Raises
        GroupError as `check_member` does.
        """
        if not member_id and group_instance_id is not None:
            member_id = self.static_members.get(group_instance_id, "")
        return self.check_member(member_id, group_instance_id)


class EpochGroup(ABC, MembersById[M], Generic[M, T]):
    """The members of a group, their targets, and the epochs."""

    __slots__ = ()

    type: ClassVar[str]
    """The word of ListGroups for a group of this protocol."""
    rows: ClassVar[GroupRows]
    new_member: ClassVar[Any]
    no_target: ClassVar[Any] = None
    """The target that is stored for a member without one."""
    when_topics_change: ClassVar[str] = "subscribed topics changed"
    subscription: ClassVar[str] = "subscription"
    when_late: ClassVar[str] = "it did not revoke partitions, join or sync in its rebalance timeout"
    """The reasons in the log for a higher epoch and for the removal of a member."""
    group_id: str
    assignment: AssignmentEpoch
    targets: dict[str, T]

    @property
    @abstractmethod
    def group_epoch(self) -> int:
        """The group epoch, by the table above."""

    @property
    @abstractmethod
    def assignor(self) -> str:
        """The name of the assignor that makes the targets."""

    @property
    def assignment_epoch(self) -> int:
        return self.assignment.epoch

    @property
    def is_behind(self) -> bool:
        """Whether the targets are older than the group epoch."""
        return self.group_epoch > self.assignment.epoch

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether a new target may be made (KIP-1263): the last one is old enough, of unknown time, or
        in the future (made before the clock was set back).
        """
        assigned_at_ms = self.assignment.timestamp_ms
        return not assigned_at_ms or not 0 <= now_ms - assigned_at_ms < interval_ms

    @property
    def state_text(self) -> str:
        """The word of ListGroups for the state."""
        return self.state_of_members

    @property
    def state_of_members(self) -> str:
        """The state by the table above."""
        if not self.members:
            return EMPTY
        if self.is_behind:
            return ASSIGNING
        epoch = self.assignment.epoch
        return STABLE if all(one.is_reconciled_to(epoch) for one in self.members.values()) else RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def generation(self) -> int:
        return self.group_epoch

    @property
    def protocol(self) -> tuple[str, str | None]:
        """The type of the members' protocol, and the assignor, None without members."""
        return self.type, self.assignor if self.members else None

    def next_deadline_ms(self) -> int:
        """Return the earliest time at which a deadline of the group passes."""
        return min((member.deadline_ms for member in self.members.values()), default=NEVER)

    def clock_was_set(self, by_ms: int) -> None:
        for member in self.members.values():
            member.clock_was_set(by_ms)

    # --- records

    def replay(self, record: RowRecord, now_ms: int, session_timeout_ms: int) -> None:
        """Replay a record; it restarts its member's session and rebalance timeouts."""
        row, names, value = record
        rows = self.rows
        if row in rows.of_group:
            self.take(row, row.empty if value is None else value)
            return
        member_id = names[1]
        if row is rows.target:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = value
        elif value is not None:
            member = self.members.get(member_id)
            if member is None:
                member = self.members[member_id] = self.new_member(member_id)
            member.session_deadline_ms = now_ms + session_timeout_ms
            self.take_of_member(row, member, value)
            member.set_revocation_deadline(now_ms)
        elif row is rows.member:
            self.forget(member_id)

    def take(self, row: Row, value: Any) -> None:
        setattr(self, row.attribute, value)

    def take_of_member(self, row: Row, member: M, value: Any) -> None:
        if row is self.rows.member:
            self._name_instance(member, getattr(value, "instance_id", None))
        setattr(member, row.attribute, value)

    def forget(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._name_instance(member, None)
        self.targets.pop(member_id, None)

    def raised(self, group_epoch: int) -> Any:
        """Return the value of the group's record with a higher group epoch."""
        return group_epoch

    def remove(self, member_ids: Collection[str]) -> list[RowRecord]:
        """Remove members; the others get what is freed with their next heartbeats. Without others there is
        nothing to assign, so the assignment is that of the new epoch.
        """
        rows, group_id, epoch = self.rows, self.group_id, self.group_epoch + 1
        records = [record for member_id in member_ids for record in rows.removal_records(group_id, member_id)]
        records.append(rows.group.of(group_id, self.raised(epoch)))
        if len(self.members) == len(member_ids):
            records.append(rows.assignment.of(group_id, AssignmentEpoch(epoch)))
        for record in records:
            self.replay(record, 0, 0)
        return records

    def remove_overdue(self, now_ms: int) -> list[RowRecord]:
        """Remove at most MAX_EXPIRED_AT_ONCE members whose session, or a phase of the rebalance, has timed
        out. The next call removes the rest.
        """
        due = [member_id for member_id, member in self.members.items() if member.deadline_ms <= now_ms]
        return self.remove(due[:MAX_EXPIRED_AT_ONCE]) if due else []

    def _name_instance(self, member: M, instance_id: str | None) -> None:
        """Replace the instance id by which the group finds a member; None removes it. Call this before the
        member gets the new one.
        """
        before = member.group_instance_id
        if before is not None and self.static_members.get(before) == member.member_id:
            del self.static_members[before]
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id

    def stored(self, row: Row) -> Any:
        """Return the value of a record of the group as it would be written now."""
        return getattr(self, row.attribute)

    def record_of(self, kind: int, member_id: str) -> RowRecord | None:
        """Return the record of a key as it would be written now; None when its member no longer exists."""
        rows = self.rows
        row = rows.by_kind[kind]
        if row in rows.of_group:
            return row.of(self.group_id, self.stored(row))
        member = self.members.get(member_id)
        if member is None:
            return None
        is_target = row is rows.target
        value = self.targets.get(member_id, self.no_target) if is_target else getattr(member, row.attribute)
        return None if value is None else row.of(self.group_id, member_id, value)
