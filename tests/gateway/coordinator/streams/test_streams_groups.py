"""Streams groups and other groups in one shard: kinds, offsets, deletion, and what the log restores."""

from __future__ import annotations

from functools import partial

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.group.consumer_heartbeat import consumer_heartbeat
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import EpochRaised, MemberJoined, MemberLeft, MemberRemoved
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_heartbeat import share_heartbeat
from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.coordinator.streams.heartbeat import StreamsHeartbeat, StreamsReply, streams_heartbeat
from seqgate.gateway.coordinator.streams.topology import Topology
from seqgate.gateway.handlers.groups.groups import delete_group
from seqgate.gateway.handlers.groups.offset_delete import delete_offsets
from seqgate.gateway.handlers.sharing.share_group_offsets import begin_partitions
from seqgate.gateway.handlers.transactions.txn_offset_commit import FIRST_WITH_TOPIC_IDS, check_in_transaction
from tests.gateway.coordinator.group import consumer_scene, scene
from tests.gateway.coordinator.group.test_share_group import asking as sharing
from tests.gateway.coordinator.streams.applications import FakeTopics, changelog, subtopology
from tests.gateway.coordinator.streams.group_scene import AT_ONCE, GROUP, active, asking, joining

NOT_FOUND = ErrorCode.group_id_not_found
FIRST_EPOCH = 2
OFFSET = CommittedOffset(5, 1, "", scene.START_MS)


def committing(*partitions: int, topic: str = "lines") -> list[OffsetCommitRecord]:
    return [OffsetCommitRecord(GROUP, topic, partition, OFFSET) for partition in partitions]


class Scene(scene.Scene):
    """A shard with one topic to process."""

    def __init__(self, *, max_groups: int = 100) -> None:
        super().__init__()
        self._max_groups = max_groups
        self.topics = FakeTopics(lines=4)
        self.shard = self.fresh()

    def fresh(self) -> GroupShard:
        return GroupShard(
            scene.LIMITS, self._max_groups, topics=self.topics, streams_limits=lambda _: AT_ONCE
        )

    def beat(self, request: StreamsHeartbeat) -> StreamsReply:
        effects = self.effects()
        try:
            return streams_heartbeat(self.shard, request, effects)
        finally:
            self.take(effects)

    def refusal(self, request: StreamsHeartbeat) -> ErrorCode:
        with pytest.raises(HeartbeatRefused) as refused:
            self.beat(request)
        return refused.value.error_code

    def commit(self, *records: OffsetCommitRecord) -> None:
        effects = self.effects()
        self.shard.commits.commit(records, effects)
        self.take(effects)

    def delete(self, group_id: str = GROUP) -> ErrorCode:
        effects = self.effects()
        error = delete_group(self.shard, group_id, effects)
        self.take(effects)
        return error

    def check(self, member_id: str, epoch: int, *records: OffsetCommitRecord) -> ErrorCode:
        return self.shard.commits.check(Committer(GROUP, epoch, member_id), records, self.now_ms)

    def restart(self) -> None:
        """Rebuild the shard from the log, once unchanged and once rewritten."""
        self.shard = scene.rebuilt(self, self.fresh)


def with_a_member() -> Scene:
    made = Scene()
    made.beat(joining("a"))
    return made


