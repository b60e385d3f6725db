"""Share groups and other groups in one shard: an id belongs to one kind of group, and the log restores all of
them.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group import share_group
from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatReply, consumer_heartbeat
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_heartbeat import (
    ShareGroupLimits,
    ShareHeartbeat,
    share_heartbeat,
)
from seqgate.gateway.handlers.groups.offset_delete import delete_offsets
from seqgate.gateway.handlers.sharing.share_group_offsets import begin_partitions
from seqgate.gateway.handlers.transactions.txn_offset_commit import FIRST_WITH_TOPIC_IDS, check_in_transaction
from tests.gateway.coordinator.group import consumer_scene, scene
from tests.gateway.coordinator.group.test_share_group import (
    ALONE,
    FLIGHTS_ID,
    GROUP,
    FakeTopics,
    asking,
    topic_id,
)

NOT_FOUND = ErrorCode.group_id_not_found
OFFSET = CommittedOffset(5, 1, "", scene.START_MS)


class Scene(scene.Scene):
    """A shard with one topic to assign."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = FakeTopics(flights=4)
        self.shard = self.fresh()

    def fresh(self) -> GroupShard:
        limits = ShareGroupLimits(session_timeout_ms=1_000)
        return GroupShard(scene.LIMITS, 100, topics=self.topics, share_limits=lambda _: limits)

    def beat(self, request: ShareHeartbeat) -> HeartbeatReply:
        effects = self.effects()
        reply = share_heartbeat(self.shard, request, effects, lambda: True)
        self.take(effects)
        return reply

    def begin(self, group_id: str) -> None:
        effects = self.effects()
        begin_partitions(self.shard.shares, group_id, {(FLIGHTS_ID, 2)}, {FLIGHTS_ID: "flights"}, effects)
        self.take(effects)

    def delete(self) -> ErrorCode:
        effects = self.effects()
        error = self.shard.delete_share_group(GROUP, effects)
        self.take(effects)
        return error

    def restart(self) -> None:
        """Rebuild the shard from the log, once unchanged and once rewritten."""
        self.shard = scene.rebuilt(self, self.fresh)


def with_a_member() -> Scene:
    made = Scene()
    made.beat(asking("a"))
    return made


class TestKinds:
    def test_a_share_group_is_of_no_other_kind(self) -> None:
        made = with_a_member()
        for _ in range(2):
            assert made.error(made.join(scene.Who(), GROUP)) is ErrorCode.inconsistent_group_protocol
            with pytest.raises(HeartbeatRefused) as refused:
                consumer_heartbeat(
                    made.shard, consumer_scene.joining("c", "flights", group_id=GROUP), made.effects()
                )
            assert refused.value.error_code is NOT_FOUND
            for committer in (Committer(GROUP), Committer(GROUP, 3, "a")):
                assert made.shard.commits.check(committer, [], 0) is NOT_FOUND
                assert check_in_transaction(made.shard, committer, [], 0, FIRST_WITH_TOPIC_IDS) is NOT_FOUND
            assert delete_offsets(made.shard, GROUP, [("flights", 0)], made.effects()) is NOT_FOUND
            assert not made.shard.is_read_alone(GROUP)
            made.restart()

    def test_a_group_of_another_kind_takes_no_share_members(self) -> None:
        made = Scene()
        made.shard.replay(OffsetCommitRecord("offsets", "flights", 0, OFFSET), 0)
        made.join(scene.Who(), "classic")
        consumer_heartbeat(
            made.shard, consumer_scene.joining("c", "flights", group_id="consumers"), made.effects()
        )
        for group_id in ("offsets", "classic", "consumers"):
            for member_epoch in (0, 1, -1):
                request = asking("a", member_epoch)
                refused_request = ShareHeartbeat(
                    group_id, "a", member_epoch, None, "", "", request.subscribed_names
                )
                with pytest.raises(HeartbeatRefused) as refused:
                    made.beat(refused_request)
                assert refused.value.error_code is NOT_FOUND
        assert not made.shard.shares.groups

    @pytest.mark.parametrize("member_epoch", [1, -1])
    def test_an_unknown_group_has_no_members(self, member_epoch: int) -> None:
        made = Scene()
        with pytest.raises(HeartbeatRefused) as refused:
            made.beat(asking("a", member_epoch))
        assert refused.value.error_code is NOT_FOUND
        assert not made.shard.shares.groups


