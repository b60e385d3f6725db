"""A consumer group for tests: its topics, clock and records, and well-behaved members."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    ConsumerLimits,
    Heartbeat,
    HeartbeatReply,
    check,
    refuse_unknown_group,
)
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.records import decode, encode
from seqgate.gateway.coordinator.group.stored_groups import CONSUMER, ConsumerGroups, GroupsOfKind
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.rows import RowRecord

GROUP: Final = "g"
START_MS: Final = 1_000_000
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 10_000
CONSUMER_LIMITS: Final = ConsumerLimits(session_timeout_ms=SESSION_MS)


@dataclass
class Cluster:
    """The cluster's topics by name. Each created topic gets a new id."""

    topics: dict[str, tuple[uuid.UUID, int]] = field(default_factory=dict)
    created: int = 0

    def create(self, name: str, partitions: int) -> uuid.UUID:
        self.created += 1
        topic_id = uuid.UUID(int=self.created)
        self.topics[name] = topic_id, partitions
        return topic_id

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        return self.topics.get(name)

    def names(self) -> list[str]:
        return list(self.topics)

    def places(self, *names: str) -> frozenset[Place]:
        described = (self.topics[name] for name in names or self.topics)
        return frozenset((topic_id, index) for topic_id, count in described for index in range(count))


def request(member_id: str, member_epoch: int, **more: Any) -> Heartbeat:
    """Build the heartbeat of a member for which nothing has changed, except for the given fields."""
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": member_epoch,
        "instance_id": None,
        "rack_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": -1,
        "subscribed_names": None,
        "subscribed_regex": None,
        "server_assignor": None,
        "owned": None,
    }
    return Heartbeat(**{**fields, **more})


def joining(member_id: str, *names: str, **more: Any) -> Heartbeat:
    told = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_names": names, "owned": frozenset()}
    return request(member_id, **{"member_epoch": 0, **told, **more})


class ConsumerScene:
    """One consumer group. Its records are encoded and decoded, as they would be in the log."""

    def __init__(self, limits: ConsumerLimits = CONSUMER_LIMITS, **topics: int) -> None:
        self.limits = limits
        self.now_ms = START_MS
        self.groups = GroupsOfKind(CONSUMER, lambda _: limits)
        self.cluster = Cluster()
        self.records: list[RowRecord] = []
        for name, partitions in topics.items():
            self.cluster.create(name, partitions)

    @property
    def group(self) -> ConsumerGroup:
        return self.groups.groups[GROUP]

    @property
    def state(self) -> str:
        return self.group.state_text

    def member(self, member_id: str) -> ConsumerMember:
        return self.group.members[member_id]

    def take(self, effects: Effects) -> None:
        for record in effects.records:
            read = decode(*encode(record))
            assert read == record
            assert isinstance(read, RowRecord)
            self.records.append(read)

    def send(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Send a heartbeat. Raises HeartbeatRefused."""
        check(heartbeat)
        effects = Effects(self.now_ms)
        refuse_unknown_group(self.groups.groups, heartbeat)
        reply = self.groups.leave_or_heartbeat(heartbeat, self.cluster, effects)
        self.take(effects)
        return reply

    def refusal(self, heartbeat: Heartbeat) -> ErrorCode:
        """Return the error of a heartbeat, and check that the heartbeat changed nothing."""
        before = snapshot(self.groups)
        with pytest.raises(HeartbeatRefused) as caught:
            self.send(heartbeat)
        assert snapshot(self.groups) == before
        return caught.value.error_code

    def topics_changed(self) -> None:
        for group in self.groups.groups.values():
            group.topics_changed = True

    def grow(self, name: str, partitions: int) -> None:
        topic_id, _ = self.cluster.topics[name]
        self.cluster.topics[name] = topic_id, partitions
        self.topics_changed()

    def expire(self) -> None:
        effects = Effects(self.now_ms)
        if GROUP in self.groups.groups:
            self.groups.expire(GROUP, effects)
        self.take(effects)

    def advance(self, time_ms: int) -> None:
        self.now_ms += time_ms
        self.expire()

    def replayed(self) -> ConsumerGroups:
        """Return the group as a restart rebuilds it from the records."""
        groups = GroupsOfKind(CONSUMER, lambda _: self.limits)
        for record in self.records:
            groups.replay(record, self.now_ms)
        return groups

    def restart(self) -> None:
        self.groups = self.replayed()


def snapshot(groups: ConsumerGroups) -> Any:
    """Return all stored state of the groups."""
    return {
        group_id: (
            group.group_epoch,
            group.assignment_epoch,
            {member_id: (member.value, member.current) for member_id, member in group.members.items()},
            dict(group.static_members),
            {member_id: places for member_id, places in group.targets.items() if places},
        )
        for group_id, group in groups.groups.items()
    }


@dataclass
class Client:
    """A well-behaved member: it revokes partitions when asked, and reports that."""

    scene: ConsumerScene
    member_id: str
    names: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    member_epoch: int = 0
    owned: frozenset[Place] = frozenset()
    must_tell_all: bool = False
    """Whether an answer was lost, so that the next heartbeat must contain all fields."""
    given: frozenset[Place] | None = None
    """The partitions assigned to the member, which may still own others."""

    def request(self, **more: Any) -> Heartbeat:
        if self.member_epoch == 0:
            return joining(self.member_id, *self.names, instance_id=self.instance_id, **more)
        told: dict[str, Any] = {"instance_id": self.instance_id, "owned": self.owned}
        if self.must_tell_all:
            told |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_names": self.names}
        return request(self.member_id, self.member_epoch, **{**told, **more})

    def beat(
        self, *, answer_is_lost: bool = False, keeps_for_now: bool = False, **more: Any
    ) -> HeartbeatReply:
        """Send a heartbeat; when it is refused, revoke all partitions. Raises HeartbeatRefused."""
        try:
            reply = self.scene.send(self.request(**more))
        except HeartbeatRefused:
            self.give_up()
            raise
        if answer_is_lost:
            self.must_tell_all = self.member_epoch != 0
            return reply
        self.must_tell_all = False
        self.member_epoch = reply.member_epoch
        if reply.assignment is not None:
            self.given = reply.assignment
        if not keeps_for_now:
            self.catch_up()
        return reply

    def catch_up(self) -> None:
        """Revoke and take partitions, so that the member owns exactly its assigned partitions."""
        if self.given is not None:
            self.owned, self.given = self.given, None

    def give_up(self) -> None:
        """Drop all partitions and join again."""
        self.member_epoch, self.owned, self.given, self.must_tell_all = 0, frozenset(), None, False

    def leave(self, member_epoch: int = -1) -> None:
        self.scene.send(request(self.member_id, member_epoch, instance_id=self.instance_id))
        self.give_up()

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)


def settle(clients: Iterable[Client], rounds: int = 6) -> None:
    """Let every member send heartbeats until all own their target assignment."""
    members = list(clients)
    for _ in range(rounds):
        for client in members:
            client.beat()
