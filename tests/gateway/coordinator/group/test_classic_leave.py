"""Members leave, lose their session, or miss a rebalance."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.classic_protocol import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NOBODY_JOINED_DELAY_MS,
)
from tests.gateway.coordinator.group.scene import DELAY_MS, REBALANCE_MS, SESSION_MS, Scene, Who

LONG_MS = 2 * REBALANCE_MS


class TestLeave:
    def test_the_last_member(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who())
        assert scene.leave((leader, None)) == [ErrorCode.none]
        assert scene.state is GroupState.EMPTY
        assert scene.generation_id == 2
        assert scene.stored() == ("consumer", 2, None, None, scene.now_ms, ())
        assert scene.next_in_ms() is None

    def test_one_of_several(self) -> None:
        scene = Scene()
        leader, follower = scene.stable(Who(), Who())
        scene.leave((leader, None))
        assert scene.state is GroupState.PREPARING_REBALANCE
        assert scene.group.leader == follower
        assert scene.heartbeat(follower) is ErrorCode.rebalance_in_progress
        assert scene.joined(scene.join(Who(follower))).leader == follower

    def test_several_at_once(self) -> None:
        scene = Scene()
        first, second, static = scene.stable(Who(), Who(), Who(group_instance_id="i"))
        errors = scene.leave((first, None), ("nobody", None), ("", "i"), ("", "j"), ("", None))
        unknown = ErrorCode.unknown_member_id
        assert errors == [ErrorCode.none, unknown, ErrorCode.none, unknown, unknown]
        assert set(scene.group.members) == {second}
        assert static not in scene.group.static_members.values()
        assert not scene.group.static_members

    def test_one_member_named_twice(self) -> None:
        scene = Scene()
        first, _ = scene.stable(Who(), Who())
        assert scene.leave((first, None), (first, None)) == [ErrorCode.none, ErrorCode.unknown_member_id]

    def test_a_static_member_by_both_ids(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(Who(group_instance_id="i"))
        assert scene.leave(("old", "i"), (member_id, "j")) == [
            ErrorCode.fenced_instance_id,
            ErrorCode.unknown_member_id,
        ]
        assert scene.state is GroupState.STABLE
        assert scene.leave((member_id, "i")) == [ErrorCode.none]
        assert scene.group.state is GroupState.EMPTY

    def test_without_any_id(self) -> None:
        scene = Scene()
        scene.stable(Who(group_instance_id=""))
        assert scene.leave(("", None)) == [ErrorCode.unknown_member_id]

    def test_a_pending_member(self) -> None:
        scene = Scene()
        given = scene.joined(scene.join(Who(api_version=4))).member_id
        assert scene.leave((given, None)) == [ErrorCode.none]
        assert not scene.group.pending_members

    def test_a_pending_member_that_the_rebalance_waits_for(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who())
        given = scene.joined(scene.join(Who(api_version=4))).member_id
        waiter = scene.join(Who(leader))
        scene.leave((given, None))
        assert scene.joined(waiter).generation_id == 2

    def test_a_member_that_the_rebalance_waits_for(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        waiter = scene.join(Who(first))
        scene.leave((second, None))
        assert scene.joined(waiter).generation_id == 2

    def test_while_it_waits_to_join(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        waiter = scene.join(Who(first))
        scene.leave((first, None))
        assert scene.error(waiter) is ErrorCode.unknown_member_id
        assert set(scene.group.members) == {second}

    def test_while_it_waits_to_sync(self) -> None:
        scene = Scene()
        _, second = scene.completing(Who(), Who())
        waiter = scene.sync(second)
        scene.leave((second, None))
        assert scene.error(waiter) is ErrorCode.unknown_member_id
        assert scene.state is GroupState.PREPARING_REBALANCE

    def test_nothing_happens_when_no_member_left(self) -> None:
        scene = Scene()
        scene.stable(Who())
        assert scene.leave(("nobody", None)) == [ErrorCode.unknown_member_id]
        assert scene.leave() == []
        assert scene.state is GroupState.STABLE

    def test_unknown_groups(self) -> None:
        scene = Scene()
        assert scene.leave(("m", None), ("", "i")) == [ErrorCode.unknown_member_id] * 2
        assert scene.shard.classic.leave("", [("m", None)], scene.effects()) is ErrorCode.invalid_group_id


class TestSession:
    def test_a_silent_member_is_removed(self) -> None:
        scene = Scene()
        leader, follower = scene.stable(Who(), Who(session_timeout_ms=6_000))
        assert scene.next_in_ms() == 6_000
        scene.advance(5_999)
        assert follower in scene.group.members
        scene.advance(1)
        assert set(scene.group.members) == {leader}
        assert scene.state is GroupState.PREPARING_REBALANCE

    def test_all_silent_members_are_removed(self) -> None:
        scene = Scene()
        scene.stable(Who(), Who(group_instance_id="i"))
        scene.advance(LONG_MS)
        assert scene.state is GroupState.EMPTY
        assert scene.stored().members == ()

    def test_several_sessions_end_before_the_next_call(self) -> None:
        scene = Scene()
        scene.stable(Who(), Who(), Who())
        scene.now_ms += LONG_MS
        scene.expire()
        assert scene.state is GroupState.EMPTY

    def test_ends_while_the_others_have_joined(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(session_timeout_ms=LONG_MS), Who())
        waiter = scene.join(Who(first, session_timeout_ms=LONG_MS))
        scene.advance(SESSION_MS)
        assert second not in scene.group.members
        assert scene.joined(waiter).generation_id == 2

    def test_waiting_to_join_keeps_the_session(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        waiter = scene.join(Who(first))
        for _ in range(5):
            scene.advance(SESSION_MS - 1)
            scene.heartbeat(second)
        assert scene.waits(waiter)
        scene.join(Who(second))
        assert scene.error(waiter) is ErrorCode.none
        assert scene.member(first).session_deadline_ms == scene.now_ms + SESSION_MS

    def test_of_the_leader_while_completing(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who())
        waiter = scene.sync(follower)
        scene.advance(SESSION_MS)
        assert leader not in scene.group.members
        assert scene.error(waiter) is ErrorCode.rebalance_in_progress
        assert scene.joined(scene.join(Who(follower))).leader == follower


class TestNewMembers:
    """New members can't send heartbeats while they wait for their first answer."""

    def test_new_members_wait_longer_than_a_session(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who(rebalance_timeout_ms=10**9))
        new = scene.join(Who())
        for _ in range(4):
            scene.advance(SESSION_MS - 1)
            scene.heartbeat(leader)
        assert scene.waits(new)

    def test_new_members_are_removed_in_the_end(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who(rebalance_timeout_ms=10**9, session_timeout_ms=400_000))
        new = scene.join(Who())
        scene.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
        assert scene.waits(new)
        scene.advance(1)
        assert scene.error(new) is ErrorCode.unknown_member_id
        assert set(scene.group.members) == {leader}

    def test_are_not_new_once_they_were_answered(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who(session_timeout_ms=400_000, rebalance_timeout_ms=10**9))
        other = scene.join(Who())
        waiter = scene.join(Who(leader, session_timeout_ms=400_000, rebalance_timeout_ms=10**9))
        member_id = scene.joined(other).member_id
        scene.sync(leader)
        scene.sync(member_id)
        scene.join(Who(leader, session_timeout_ms=400_000, rebalance_timeout_ms=10**9))
        again = scene.join(Who(member_id, session_timeout_ms=SESSION_MS))
        assert scene.error(waiter) is ErrorCode.none
        assert scene.joined(again).generation_id == 3


