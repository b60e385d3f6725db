"""The expiration of committed offsets (KIP-211), as in Kafka's ClassicGroup.offsetExpirationCondition."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import ClassVar

from seqgate.gateway.coordinator.change import Pending
from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember, MemberValue
from seqgate.gateway.coordinator.group.offsets import GroupOffsets
from seqgate.gateway.coordinator.group.records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    OffsetCommitRecord,
)
from tests.gateway.coordinator.group.consumer_scene import Cluster
from tests.gateway.coordinator.group.scene import GROUP, SESSION_MS, Scene, Who, subscription

RETENTION_MS = 7 * 24 * 3600 * 1000
CONSUMER = Who(protocols=(("range", subscription("subscribed")),), session_timeout_ms=SESSION_MS)


def commit(scene: Scene, topic: str = "t", partition: int = 0, *, expire_timestamp_ms: int = -1) -> None:
    value = CommittedOffset(5, 1, "", scene.now_ms, expire_timestamp_ms)
    scene.commit(OffsetCommitRecord(GROUP, topic, partition, value))


def clean_up(scene: Scene) -> set[str]:
    """Expire offsets; return the topics that still have some."""
    effects = scene.effects()
    scene.shard.clean_up(RETENTION_MS, effects)
    scene.take(effects)
    return {topic for topic, _ in scene.shard.offsets.of(GROUP)}


def wait(scene: Scene, time_ms: int, *members: str) -> None:
    """Advance the clock while all members send heartbeats."""
    scene.now_ms += time_ms
    for member_id in members:
        scene.heartbeat(member_id)


class CountedNames(tuple[str, ...]):
    """Subscribed names that count how often they are read."""

    __slots__ = ()
    reads: ClassVar[int] = 0

    def __iter__(self) -> Iterator[str]:
        CountedNames.reads += 1
        return super().__iter__()

    def __contains__(self, name: object) -> bool:
        CountedNames.reads += 1
        return super().__contains__(name)


class TestConsumerGroup:
    def test_the_members_are_asked_once_for_all_expired_offsets(self) -> None:
        scene = Scene()
        value = MemberValue(subscribed_names=CountedNames(("t7",)))
        member = ConsumerMember("a", value)
        scene.shard.consumers.groups[GROUP] = ConsumerGroup(GROUP, members={"a": member})
        for number in range(20):
            commit(scene, f"t{number}")
        wait(scene, RETENTION_MS)
        CountedNames.reads = 0
        assert clean_up(scene) == {"t7"}
        assert CountedNames.reads == 1


class TestSimpleGroup:
    def test_it_expires_after_each_commit(self) -> None:
        scene = Scene()
        commit(scene, "early")
        wait(scene, 10)
        commit(scene, "late")
        wait(scene, RETENTION_MS - 11)
        assert clean_up(scene) == {"early", "late"}
        wait(scene, 1)
        assert clean_up(scene) == {"late"}
        wait(scene, 10)
        assert clean_up(scene) == set()

    def test_the_group_is_deleted_with_its_last_offset(self) -> None:
        scene = Scene()
        commit(scene)
        wait(scene, RETENTION_MS)
        scene.records.clear()
        clean_up(scene)
        assert scene.records == [OffsetCommitRecord(GROUP, "t", 0, None), GroupMetadataRecord(GROUP, None)]
        assert not scene.shard.groups

    def test_a_retention_time_of_its_own(self) -> None:
        scene = Scene()
        commit(scene, "short", expire_timestamp_ms=scene.now_ms + 5)
        commit(scene, "long", expire_timestamp_ms=scene.now_ms + 2 * RETENTION_MS)
        wait(scene, 4)
        assert clean_up(scene) == {"short", "long"}
        wait(scene, 1)
        assert clean_up(scene) == {"long"}
        wait(scene, RETENTION_MS)
        assert clean_up(scene) == {"long"}
        wait(scene, RETENTION_MS)
        assert clean_up(scene) == set()


class TestEmptyGroup:
    def test_it_expires_after_the_group_became_empty(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        commit(scene, "subscribed")
        wait(scene, RETENTION_MS, member_id)
        scene.leave((member_id, None))
        assert scene.state is GroupState.EMPTY
        wait(scene, RETENTION_MS - 1)
        assert clean_up(scene) == {"subscribed"}
        wait(scene, 1)
        assert clean_up(scene) == set()
        assert not scene.shard.groups

    def test_a_later_commit_does_not_matter(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        scene.leave((member_id, None))
        wait(scene, RETENTION_MS - 1)
        commit(scene)
        wait(scene, 1)
        assert clean_up(scene) == set()

    def test_a_restart_remembers_since_when_it_is_empty(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        commit(scene)
        scene.leave((member_id, None))
        wait(scene, RETENTION_MS - 1)
        scene.shard = scene.replayed()
        assert clean_up(scene) == {"t"}
        wait(scene, 1)
        assert clean_up(scene) == set()

    def test_a_group_with_an_unknown_time_is_kept(self) -> None:
        scene = Scene()
        metadata = GroupMetadata("consumer", 3, None, None, -1, ())
        scene.shard.replay(GroupMetadataRecord(GROUP, metadata), scene.now_ms)
        commit(scene)
        wait(scene, RETENTION_MS - 1)
        assert clean_up(scene) == {"t"}

    def test_a_group_without_offsets_is_deleted_at_once(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        scene.leave((member_id, None))
        clean_up(scene)
        assert not scene.shard.groups
        assert scene.records[-1] == GroupMetadataRecord(GROUP, None)

    def test_a_group_with_a_pending_member_is_kept(self) -> None:
        scene = Scene()
        scene.join(Who(api_version=4))
        clean_up(scene)
        assert GROUP in scene.shard.groups


class TestStableGroup:
    def test_subscribed_topics_are_kept(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        commit(scene, "subscribed")
        commit(scene, "once")
        wait(scene, RETENTION_MS - 1, member_id)
        assert clean_up(scene) == {"subscribed", "once"}
        wait(scene, 1, member_id)
        assert clean_up(scene) == {"subscribed"}
        assert scene.state is GroupState.STABLE

    def test_offsets_of_subscribed_topics_are_kept_after_a_restart(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        commit(scene, "subscribed")
        commit(scene, "once")
        scene.shard = scene.replayed()
        wait(scene, RETENTION_MS, member_id)
        assert clean_up(scene) == {"subscribed"}

    def test_all_are_kept_while_topics_are_unknown(self) -> None:
        for who in (Who(protocols=(("range", b"?"),)), Who(protocol_type="connect")):
            scene = Scene()
            (member_id,) = scene.stable(who)
            commit(scene)
            wait(scene, RETENTION_MS, member_id)
            assert clean_up(scene) == {"t"}

    def test_all_are_kept_while_it_rebalances(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(CONSUMER)
        commit(scene)
        waiter = scene.join(CONSUMER)
        wait(scene, RETENTION_MS, member_id)
        assert scene.state is GroupState.PREPARING_REBALANCE
        assert clean_up(scene) == {"t"}
        scene.join(CONSUMER.named(member_id))
        assert not scene.waits(waiter)
        assert scene.group.state is GroupState.COMPLETING_REBALANCE
        assert clean_up(scene) == {"t"}

    def test_a_stable_group_without_offsets_stays(self) -> None:
        scene = Scene()
        scene.stable(CONSUMER)
        clean_up(scene)
        assert scene.state is GroupState.STABLE


class TestGroupOffsets:
    def test_the_newest_counts(self) -> None:
        offsets = GroupOffsets()
        for offset in (5, 3):
            offsets.replay(OffsetCommitRecord("g", "t", 0, CommittedOffset(offset, -1, "", 0)))
        assert offsets.of("g")["t", 0].offset == 3
        assert len(offsets) == 1

    def test_deleted(self) -> None:
        offsets = GroupOffsets()
        value = CommittedOffset(1, -1, "", 0)
        for partition in (0, 1):
            offsets.replay(OffsetCommitRecord("g", "t", partition, value))
        offsets.replay(OffsetCommitRecord("g", "t", 0, None))
        assert offsets.of("g") == {("t", 1): value}
        offsets.replay(OffsetCommitRecord("g", "t", 1, None))
        offsets.replay(OffsetCommitRecord("g", "t", 1, None))
        offsets.replay(OffsetCommitRecord("unknown", "t", 1, None))
        assert offsets.of("g") == {}
        assert offsets.groups() == []
        assert len(offsets) == 0

    def test_of_gone_topics(self) -> None:
        topics, offsets = Cluster(), GroupOffsets()
        kept, again = topics.create("kept", 3), topics.create("again", 3)
        before = uuid.UUID(int=9)
        for group_id, topic, topic_id in (
            ("g", "kept", kept.bytes),
            ("g", "gone", b""),
            ("g", "again", before.bytes),
            ("h", "gone", before.bytes),
            ("h", "again", again.bytes),
            ("i", "again", b""),
        ):
            value = CommittedOffset(1, -1, "", 0, topic_id=topic_id)
            offsets.replay(OffsetCommitRecord(group_id, topic, 2, value))
        value = CommittedOffset(1, -1, "", 0, topic_id=before.bytes)
        offsets.pending.hold(Pending(7, 0, OffsetCommitRecord("i", "again", 1, value)))
        assert offsets.of_gone_topics(topics) == [
            OffsetCommitRecord("g", "gone", 2, None),
            OffsetCommitRecord("g", "again", 2, None),
            OffsetCommitRecord("h", "gone", 2, None),
            OffsetCommitRecord("i", "again", 1, None),
        ]