class TestKinds:
    def test_a_streams_group_is_of_no_other_kind(self) -> None:
        made = with_a_member()
        for _ in range(2):
            assert made.error(made.join(scene.Who(), GROUP)) is ErrorCode.inconsistent_group_protocol
            for refuse in (
                lambda: consumer_heartbeat(
                    made.shard, consumer_scene.joining("c", "lines", group_id=GROUP), made.effects()
                ),
                lambda: share_heartbeat(
                    made.shard, replace(sharing("c"), group_id=GROUP), made.effects(), lambda: True
                ),
            ):
                with pytest.raises(HeartbeatRefused) as refused:
                    refuse()
                assert refused.value.error_code is NOT_FOUND
            made.restart()

    def test_a_group_of_another_kind_takes_no_streams_members(self) -> None:
        made = Scene()
        made.join(scene.Who(), "classic")
        consumer_heartbeat(
            made.shard, consumer_scene.joining("c", "lines", group_id="consumers"), made.effects()
        )
        topic_id = next(iter(consumer_ids()))
        begin_partitions(made.shard.shares, "sharers", {(topic_id, 0)}, {topic_id: "lines"}, made.effects())
        for group_id in ("classic", "consumers", "sharers"):
            for request in (joining("a"), asking("a", 1), asking("a", -1)):
                assert made.refusal(replace(request, group_id=group_id)) is NOT_FOUND
        assert not made.shard.streams.groups

    @pytest.mark.parametrize("member_epoch", [1, -1])
    def test_an_unknown_group_has_no_members(self, member_epoch: int) -> None:
        assert Scene().refusal(asking("a", member_epoch)) is NOT_FOUND

    def test_offsets_without_members_become_those_of_the_streams_group(self) -> None:
        made = Scene()
        made.commit(*committing(1))
        assert GROUP in made.shard.groups
        made.beat(joining("a"))
        assert GROUP not in made.shard.groups
        made.restart()
        assert list(made.shard.offsets.of(GROUP)) == [("lines", 1)]
        assert GROUP in made.shard.streams.groups
        assert GROUP not in made.shard.groups

    def test_an_empty_streams_group_becomes_a_classic_group(self) -> None:
        made = with_a_member()
        made.commit(*committing(1))
        made.beat(asking("a", -1))
        made.join(scene.Who(), GROUP)
        assert GROUP in made.shard.groups
        assert GROUP not in made.shard.streams.groups
        again = made.fresh()
        for record in made.records:
            again.replay(record, made.now_ms)
        assert GROUP in again.groups
        assert list(again.offsets.of(GROUP)) == [("lines", 1)]

    def test_the_gateway_holds_so_many_groups(self) -> None:
        made = Scene(max_groups=1)
        made.beat(joining("a"))
        assert made.refusal(replace(joining("a"), group_id="other")) is ErrorCode.group_max_size_reached
        made.beat(joining("b"))

    def test_the_members_of_the_gateway_have_so_many_bytes(self) -> None:
        made = with_a_member()
        made.shard.member_bytes.limit_bytes = 1_500
        made.now_ms += 10_000
        request = joining("b", client_tags=(("zone", "z" * 800),))
        assert made.refusal(request) is ErrorCode.group_max_size_reached

    def test_topologies_count_among_the_bytes_of_members(self) -> None:
        made = Scene()
        made.shard.member_bytes.limit_bytes = 4_500
        made.beat(
            joining("a", Topology(0, (subtopology("0", "lines", changelogs=[changelog("c" * 2_000)]),)))
        )
        made.beat(asking("a", -1))
        made.now_ms += 10_000
        other = replace(joining("b", Topology(0, (subtopology("0", "l" * 2_000),))), group_id="other")
        assert made.refusal(other) is ErrorCode.group_max_size_reached


def consumer_ids() -> list[object]:
    described = FakeTopics(lines=1).describe("lines")
    assert described is not None
    return [described[0]]


