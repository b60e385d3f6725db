"""Groups with members of both protocols, and the change of a group from one protocol to the other and back."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.consumer_assignors import assigned_partitions, encode_assignment
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits, MigrationPolicy
from seqgate.gateway.coordinator.group.epoch_group import EMPTY, STABLE, HeartbeatRefused
from seqgate.gateway.coordinator.group.offsets import Committer
from tests.gateway.coordinator.group.mixed_scene import ALL, TOPIC, MixedScene, classic, owning, places
from tests.gateway.coordinator.group.scene import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Who,
    subscription,
    written_anew,
)

NONE = ErrorCode.none
REBALANCE = ErrorCode.rebalance_in_progress


def scene_of(policy: MigrationPolicy) -> MixedScene:
    return MixedScene(consumer_limits=ConsumerLimits(migration_policy=policy))


def mixed() -> tuple[MixedScene, str]:
    """Return a group in which a classic member and the consumer "new" share the partitions."""
    scene = MixedScene()
    (old,) = scene.classic_group(None)
    scene.beat("new")
    scene.rejoin(classic(member_id=old))
    scene.beat("new", scene.consumers.members["new"].member_epoch)
    assert scene.consumers.state_text == STABLE
    return scene, old


class TestUpgrade:
    def test_members_keep_their_ids_epochs_and_assignments(self) -> None:
        scene = MixedScene()
        first, second = scene.classic_group(None, "static")
        generation_id = scene.generation_id
        scene.beat("new")
        assert not scene.is_classic
        assert scene.consumers.group_epoch == generation_id + 1
        members = scene.consumers.members
        assert set(members) == {first, second, "new"}
        assert members[first].current.assigned == places([0, 1])
        assert members[second].current.assigned == places([2, 3])
        for old in (first, second):
            assert (members[old].member_epoch, members[old].value.subscribed_names) == (
                generation_id,
                (TOPIC,),
            )
            assert members[old].value.rebalance_timeout_ms == REBALANCE_MS
            told = members[old].value.classic
            assert told is not None
            assert told.session_timeout_ms == SESSION_MS
        assert scene.consumers.static_members == {"static": second}
        assert members["new"].value.classic is None

    def test_no_member_gets_a_partition_that_a_classic_member_still_has(self) -> None:
        scene = MixedScene()
        first, second = scene.classic_group(None, None)
        generation_id = scene.generation_id
        reply = scene.beat("new")
        assert reply.assignment == frozenset()
        assert scene.heartbeat(first, generation_id) is REBALANCE
        assert scene.rejoin(classic(member_id=first))[0] == generation_id + 1
        scene.rejoin(classic(member_id=second))
        reply = scene.beat("new", reply.member_epoch)
        assert reply.assignment
        held = [member.current.assigned for member in scene.consumers.members.values()]
        assert frozenset().union(*held) == places(ALL)
        assert sum(map(len, held)) == len(ALL)
        for old in (first, second):
            assert scene.heartbeat(old, generation_id + 1) is NONE

    def test_a_cooperative_member_revokes_before_it_gets_the_new_epoch(self) -> None:
        scene = MixedScene()
        (old,) = scene.classic_group(None)
        generation_id = scene.generation_id
        epoch = scene.beat("new").member_epoch
        told, kept = scene.rejoin(classic(*ALL, member_id=old))
        assert (told, len(kept)) == (generation_id, 2)
        assert scene.beat("new", epoch).assignment is None
        assert scene.heartbeat(old, generation_id) is REBALANCE
        assert scene.rejoin(classic(*kept, member_id=old)) == (generation_id + 1, kept)
        assert scene.beat("new", epoch).assignment == places(set(ALL) - set(kept))
        assert scene.heartbeat(old, generation_id + 1) is NONE

    def test_a_classic_member_joins_again_for_revoked_partitions(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.members["new"].member_epoch
        later = scene.joined(scene.join(classic(member_id="later")))
        assert scene.synced_partitions("later", later.generation_id, classic()) == []
        assert scene.heartbeat("later", later.generation_id) is NONE
        reply = scene.beat("new", epoch)
        scene.rejoin(classic(member_id=old))
        if reply.assignment is not None:
            scene.beat("new", epoch, [place[1] for place in reply.assignment])
        assert scene.heartbeat("later", later.generation_id) is REBALANCE
        assert scene.rejoin(classic(member_id="later"))[1]
        assert scene.heartbeat("later", later.generation_id) is NONE

    def test_members_that_wait_for_the_classic_rebalance_join_again(self) -> None:
        scene = MixedScene()
        first, second = scene.classic_group(None, None)
        waiting = scene.join(Who(first, protocols=(("range", owning(0)),)))
        newcomer = scene.join(classic())
        assert scene.waits(waiting)
        scene.beat("new")
        assert scene.error(waiting) is ErrorCode.coordinator_load_in_progress
        assert scene.error(newcomer) is ErrorCode.coordinator_load_in_progress
        assert set(scene.consumers.members) == {first, second, "new"}, (
            "a member that was never in a generation must join anew"
        )
        scene.rejoin(classic(member_id=first))

    def test_a_group_that_waits_for_its_assignment_is_upgraded(self) -> None:
        scene = MixedScene()
        first, second = scene.completing(classic(), classic())
        generation_id = scene.generation_id
        waiting = scene.sync(second)
        scene.beat("new")
        assert scene.error(waiting) is REBALANCE
        assert scene.consumers.members[first].current.assigned == frozenset()
        assert scene.error(scene.sync(first, generation_id=generation_id)) is REBALANCE

    def test_a_pending_id_is_valid_in_the_consumer_group(self) -> None:
        scene = MixedScene()
        who = Who(protocols=classic().protocols, api_version=4)
        given = scene.joined(scene.join(who))
        assert given.error_code is ErrorCode.member_id_required
        scene.beat("new")
        scene.rejoin(who.named(given.member_id))
        assert set(scene.consumers.members) == {"new", given.member_id}

    def test_offsets_are_committed_with_the_epoch_as_generation(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.members[old].member_epoch
        assert scene.commit_error(old, epoch) is NONE
        assert scene.commit_error("new", epoch) is NONE
        for generation_id in (0, epoch + 1):
            assert scene.commit_error(old, generation_id, 0) is ErrorCode.illegal_generation
            assert scene.commit_error("new", generation_id, 0) is ErrorCode.stale_member_epoch

    def test_partitions_kept_since_the_classic_group_are_committed_with_its_generation(self) -> None:
        scene = MixedScene()
        (old,) = scene.classic_group(None)
        scene.beat("new")
        assert scene.commit_error(old, 1, *ALL) is NONE
        assert scene.commit_error(old, 0, *ALL) is ErrorCode.illegal_generation

    def test_requests_without_a_member_epoch_are_for_classic_members(self) -> None:
        scene, old = mixed()
        for member_id, expected in ((old, NONE), ("new", ErrorCode.unsupported_version)):
            epoch = scene.consumers.members[member_id].member_epoch
            committer = Committer(GROUP, epoch, member_id, has_member_epoch=False)
            assert scene.shard.commits.check(committer, [], scene.now_ms) is expected

    def test_what_the_leader_left_unassigned_stays_so_until_something_changes(self) -> None:
        scene = MixedScene()
        (old,) = scene.completing(classic())
        scene.sync(old, {old: encode_assignment(3, {TOPIC: [0]})})
        generation_id = scene.generation_id
        scene.beat("new", names=())
        assert scene.consumers.group_epoch == generation_id
        scene.beat("another")
        assert scene.consumers.group_epoch == generation_id + 1
        assert frozenset().union(*scene.consumers.targets.values()) == places(ALL)

    def test_nobody_joins_again_before_the_next_assignment_is_made(self) -> None:
        scene, old = mixed()
        given = scene.joined(scene.join(classic()))
        assert given.error_code is NONE
        epoch, _ = scene.rejoin(classic(member_id=old))
        scene.leave((given.member_id, None))
        assert scene.consumers.group_epoch > epoch
        assert scene.heartbeat(old, epoch) is NONE
        scene.beat("new", scene.consumers.members["new"].member_epoch)
        assert scene.heartbeat(old, epoch) is ErrorCode.rebalance_in_progress

    def test_a_refused_join_names_no_member(self) -> None:
        scene, old = mixed()
        reply = scene.joined(scene.join(Who(old, protocol_type="connect")))
        assert reply.error_code is ErrorCode.inconsistent_group_protocol
        assert reply.member_id == ""

    @pytest.mark.parametrize("who", [Who(), Who(protocol_type="connect")])
    def test_a_group_with_an_unreadable_protocol_stays_classic(self, who: Who) -> None:
        scene = MixedScene()
        scene.stable(who)
        before = scene.group.metadata()
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat("new")
        assert refused.value.error_code is ErrorCode.group_id_not_found
        assert scene.is_classic
        assert scene.group.metadata() == before

    def test_a_group_with_a_malformed_assignment_stays_classic(self) -> None:
        scene = MixedScene()
        scene.stable(classic())
        with pytest.raises(HeartbeatRefused, match="malformed"):
            scene.beat("new")
        assert scene.is_classic

    @pytest.mark.parametrize("policy", [MigrationPolicy.DOWNGRADE, MigrationPolicy.DISABLED])
    def test_only_as_the_policy_allows(self, policy: MigrationPolicy) -> None:
        scene = scene_of(policy)
        (old,) = scene.classic_group(None)
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat("new")
        assert refused.value.error_code is ErrorCode.group_id_not_found
        assert scene.is_classic
        assert scene.heartbeat(old) is NONE

    def test_too_many_members(self) -> None:
        scene = MixedScene(consumer_limits=ConsumerLimits(max_size=1))
        scene.classic_group(None, None)
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat("new")
        assert refused.value.error_code is ErrorCode.group_id_not_found

    def test_no_room_for_the_joining_member(self) -> None:
        scene = MixedScene(consumer_limits=ConsumerLimits(max_size=1))
        (old,) = scene.classic_group(None)
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat("new")
        assert refused.value.error_code is ErrorCode.group_max_size_reached
        assert scene.is_classic
        assert scene.heartbeat(old) is NONE

    def test_a_classic_member_that_no_batch_can_hold(self) -> None:
        scene = MixedScene()
        scene.classic_group(None)
        scene.max_bytes = 100
        scene.records.clear()
        with pytest.raises(HeartbeatRefused) as refused:
            scene.beat("new")
        assert refused.value.error_code is ErrorCode.unknown_server_error
        assert scene.is_classic
        assert scene.state is GroupState.STABLE
        assert not scene.records

    def test_a_static_member_changes_its_protocol(self) -> None:
        scene = MixedScene()
        (old,) = scene.classic_group("static")
        reply = scene.beat("new", instance_id="static")
        assert set(scene.consumers.members) == {"new"}
        assert reply.assignment == places(ALL)
        assert scene.consumers.members["new"].value.classic is None
        fenced = scene.sync(old, generation_id=1, group_instance_id="static")
        assert scene.error(fenced) is ErrorCode.fenced_instance_id


class TestClassicMembers:
    def test_join_to_a_group_of_consumers(self) -> None:
        scene = MixedScene()
        epoch = scene.beat("new").member_epoch
        asked = scene.join(Who(protocols=classic().protocols, api_version=4))
        assert scene.error(asked) is ErrorCode.member_id_required
        who = classic(member_id=scene.joined(asked).member_id)
        assert scene.rejoin(who) == (epoch + 1, [])
        kept = scene.beat("new", epoch).assignment
        assert kept is not None
        owned = [partition for _, partition in kept]
        assert scene.heartbeat(who.member_id, epoch + 1) is NONE
        scene.beat("new", epoch, owned)
        assert scene.heartbeat(who.member_id, epoch + 1) is REBALANCE
        assert scene.rejoin(who) == (epoch + 1, sorted(set(ALL) - set(owned)))

    @pytest.mark.parametrize(
        "who",
        [
            Who(protocol_type="connect", protocols=classic().protocols),
            Who(protocols=()),
            Who(protocols=(("other", owning()),)),
            Who(protocols=(("range", b"\0"),)),
            Who(protocols=(("range", owning()[:-1]),)),
            Who(protocols=(("range", b"\xff\xff" + owning()[2:]),)),
        ],
    )
    def test_protocols_that_do_not_fit(self, who: Who) -> None:
        scene, _ = mixed()
        assert scene.error(scene.join(who)) is ErrorCode.inconsistent_group_protocol
        assert len(scene.consumers.members) == 2

    @pytest.mark.parametrize("instance_id", [None, "static"])
    def test_one_that_no_batch_can_hold(self, instance_id: str | None) -> None:
        scene = MixedScene()
        scene.beat("new", instance_id=instance_id)
        before = written_anew(scene.shard)
        scene.max_bytes = 100
        scene.records.clear()
        refused = scene.join(classic(instance_id=instance_id))
        assert scene.error(refused) is ErrorCode.unknown_server_error
        assert not scene.records
        assert written_anew(scene.shard) == before

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_older_subscriptions(self, version: int) -> None:
        scene, old = mixed()
        generation_id, partitions = scene.rejoin(Who(protocols=(("range", owning(version=version)),)))
        (joined,) = scene.consumers.members.keys() - {old, "new"}
        member = scene.consumers.members[joined]
        assert member.value.subscribed_names == (TOPIC,)
        assert member.member_epoch == generation_id == scene.consumers.group_epoch
        assert member.current.assigned == places(partitions)

    def test_a_full_group(self) -> None:
        scene = MixedScene(consumer_limits=ConsumerLimits(max_size=1))
        scene.beat("new")
        assert scene.error(scene.join(classic())) is ErrorCode.group_max_size_reached

    def test_unknown_members(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.members[old].member_epoch
        unknown = ErrorCode.unknown_member_id
        for nobody in ("nobody", "new"):
            assert scene.heartbeat(nobody, epoch) is unknown
            assert scene.error(scene.sync(nobody, generation_id=epoch)) is unknown
        assert scene.leave(("nobody", None), ("", "static"), ("new", "static")) == [unknown] * 3
        assert scene.heartbeat(old, epoch, "static") is unknown
        assert scene.error(scene.join(classic(member_id="x", instance_id="static"))) is unknown

    def test_another_generation_or_protocol(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.members[old].member_epoch
        assert scene.heartbeat(old, epoch + 1) is ErrorCode.illegal_generation
        assert scene.error(scene.sync(old, generation_id=epoch - 1)) is ErrorCode.illegal_generation
        for protocol in (("consumer", "other"), ("connect", "range")):
            waiter = scene.sync(old, generation_id=epoch, protocol=protocol)
            assert scene.error(waiter) is ErrorCode.inconsistent_group_protocol

    def test_leaving(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.group_epoch
        assert scene.leave((old, None), (old, None)) == [NONE, NONE]
        assert set(scene.consumers.members) == {"new"}
        assert scene.consumers.group_epoch == epoch + 1
        assert scene.beat("new", epoch).assignment == places(ALL)

    def test_an_administrator_removes_a_static_member(self) -> None:
        scene, _ = mixed()
        scene.rejoin(classic(instance_id="static"))
        assert scene.leave(("", "static")) == [NONE]
        assert "static" not in scene.consumers.static_members

    def test_a_returning_static_member_keeps_its_partitions(self) -> None:
        scene, old = mixed()
        scene.leave((old, None))
        _, had = scene.rejoin(classic(instance_id="static"))
        epoch = scene.consumers.group_epoch
        scene.beat("new", scene.consumers.members["new"].member_epoch)
        first = scene.consumers.static_members["static"]
        generation_id, has = scene.rejoin(classic(instance_id="static"))
        assert (generation_id, has) == (epoch, had)
        assert scene.consumers.group_epoch == epoch
        second = scene.consumers.static_members["static"]
        assert first != second
        assert first not in scene.consumers.members
        assert scene.heartbeat(first, epoch, "static") is ErrorCode.fenced_instance_id

    def test_a_new_subscription_changes_the_target(self) -> None:
        scene, old = mixed()
        who = Who(old, protocols=(("range", owning(topic="other")),))
        assert scene.rejoin(who)[1] == []
        epoch = scene.consumers.group_epoch
        assert scene.beat("new", epoch - 1).assignment == places(ALL)


class TestTime:
    def test_a_member_that_does_not_join_again_is_removed(self) -> None:
        scene = MixedScene()
        (old,) = scene.classic_group(None)
        generation_id = scene.generation_id
        scene.beat("new")
        for _ in range(REBALANCE_MS // 1000):
            assert scene.heartbeat(old, generation_id) is REBALANCE
            scene.beat("new", scene.consumers.members["new"].member_epoch)
            scene.advance(1000)
        assert set(scene.consumers.members) == {"new"}

    def test_a_member_that_does_not_sync_is_removed(self) -> None:
        scene, old = mixed()
        generation_id = scene.joined(scene.join(classic(member_id=old))).generation_id
        for _ in range(REBALANCE_MS // 1000):
            assert scene.heartbeat(old, generation_id) is NONE
            scene.beat("new", scene.consumers.members["new"].member_epoch)
            scene.advance(1000)
        assert set(scene.consumers.members) == {"new"}

    def test_a_silent_member_is_removed(self) -> None:
        scene, old = mixed()
        scene.advance(SESSION_MS - 1)
        assert old in scene.consumers.members
        scene.advance(1)
        assert set(scene.consumers.members) == {"new"}


class TestDowngrade:
    def test_when_the_last_consumer_leaves(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.members[old].member_epoch
        scene.beat("new", -1)
        assert scene.is_classic
        assert (scene.state, scene.generation_id) == (GroupState.PREPARING_REBALANCE, epoch)
        assert scene.group.protocol_name == "range"
        assert scene.group.leader == old
        assert scene.group.is_subscribed_to(TOPIC)
        assert scene.heartbeat(old, epoch) is REBALANCE
        assert scene.commit_error(old, epoch) is NONE
        reply = scene.joined(scene.join(classic(member_id=old)))
        assert (reply.generation_id, reply.leader) == (epoch + 1, old)

    def test_when_the_session_of_the_last_consumer_times_out(self) -> None:
        scene, old = mixed()
        for _ in range(45):
            scene.advance(1000)
            epoch = scene.generation_id if scene.is_classic else scene.consumers.members[old].member_epoch
            scene.heartbeat(old, epoch)
        assert scene.is_classic
        assert set(scene.group.members) == {old}

    def test_a_member_that_has_not_joined_since_the_last_change_still_commits(self) -> None:
        scene, old = mixed()
        epoch = scene.consumers.members[old].member_epoch
        scene.beat("other")
        scene.beat("other", -1)
        scene.beat("new", -1)
        assert scene.is_classic
        assert scene.commit_error(old, epoch) is NONE
        assert scene.heartbeat(old, epoch) is REBALANCE

    def test_when_an_administrator_removes_the_last_consumer(self) -> None:
        scene, old = mixed()
        assert scene.leave(("new", None)) == [NONE]
        assert scene.is_classic
        assert (scene.state, set(scene.group.members)) == (GroupState.PREPARING_REBALANCE, {old})

    def test_each_has_its_target(self) -> None:
        scene = MixedScene()
        first, second = scene.classic_group(None, None)
        scene.beat("new")
        targets = {old: scene.consumers.targets[old] for old in (first, second)}
        scene.beat("new", -1)
        for old in (first, second):
            found = assigned_partitions(scene.member(old).assignment)
            assert found is not None
            assert places(found.get(TOPIC, [])) == targets[old]

    def test_not_while_other_consumers_remain_or_no_member_does(self) -> None:
        scene, old = mixed()
        scene.beat("other")
        scene.beat("new", -1)
        assert not scene.is_classic
        scene.leave((old, None))
        scene.beat("other", -1)
        assert not scene.is_classic
        assert scene.consumers.state_text == EMPTY

    def test_not_while_a_static_consumer_may_return(self) -> None:
        scene = MixedScene()
        scene.classic_group(None)
        scene.beat("new", instance_id="static")
        scene.beat("new", -2, instance_id="static")
        assert not scene.is_classic

    def test_only_as_the_policy_allows(self) -> None:
        scene = scene_of(MigrationPolicy.UPGRADE)
        epoch = scene.beat("new").member_epoch
        member_id = scene.joined(scene.join(classic())).member_id
        scene.beat("new", -1)
        assert not scene.is_classic
        assert scene.heartbeat(member_id, epoch + 1) is REBALANCE
        assert scene.rejoin(classic(member_id=member_id))[1] == ALL

    @pytest.mark.parametrize("policy", MigrationPolicy)
    def test_no_classic_member_joins_where_protocols_may_not_change(self, policy: MigrationPolicy) -> None:
        scene = scene_of(policy)
        scene.beat("new")
        is_disabled = policy is MigrationPolicy.DISABLED
        error = scene.error(scene.join(classic()))
        assert error is (ErrorCode.inconsistent_group_protocol if is_disabled else NONE)
        assert len(scene.consumers.members) == (1 if is_disabled else 2)

    def test_not_while_no_batch_can_hold_the_classic_group(self) -> None:
        scene, _ = mixed()
        scene.max_bytes = 100
        scene.beat("new", -1)
        assert not scene.is_classic
        scene.max_bytes = 1 << 20
        scene.beat("other")
        scene.beat("other", -1)
        assert scene.is_classic

    def test_too_many_members_for_a_classic_group(self) -> None:
        scene = MixedScene(GroupLimits(initial_rebalance_delay_ms=DELAY_MS, max_size=1))
        scene.beat("new")
        for _ in range(2):
            scene.rejoin(classic())
        scene.beat("new", -1)
        assert not scene.is_classic

    def test_a_static_consumer_changes_its_protocol(self) -> None:
        scene = MixedScene()
        epoch = scene.beat("new", instance_id="static").member_epoch
        scene.beat("new", -2, instance_id="static")
        reply = scene.joined(scene.join(classic(instance_id="static")))
        assert scene.is_classic
        assert (reply.error_code, reply.generation_id) == (NONE, epoch)
        assert scene.state is GroupState.STABLE
        who = classic(instance_id="static")
        assert scene.synced_partitions(reply.member_id, epoch, who) == ALL
        assert scene.heartbeat(reply.member_id, epoch, "static") is NONE

    def test_a_static_consumer_with_another_subscription_takes_nothing_from_the_others(self) -> None:
        scene = MixedScene()
        (old,) = scene.classic_group(None)
        epoch = scene.beat("new", instance_id="static", names=("other",)).member_epoch
        assert scene.rejoin(classic(*ALL, member_id=old)) == (epoch, ALL)
        scene.beat("new", -2, instance_id="static")
        reply = scene.joined(scene.join(classic(instance_id="static")))
        assert scene.is_classic
        assert scene.state is GroupState.PREPARING_REBALANCE
        synced = scene.sync(
            reply.member_id,
            generation_id=reply.generation_id,
            group_instance_id="static",
            protocol=("consumer", "range"),
        )
        assert scene.synced(synced).error_code is REBALANCE

    def test_there_and_back_and_there(self) -> None:
        scene, old = mixed()
        scene.beat("new", -1)
        scene.joined(scene.join(classic(member_id=old)))
        scene.beat("new")
        assert set(scene.consumers.members) == {old, "new"}
        assert scene.rejoin(classic(member_id=old))[0] == scene.consumers.group_epoch


class TestRestart:
    def test_a_mixed_group(self) -> None:
        scene, old = mixed()
        loaded = scene.reloaded()
        assert GROUP not in loaded.groups
        found = loaded.consumers.groups[GROUP]
        for member_id in (old, "new"):
            assert found.members[member_id].value == scene.consumers.members[member_id].value
            assert found.members[member_id].current == scene.consumers.members[member_id].current
        assert found.targets == scene.consumers.targets
        assert found.group_epoch == scene.consumers.group_epoch

    def test_a_group_that_is_classic_again(self) -> None:
        scene, old = mixed()
        scene.beat("new", -1)
        loaded = scene.reloaded()
        assert GROUP not in loaded.consumers.groups
        assert loaded.groups[GROUP].state is GroupState.STABLE
        assert loaded.groups[GROUP].metadata().members == scene.group.metadata().members
        assert set(loaded.groups[GROUP].members) == {old}

    def test_the_records_of_the_former_protocol_are_deleted(self) -> None:
        scene, _ = mixed()
        keys = list(scene.shard.stored_keys())
        scene.beat("new", -1)
        kept = [scene.shard.records_of(key) for key in keys]
        assert not any(kept)


def test_a_classic_member_without_a_subscription_is_no_hindrance() -> None:
    """Such a member gets no partitions, and the others get all."""
    scene, _ = mixed()
    who = Who(protocols=(("range", subscription()),))
    assert scene.rejoin(who)[1] == []
