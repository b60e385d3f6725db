"""SyncGroup and Heartbeat of the classic protocol: members agree on an assignment and keep their sessions."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.offsets import Committer
from tests.gateway.coordinator.group.scene import REBALANCE_MS, SESSION_MS, START_MS, Scene, Who

NEW = (("range", b"new"),)


class TestAssignment:
    def test_followers_wait_for_the_leader(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who())
        early = scene.sync(follower)
        assert scene.waits(early)
        leaders = scene.sync(leader, {leader: b"L", follower: b"F"})
        assert scene.state is GroupState.STABLE
        assert scene.synced(early).assignment == b"F"
        reply = scene.synced(leaders)
        assert (reply.assignment, reply.protocol_type, reply.protocol_name) == (b"L", "consumer", "range")

    def test_a_follower_comes_later(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who())
        scene.sync(leader, {leader: b"L", follower: b"F"})
        assert scene.synced(scene.sync(follower)).assignment == b"F"
        assert scene.synced(scene.sync(leader, {leader: b"other"})).assignment == b"L"

    def test_members_without_an_assignment_and_strangers(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who())
        early = scene.sync(follower, {follower: b"what a follower says does not count"})
        scene.sync(leader, {leader: b"L", "stranger": b"S"})
        assert scene.synced(early).assignment == b""
        assert "stranger" not in scene.group.members

    def test_is_stored(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who(group_instance_id="i"))
        assert not scene.records
        scene.advance(5)
        scene.sync(leader, {leader: b"L", follower: b"F"})
        stored = scene.stored()
        assert len(scene.records) == 1
        assert stored[:5] == ("consumer", 1, "range", leader, scene.now_ms)
        assert stored == scene.group.metadata()
        assert [(m.member_id, m.group_instance_id, m.subscription, m.assignment) for m in stored.members] == [
            (leader, None, b"r", b"L"),
            (follower, "i", b"r", b"F"),
        ]

    def test_a_member_syncs_twice(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who())
        abandoned = scene.sync(follower)
        waiter = scene.sync(follower)
        assert scene.error(abandoned) is ErrorCode.rebalance_in_progress
        scene.sync(leader, {follower: b"F"})
        assert scene.synced(waiter).assignment == b"F"

    def test_waiting_keeps_the_session(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who(session_timeout_ms=6_000))
        waiter = scene.sync(follower)
        for _ in range(3):
            scene.advance(SESSION_MS - 1)
            scene.heartbeat(leader)
        scene.sync(leader, {follower: b"F"})
        assert scene.synced(waiter).assignment == b"F"
        assert scene.member(follower).session_deadline_ms == scene.now_ms + 6_000


class TestSyncRefused:
    def test_unknown(self) -> None:
        scene = Scene()
        assert scene.error(scene.sync("m", generation_id=1)) is ErrorCode.unknown_member_id
        scene.stable(Who())
        assert scene.error(scene.sync("m")) is ErrorCode.unknown_member_id

    @pytest.mark.parametrize("generation_id", [-1, 0, 2])
    def test_another_generation(self, generation_id: int) -> None:
        scene = Scene()
        (leader,) = scene.completing(Who())
        assert scene.error(scene.sync(leader, generation_id=generation_id)) is ErrorCode.illegal_generation

    @pytest.mark.parametrize("protocol", [("connect", None), (None, "sticky"), ("consumer", "sticky")])
    def test_another_protocol(self, protocol: tuple[str | None, str | None]) -> None:
        scene = Scene()
        (leader,) = scene.completing(Who())
        waiter = scene.sync(leader, protocol=protocol)
        assert scene.error(waiter) is ErrorCode.inconsistent_group_protocol
        assert scene.error(scene.sync(leader, protocol=("consumer", "range"))) is ErrorCode.none

    def test_while_preparing(self) -> None:
        scene = Scene()
        leader, _ = scene.stable(Who(), Who())
        scene.join(Who())
        assert scene.error(scene.sync(leader)) is ErrorCode.rebalance_in_progress

    def test_an_assignment_that_no_batch_can_hold(self) -> None:
        """Kafka's resetAndPropagateAssignmentError: every member hears it, and joins again."""
        scene = Scene()
        leader, other = scene.completing(Who(), Who())
        scene.max_bytes = 400
        waits = scene.sync(other)
        scene.records.clear()
        refused = scene.sync(leader, {leader: b"x" * 200, other: b"y" * 200})
        assert scene.error(waits) is scene.error(refused) is ErrorCode.unknown_server_error
        assert not scene.records
        assert scene.state is GroupState.PREPARING_REBALANCE
        assert scene.heartbeat(other) is ErrorCode.rebalance_in_progress

    def test_without_a_group_id(self) -> None:
        scene = Scene()
        effects = scene.effects()
        scene.shard.classic.sync(Committer(""), (None, None), {}, 1, effects)
        assert [reply.error_code for _, reply in effects.replies] == [ErrorCode.invalid_group_id]


