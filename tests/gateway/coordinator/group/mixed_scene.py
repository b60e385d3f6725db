"""A group with members of both protocols, for tests, over one topic of four partitions."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import Protocols
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.consumer_assignors import assigned_partitions, encode_assignment
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    ConsumerLimits,
    Heartbeat,
    HeartbeatReply,
    check,
    consumer_heartbeat,
)
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord, decode, encode
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import Place
from tests.gateway.coordinator.group.scene import GROUP, LIMITS, REBALANCE_MS, Scene, Who

TOPIC: Final = "t"
TOPIC_ID: Final = uuid.UUID(int=7)
PARTITIONS: Final = 4
ALL: Final = [0, 1, 2, 3]


class OneTopic:
    """A cluster with one topic."""

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        return (TOPIC_ID, PARTITIONS) if name == TOPIC else None

    def names(self) -> list[str]:
        return [TOPIC]


def owning(*partitions: int, topic: str = TOPIC, version: int = 3) -> bytes:
    """Encode the subscription to one topic of a member that still owns some of its partitions."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    raw = struct.pack(">hi", version, 1) + name + struct.pack(">i", -1)
    if version >= 1:
        raw += (
            struct.pack(">i", 1) + name + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        )
    if version >= 2:
        raw += struct.pack(">i", 5)
    return raw + (b"\xff\xff" if version >= 3 else b"")


def classic(*partitions: int, member_id: str = "", instance_id: str | None = None) -> Who:
    """Return a classic consumer that owns these partitions."""
    protocols: Protocols = (("range", owning(*partitions)),)
    return Who(member_id, instance_id, protocols)


def places(partitions: Iterable[int]) -> frozenset[Place]:
    return frozenset((TOPIC_ID, partition) for partition in partitions)


class MixedScene(Scene):
    """A scene with classic requests as in Scene, and with heartbeats of the consumer protocol by `beat`."""

    def __init__(self, limits: GroupLimits = LIMITS, consumer_limits: ConsumerLimits | None = None) -> None:
        super().__init__(limits)
        self.shard = GroupShard(limits, 100, lambda _: consumer_limits or ConsumerLimits(), OneTopic())

    @property
    def consumers(self) -> ConsumerGroup:
        return self.shard.consumers.groups[GROUP]

    @property
    def is_classic(self) -> bool:
        assert (GROUP in self.shard.groups) != (GROUP in self.shard.consumers.groups)
        return GROUP in self.shard.groups

    def beat(
        self,
        member_id: str,
        member_epoch: int = 0,
        owned: Iterable[int] | None = None,
        *,
        instance_id: str | None = None,
        names: tuple[str, ...] = (TOPIC,),
    ) -> HeartbeatReply:
        joins = member_epoch == 0
        request = Heartbeat(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=member_epoch,
            instance_id=instance_id,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            subscribed_names=names if joins else None,
            subscribed_regex=None,
            server_assignor=None,
            owned=frozenset() if joins else None if owned is None else places(owned),
        )
        check(request)
        effects = self.effects()
        reply = consumer_heartbeat(self.shard, request, effects)
        self.take(effects)
        return reply

    def classic_group(self, *instance_ids: str | None) -> list[str]:
        """Create a stable classic group whose members share the partitions evenly."""
        members = self.completing(*(classic(instance_id=instance_id) for instance_id in instance_ids))
        share = PARTITIONS // len(members)
        assignments = {
            member_id: encode_assignment(3, {TOPIC: range(number * share, (number + 1) * share)})
            for number, member_id in enumerate(members)
        }
        for member_id in reversed(members):
            self.sync(member_id, assignments)
        return members

    def rejoin(self, who: Who) -> tuple[int, list[int]]:
        """Send JoinGroup and SyncGroup as a classic member of a consumer group; return the generation and the
        partitions.
        """
        reply = self.joined(self.join(who))
        assert reply.error_code is ErrorCode.none
        assert not reply.leader
        assert not reply.members
        return reply.generation_id, self.synced_partitions(reply.member_id, reply.generation_id, who)

    def synced_partitions(self, member_id: str, generation_id: int, who: Who) -> list[int]:
        waiter = self.sync(
            member_id,
            generation_id=generation_id,
            group_instance_id=who.group_instance_id,
            protocol=("consumer", "range"),
        )
        reply = self.synced(waiter)
        assert (reply.error_code, reply.protocol_type, reply.protocol_name) == (
            ErrorCode.none,
            "consumer",
            "range",
        )
        found = assigned_partitions(reply.assignment)
        assert found is not None
        return found.get(TOPIC, [])

    def commit_error(self, member_id: str, generation_id: int, *partitions: int) -> ErrorCode:
        value = CommittedOffset(5, -1, "", self.now_ms)
        records = [OffsetCommitRecord(GROUP, TOPIC, partition, value) for partition in partitions]
        return self.shard.commits.check(Committer(GROUP, generation_id, member_id), records, self.now_ms)

    def reloaded(self) -> GroupShard:
        """Return the group as a restart would rebuild it from the bytes in the log."""
        shard = GroupShard(
            self.shard.limits, self.shard.max_groups, self.shard.consumers.limits_of, OneTopic()
        )
        for record in self.records:
            read = decode(*encode(record))
            assert read == record
            shard.replay(read, self.now_ms)
        return shard