class TestTimeToJoin:
    def test_dynamic_members_lose_their_place(self) -> None:
        scene = Scene()
        first, second, third = scene.stable(*[Who(session_timeout_ms=LONG_MS)] * 3)
        waiter = scene.join(Who(second, protocols=(("range", b"new"),), session_timeout_ms=LONG_MS))
        scene.advance(REBALANCE_MS - 1)
        assert scene.waits(waiter)
        scene.advance(1)
        assert scene.joined(waiter).leader == second
        assert set(scene.group.members) == {second}
        assert {scene.heartbeat(first), scene.heartbeat(third)} == {ErrorCode.unknown_member_id}

    def test_static_members_keep_their_place(self) -> None:
        scene = Scene()
        static, second = scene.stable(
            Who(group_instance_id="i", session_timeout_ms=LONG_MS), Who(session_timeout_ms=LONG_MS)
        )
        waiter = scene.join(Who(second, protocols=(("range", b"new"),), session_timeout_ms=LONG_MS))
        scene.advance(REBALANCE_MS)
        reply = scene.joined(waiter)
        assert reply.leader == second
        assert [member_id for member_id, _, _ in reply.members] == [static, second]
        assert static in scene.group.pending_sync

    def test_the_longest_timeout_counts(self) -> None:
        scene = Scene()
        scene.stable(Who(session_timeout_ms=LONG_MS, rebalance_timeout_ms=5), Who(session_timeout_ms=LONG_MS))
        scene.join(Who(rebalance_timeout_ms=7))
        assert scene.group.join_deadline_ms == scene.now_ms + REBALANCE_MS

    def test_only_absent_static_members(self) -> None:
        scene = Scene()
        first, _ = scene.stable(
            Who(group_instance_id="i", session_timeout_ms=LONG_MS),
            Who(group_instance_id="j", session_timeout_ms=LONG_MS),
        )
        scene.leave(("", "j"))
        scene.advance(REBALANCE_MS)
        assert scene.state is GroupState.PREPARING_REBALANCE
        assert scene.generation_id == 1
        assert scene.group.join_deadline_ms == scene.now_ms + REBALANCE_MS
        assert scene.joined(scene.join(Who(first, group_instance_id="i"))).generation_id == 2

    def test_only_absent_static_members_without_a_timeout(self) -> None:
        scene = Scene()
        scene.stable(
            Who(group_instance_id="i", rebalance_timeout_ms=1),
            Who(group_instance_id="j", rebalance_timeout_ms=1),
        )
        for member in scene.group.members.values():
            member.rebalance_timeout_ms = 0
        scene.leave(("", "j"))
        scene.expire()
        assert scene.next_in_ms() == NOBODY_JOINED_DELAY_MS

    def test_all_members_leave_before_the_time_is_up(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        scene.leave((first, None))
        scene.leave((second, None))
        assert scene.state is GroupState.EMPTY
        assert scene.next_in_ms() is None
        scene.advance(DELAY_MS)
        assert scene.generation_id == 2
