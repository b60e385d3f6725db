"""Static membership (KIP-345) and the skipped assignment (KIP-814) of the classic protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.offsets import Committer
from tests.gateway.coordinator.group.scene import REBALANCE_MS, SESSION_MS, Scene, Who

STATIC = Who(group_instance_id="i", api_version=9)


class TestFenced:
    @pytest.mark.parametrize(
        ("member_id", "group_instance_id", "error"),
        [
            ("old", "i", ErrorCode.fenced_instance_id),
            ("old", "j", ErrorCode.unknown_member_id),
            ("old", None, ErrorCode.unknown_member_id),
        ],
    )
    def test_everywhere(self, member_id: str, group_instance_id: str, error: ErrorCode) -> None:
        scene = Scene()
        scene.stable(STATIC, Who())
        assert scene.error(scene.join(Who(member_id, group_instance_id=group_instance_id))) is error
        assert scene.error(scene.sync(member_id, group_instance_id=group_instance_id)) is error
        assert scene.heartbeat(member_id, group_instance_id=group_instance_id) is error
        committer = Committer("g", 1, member_id, group_instance_id)
        assert scene.shard.commits.check(committer, [], scene.now_ms) is error
        assert scene.leave((member_id, group_instance_id)) == [error]
        assert scene.state is GroupState.STABLE

    def test_the_right_ids(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(STATIC)
        assert scene.heartbeat(member_id, group_instance_id="i") is ErrorCode.none
        assert scene.heartbeat(member_id) is ErrorCode.none
        assert scene.synced(scene.sync(member_id, group_instance_id="i")).assignment == member_id.encode()


class TestRestartWhileStable:
    def test_a_follower(self) -> None:
        scene = Scene()
        leader, old = scene.stable(Who(), STATIC)
        reply = scene.joined(scene.join(STATIC))
        assert reply.error_code is ErrorCode.none
        assert reply.member_id not in {leader, old}
        assert (reply.generation_id, reply.leader, reply.members) == (1, leader, ())
        assert not reply.skip_assignment
        assert scene.state is GroupState.STABLE
        assert scene.synced(scene.sync(reply.member_id)).assignment == old.encode()
        assert scene.heartbeat(old) is ErrorCode.unknown_member_id
        assert scene.heartbeat(old, group_instance_id="i") is ErrorCode.fenced_instance_id

    def test_the_leader_skips_the_assignment(self) -> None:
        scene = Scene()
        _, follower = scene.stable(STATIC, Who())
        reply = scene.joined(scene.join(STATIC))
        assert reply.skip_assignment
        assert reply.leader == reply.member_id
        assert {member_id for member_id, _, _ in reply.members} == {reply.member_id, follower}

    def test_the_leader_that_can_not_skip_it(self) -> None:
        scene = Scene()
        old, _ = scene.stable(STATIC, Who())
        reply = scene.joined(scene.join(Who(group_instance_id="i", api_version=8)))
        assert not reply.skip_assignment
        assert reply.leader == old
        assert reply.members == ()
        assert scene.group.leader == reply.member_id

    def test_is_stored(self) -> None:
        scene = Scene()
        (old,) = scene.stable(STATIC)
        member_id = scene.joined(scene.join(STATIC)).member_id
        assert len(scene.records) == 2
        stored = scene.stored()
        assert stored.leader == member_id
        assert [(m.member_id, m.group_instance_id, m.assignment) for m in stored.members] == [
            (member_id, "i", old.encode())
        ]

    def test_with_more_metadata_than_a_batch_can_hold(self) -> None:
        scene = Scene()
        old, _ = scene.stable(STATIC, Who())
        scene.max_bytes = 1_000
        scene.records.clear()
        refused = scene.join(replace(STATIC, protocols=(("range", b"r" * 1_000),)))
        assert scene.error(refused) is ErrorCode.unknown_server_error
        assert scene.state is GroupState.STABLE
        assert scene.heartbeat(old, group_instance_id="i") is ErrorCode.none
        assert not scene.records
        assert scene.joined(scene.join(STATIC)).error_code is ErrorCode.none

    def test_its_session_restarts(self) -> None:
        scene = Scene()
        scene.stable(STATIC)
        scene.advance(SESSION_MS - 1)
        member_id = scene.joined(scene.join(STATIC)).member_id
        assert scene.member(member_id).session_deadline_ms == scene.now_ms + SESSION_MS

    def test_before_its_old_self_synced(self) -> None:
        scene = Scene()
        leader, old = scene.completing(Who(), STATIC)
        scene.sync(leader, {old: b"S"})
        member_id = scene.joined(scene.join(STATIC)).member_id
        assert scene.group.pending_sync == {member_id}
        assert scene.synced(scene.sync(member_id)).assignment == b"S"
        assert not scene.group.pending_sync

    def test_with_another_choice_of_protocol(self) -> None:
        scene = Scene()
        both, turned = (("a", b""), ("b", b"")), (("b", b""), ("a", b""))
        _, other = scene.stable(
            Who(group_instance_id="i", protocols=both), Who(protocols=(("b", b""), ("a", b"")))
        )
        assert scene.group.protocol_name == "a"
        waiter = scene.join(Who(group_instance_id="i", protocols=turned))
        assert scene.waits(waiter)
        assert scene.state is GroupState.PREPARING_REBALANCE
        scene.join(Who(other, protocols=turned))
        assert scene.joined(waiter).protocol_name == "b"


class TestRestartWhileRebalancing:
    def test_preparing_and_its_old_self_waits(self) -> None:
        scene = Scene()
        waiter = scene.join(STATIC)
        (old,) = scene.group.members
        again = scene.join(STATIC)
        reply = scene.joined(waiter)
        assert (reply.error_code, reply.member_id) == (ErrorCode.fenced_instance_id, old)
        assert scene.waits(again)
        scene.advance(REBALANCE_MS)
        assert len(scene.joined(again).members) == 1

    def test_waits_beyond_its_session_in_the_first_rebalance(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who(session_timeout_ms=REBALANCE_MS))
        scene.join(STATIC)
        again = scene.join(STATIC)
        scene.advance(SESSION_MS + 1)
        assert scene.waits(again)
        scene.join(Who(leader))
        assert scene.error(again) is ErrorCode.none

    def test_preparing_completes(self) -> None:
        scene = Scene()
        static, other = scene.stable(STATIC, Who())
        scene.join(Who(other, protocols=(("range", b"new"),)))
        reply = scene.joined(scene.join(STATIC))
        assert reply.generation_id == 2
        assert static not in scene.group.members

    def test_completing_rebalances(self) -> None:
        scene = Scene()
        old, other = scene.completing(STATIC, Who())
        others = scene.sync(other)
        olds = scene.sync(old, {old: b"x"}, generation_id=0)
        assert scene.error(olds) is ErrorCode.illegal_generation
        waiter = scene.join(STATIC)
        assert scene.error(others) is ErrorCode.rebalance_in_progress
        assert scene.state is GroupState.PREPARING_REBALANCE
        scene.join(Who(other))
        assert scene.joined(waiter).leader == scene.joined(waiter).member_id

    def test_completing_and_its_old_self_waits(self) -> None:
        scene = Scene()
        _, old = scene.completing(Who(), STATIC)
        waiting = scene.sync(old)
        scene.join(STATIC)
        assert scene.error(waiting) is ErrorCode.fenced_instance_id


class TestSession:
    def test_a_short_absence_goes_unnoticed(self) -> None:
        scene = Scene()
        (member_id,) = scene.stable(STATIC)
        scene.advance(SESSION_MS - 1)
        assert scene.state is GroupState.STABLE
        assert scene.error(scene.join(STATIC)) is ErrorCode.none
        assert scene.generation_id == 1
        assert member_id not in scene.group.members

    def test_the_end_of_its_session_frees_the_instance_id(self) -> None:
        scene = Scene()
        scene.stable(STATIC)
        scene.advance(SESSION_MS)
        assert scene.state is GroupState.EMPTY
        assert not scene.group.static_members
        assert scene.waits(scene.join(STATIC))