class TestLog:
    def test_members_continue_after_a_restart(self) -> None:
        made = with_a_member()
        made.beat(asking("b"))
        made.beat(asking("a", ALONE))
        made.restart()
        size = len(made.records)
        assert made.beat(asking("a", ALONE + 1)) == HeartbeatReply("a", ALONE + 1, None)
        assert made.beat(asking("b", ALONE + 1)) == HeartbeatReply("b", ALONE + 1, None)
        assert len(made.records) == size

    def test_silent_members_are_removed_and_reported(self) -> None:
        made = with_a_member()
        made.restart()
        deadline_ms = made.shard.next_deadline_ms(GROUP)
        assert deadline_ms == made.now_ms + 1_000
        effects = Effects(deadline_ms)
        made.shard.expire(GROUP, effects)
        assert effects.gone_sharers == [(GROUP, "a")]
        made.take(effects)
        made.restart()
        assert not made.shard.shares.groups[GROUP].members

    def test_a_member_that_leaves_is_removed_for_good(self) -> None:
        made = with_a_member()
        assert made.beat(asking("a", -1)) == HeartbeatReply("a", -1, None)
        made.restart()
        assert made.shard.shares.groups[GROUP].state_text == "Empty"
        assert GROUP in made.shard.group_ids()

    def test_a_deleted_group_stays_deleted(self) -> None:
        made = with_a_member()
        assert made.delete() is ErrorCode.non_empty_group
        made.beat(asking("a", -1))
        assert made.delete() is ErrorCode.none
        assert made.delete() is NOT_FOUND
        made.restart()
        assert scene.written_anew(made.shard) == []
        made.beat(asking("a"))
        made.restart()
        assert GROUP in made.shard.shares.groups

    def test_a_group_that_nobody_joined_is_kept(self) -> None:
        made = Scene()
        made.begin(GROUP)
        size = len(made.records)
        made.begin(GROUP)
        assert len(made.records) == size
        made.restart()
        group = made.shard.shares.groups[GROUP]
        assert (group.group_epoch, group.begun, group.members) == (1, {(FLIGHTS_ID, 2)}, {})

    def test_leftover_records_of_a_member_make_no_group(self) -> None:
        shard = Scene().shard
        shard.replay(share_group.MEMBER.of(GROUP, "a", None), 0)
        assert not shard.shares.groups


class TestTopics:
    def test_a_deleted_topic_is_forgotten(self) -> None:
        made = with_a_member()
        effects = made.effects()
        made.shard.forget_gone_topics(effects)
        assert not effects.records
        del made.topics.counts["flights"]
        made.shard.forget_gone_topics(effects)
        made.take(effects)
        made.restart()
        assert made.shard.shares.groups[GROUP].begun == frozenset()

    def test_topics_that_are_deleted_together_are_forgotten_with_one_record(self) -> None:
        made = Scene()
        made.topics.counts |= {"trains": 2, "ships": 1}
        made.beat(asking("a", 0, "flights", "trains", "ships"))
        del made.topics.counts["flights"], made.topics.counts["ships"]
        effects = made.effects()
        made.shard.forget_gone_topics(effects)
        assert len(effects.records) == 1
        made.take(effects)
        made.restart()
        assert made.shard.shares.groups[GROUP].begun == {(topic_id("trains"), index) for index in range(2)}

    def test_partitions_of_a_forgotten_topic_are_begun_anew(self) -> None:
        made = with_a_member()
        effects = made.effects()
        made.shard.forget_topics(GROUP, {FLIGHTS_ID}, effects)
        made.take(effects)
        made.restart()
        assert made.beat(asking("a", ALONE)).member_epoch == ALONE + 1
