"""Members of a share group: joining and leaving, assigned partitions, and the records of the group."""

from __future__ import annotations

import uuid

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group import share_group
from seqgate.gateway.coordinator.group import share_heartbeat as protocol
from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import AssignmentEpoch, HeartbeatRefused
from seqgate.gateway.coordinator.group.records import encode
from seqgate.gateway.coordinator.group.share_group import ROWS, ShareGroup
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareHeartbeat, check
from seqgate.gateway.coordinator.rows import RowRecord

ALONE = 3
"""The group epoch after the first member has joined and its partitions' share state exists."""
LIMITS = ShareGroupLimits(session_timeout_ms=1_000, max_size=3)
GROUP = "readers"


class FakeTopics:
    def __init__(self, **partitions: int) -> None:
        self.counts = partitions

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        count = self.counts.get(name)
        return None if count is None else (topic_id(name), count)

    def names(self) -> list[str]:
        return list(self.counts)


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


FLIGHTS = FakeTopics(flights=4)
FLIGHTS_ID = topic_id("flights")


def asking(member_id: str, member_epoch: int = 0, *names: str) -> ShareHeartbeat:
    wanted = names or (None if member_epoch else ("flights",))
    return ShareHeartbeat(GROUP, member_id, member_epoch, None, f"client-{member_id}", "/127.0.0.1", wanted)


class Scene:
    """A group, and the records of its whole life."""

    def __init__(self, *member_ids: str) -> None:
        self.group = ShareGroup(GROUP)
        self.records: list[RowRecord] = []
        for member_id in member_ids:
            self.beat(asking(member_id))

    def beat(self, request: ShareHeartbeat, topics: FakeTopics = FLIGHTS, now_ms: int = 0) -> HeartbeatReply:
        reply, records = protocol.heartbeat(self.group, request, topics, LIMITS, now_ms)
        self.records += records
        self.check_log(now_ms)
        return reply

    def leave(self, member_id: str) -> None:
        self.records += protocol.leave(self.group, asking(member_id, -1))[1]
        self.check_log(0)

    def expire(self, now_ms: int) -> list[str]:
        before = list(self.group.members)
        self.records += self.group.remove_overdue(now_ms)
        self.check_log(now_ms)
        return [member_id for member_id in before if member_id not in self.group.members]

    def again(self, now_ms: int) -> ShareGroup:
        """Return the group rebuilt from its records, as after a restart."""
        again = ShareGroup(GROUP)
        for record in self.records:
            again.replay(record, now_ms, LIMITS.session_timeout_ms)
        return again

    def check_log(self, now_ms: int) -> None:
        assert stored(self.again(now_ms)) == stored(self.group)


def stored(group: ShareGroup) -> list[RowRecord | None]:
    return [group.record_of(*key) for key in sorted(ROWS.stored_keys(group))]


class TestJoining:
    def test_the_first_member_reads_everything(self) -> None:
        scene = Scene()
        assert scene.group.state_text == "Empty"
        reply = scene.beat(asking("a"))
        assert reply.member_epoch == scene.group.group_epoch == ALONE
        assert reply.assignment == {(FLIGHTS_ID, number) for number in range(4)}
        assert scene.group.state_text == "Stable"

    def test_the_others_learn_of_a_second_with_their_next_heartbeat(self) -> None:
        scene = Scene("a", "b")
        reply = scene.beat(asking("a", ALONE), now_ms=10)
        assert reply.assignment is not None
        assert reply.member_epoch == ALONE + 1
        assert len(reply.assignment) == 2
        other = scene.group.members["b"].current.assigned
        assert reply.assignment | other == {(FLIGHTS_ID, number) for number in range(4)}
        assert scene.beat(asking("a", ALONE + 1), now_ms=20).assignment is None

    def test_a_member_that_missed_the_answer_continues_and_gets_it_after_a_full_heartbeat(self) -> None:
        scene = Scene("a", "b")
        assert scene.beat(asking("a", ALONE), now_ms=10).assignment is not None
        assert scene.beat(asking("a", ALONE), now_ms=20).assignment is None
        assert scene.beat(asking("a", ALONE, "flights"), now_ms=30).assignment is not None

    def test_an_epoch_before_the_last_one_is_fenced(self) -> None:
        scene = Scene("a", "b")
        scene.beat(asking("a", ALONE))
        scene.leave("b")
        scene.beat(asking("a", ALONE + 1))
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat(asking("a", ALONE))
        assert refused.value.error_code is ErrorCode.fenced_member_epoch

    def test_a_member_that_joins_again_gets_its_assignment_again(self) -> None:
        scene = Scene("a")
        reply = scene.beat(asking("a"))
        assert reply.assignment is not None
        assert reply.member_epoch == ALONE

    def test_a_full_group_refuses_new_members(self) -> None:
        scene = Scene("a", "b", "c")
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat(asking("d"))
        assert refused.value.error_code is ErrorCode.group_max_size_reached
        assert set(scene.group.members) == {"a", "b", "c"}
        assert scene.group.group_epoch == ALONE + 2

    def test_an_unknown_member_must_join_first(self) -> None:
        scene = Scene("a")
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat(asking("b", 1))
        assert refused.value.error_code is ErrorCode.unknown_member_id

    def test_an_unknown_epoch_is_fenced(self) -> None:
        scene = Scene("a")
        deadline_ms = scene.group.members["a"].session_deadline_ms
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat(asking("a", ALONE + 1), now_ms=500)
        assert refused.value.error_code is ErrorCode.fenced_member_epoch
        assert scene.group.members["a"].session_deadline_ms == deadline_ms

    @pytest.mark.parametrize("names", [("n" * (1 << 18), "m"), ("n" * 1000,) * 300])
    def test_a_subscription_too_large_for_a_record_is_refused(self, names: tuple[str, ...]) -> None:
        with pytest.raises(HeartbeatRefused) as refused:
            check(asking("a", 0, *names))
        assert refused.value.error_code is ErrorCode.invalid_request


