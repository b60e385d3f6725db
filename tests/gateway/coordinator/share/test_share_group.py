"""Members of a share group: how they come and go, and who reads what."""

from __future__ import annotations

import uuid

import pytest
from kio.schema.errors import ErrorCode

from gateway.coordinator.share.share_group import (
    Describe,
    ShareGroup,
    ShareGroupLimits,
    ShareHeartbeat,
    ShareHeartbeatRefused,
)

ALONE = 3
"""The epoch of a group whose first member has joined, and whose partitions were begun."""
LIMITS = ShareGroupLimits(session_timeout_ms=1_000, max_size=3)


def topics(**partitions: int) -> Describe:
    known = {name: (uuid.uuid5(uuid.NAMESPACE_DNS, name), count) for name, count in partitions.items()}
    return known.get


FLIGHTS = topics(flights=4)
FLIGHTS_ID = uuid.uuid5(uuid.NAMESPACE_DNS, "flights")


def heartbeat(member_id: str, member_epoch: int = 0, *names: str) -> ShareHeartbeat:
    wanted = names or (None if member_epoch else ("flights",))
    return ShareHeartbeat(member_id, member_epoch, None, f"client-{member_id}", "/127.0.0.1", wanted)


def joined(*member_ids: str) -> ShareGroup:
    group = ShareGroup("readers")
    for member_id in member_ids:
        group.heartbeat(heartbeat(member_id), FLIGHTS, LIMITS, 0)
    return group


class TestJoining:
    def test_the_first_member_reads_everything(self) -> None:
        group = ShareGroup("readers")
        assert group.state == "Empty"
        member, must_tell = group.heartbeat(heartbeat("a"), FLIGHTS, LIMITS, 0)
        assert must_tell
        assert member.member_epoch == group.group_epoch == ALONE
        assert member.assigned == {(FLIGHTS_ID, number) for number in range(4)}
        assert group.state == "Stable"

    def test_the_others_learn_of_a_second_with_their_next_heartbeat(self) -> None:
        group = joined("a", "b")
        member, must_tell = group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 10)
        assert must_tell
        assert member.member_epoch == ALONE + 1
        assert len(member.assigned) == 2
        assert member.assigned | group.members["b"].assigned == {(FLIGHTS_ID, number) for number in range(4)}
        assert not group.heartbeat(heartbeat("a", ALONE + 1), FLIGHTS, LIMITS, 20)[1]

    def test_who_missed_the_answer_may_go_on_and_is_told_again_when_it_tells_all(self) -> None:
        group = joined("a", "b")
        assert group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 10)[1]
        assert not group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 20)[1]
        assert group.heartbeat(heartbeat("a", ALONE, "flights"), FLIGHTS, LIMITS, 30)[1]

    def test_an_epoch_before_the_last_one_is_fenced(self) -> None:
        group = joined("a", "b")
        group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 10)
        group.leave("b")
        group.heartbeat(heartbeat("a", ALONE + 1), FLIGHTS, LIMITS, 10)
        with pytest.raises(ShareHeartbeatRefused) as refused:
            group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 20)
        assert refused.value.error_code is ErrorCode.fenced_member_epoch

    def test_one_who_joins_again_is_told_again(self) -> None:
        group = joined("a")
        member, must_tell = group.heartbeat(heartbeat("a"), FLIGHTS, LIMITS, 10)
        assert must_tell
        assert member.member_epoch == ALONE

    def test_a_full_group_takes_nobody_else(self) -> None:
        group = joined("a", "b", "c")
        with pytest.raises(ShareHeartbeatRefused) as refused:
            group.heartbeat(heartbeat("d"), FLIGHTS, LIMITS, 0)
        assert refused.value.error_code is ErrorCode.group_max_size_reached
        assert set(group.members) == {"a", "b", "c"}
        assert group.group_epoch == ALONE + 2

    def test_an_unknown_member_must_join_first(self) -> None:
        group = joined("a")
        with pytest.raises(ShareHeartbeatRefused) as refused:
            group.heartbeat(heartbeat("b", 1), FLIGHTS, LIMITS, 0)
        assert refused.value.error_code is ErrorCode.unknown_member_id

    def test_an_epoch_that_never_was_is_fenced(self) -> None:
        group = joined("a")
        deadline_ms = group.members["a"].session_deadline_ms
        with pytest.raises(ShareHeartbeatRefused) as refused:
            group.heartbeat(heartbeat("a", ALONE + 1), FLIGHTS, LIMITS, 500)
        assert refused.value.error_code is ErrorCode.fenced_member_epoch
        assert group.members["a"].session_deadline_ms == deadline_ms


class TestChanges:
    def test_new_partitions_are_given_out(self) -> None:
        group = joined("a")
        member, must_tell = group.heartbeat(heartbeat("a", ALONE), topics(flights=6), LIMITS, 0)
        assert must_tell
        assert member.member_epoch == ALONE + 2
        assert len(member.assigned) == 6

    def test_another_subscription_counts_at_once(self) -> None:
        group = joined("a")
        both = topics(flights=4, trains=1)
        member, must_tell = group.heartbeat(heartbeat("a", ALONE, "trains"), both, LIMITS, 0)
        assert must_tell
        assert member.assigned == {(uuid.uuid5(uuid.NAMESPACE_DNS, "trains"), 0)}

    def test_a_deleted_topic_is_taken_away(self) -> None:
        group = joined("a")
        member, must_tell = group.heartbeat(heartbeat("a", ALONE), topics(), LIMITS, 0)
        assert must_tell
        assert member.assigned == set()


class TestGoing:
    def test_what_one_read_goes_to_those_who_stay(self) -> None:
        group = joined("a", "b")
        group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 0)
        group.leave("b")
        assert (group.group_epoch, group.assignment_epoch) == (ALONE + 2, ALONE + 1)
        member, must_tell = group.heartbeat(heartbeat("a", ALONE + 1), FLIGHTS, LIMITS, 0)
        assert must_tell
        assert len(member.assigned) == 4
        assert member.member_epoch == ALONE + 2

    def test_only_members_can_leave(self) -> None:
        group = joined("a")
        with pytest.raises(ShareHeartbeatRefused) as refused:
            group.leave("b")
        assert refused.value.error_code is ErrorCode.unknown_member_id
        assert group.group_epoch == ALONE

    def test_who_is_not_heard_of_is_given_up(self) -> None:
        group = joined("a", "b")
        group.heartbeat(heartbeat("a", ALONE), FLIGHTS, LIMITS, 500)
        assert group.expire(999) == []
        assert group.expire(1_000) == ["b"]
        assert set(group.members) == {"a"}
        assert group.expire(1_500) == ["a"]
        assert group.state == "Empty"
