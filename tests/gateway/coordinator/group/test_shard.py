"""A shard of groups: commits, deletions, the records that the log must hold, and a restart from these
records.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, GroupMetadataRecord, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.handlers.groups.groups import delete_group
from seqgate.gateway.handlers.groups.offset_delete import delete_offsets
from tests.gateway.coordinator.group.consumer_scene import Cluster
from tests.gateway.coordinator.group.scene import (
    GROUP,
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    Scene,
    Who,
    subscription,
)

OFFSET = CommittedOffset(5, 1, "", START_MS)
CONSUMER = Who(protocols=(("range", subscription("t")),))
NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_member_id
ILLEGAL = ErrorCode.illegal_generation


def committed(*topics: str, group_id: str = GROUP) -> list[OffsetCommitRecord]:
    return [OffsetCommitRecord(group_id, topic, 0, OFFSET) for topic in topics]


def commit(scene: Scene, *topics: str, group_id: str = GROUP) -> None:
    for record in committed(*topics, group_id=group_id):
        scene.commit(record)


def in_state(state: GroupState) -> tuple[Scene, str]:
    """Create a group with one member in a state; in state Empty the member has left."""
    scene = Scene()
    if state is GroupState.COMPLETING_REBALANCE:
        return scene, scene.completing(CONSUMER)[0]
    (member_id,) = scene.stable(CONSUMER)
    if state is GroupState.PREPARING_REBALANCE:
        scene.join(CONSUMER)
    elif state is GroupState.EMPTY:
        scene.leave((member_id, None))
    assert scene.state is state
    return scene, member_id


class TestCheckCommit:
    """The rules of ClassicGroup.validateOffsetCommit."""

    def check(
        self, scene: Scene, generation_id: int, member_id: str = "", instance: str | None = None
    ) -> ErrorCode:
        committer = Committer(GROUP, generation_id, member_id, instance)
        return scene.shard.commits.check(committer, [], scene.now_ms)

    def test_unknown_group(self) -> None:
        scene = Scene(max_groups=1)
        assert self.check(scene, -1) is NONE
        assert self.check(scene, -1, "m") is NONE
        assert self.check(scene, 0, "m") is ErrorCode.group_id_not_found
        assert not scene.shard.groups
        commit(scene, "t", group_id="other")
        assert self.check(scene, -1) is ErrorCode.group_max_size_reached

    def test_simple_group(self) -> None:
        scene = Scene()
        commit(scene, "t")
        assert self.check(scene, -1) is NONE
        assert self.check(scene, -1, "m", "i") is NONE
        assert self.check(scene, 0, "m") is UNKNOWN

    @pytest.mark.parametrize(
        ("state", "current", "without_anything", "without_generation"),
        [
            (GroupState.EMPTY, UNKNOWN, NONE, NONE),
            (GroupState.PREPARING_REBALANCE, NONE, UNKNOWN, ILLEGAL),
            (GroupState.COMPLETING_REBALANCE, ErrorCode.rebalance_in_progress, UNKNOWN, ILLEGAL),
            (GroupState.STABLE, NONE, UNKNOWN, ILLEGAL),
        ],
    )
    def test_a_commit_is_checked_in_each_state(
        self,
        state: GroupState,
        current: ErrorCode,
        without_anything: ErrorCode,
        without_generation: ErrorCode,
    ) -> None:
        scene, member_id = in_state(state)
        assert self.check(scene, scene.generation_id, member_id) is current
        assert self.check(scene, -1) is without_anything
        assert self.check(scene, -1, member_id) is without_generation
        assert self.check(scene, scene.generation_id, "nobody") is UNKNOWN
        assert self.check(scene, scene.generation_id, member_id, "i") is UNKNOWN
        is_empty = state is GroupState.EMPTY
        assert self.check(scene, scene.generation_id + 1, member_id) is (UNKNOWN if is_empty else ILLEGAL)
        assert self.check(scene, scene.generation_id) is UNKNOWN

    def test_a_commit_restarts_the_session(self) -> None:
        scene, member_id = in_state(GroupState.STABLE)
        scene.advance(SESSION_MS - 1)
        self.check(scene, scene.generation_id + 1, member_id)
        assert scene.next_in_ms() == 1
        self.check(scene, scene.generation_id, member_id)
        assert scene.next_in_ms() == SESSION_MS


class TestDeleteOffsets:
    def delete(self, scene: Scene, *topics: str) -> ErrorCode | list[ErrorCode]:
        effects = scene.effects()
        errors = delete_offsets(scene.shard, GROUP, [(topic, 0) for topic in topics], effects)
        scene.take(effects)
        return errors

    def test_unknown_group(self) -> None:
        assert self.delete(Scene(), "t") is ErrorCode.group_id_not_found

    @pytest.mark.parametrize("is_simple", [False, True])
    def test_of_an_empty_group(self, is_simple: bool) -> None:
        scene = Scene() if is_simple else in_state(GroupState.EMPTY)[0]
        commit(scene, "t", "u")
        scene.records.clear()
        assert self.delete(scene, "t", "t", "never") == [NONE] * 3
        assert scene.records == [OffsetCommitRecord(GROUP, "t", 0, None)]
        assert scene.shard.offsets.of(GROUP) == {("u", 0): OFFSET}

    @pytest.mark.parametrize(
        "state", [GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE]
    )
    def test_subscribed_topics_are_refused(self, state: GroupState) -> None:
        scene, _ = in_state(state)
        commit(scene, "t", "u")
        assert self.delete(scene, "t", "u") == [ErrorCode.group_subscribed_to_topic, NONE]
        assert set(scene.shard.offsets.of(GROUP)) == {("t", 0)}

    def test_any_topic_may_be_subscribed_before_the_first_generation(self) -> None:
        scene = Scene()
        scene.join(CONSUMER)
        commit(scene, "u")
        assert self.delete(scene, "u") == [ErrorCode.group_subscribed_to_topic]

    def test_any_topic_may_be_subscribed_by_a_member_with_an_unreadable_subscription(self) -> None:
        scene = Scene()
        scene.stable(Who(protocols=(("range", b"?"),)))
        commit(scene, "u")
        assert self.delete(scene, "u") == [ErrorCode.group_subscribed_to_topic]

    def test_other_protocol_types(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(Who(protocol_type="connect"))
        commit(scene, "t")
        assert self.delete(scene, "t") is ErrorCode.non_empty_group
        scene.leave((member_id, None))
        assert self.delete(scene, "t") == [NONE]
        scene.join(Who(protocol_type="connect"))
        assert self.delete(scene, "t") is ErrorCode.non_empty_group


class TestDeleteGroup:
    def delete(self, scene: Scene, group_id: str = GROUP) -> ErrorCode:
        effects = scene.effects()
        error = delete_group(scene.shard, group_id, effects)
        scene.take(effects)
        return error

    def test_unknown_group(self) -> None:
        assert self.delete(Scene()) is ErrorCode.group_id_not_found
        assert self.delete(Scene(), "") is ErrorCode.group_id_not_found

    @pytest.mark.parametrize(
        "state", [GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE]
    )
    def test_with_members(self, state: GroupState) -> None:
        scene, _ = in_state(state)
        assert self.delete(scene) is ErrorCode.non_empty_group
        assert scene.state is state

    @pytest.mark.parametrize("is_simple", [False, True])
    def test_with_its_offsets(self, is_simple: bool) -> None:
        scene = Scene() if is_simple else in_state(GroupState.EMPTY)[0]
        commit(scene, "t", "u")
        commit(scene, "t", group_id="other")
        scene.records.clear()
        assert self.delete(scene) is NONE
        assert scene.records == [
            OffsetCommitRecord(GROUP, "t", 0, None),
            OffsetCommitRecord(GROUP, "u", 0, None),
            GroupMetadataRecord(GROUP, None),
        ]
        assert set(scene.shard.groups) == {"other"}
        assert scene.shard.next_deadline_ms(GROUP) is None
        scene.expire()

    def test_a_member_id_of_a_deleted_group_is_unknown(self) -> None:
        scene = Scene()
        who = Who(api_version=4)
        given = scene.joined(scene.join(who)).member_id
        assert self.delete(scene) is NONE
        assert scene.error(scene.join(who.named(given))) is UNKNOWN


def test_forget_gone_topics() -> None:
    scene = Scene()
    scene.shard.topics = topics = Cluster()
    topics.create("kept", 1)
    commit(scene, "kept", "gone")
    commit(scene, "gone", group_id="other")
    scene.records.clear()
    effects = scene.effects()
    scene.shard.forget_gone_topics(effects)
    assert effects.records == [
        OffsetCommitRecord(GROUP, "gone", 0, None),
        OffsetCommitRecord("other", "gone", 0, None),
    ]
    assert list(scene.shard.offsets.of(GROUP)) == [("kept", 0)]
    assert scene.shard.offsets.of("other") == {}


class TestWhatTheLogHolds:
    def held(self, scene: Scene) -> GroupShard:
        """Return a shard rebuilt only from the records of a rewrite."""
        shard = GroupShard(LIMITS, 100)
        for key in scene.shard.stored_keys():
            (record,) = scene.shard.records_of(key)
            shard.replay(record, scene.now_ms)
        return shard

    def test_keys(self) -> None:
        scene = Scene()
        commit(scene, "t", "u")
        assert list(scene.shard.stored_keys()) == [(GROUP, ("t", 0)), (GROUP, ("u", 0))]
        scene.stable(CONSUMER)
        assert list(scene.shard.stored_keys()) == [(GROUP, None), (GROUP, ("t", 0)), (GROUP, ("u", 0))]

    def test_records(self) -> None:
        scene, _ = in_state(GroupState.STABLE)
        commit(scene, "t")
        assert scene.shard.records_of((GROUP, None)) == [GroupMetadataRecord(GROUP, scene.stored())]
        assert scene.shard.records_of((GROUP, ("t", 0))) == [OffsetCommitRecord(GROUP, "t", 0, OFFSET)]

    def test_gone(self) -> None:
        scene = Scene()
        commit(scene, "t")
        for key in ((GROUP, None), (GROUP, ("u", 0)), ("other", None), ("other", ("t", 0))):
            assert not scene.shard.records_of(key)

    @pytest.mark.parametrize("state", [GroupState.EMPTY, GroupState.STABLE])
    def test_a_group_at_rest(self, state: GroupState) -> None:
        scene, _ = in_state(state)
        commit(scene, "t")
        held = self.held(scene)
        assert held.groups[GROUP].metadata() == scene.group.metadata()
        assert held.groups[GROUP].state is state
        assert held.offsets.of(GROUP) == scene.shard.offsets.of(GROUP)

    @pytest.mark.parametrize("state", [GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE])
    def test_a_group_that_rebalances(self, state: GroupState) -> None:
        scene, _ = in_state(state)
        group = self.held(scene).groups[GROUP]
        assert group.state is GroupState.EMPTY
        assert (group.generation_id, group.protocol_type) == (scene.generation_id, "consumer")
        assert (group.leader, group.protocol_name) == (None, None)


class TestRestart:
    def test_members_continue_after_a_restart(self) -> None:
        scene = Scene()
        leader, static = scene.stable(CONSUMER, Who(group_instance_id="i", protocols=CONSUMER.protocols))
        scene.shard = scene.replayed()
        assert scene.state is GroupState.STABLE
        assert {scene.heartbeat(leader), scene.heartbeat(static, group_instance_id="i")} == {NONE}
        assert scene.synced(scene.sync(static)).assignment == static.encode()
        assert scene.joined(scene.join(CONSUMER.named(static))).generation_id == 1
        assert scene.group.subscribed_topics == frozenset({"t"})
        waiters = [scene.join(CONSUMER.named(leader)), scene.join(CONSUMER.named(static))]
        assert [scene.joined(waiter).generation_id for waiter in waiters] == [2, 2]

    def test_silent_members_are_removed_after_a_restart(self) -> None:
        scene = Scene()
        leader, follower = scene.stable(CONSUMER, CONSUMER)
        scene.advance(SESSION_MS - 1)
        scene.shard = scene.replayed()
        scene.advance(SESSION_MS - 1)
        assert scene.heartbeat(leader) is NONE
        scene.advance(1)
        assert set(scene.group.members) == {leader}
        assert follower not in scene.group.members

    def test_a_deleted_group(self) -> None:
        scene, _ = in_state(GroupState.EMPTY)
        commit(scene, "t")
        effects = scene.effects()
        delete_group(scene.shard, GROUP, effects)
        scene.take(effects)
        shard = scene.replayed()
        assert not shard.groups
        assert not len(shard.offsets)

    def test_a_leader_who_is_no_member(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(CONSUMER)
        scene.records = [GroupMetadataRecord(GROUP, scene.stored()._replace(leader="nobody"))]
        scene.shard = scene.replayed()
        waiter = scene.join(Who(leader, protocols=(("range", b"new"),)))
        assert scene.joined(waiter).leader == leader


class TestTime:
    def test_of_an_unknown_group(self) -> None:
        scene = Scene()
        assert scene.shard.next_deadline_ms(GROUP) is None
        scene.expire()

    def test_of_a_simple_group(self) -> None:
        scene = Scene()
        commit(scene, "t")
        assert scene.shard.next_deadline_ms(GROUP) == NEVER

    def test_nothing_is_due_before(self) -> None:
        scene = Scene()
        scene.join(Who(api_version=4))
        scene.join(CONSUMER)
        while (left_ms := scene.next_in_ms()) is not None:
            before = scene.group.metadata(), scene.state, dict(scene.group.pending_members)
            scene.now_ms += left_ms - 1
            scene.expire()
            assert (scene.group.metadata(), scene.state, dict(scene.group.pending_members)) == before
            scene.advance(1)
        assert scene.state is GroupState.EMPTY


def test_waiters() -> None:
    scene = Scene()
    leader, follower = scene.completing(CONSUMER, CONSUMER)
    syncing = scene.sync(follower)
    assert list(scene.shard.waiters()) == [syncing]
    joining = scene.join(Who(leader, protocols=(("range", b"new"),), rebalance_timeout_ms=REBALANCE_MS))
    assert list(scene.shard.waiters()) == [joining]