class TestChanges:
    def test_new_partitions_are_assigned(self) -> None:
        scene = Scene("a")
        reply = scene.beat(asking("a", ALONE), FakeTopics(flights=6))
        assert reply.member_epoch == ALONE + 2
        assert reply.assignment is not None
        assert len(reply.assignment) == 6

    def test_another_subscription_takes_effect_at_once(self) -> None:
        scene = Scene("a")
        reply = scene.beat(asking("a", ALONE, "trains"), FakeTopics(flights=4, trains=1))
        assert reply.assignment == {(topic_id("trains"), 0)}

    def test_partitions_of_a_deleted_topic_are_taken_away(self) -> None:
        scene = Scene("a")
        assert scene.beat(asking("a", ALONE), FakeTopics()).assignment == frozenset()


class TestGoing:
    def test_the_partitions_of_a_leaving_member_go_to_the_others(self) -> None:
        scene = Scene("a", "b")
        scene.beat(asking("a", ALONE))
        scene.leave("b")
        assert (scene.group.group_epoch, scene.group.assignment_epoch) == (ALONE + 2, ALONE + 1)
        reply = scene.beat(asking("a", ALONE + 1))
        assert reply.assignment is not None
        assert len(reply.assignment) == 4
        assert reply.member_epoch == ALONE + 2

    def test_the_last_member_leaves_the_assignment_at_its_epoch(self) -> None:
        """Kafka's `GroupMetadataManager.shareGroupFenceMember`, from 4.4 on."""
        scene = Scene("a")
        scene.leave("a")
        assert (scene.group.group_epoch, scene.group.assignment) == (ALONE + 1, AssignmentEpoch(ALONE + 1))

    def test_only_members_can_leave(self) -> None:
        scene = Scene("a")
        with pytest.raises(HeartbeatRefused) as refused:
            scene.leave("b")
        assert refused.value.error_code is ErrorCode.unknown_member_id
        assert scene.group.group_epoch == ALONE

    def test_a_silent_member_is_removed(self) -> None:
        scene = Scene("a", "b")
        scene.beat(asking("a", ALONE), now_ms=500)
        assert scene.expire(999) == []
        assert scene.expire(1_000) == ["b"]
        assert set(scene.group.members) == {"a"}
        assert scene.expire(1_500) == ["a"]
        assert scene.group.state_text == "Empty"


class TestRecords:
    def test_a_heartbeat_that_changes_nothing_writes_nothing(self) -> None:
        scene = Scene("a", "b")
        scene.beat(asking("a", ALONE))
        before = list(scene.records)
        for now_ms in (100, 200):
            scene.beat(asking("a", ALONE + 1), now_ms=now_ms)
            scene.beat(asking("a", ALONE + 1, "flights"), now_ms=now_ms)
        assert scene.records == before

    def test_another_client_id_is_stored_and_changes_no_epoch(self) -> None:
        scene = Scene("a")
        before = list(scene.records)
        moved = ShareHeartbeat(GROUP, "a", ALONE, "north", "client-a", "/192.0.2.1", None)
        assert scene.beat(moved).member_epoch == ALONE
        (record,) = scene.records[len(before) :]
        assert record.row is share_group.MEMBER
        assert record.value == ("north", "client-a", "/192.0.2.1", ("flights",))

    def test_members_continue_after_a_restart_with_a_new_session(self) -> None:
        scene = Scene("a", "b")
        scene.beat(asking("a", ALONE))
        again = scene.again(5_000)
        assert {member.session_deadline_ms for member in again.members.values()} == {6_000}
        reply, records = protocol.heartbeat(again, asking("b", ALONE + 1), FLIGHTS, LIMITS, 5_000)
        assert reply == HeartbeatReply("b", ALONE + 1, None)
        assert records == []

    def test_topics_changed_while_the_gateway_was_down_are_assigned(self) -> None:
        again = Scene("a").again(0)
        more = FakeTopics(flights=5)
        reply, _ = protocol.heartbeat(again, asking("a", ALONE), more, LIMITS, 0)
        assert reply.member_epoch == ALONE + 2
        assert reply.assignment is not None
        assert len(reply.assignment) == 5

    def test_topics_deleted_while_the_gateway_was_down_are_taken_away(self) -> None:
        reply, _ = protocol.heartbeat(Scene("a").again(0), asking("a", ALONE), FakeTopics(), LIMITS, 0)
        assert reply == HeartbeatReply("a", ALONE + 1, frozenset())

    def test_a_member_whose_target_was_lost_reads_nothing(self) -> None:
        group = Scene("a").again(0)
        del group.targets["a"]
        group.places_seen = frozenset((FLIGHTS_ID, number) for number in range(4))
        assert protocol.heartbeat(group, asking("a", ALONE), FLIGHTS, LIMITS, 0)[0].assignment == frozenset()

    def test_a_deleted_group_leaves_no_records(self) -> None:
        scene = Scene("a", "b")
        deleted = ROWS.deletion_records(scene.group)
        again = scene.again(0)
        for record in deleted:
            again.replay(record, 0, 1_000)
        assert (again.members, again.targets, again.begun, again.group_epoch) == ({}, {}, frozenset(), 0)
        keys = [encode(record)[0] for record in deleted]
        assert all(encode(record)[1] is None for record in deleted)
        assert len(set(keys)) == len(keys) == len(ROWS.stored_keys(scene.group))