class TestRebalanceDuringSync:
    def test_waiting_members_join_again(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(Who(), Who())
        waiting = scene.sync(follower)
        scene.advance(SESSION_MS - 1)
        scene.heartbeat(leader)
        scene.join(Who())
        assert scene.error(waiting) is ErrorCode.rebalance_in_progress
        assert scene.state is GroupState.PREPARING_REBALANCE
        assert scene.member(follower).session_deadline_ms == scene.now_ms + SESSION_MS
        assert scene.group.sync_deadline_ms > scene.now_ms + REBALANCE_MS
        assert not scene.group.pending_sync

    def test_no_old_assignment_is_returned(self) -> None:
        scene = Scene()
        leader, follower = scene.stable(Who(), Who())
        scene.join(Who(leader))
        scene.join(Who(follower))
        assert scene.state is GroupState.COMPLETING_REBALANCE
        waiting = scene.sync(follower)
        scene.join(Who(leader, protocols=NEW))
        assert scene.synced(waiting).assignment == b""
        assert scene.member(leader).assignment == b""


class TestTimeToSync:
    def test_members_that_do_not_sync_are_removed(self) -> None:
        scene = Scene()
        leader, quick, slow = scene.completing(
            Who(session_timeout_ms=REBALANCE_MS + 1),
            Who(session_timeout_ms=REBALANCE_MS + 1),
            Who(session_timeout_ms=REBALANCE_MS + 1),
        )
        scene.sync(leader)
        scene.sync(quick)
        scene.advance(REBALANCE_MS - 1)
        assert scene.state is GroupState.STABLE
        assert slow in scene.group.members
        scene.advance(1)
        assert set(scene.group.members) == {leader, quick}
        assert scene.group.state is GroupState.PREPARING_REBALANCE

    def test_the_leader_too(self) -> None:
        scene = Scene()
        leader, follower = scene.completing(
            Who(session_timeout_ms=REBALANCE_MS + 1), Who(session_timeout_ms=REBALANCE_MS + 1)
        )
        waiting = scene.sync(follower)
        scene.advance(REBALANCE_MS)
        assert scene.error(waiting) is ErrorCode.rebalance_in_progress
        assert scene.group.leader == follower
        assert leader not in scene.group.members
        assert scene.joined(scene.join(Who(follower))).leader == follower

    def test_nobody_left(self) -> None:
        scene = Scene()
        scene.completing(Who(session_timeout_ms=REBALANCE_MS + 1))
        scene.advance(REBALANCE_MS)
        assert scene.state is GroupState.EMPTY
        assert scene.generation_id == 2

    def test_the_time_limit_ends_when_all_members_have_synced(self) -> None:
        scene = Scene()
        leader, follower = scene.stable(Who(), Who())
        for _ in range(20):
            scene.advance(SESSION_MS - 1)
            assert {scene.heartbeat(leader), scene.heartbeat(follower)} == {ErrorCode.none}
        assert scene.state is GroupState.STABLE


class TestHeartbeat:
    def test_unknown(self) -> None:
        scene = Scene()
        assert scene.heartbeat("m", 1) is ErrorCode.unknown_member_id
        scene.stable(Who())
        assert scene.heartbeat("m") is ErrorCode.unknown_member_id

    def test_without_a_group_id(self) -> None:
        assert Scene().shard.classic.heartbeat(Committer(""), START_MS) is ErrorCode.invalid_group_id

    def test_of_a_pending_member(self) -> None:
        scene = Scene()
        given = scene.joined(scene.join(Who(api_version=4))).member_id
        assert scene.heartbeat(given) is ErrorCode.unknown_member_id

    @pytest.mark.parametrize("generation_id", [-1, 0, 2])
    def test_another_generation(self, generation_id: int) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who())
        assert scene.heartbeat(leader, generation_id) is ErrorCode.illegal_generation

    def test_stable_and_completing(self) -> None:
        scene = Scene()
        (leader,) = scene.completing(Who())
        scene.advance(SESSION_MS - 1)
        assert scene.heartbeat(leader) is ErrorCode.none
        scene.sync(leader)
        scene.advance(SESSION_MS - 1)
        assert scene.heartbeat(leader) is ErrorCode.none
        assert scene.member(leader).session_deadline_ms == scene.now_ms + SESSION_MS

    def test_preparing(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who())
        scene.join(Who())
        scene.advance(SESSION_MS - 1)
        assert scene.heartbeat(leader) is ErrorCode.rebalance_in_progress
        assert scene.member(leader).session_deadline_ms == scene.now_ms + SESSION_MS

    def test_a_refused_heartbeat_does_not_keep_the_session(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who())
        deadline_ms = scene.member(leader).session_deadline_ms
        scene.advance(1)
        scene.heartbeat(leader, 9)
        assert scene.member(leader).session_deadline_ms == deadline_ms
