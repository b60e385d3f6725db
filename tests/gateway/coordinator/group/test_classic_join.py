"""Joining a group and completing a rebalance, by the rules of Kafka's GroupMetadataManager.classicGroupJoin."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.group import classic_protocol
from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from tests.gateway.coordinator.group.scene import (
    DELAY_MS,
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    Scene,
    Who,
    subscription,
)


class TestRefused:
    def test_without_a_group_id(self) -> None:
        scene = Scene()
        assert scene.error(scene.join(Who(), group_id="")) is ErrorCode.invalid_group_id
        assert not scene.shard.groups

    @pytest.mark.parametrize(
        "session_timeout_ms", [-1, LIMITS.min_session_timeout_ms - 1, LIMITS.max_session_timeout_ms + 1]
    )
    def test_session_timeout_out_of_bounds(self, session_timeout_ms: int) -> None:
        scene = Scene()
        waiter = scene.join(Who(session_timeout_ms=session_timeout_ms))
        assert scene.error(waiter) is ErrorCode.invalid_session_timeout
        assert not scene.shard.groups

    def test_a_member_id_of_an_unknown_group(self) -> None:
        scene = Scene()
        reply = scene.joined(scene.join(Who("m")))
        assert (reply.error_code, reply.member_id) == (ErrorCode.unknown_member_id, "m")
        assert not scene.shard.groups

    def test_an_unknown_member_id(self) -> None:
        scene = Scene()
        scene.stable(Who())
        assert scene.error(scene.join(Who("nobody"))) is ErrorCode.unknown_member_id
        assert scene.state is GroupState.STABLE

    def test_a_new_group_beyond_the_limit_is_refused(self) -> None:
        scene = Scene(max_groups=1)
        scene.join(Who())
        assert scene.error(scene.join(Who(), group_id="other")) is ErrorCode.group_max_size_reached

    @pytest.mark.parametrize("who", [Who(protocol_type=""), Who(protocols=())])
    def test_an_empty_group_needs_a_protocol(self, who: Who) -> None:
        scene = Scene()
        assert scene.error(scene.join(who)) is ErrorCode.inconsistent_group_protocol

    @pytest.mark.parametrize(
        "who", [Who(protocol_type="connect"), Who(protocols=()), Who(protocols=(("sticky", b""),))]
    )
    @pytest.mark.parametrize("is_member", [False, True])
    def test_no_protocol_in_common_with_the_others(self, who: Who, is_member: bool) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        reply = scene.joined(scene.join(who.named(second if is_member else "")))
        assert reply.error_code is ErrorCode.inconsistent_group_protocol
        assert reply.member_id == (second if is_member else "")
        assert scene.state is GroupState.STABLE
        assert set(scene.group.members) == {first, second}


class TestMemberIdRequired:
    """The member id that a new member must ask for (KIP-394)."""

    def test_an_id_is_handed_out_and_no_member_added(self) -> None:
        scene = Scene()
        reply = scene.joined(scene.join(Who(api_version=4)))
        assert reply.error_code is ErrorCode.member_id_required
        assert reply.member_id in scene.group.pending_members
        assert scene.state is GroupState.EMPTY
        assert not scene.group.members

    def test_the_member_joins_with_its_id(self) -> None:
        scene = Scene()
        who = Who(api_version=4)
        given = scene.joined(scene.join(who)).member_id
        waiter = scene.join(who.named(given))
        assert not scene.group.pending_members
        scene.advance(DELAY_MS)
        assert scene.joined(waiter).member_id == given
        assert scene.joined(waiter).leader == given

    def test_unused_ids_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(classic_protocol, "MAX_PENDING_MEMBERS", 3)
        scene = Scene()
        who = Who(api_version=4)
        given = [scene.joined(scene.join(who)).member_id for _ in range(5)]
        assert list(scene.group.pending_members) == given[2:]
        assert scene.error(scene.join(who.named(given[0]))) is ErrorCode.unknown_member_id
        waiter = scene.join(who.named(given[4]))
        for member_id in given[2:4]:
            scene.join(who.named(member_id))
        assert scene.waits(waiter)
        assert set(scene.group.members) == set(given[2:])

    def test_the_id_ends_with_its_session(self) -> None:
        scene = Scene()
        who = Who(api_version=4)
        given = scene.joined(scene.join(who)).member_id
        scene.advance(SESSION_MS)
        assert not scene.group.pending_members
        assert scene.error(scene.join(who.named(given))) is ErrorCode.unknown_member_id

    def test_a_static_member_needs_no_id(self) -> None:
        scene = Scene()
        waiter = scene.join(Who(group_instance_id="i", api_version=4))
        assert scene.waits(waiter)
        assert set(scene.group.static_members) == {"i"}

    def test_a_static_member_may_not_use_a_pending_id(self) -> None:
        scene = Scene()
        given = scene.joined(scene.join(Who(api_version=4))).member_id
        waiter = scene.join(Who(given, group_instance_id="i"))
        assert scene.error(waiter) is ErrorCode.unknown_member_id

    def test_a_rebalance_waits_for_a_pending_member(self) -> None:
        scene = Scene()
        leader, follower = scene.stable(Who(), Who())
        given = scene.joined(scene.join(Who(api_version=4))).member_id
        waiters = [scene.join(Who(leader)), scene.join(Who(follower, protocols=(("range", b"new"),)))]
        assert all(map(scene.waits, waiters))
        waiters.append(scene.join(Who(given)))
        assert {scene.joined(waiter).generation_id for waiter in waiters} == {2}

    def test_a_rebalance_ends_without_a_pending_member_in_the_end(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who(session_timeout_ms=30_000))
        scene.join(Who(api_version=4))
        waiter = scene.join(Who(leader, session_timeout_ms=30_000))
        assert scene.waits(waiter)
        scene.advance(SESSION_MS)
        assert scene.joined(waiter).generation_id == 2


class TestInitialDelay:
    """The delay before the first rebalance of an empty group (KIP-134)."""

    def test_one_member(self) -> None:
        scene = Scene()
        waiter = scene.join(Who())
        scene.advance(DELAY_MS - 1)
        assert scene.waits(waiter)
        assert scene.state is GroupState.PREPARING_REBALANCE
        scene.advance(1)
        reply = scene.joined(waiter)
        assert (reply.generation_id, reply.protocol_type, reply.protocol_name) == (1, "consumer", "range")
        assert reply.leader == reply.member_id
        assert reply.members == ((reply.member_id, None, b"r"),)
        assert scene.group.state is GroupState.COMPLETING_REBALANCE

    def test_no_delay(self) -> None:
        scene = Scene(GroupLimits(initial_rebalance_delay_ms=0))
        waiter = scene.join(Who())
        scene.advance(0)
        assert scene.joined(waiter).generation_id == 1

    def test_each_new_member_extends_the_delay(self) -> None:
        scene = Scene()
        first = scene.join(Who())
        scene.advance(DELAY_MS - 1)
        second = scene.join(Who())
        scene.advance(DELAY_MS)
        assert scene.waits(first)
        scene.advance(1)
        assert scene.joined(first).generation_id == scene.joined(second).generation_id == 1
        assert len(scene.joined(first).members) == 2
        assert scene.joined(second).members == ()

    def test_the_delay_ends_with_the_rebalance_timeout(self) -> None:
        scene = Scene()
        who = Who(rebalance_timeout_ms=2 * DELAY_MS + 500)
        waiters = [scene.join(who)]
        for _ in range(2):
            scene.advance(DELAY_MS - 1)
            waiters.append(scene.join(who))
            scene.advance(1)
            assert scene.waits(waiters[0])
        scene.advance(499)
        assert scene.waits(waiters[0])
        scene.advance(1)
        assert {scene.joined(waiter).generation_id for waiter in waiters} == {1}

    def test_all_members_leave_during_the_delay(self) -> None:
        scene = Scene()
        waiter = scene.join(Who())
        (member_id,) = scene.group.members
        scene.leave((member_id, None))
        assert scene.error(waiter) is ErrorCode.unknown_member_id
        scene.advance(DELAY_MS)
        assert scene.state is GroupState.EMPTY
        assert scene.stored().members == ()

    def test_another_joins_after_all_left(self) -> None:
        scene = Scene()
        scene.join(Who())
        (member_id,) = scene.group.members
        scene.leave((member_id, None))
        waiter = scene.join(Who(protocols=(("sticky", b"s"),)))
        scene.advance(REBALANCE_MS)
        assert scene.joined(waiter).protocol_name == "sticky"

    def test_later_generations_have_no_delay(self) -> None:
        scene = Scene()
        (leader,) = scene.stable(Who())
        waiter = scene.join(Who())
        assert scene.waits(waiter)
        again = scene.join(Who(leader))
        assert scene.joined(waiter).generation_id == scene.joined(again).generation_id == 2


class TestProtocolVote:
    def test_the_common_protocol_with_the_most_votes_wins(self) -> None:
        scene = Scene()
        scene.completing(
            Who(protocols=(("only", b""), ("a", b"1"), ("b", b"2"))),
            Who(protocols=(("b", b"3"), ("a", b"4"))),
            Who(protocols=(("b", b"5"), ("a", b"6"))),
        )
        assert scene.group.protocol_name == "b"
        assert [metadata for _, _, metadata in scene.joined(1).members] == [b"2", b"3", b"5"]

    def test_a_member_may_name_a_protocol_twice(self) -> None:
        scene = Scene()
        twice = (("a", b"1"), ("a", b"2"))
        scene.completing(Who(protocols=twice), Who(protocols=(*twice, ("b", b""))))
        assert scene.group.protocol_name == "a"
        assert scene.error(scene.join(Who(protocols=(("b", b""), ("b", b""))))) is (
            ErrorCode.inconsistent_group_protocol
        )

    def test_topics_of_consumers(self) -> None:
        scene = Scene()
        scene.completing(
            Who(protocols=(("range", subscription("t1", "t2")),)),
            Who(protocols=(("range", subscription("t3")),)),
        )
        assert scene.group.subscribed_topics == frozenset({"t1", "t2", "t3"})

    def test_topics_of_unreadable_metadata(self) -> None:
        scene = Scene()
        scene.completing(Who(protocols=(("range", subscription("t")),)), Who(protocols=(("range", b"!"),)))
        assert scene.group.subscribed_topics is None

    def test_topics_of_other_protocol_types(self) -> None:
        scene = Scene()
        scene.completing(Who(protocol_type="connect", protocols=(("default", subscription("t")),)))
        assert scene.group.subscribed_topics is None


class TestJoiningAgain:
    def test_while_preparing(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        new = scene.join(Who())
        assert scene.state is GroupState.PREPARING_REBALANCE
        waiters = [scene.join(Who(first)), scene.join(Who(second)), new]
        assert {scene.joined(waiter).generation_id for waiter in waiters} == {2}
        assert {scene.joined(waiter).leader for waiter in waiters} == {first}
        assert [len(scene.joined(waiter).members) for waiter in waiters] == [3, 0, 0]

    def test_twice_while_preparing(self) -> None:
        scene = Scene()
        first, _ = scene.stable(Who(), Who())
        abandoned = scene.join(Who(first))
        waiter = scene.join(Who(first))
        assert scene.error(abandoned) is ErrorCode.rebalance_in_progress
        scene.advance(REBALANCE_MS)
        assert scene.error(waiter) is ErrorCode.none

    def test_unchanged_while_completing(self) -> None:
        scene = Scene()
        first, second = scene.completing(Who(), Who())
        leaders, followers = scene.joined(scene.join(Who(first))), scene.joined(scene.join(Who(second)))
        assert (leaders.generation_id, len(leaders.members)) == (1, 2)
        assert (followers.generation_id, followers.members, followers.leader) == (1, (), first)
        assert scene.state is GroupState.COMPLETING_REBALANCE

    def test_changed_while_completing(self) -> None:
        scene = Scene()
        first, second = scene.completing(Who(), Who())
        synced = scene.sync(second)
        waiter = scene.join(Who(second, protocols=(("range", b"new"),)))
        assert scene.error(synced) is ErrorCode.rebalance_in_progress
        assert scene.state is GroupState.PREPARING_REBALANCE
        leaders = scene.join(Who(first))
        assert scene.joined(waiter).generation_id == 2
        assert scene.joined(leaders).members == ((first, None, b"r"), (second, None, b"new"))

    def test_an_unchanged_follower_while_stable(self) -> None:
        scene = Scene()
        first, second = scene.stable(Who(), Who())
        reply = scene.joined(scene.join(Who(second)))
        assert (reply.generation_id, reply.leader, reply.members) == (1, first, ())
        assert scene.state is GroupState.STABLE

    def test_a_changed_follower_while_stable(self) -> None:
        scene = Scene()
        _, second = scene.stable(Who(), Who())
        assert scene.waits(scene.join(Who(second, protocols=(("range", b"new"),))))
        assert scene.state is GroupState.PREPARING_REBALANCE

    def test_the_unchanged_leader_while_stable(self) -> None:
        scene = Scene()
        first, _ = scene.stable(Who(), Who())
        assert scene.waits(scene.join(Who(first)))
        assert scene.state is GroupState.PREPARING_REBALANCE

    def test_new_timeouts_replace_the_old_ones(self) -> None:
        scene = Scene()
        (first,) = scene.stable(Who())
        scene.join(Who(first, session_timeout_ms=20_000, rebalance_timeout_ms=7))
        assert scene.member(first).session_timeout_ms == 20_000
        assert scene.member(first).session_deadline_ms == scene.now_ms + 20_000
        assert scene.group.sync_deadline_ms == scene.now_ms + 7


class TestGroupSize:
    """The limit `group.max.size`."""

    limits = replace(LIMITS, max_size=2)

    def test_stable(self) -> None:
        scene = Scene(self.limits)
        first, _ = scene.stable(Who(), Who())
        assert scene.error(scene.join(Who())) is ErrorCode.group_max_size_reached
        assert scene.state is GroupState.STABLE
        assert scene.waits(scene.join(Who(first)))

    def test_completing(self) -> None:
        scene = Scene(self.limits)
        scene.completing(Who(), Who())
        assert scene.error(scene.join(Who())) is ErrorCode.group_max_size_reached

    def test_preparing_for_the_first_time(self) -> None:
        scene = Scene(self.limits)
        waiters = [scene.join(Who()) for _ in range(3)]
        assert scene.error(waiters[2]) is ErrorCode.group_max_size_reached
        scene.advance(REBALANCE_MS)
        assert len(scene.joined(waiters[0]).members) == 2

    def test_the_last_members_to_join_again_are_refused(self) -> None:
        scene = Scene(self.limits)
        first, second = scene.stable(Who(), Who())
        waiters = [scene.join(Who(first)), scene.join(Who())]
        assert scene.error(scene.join(Who(second))) is ErrorCode.group_max_size_reached
        assert second not in scene.group.members
        scene.advance(REBALANCE_MS)
        assert [scene.error(waiter) for waiter in waiters] == [ErrorCode.none] * 2

    def test_a_waiting_member_may_join_again(self) -> None:
        scene = Scene(self.limits)
        first, _ = scene.stable(Who(), Who())
        scene.join(Who(first))
        scene.join(Who())
        assert scene.waits(scene.join(Who(first)))

    @pytest.mark.parametrize("max_size", [1, 2])
    def test_a_group_loaded_with_too_many_members_rebalances(self, max_size: int) -> None:
        scene = Scene(self.limits)
        first, second = scene.stable(Who(), Who())
        scene.shard = scene.replayed()
        scene.shard.limits = replace(LIMITS, max_size=max_size)
        effects = scene.effects()
        scene.shard.loaded(effects)
        scene.take(effects)
        if max_size == 2:
            assert scene.state is GroupState.STABLE
            return
        assert scene.state is GroupState.PREPARING_REBALANCE
        waiter = scene.join(Who(second))
        assert scene.error(scene.join(Who(first))) is ErrorCode.group_max_size_reached
        scene.advance(REBALANCE_MS)
        assert scene.joined(waiter).leader == second
        assert first not in scene.group.members

    def test_a_pending_id_is_dropped_when_the_group_is_full(self) -> None:
        scene = Scene(self.limits)
        scene.stable(Who())
        given = scene.joined(scene.join(Who(api_version=4))).member_id
        scene.shard.limits = replace(LIMITS, max_size=1)
        assert scene.error(scene.join(Who(given))) is ErrorCode.group_max_size_reached
        assert not scene.group.pending_members