class TestOffsets:
    def test_a_member_commits_at_its_epoch(self) -> None:
        made = with_a_member()
        assert made.check("a", FIRST_EPOCH, *committing(0)) is ErrorCode.none
        assert made.check("x", FIRST_EPOCH, *committing(0)) is ErrorCode.unknown_member_id
        assert made.check("a", FIRST_EPOCH + 1, *committing(0)) is ErrorCode.stale_member_epoch
        assert made.check("", -1, *committing(0)) is ErrorCode.unknown_member_id

    def test_an_older_epoch_commits_the_tasks_of_that_epoch(self) -> None:
        made = with_a_member()
        made.topics.counts["lines"] = 6
        made.shard.topics_changed()
        made.beat(asking("a", FIRST_EPOCH, owned=active(0, 1, 2, 3)))
        made.restart()
        assert made.check("a", FIRST_EPOCH, *committing(0, 3)) is ErrorCode.none
        assert made.check("a", FIRST_EPOCH, *committing(0, 4)) is ErrorCode.stale_member_epoch
        assert made.check("a", FIRST_EPOCH, *committing(0, topic="x")) is ErrorCode.stale_member_epoch

    def test_a_client_of_an_old_protocol_can_not_commit(self) -> None:
        made = with_a_member()
        committer = Committer(GROUP, FIRST_EPOCH, "a", has_member_epoch=False)
        error = made.shard.commits.check(committer, committing(0), made.now_ms)
        assert error is ErrorCode.unsupported_version

    def test_anybody_commits_to_an_empty_group(self) -> None:
        made = with_a_member()
        made.beat(asking("a", -1))
        assert made.check("", -1, *committing(0)) is ErrorCode.none

    def test_a_transaction_needs_no_member_but_a_right_one(self) -> None:
        made = with_a_member()
        check = partial(check_in_transaction, made.shard, api_version=FIRST_WITH_TOPIC_IDS)
        assert check(Committer(GROUP), committing(0), made.now_ms) is ErrorCode.none
        assert check(Committer(GROUP, FIRST_EPOCH, "a"), committing(0), made.now_ms) is ErrorCode.none
        assert check(Committer(GROUP, 9, "a"), committing(0), made.now_ms) is ErrorCode.stale_member_epoch

    def test_offsets_of_topics_that_are_read_stay(self) -> None:
        made = with_a_member()
        made.commit(*committing(0), *committing(0, topic="other"))
        errors = delete_offsets(made.shard, GROUP, [("lines", 0), ("other", 0)], made.effects())
        assert errors == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]

    def test_offsets_expire_unless_they_are_read(self) -> None:
        made = with_a_member()
        made.commit(*committing(0), *committing(0, topic="other"))
        made.now_ms += 1_000
        made.shard.clean_up(1_000, made.effects())
        assert list(made.shard.offsets.of(GROUP)) == [("lines", 0)]
        made.beat(asking("a", -1))
        made.shard.clean_up(1_000, made.effects())
        assert GROUP not in made.shard.group_ids(), "no members and no offsets are left"


class TestLog:
    def test_members_continue_after_a_restart(self) -> None:
        made = with_a_member()
        made.restart()
        size = len(made.records)
        reply = made.beat(asking("a", FIRST_EPOCH))
        assert (reply.member_epoch, reply.tasks) == (FIRST_EPOCH, None)
        assert len(made.records) == size

    def test_a_group_with_members_is_not_deleted(self) -> None:
        made = with_a_member()
        made.commit(*committing(0))
        assert made.delete() is ErrorCode.non_empty_group
        made.beat(asking("a", -1))
        assert made.delete() is ErrorCode.none
        assert made.delete() is NOT_FOUND
        made.restart()
        assert scene.written_anew(made.shard) == []

    def test_leftover_records_of_a_member_make_no_group(self) -> None:
        shard = Scene().shard
        shard.replay(streams_records.MEMBER.of(GROUP, "a", None), 0)
        assert not shard.streams.groups

    def test_silent_members_are_removed(self) -> None:
        made = with_a_member()
        made.restart()
        deadline_ms = made.shard.next_deadline_ms(GROUP)
        assert deadline_ms == made.now_ms + AT_ONCE.session_timeout_ms
        made.now_ms = deadline_ms
        effects = made.effects()
        made.shard.expire(GROUP, effects)
        made.take(effects)
        assert [type(event) for event in effects.events] == [MemberRemoved, EpochRaised]
        made.restart()
        assert made.shard.streams.groups[GROUP].state_text == "Empty"

    def test_deadlines_move_with_the_clock(self) -> None:
        made = with_a_member()
        before = made.shard.next_deadline_ms(GROUP)
        assert before is not None
        made.shard.clock_was_set(500)
        assert made.shard.next_deadline_ms(GROUP) == before + 500

    def test_joining_and_leaving_are_logged(self) -> None:
        made = Scene()
        effects = made.effects()
        streams_heartbeat(made.shard, joining("a"), effects)
        assert [type(event) for event in effects.events] == [MemberJoined, EpochRaised]
        assert effects.events[1] == EpochRaised(GROUP, "streams", FIRST_EPOCH, "member a joined")
        effects = made.effects()
        streams_heartbeat(made.shard, asking("a", -1), effects)
        assert [type(event) for event in effects.events] == [MemberLeft, EpochRaised]
