"""One group of the classic protocol: its members, generation and state.

    state                 meaning                                    left for
    Empty                 no members; committed offsets may remain   PreparingRebalance on a join
    PreparingRebalance    waits for all members to join again        CompletingRebalance, Empty if none joined
    CompletingRebalance   waits for the leader's assignment          Stable, PreparingRebalance on a change
    Stable                every member can fetch its assignment      PreparingRebalance on a change
    Dead                  deleted

Source: Kafka's `ClassicGroup`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Waiter
from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.group.consumer_assignors import CONSUMER_PROTOCOL, subscribed_topics
from seqgate.gateway.coordinator.group.epoch_group import MembersById
from seqgate.gateway.coordinator.group.events import Effects, JoinReply, SyncReply
from seqgate.gateway.coordinator.group.records import GroupMetadata, MemberMetadata

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol, in the member's order of preference."""


class GroupState(enum.Enum):
    """The states of a classic group; the values are the names that ListGroups and DescribeGroups report."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member(msgspec.Struct, eq=False):
    """A member of a classic group. Its session times out at `session_deadline_ms` without a heartbeat."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    session_deadline_ms: int = NEVER
    awaiting_join: Waiter | None = None
    awaiting_sync: Waiter | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata that the member sent for one protocol; empty when it did not name the one."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def restart_session(self, now_ms: int) -> None:
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def answer_join(self, reply: JoinReply, effects: Effects) -> None:
        if self.awaiting_join is not None:
            effects.reply(self.awaiting_join, reply)
            self.awaiting_join = None

    def answer_sync(self, reply: SyncReply, effects: Effects) -> bool:
        """Answer the member's waiting SyncGroup; return whether there was one."""
        if self.awaiting_sync is None:
            return False
        effects.reply(self.awaiting_sync, reply)
        self.awaiting_sync = None
        return True


class ClassicGroup(MembersById[Member]):
    """State of a group. `classic_protocol` has the transitions between states."""

    type: ClassVar = "classic"
    """The word of ListGroups for a group of this protocol."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        """The deadline (ms) of each member id that was handed out and has not joined yet."""
        self.pending_sync: set[str] = set()
        self.new_member_added = False
        self.join_deadline_ms = NEVER
        self.initial_delay_left_ms = 0
        self.sync_deadline_ms = NEVER
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that members subscribe to; None when the members do not speak the consumer protocol."""

    @property
    def state_text(self) -> str:
        """The word of ListGroups for the state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def generation(self) -> int:
        """The generation of the classic protocol: the number of rebalances so far."""
        return self.generation_id

    @property
    def protocol(self) -> tuple[str, str | None]:
        """The type of the members' protocol, and the protocol they agreed on, None before they agree."""
        return self.protocol_type or "", self.protocol_name

    @classmethod
    def restored(cls, group_id: str, metadata: GroupMetadata, now_ms: int) -> ClassicGroup:
        """Build the group from its last record; each member's session starts again at `now_ms`."""
        group = cls(group_id, now_ms)
        group.generation_id = metadata.generation_id
        group.protocol_type = metadata.protocol_type or None
        group.protocol_name = metadata.protocol_name
        group.leader = metadata.leader
        group.state_since_ms = metadata.state_since_ms if metadata.state_since_ms >= 0 else now_ms
        for stored in metadata.members:
            member = Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocol_type=metadata.protocol_type,
                protocols=((metadata.protocol_name or "", stored.subscription),),
                assignment=stored.assignment,
            )
            member.restart_session(now_ms)
            group.members[member.member_id] = member
            if member.group_instance_id is not None:
                group.static_members[member.group_instance_id] = member.member_id
        if group.members:
            group.state = GroupState.STABLE
            group.subscribed_topics = group.topics_of_members()
        else:
            group.subscribed_topics = frozenset()
        return group

    def metadata(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadata:
        """Return the value of the group's record; `assignments`, if given, replaces the members' own."""
        members = tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment
                if assignments is None
                else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state_since_ms=self.state_since_ms,
            members=members,
        )

    # --- state

    def clock_was_set(self, by_ms: int) -> None:
        """Move every deadline by the change of the clock, so that each member keeps the time it had left."""
        self.join_deadline_ms = moved(self.join_deadline_ms, by_ms)
        self.sync_deadline_ms = moved(self.sync_deadline_ms, by_ms)
        for member_id, deadline_ms in self.pending_members.items():
            self.pending_members[member_id] = moved(deadline_ms, by_ms)
        for member in self.members.values():
            member.session_deadline_ms = moved(member.session_deadline_ms, by_ms)

    def become(self, state: GroupState, now_ms: int) -> None:
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    @property
    def is_stored(self) -> bool:
        """Whether the group's record holds its members: true between rebalances."""
        return self.state in {GroupState.EMPTY, GroupState.STABLE}

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start now: no other rebalance is waiting for members to join."""
        return self.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}

    @property
    def is_simple(self) -> bool:
        """Whether the group only stores offsets: no member ever joined it."""
        return self.state is GroupState.EMPTY and not self.protocol_type and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits for the answer to its JoinGroup, and no pending member is left."""
        waiting = sum(member.awaiting_join is not None for member in self.members.values())
        return waiting == len(self.members) and not self.pending_members

    # --- members

    def add(self, member: Member, waiter: Waiter) -> None:
        """Add a member that waits with `waiter` for the rebalance to end; the first becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        member.awaiting_join = waiter
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member; when it was the leader, the next member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)

    def replace_static(self, group_instance_id: str, new_member_id: str, effects: Effects) -> Member:
        """Give a restarted static member its new id and fence the old one; it keeps place and assignment."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members.pop(old_member_id)
        fenced = ErrorCode.fenced_instance_id
        member.answer_join(JoinReply(error_code=fenced, member_id=old_member_id), effects)
        member.answer_sync(SyncReply(error_code=fenced), effects)
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        self.static_members[group_instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.discard(old_member_id)
            self.pending_sync.add(new_member_id)
        return member

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not joined again by a member that has; return False if there is none."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # --- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether a member with these protocols has one in common with all members of the group."""
        wanted = set(names)
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and wanted)
        if self.protocol_type != protocol_type:
            return False
        return bool(wanted & self._candidates() if self.members else wanted)

    def _candidates(self) -> set[str]:
        """Return the protocols that every member speaks."""
        # a member may name a protocol twice
        counted = Counter(name for member in self.members.values() for name in dict(member.protocols))
        return {name for name, count in counted.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; a member votes for its first one that all speak."""
        candidates = self._candidates()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation with the members that joined; without members the group becomes Empty."""
        self.generation_id += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.topics_of_members()
            self.become(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = frozenset()
            self.become(GroupState.EMPTY, now_ms)

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may read the topic; with an unreadable subscription, every topic counts."""
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    def topics_of_members(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to; None if protocol or metadata is not understood."""
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    # --- answers

    def generation_reply(self, member_id: str, *, skip_assignment: bool = False) -> JoinReply:
        """Return the JoinGroup answer for this generation; only the leader's answer lists the members."""
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member_id == self.leader:
            members = tuple(
                (member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
                for member in self.members.values()
            )
        return JoinReply(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            member_id=member_id,
            members=members,
            skip_assignment=skip_assignment,
        )

    def assignment_reply(self, member: Member) -> SyncReply:
        return SyncReply(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )
