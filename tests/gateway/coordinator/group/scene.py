"""A shard of groups for tests: its clock, its records, and the answers to requests that waited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Pending
from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member, Protocols
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits, Join
from seqgate.gateway.coordinator.group.events import Effects, JoinReply, Reply, SyncReply
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import (
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
)
from seqgate.gateway.coordinator.group.shard import GroupShard

GROUP: Final = "g"
START_MS: Final = 1_000_000
DELAY_MS: Final = 3_000
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000
RANGE: Final[Protocols] = (("range", b"r"),)
LIMITS: Final = GroupLimits(initial_rebalance_delay_ms=DELAY_MS)


def subscription(*topics: str) -> bytes:
    """Encode a consumer's subscription, version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class Who:
    """A client: its identity, its protocols and its timeouts."""

    member_id: str = ""
    group_instance_id: str | None = None
    protocols: Protocols = RANGE
    protocol_type: str = "consumer"
    session_timeout_ms: int = SESSION_MS
    rebalance_timeout_ms: int = REBALANCE_MS
    api_version: int = 3
    """The version of JoinGroup."""
    reason: str | None = None

    def named(self, member_id: str) -> Who:
        return replace(self, member_id=member_id)


class Scene:
    """A shard and its caller. A waiter is a number, and each may be answered once."""

    def __init__(self, limits: GroupLimits = LIMITS, *, max_groups: int = 100) -> None:
        self.now_ms = START_MS
        self.shard = GroupShard(limits, max_groups)
        self.records: list[GroupRecord] = []
        self.answers: dict[int, Reply] = {}
        self.asked = 0
        self.ids = 0
        self.max_bytes = 1 << 20

    @property
    def group(self) -> ClassicGroup:
        return self.shard.groups[GROUP]

    @property
    def state(self) -> GroupState:
        return self.group.state

    @property
    def generation_id(self) -> int:
        return self.group.generation_id

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    def effects(self) -> Effects:
        return Effects(self.now_ms, self.max_bytes)

    def take(self, effects: Effects) -> None:
        """Carry out the effects of an operation as the caller of a shard does, without a log."""
        self.records += effects.records
        for waiter, reply in effects.replies:
            assert isinstance(waiter, int)
            assert waiter not in self.answers, "answered twice"
            self.answers[waiter] = reply

    # --- requests

    def join(self, who: Who, group_id: str = GROUP) -> int:
        self.asked += 1
        self.ids += 1
        request = Join(
            api_version=who.api_version,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=who.session_timeout_ms,
            rebalance_timeout_ms=who.rebalance_timeout_ms,
            protocol_type=who.protocol_type,
            protocols=who.protocols,
            fresh_member_id=f"{who.group_instance_id or 'client'}-{self.ids}",
            reason=who.reason,
        )
        effects = self.effects()
        self.shard.classic.join(group_id, request, self.asked, effects)
        self.take(effects)
        return self.asked

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        group_instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> int:
        self.asked += 1
        effects = self.effects()
        if generation_id is None:
            generation_id = self.generation_id
        committer = Committer(GROUP, generation_id, member_id, group_instance_id)
        self.shard.classic.sync(committer, protocol, assignments or {}, self.asked, effects)
        self.take(effects)
        return self.asked

    def heartbeat(
        self, member_id: str, generation_id: int | None = None, group_instance_id: str | None = None
    ) -> ErrorCode:
        generation_id = self.generation_id if generation_id is None else generation_id
        return self.shard.classic.heartbeat(
            Committer(GROUP, generation_id, member_id, group_instance_id), self.now_ms
        )

    def leave(
        self, *leaving: tuple[str, str | None], reason: str | None = None
    ) -> ErrorCode | Sequence[ErrorCode]:
        effects = self.effects()
        errors = self.shard.classic.leave(GROUP, leaving, effects, reason)
        self.take(effects)
        return errors

    # --- time

    def advance(self, time_ms: int) -> None:
        """Advance the clock. Call the shard at every deadline, as a timer would."""
        end_ms = self.now_ms + time_ms
        while (deadline_ms := self.shard.next_deadline_ms(GROUP)) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.expire()
        self.now_ms = end_ms

    def expire(self) -> None:
        effects = self.effects()
        self.shard.expire(GROUP, effects)
        self.take(effects)

    def next_in_ms(self) -> int | None:
        """Return the time until the next deadline; None if there is none."""
        deadline_ms = self.shard.next_deadline_ms(GROUP)
        return None if deadline_ms is None or deadline_ms == NEVER else deadline_ms - self.now_ms

    # --- answers

    def waits(self, waiter: int) -> bool:
        return waiter not in self.answers

    def joined(self, waiter: int) -> JoinReply:
        reply = self.answers[waiter]
        assert isinstance(reply, JoinReply)
        return reply

    def synced(self, waiter: int) -> SyncReply:
        reply = self.answers[waiter]
        assert isinstance(reply, SyncReply)
        return reply

    def error(self, waiter: int) -> ErrorCode:
        return self.answers[waiter].error_code

    def stored(self) -> GroupMetadata:
        """Return the newest record of the group."""
        return next(
            record.value
            for record in reversed(self.records)
            if isinstance(record, GroupMetadataRecord) and record.value is not None
        )

    def replayed(self) -> GroupShard:
        """Return the shard as a restart would rebuild it from the records."""
        shard = GroupShard(self.shard.limits, self.shard.max_groups)
        for record in self.records:
            shard.replay(record, self.now_ms)
        return shard

    # --- shortcuts

    def completing(self, *clients: Who) -> list[str]:
        """Let new clients join an empty group, which then waits for its leader's assignment; return the
        member ids, the leader's first.
        """
        waiters = [self.join(who) for who in clients]
        while any(map(self.waits, waiters)):
            self.advance(DELAY_MS)
        assert self.state is GroupState.COMPLETING_REBALANCE
        return [self.joined(waiter).member_id for waiter in waiters]

    def stable(self, *clients: Who) -> list[str]:
        """Make a stable group: as `completing`, and then each member is assigned its own member id."""
        members = self.completing(*clients)
        for member_id in reversed(members):
            self.sync(member_id, {other: other.encode() for other in members})
        assert self.state is GroupState.STABLE
        return members

    def commit(self, record: OffsetCommitRecord) -> None:
        effects = self.effects()
        self.shard.commits.commit([record], effects)
        self.take(effects)


def written_anew(shard: GroupShard) -> list[GroupRecord | Pending]:
    """Return the records that a rewritten log of the shard has."""
    return [record for key in shard.stored_keys() for record in shard.records_of(key)]


def rebuilt(made: Scene, fresh: Callable[[], GroupShard]) -> GroupShard:
    """Return the shard that the log of a scene makes: read as it is, and read rewritten, which must be the
    same.
    """
    before = written_anew(made.shard)
    for log in (made.records, before):
        shard = fresh()
        for record in log:
            shard.replay(record, made.now_ms)
        assert written_anew(shard) == before
    return shard
