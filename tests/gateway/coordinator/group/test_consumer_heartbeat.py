"""The rules of one heartbeat: which member is admitted or fenced, and when partitions are assigned and
revoked.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group import consumer_group
from seqgate.gateway.coordinator.group.consumer_group import ROWS, MemberState
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    MAX_ID_BYTES,
    MAX_REGEX_CHARACTERS,
    MAX_REGEXES,
    MAX_SUBSCRIPTION_BYTES,
    ConsumerLimits,
)
from seqgate.gateway.coordinator.group.epoch_group import (
    ASSIGNING,
    EMPTY,
    MAX_EXPIRED_AT_ONCE,
    STABLE,
    AssignmentEpoch,
)
from seqgate.gateway.coordinator.group.events import Effects
from tests.gateway.coordinator.group.consumer_scene import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    ConsumerScene,
    joining,
    request,
    settle,
    snapshot,
)

INVALID = ErrorCode.invalid_request
UNKNOWN = ErrorCode.unknown_member_id
FENCED = ErrorCode.fenced_member_epoch


def scene_of_two(partitions: int = 4) -> tuple[ConsumerScene, Client, Client]:
    """Return a scene with two members that share the partitions equally."""
    scene = ConsumerScene(t=partitions)
    first, second = Client(scene, "a"), Client(scene, "b")
    first.beat()
    settle([first, second])
    assert scene.state == STABLE
    return scene, first, second


def alone(partitions: int = 4, **more: Any) -> tuple[ConsumerScene, Client]:
    scene = ConsumerScene(t=partitions)
    client = Client(scene, "a", **more)
    client.beat()
    return scene, client


class TestWhatCanBeMeant:
    @pytest.mark.parametrize(
        ("more", "error"),
        [
            ({"group_id": ""}, INVALID),
            ({"group_id": " "}, INVALID),
            ({"member_id": ""}, INVALID),
            ({"instance_id": ""}, INVALID),
            ({"rack_id": "  "}, INVALID),
            ({"member_epoch": -3}, INVALID),
            ({"member_epoch": -2}, INVALID),
            ({"rebalance_timeout_ms": -1}, INVALID),
            ({"owned": None}, INVALID),
            ({"owned": frozenset([(uuid.UUID(int=1), 0)])}, INVALID),
            ({"subscribed_names": None}, INVALID),
            ({"server_assignor": "sticky"}, ErrorCode.unsupported_assignor),
            ({"subscribed_regex": "(a"}, ErrorCode.invalid_regular_expression),
            ({"subscribed_regex": "a" * (MAX_REGEX_CHARACTERS + 1)}, ErrorCode.invalid_regular_expression),
            ({"subscribed_regex": r"(a)\1"}, ErrorCode.invalid_regular_expression),
        ],
    )
    def test_an_invalid_join_is_refused(self, more: dict[str, Any], error: ErrorCode) -> None:
        scene = ConsumerScene(t=1)
        assert scene.refusal(joining(**{"member_id": "a", "subscribed_names": ("t",), **more})) is error
        assert not scene.groups.groups

    @pytest.mark.parametrize("what", ["group_id", "member_id", "instance_id", "rack_id"])
    def test_a_too_long_id_is_refused(self, what: str) -> None:
        scene = ConsumerScene(t=1)
        fits = joining(**{"member_id": "a", what: "x" * MAX_ID_BYTES})
        too_long = joining(**{"member_id": "a", what: "ü" * (MAX_ID_BYTES // 2 + 1)})
        scene.send(fits)
        assert scene.refusal(too_long) is INVALID

    def test_a_too_long_subscription_is_refused(self) -> None:
        scene = ConsumerScene(t=1)
        names = [f"{number:0249}" for number in range(MAX_SUBSCRIPTION_BYTES // 249 + 1)]
        assert scene.refusal(joining("a", *names)) is INVALID
        scene.send(joining("a", *names[:-1]))

    def test_an_empty_subscription_is_valid(self) -> None:
        scene = ConsumerScene(t=1)
        reply = scene.send(joining("a"))
        assert (reply.member_epoch, reply.assignment) == (1, frozenset())
        assert scene.state == STABLE


class TestJoining:
    def test_the_first_gets_everything_at_once(self) -> None:
        scene, client = alone()
        assert (client.member_epoch, client.partitions) == (2, [0, 1, 2, 3])
        assert scene.state == STABLE

    @pytest.mark.parametrize("member_epoch", [1, -1, -2])
    @pytest.mark.parametrize("instance_id", [None, "i"])
    def test_a_group_that_does_not_exist(self, member_epoch: int, instance_id: str | None) -> None:
        scene = ConsumerScene(t=1)
        heartbeat = request("a", member_epoch, instance_id=instance_id)
        expected = INVALID if member_epoch == -2 and instance_id is None else ErrorCode.group_id_not_found
        assert scene.refusal(heartbeat) is expected

    @pytest.mark.parametrize("member_epoch", [1, -1])
    @pytest.mark.parametrize("instance_id", [None, "i"])
    def test_a_member_that_does_not_exist(self, member_epoch: int, instance_id: str | None) -> None:
        scene, _ = alone()
        assert scene.refusal(request("b", member_epoch, instance_id=instance_id)) is UNKNOWN

    def test_a_full_group_refuses_new_members_only(self) -> None:
        scene = ConsumerScene(ConsumerLimits(max_size=1), t=1)
        client = Client(scene, "a")
        client.beat()
        assert scene.refusal(joining("b", "t")) is ErrorCode.group_max_size_reached
        client.member_epoch = 0
        assert client.beat().member_epoch == 2

    def test_a_join_whose_answer_was_lost_is_repeated(self) -> None:
        scene = ConsumerScene(t=2)
        client = Client(scene, "a")
        client.beat(answer_is_lost=True)
        before = snapshot(scene.groups)
        assert client.beat().assignment == scene.cluster.places()
        assert snapshot(scene.groups) == before

    def test_a_member_may_join_again_without_partitions(self) -> None:
        """Joining again releases the partitions that the member had to revoke, and all its others."""
        scene, first = alone()
        second = Client(scene, "b")
        second.beat()
        first.beat()
        assert scene.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
        first.member_epoch = 0
        reply = first.beat()
        assert reply.member_epoch == scene.group.group_epoch
        assert not scene.member("a").current.pending_revocation
        settle([first, second])
        assert scene.state == STABLE


class TestEpochs:
    @pytest.mark.parametrize("step", [1, 2, -1])
    def test_any_other_epoch_is_fenced(self, step: int) -> None:
        scene, client = alone()
        scene.grow("t", 5)
        client.beat()
        scene.grow("t", 6)
        client.beat()
        heartbeat = request("a", client.member_epoch + step, owned=None)
        assert scene.refusal(heartbeat) is FENCED

    def test_a_lost_answer(self) -> None:
        scene, client = alone()
        scene.grow("t", 5)
        client.beat(answer_is_lost=True)
        reply = client.beat()
        assert (reply.member_epoch, client.partitions) == (3, [0, 1, 2, 3, 4])

    def test_a_lost_answer_is_believed_only_with_partitions_that_the_member_still_has(self) -> None:
        scene, client = alone()
        scene.grow("t", 5)
        client.beat(answer_is_lost=True)
        foreign = (uuid.UUID(int=99), 0)
        assert scene.refusal(request("a", 2, owned=client.owned | {foreign})) is FENCED
        assert scene.refusal(request("a", 2)) is FENCED

    def test_two_epochs_back_is_no_lost_answer(self) -> None:
        scene, client = alone()
        for partitions in (5, 6):
            scene.grow("t", partitions)
            scene.send(request("a", scene.member("a").member_epoch, owned=client.owned))
        assert scene.refusal(request("a", 2, owned=client.owned)) is FENCED

    def test_a_lost_answer_that_took_partitions_does_not_fence(self) -> None:
        """The member still owns the partitions that it must revoke, in its current epoch."""
        scene, first = alone()
        second = Client(scene, "b")
        second.beat()
        first.beat(answer_is_lost=True)
        reply = first.beat()
        assert reply.assignment is not None
        assert len(reply.assignment) == 2
        settle([first, second])
        assert scene.state == STABLE

    def test_a_lost_answer_does_not_fence_a_member_that_waits_for_others(self) -> None:
        scene, first = alone(6)
        second = Client(scene, "b")
        second.beat()
        first.beat()
        assert scene.member("b").current.state is MemberState.UNRELEASED_PARTITIONS
        third = Client(scene, "c")
        third.beat()
        second.beat(answer_is_lost=True)
        settle([first, second, third])
        assert scene.state == STABLE

    def test_an_assignment_is_sent_when_it_changes_or_after_a_full_heartbeat(self) -> None:
        scene, client = alone()
        assert client.beat().assignment is None
        client.must_tell_all = True
        assert client.beat().assignment == client.owned
        scene.grow("t", 5)
        assert client.beat().assignment == scene.cluster.places()


class TestGivingBack:
    def test_no_member_gets_a_partition_that_another_has_not_revoked(self) -> None:
        scene, first = alone()
        second = Client(scene, "b")
        assert second.beat().assignment == frozenset()
        assert second.beat().assignment is None
        reply = first.beat()
        assert (reply.member_epoch, first.partitions) == (2, [0, 1])
        assert second.beat().assignment is None
        assert scene.state == "Reconciling"
        assert first.beat().member_epoch == 3
        assert second.beat().assignment == scene.cluster.places() - first.owned
        assert scene.state == "Stable"

    def test_partitions_not_reported_count_as_not_revoked(self) -> None:
        scene, first = alone()
        Client(scene, "b").beat()
        first.beat()
        before = snapshot(scene.groups)
        scene.send(request("a", 2))
        taken = min(scene.member("a").current.pending_revocation)
        scene.send(request("a", 2, owned=first.owned | {taken}))
        assert snapshot(scene.groups) == before

    def test_partitions_revoked_early_are_free_at_once(self) -> None:
        scene, first = alone()
        second = Client(scene, "b")
        second.beat()
        target = scene.group.targets["a"]
        assert first.beat(owned=target).member_epoch == 3
        assert scene.member("a").current.state is MemberState.STABLE
        second.beat()
        assert scene.state == STABLE

    def test_more_partitions_to_revoke_while_revoking(self) -> None:
        scene, first = alone(6)
        second, third = Client(scene, "b"), Client(scene, "c")
        second.beat()
        first.beat()
        third.beat()
        reply = first.beat()
        assert (reply.member_epoch, len(first.owned)) == (2, 2)
        assert first.beat().member_epoch == 4
        settle([second, third])
        assert scene.state == STABLE

    def test_a_member_that_does_not_revoke_in_time_is_fenced(self) -> None:
        scene, first = alone()
        second = Client(scene, "b")
        second.beat()
        first.beat()
        scene.advance(REBALANCE_MS - 1)
        scene.send(request("a", 2))
        assert "a" in scene.group.members
        scene.advance(1)
        assert "a" not in scene.group.members
        assert second.beat().assignment == scene.cluster.places()
        assert scene.refusal(request("a", 2)) is UNKNOWN

    def test_a_member_that_revokes_in_time_is_not_fenced(self) -> None:
        scene, first = alone()
        Client(scene, "b").beat()
        first.beat()
        scene.advance(REBALANCE_MS - 1)
        first.beat()
        assert scene.member("a").revocation_deadline_ms == NEVER
        scene.advance(1)
        assert "a" in scene.group.members

    def test_a_restart_restarts_the_time_to_revoke(self) -> None:
        scene, first = alone()
        Client(scene, "b").beat()
        first.beat()
        scene.now_ms += REBALANCE_MS - 1
        scene.restart()
        assert scene.member("a").revocation_deadline_ms == scene.now_ms + REBALANCE_MS
        scene.advance(REBALANCE_MS)
        assert "a" not in scene.group.members

    def test_a_rebalance_timeout_of_zero_leaves_no_time_to_revoke(self) -> None:
        scene = ConsumerScene(t=4)
        scene.send(joining("a", "t", rebalance_timeout_ms=0))
        Client(scene, "b").beat()
        scene.send(request("a", 2))
        scene.expire()
        assert list(scene.group.members) == ["b"]


class TestSessions:
    def test_a_silent_member_is_removed(self) -> None:
        scene, first, second = scene_of_two()
        scene.advance(SESSION_MS - 1)
        second.beat()
        scene.advance(1)
        assert list(scene.group.members) == ["b"]
        assert scene.state == ASSIGNING
        second.beat()
        assert second.owned == scene.cluster.places()
        assert scene.refusal(first.request()) is UNKNOWN

    def test_a_refused_heartbeat_does_not_keep_the_session(self) -> None:
        scene, _ = alone()
        scene.now_ms += SESSION_MS - 1
        scene.refusal(request("a", 9))
        scene.advance(1)
        assert scene.state == EMPTY

    def test_many_members_are_removed_in_batches_that_fit_the_log(self) -> None:
        scene = ConsumerScene(t=1)
        for number in range(MAX_EXPIRED_AT_ONCE + 1):
            scene.send(joining(f"m{number}", "t"))
        scene.advance(SESSION_MS)
        assert len(scene.group.members) == 1
        assert scene.groups.next_deadline_ms(GROUP) <= scene.now_ms
        scene.expire()
        assert scene.state == EMPTY

    def test_the_group_wakes_at_its_next_deadline(self) -> None:
        scene, first = alone()
        assert scene.groups.next_deadline_ms(GROUP) == scene.now_ms + SESSION_MS
        Client(scene, "b").beat()
        first.beat()
        assert scene.groups.next_deadline_ms(GROUP) == scene.now_ms + REBALANCE_MS
        scene.advance(SESSION_MS)
        assert scene.groups.next_deadline_ms(GROUP) == NEVER


class TestSubscriptions:
    def test_a_subscription_gains_and_loses_a_topic(self) -> None:
        scene, client = alone(2)
        scene.cluster.create("u", 2)
        client.beat(subscribed_names=("t", "u"))
        assert client.owned == scene.cluster.places()
        client.beat(subscribed_names=("u",))
        client.beat()
        assert client.owned == scene.cluster.places("u")
        assert client.member_epoch == 4

    def test_the_same_topics_in_another_order_are_no_change(self) -> None:
        scene = ConsumerScene(t=1, u=1)
        scene.send(joining("a", "t", "u"))
        scene.send(request("a", 2, subscribed_names=("u", "t", "u")))
        assert scene.group.group_epoch == 2

    def test_other_fields_do_not_change_the_subscription(self) -> None:
        scene, client = alone()
        client.beat(rack_id="r", rebalance_timeout_ms=5, server_assignor="uniform")
        assert scene.group.group_epoch == 2
        value = scene.member("a").value
        assert (value.rack_id, value.rebalance_timeout_ms, value.server_assignor) == ("r", 5, "uniform")

    def test_another_assignor_of_most_members_makes_a_new_assignment(self) -> None:
        scene, client = alone()
        client.beat(server_assignor="range")
        assert (scene.group.group_epoch, scene.group.assignment.epoch, client.member_epoch) == (3, 3, 3)

    def test_the_last_member_leaves_the_assignment_at_its_epoch(self) -> None:
        """Kafka's `GroupMetadataManager.consumerGroupFenceMembers`, from 4.4 on."""
        scene, client = alone()
        client.leave()
        assert (scene.group.group_epoch, scene.group.assignment) == (3, AssignmentEpoch(3))

    def test_a_regular_expression_must_match_the_whole_name(self) -> None:
        scene = ConsumerScene(t1=1, t2=1, xt1=1, t1x=1)
        client = Client(scene, "a", ())
        client.beat(subscribed_regex="t[12]")
        assert client.owned == scene.cluster.places("t1", "t2")
        assert [name for name in scene.cluster.names() if scene.group.subscription_test()(name)] == [
            "t1",
            "t2",
        ]
        scene.group.topics_seen = None
        assert scene.group.subscription_test()("t1"), "after a restart, its offsets must not expire"
        scene.cluster.create("t", 1)
        scene.topics_changed()
        client.beat(subscribed_regex="t[1-9]?")
        assert client.owned == scene.cluster.places("t", "t1", "t2")
        client.beat(subscribed_regex="")
        client.beat()
        assert client.owned == frozenset()

    def test_a_broken_expression_changes_nothing(self) -> None:
        scene, _ = alone()
        assert scene.refusal(request("a", 2, subscribed_regex="[")) is ErrorCode.invalid_regular_expression

    def test_a_group_has_a_bounded_number_of_expressions(self) -> None:
        """Each expression is matched against all topics when topics change, so their number must be limited."""
        scene = ConsumerScene(t=1)
        clients = [Client(scene, f"m{number}", ()) for number in range(MAX_REGEXES)]
        for number, client in enumerate(clients):
            client.beat(subscribed_regex=f"t{number}")
        before = snapshot(scene.groups)
        further = joining("x", subscribed_regex="u")
        assert scene.refusal(further) is ErrorCode.group_max_size_reached
        assert snapshot(scene.groups) == before
        Client(scene, "x", ()).beat(subscribed_regex="t0")
        clients[0].beat(subscribed_regex="t1")
        clients[2].beat(subscribed_regex="u")

    def test_names_and_expression_are_combined(self) -> None:
        scene = ConsumerScene(t=1, u=1, v=1)
        client = Client(scene, "a")
        client.beat(subscribed_regex="u|t")
        assert client.owned == scene.cluster.places("t", "u")

    def test_a_topic_is_subscribed_to_while_a_member_wants_it(self) -> None:
        scene = ConsumerScene(t=1, u=1, v=1)
        first, second = Client(scene, "a", ("t",)), Client(scene, "b", ())
        first.beat()
        second.beat(subscribed_regex="[uv]")
        assert [scene.group.subscription_test()(name) for name in ("t", "u", "x")] == [True, True, False]
        first.leave()
        second.beat()
        assert [scene.group.subscription_test()(name) for name in ("t", "u")] == [False, True]
        second.leave()
        assert not scene.group.subscription_test()("u")

    def test_most_members_choose_the_assignor(self) -> None:
        scene = ConsumerScene(t=3, u=3)
        clients = [Client(scene, name, ("t", "u")) for name in "abc"]
        for client, assignor in zip(clients, ("range", "uniform", "range"), strict=True):
            client.beat(server_assignor=assignor)
        settle(clients)
        assert [client.partitions for client in clients] == [[0, 0], [1, 1], [2, 2]]


class TestTopics:
    def test_created_later(self) -> None:
        scene = ConsumerScene()
        client = Client(scene, "a")
        assert client.beat().assignment == frozenset()
        scene.cluster.create("t", 2)
        scene.topics_changed()
        assert client.beat().assignment == scene.cluster.places()
        assert client.member_epoch == 3

    def test_deleted(self) -> None:
        scene, client = alone()
        del scene.cluster.topics["t"]
        scene.topics_changed()
        assert client.beat().assignment == frozenset()
        client.beat()
        assert scene.state == STABLE
        assert scene.member("a").holds == frozenset()

    def test_deleted_and_created_again(self) -> None:
        scene, client = alone()
        scene.cluster.create("t", 4)
        scene.topics_changed()
        client.beat()
        client.beat()
        assert client.owned == scene.cluster.places()

    def test_a_topic_without_subscribers_changes_nothing(self) -> None:
        scene, client = alone()
        scene.cluster.create("other", 1)
        scene.topics_changed()
        before = snapshot(scene.groups)
        client.beat()
        assert snapshot(scene.groups) == before

    def test_a_restart_is_no_change_of_topics(self) -> None:
        scene, first, second = scene_of_two()
        scene.restart()
        before = snapshot(scene.groups)
        first.beat()
        second.beat()
        assert snapshot(scene.groups) == before

    @pytest.mark.parametrize("what", ["enlarged", "created", "deleted", "created again"])
    def test_a_topic_change_before_a_restart_is_noticed_after_it(self, what: str) -> None:
        scene = ConsumerScene(t=2, u=2)
        client = Client(scene, "a", ("t", "u", "v"))
        client.beat()
        if what == "deleted":
            del scene.cluster.topics["u"]
        else:
            name, partitions = {"enlarged": ("u", 3), "created": ("v", 1), "created again": ("u", 2)}[what]
            topic_id = scene.cluster.topics.get(name, (uuid.UUID(int=9), 0))[0]
            scene.cluster.create(name, partitions)
            if what == "enlarged":
                scene.cluster.topics[name] = topic_id, partitions
        scene.restart()
        settle([client])
        assert client.owned == scene.cluster.places()
        assert scene.group.group_epoch == 3

    def test_a_leaving_member_and_a_changed_topic_raise_the_epoch_once(self) -> None:
        scene, first, second = scene_of_two()
        second.leave()
        scene.grow("t", 5)
        first.beat()
        assert scene.group.group_epoch == 4
        assert first.owned == scene.cluster.places()


class TestLeaving:
    def test_the_others_get_its_partitions(self) -> None:
        scene, first, second = scene_of_two()
        first.leave()
        assert scene.state == ASSIGNING
        second.beat()
        assert second.owned == scene.cluster.places()

    def test_the_last_member_leaves_a_group_whose_epoch_continues(self) -> None:
        scene, client = alone()
        client.leave()
        assert (scene.state, scene.group.group_epoch) == (EMPTY, 3)
        assert client.beat().member_epoch == 4

    def test_the_member_that_others_wait_for_leaves(self) -> None:
        scene, first = alone()
        second = Client(scene, "b")
        second.beat()
        first.beat()
        first.leave()
        second.beat()
        assert second.owned == scene.cluster.places()
        assert scene.state == STABLE

    def test_a_deleted_group_is_gone_from_the_log(self) -> None:
        scene, first, second = scene_of_two()
        first.leave()
        second.leave()
        effects = Effects(scene.now_ms)
        scene.groups.delete(GROUP, effects)
        scene.take(effects)
        assert not scene.replayed().groups
        assert scene.records[-1].row is consumer_group.GROUP_EPOCH


class TestStaticMembers:
    def test_a_static_member_leaves_and_returns_under_another_id(self) -> None:
        scene, client = alone(instance_id="i")
        owned = client.owned
        client.leave(-2)
        assert scene.member("a").member_epoch == -2
        again = Client(scene, "b", instance_id="i")
        assert again.beat().assignment == owned
        assert (scene.group.group_epoch, list(scene.group.members)) == (2, ["b"])
        assert scene.refusal(request("a", 2, instance_id="i")) is ErrorCode.fenced_instance_id
        assert scene.refusal(request("a", -1, instance_id="i")) is ErrorCode.fenced_instance_id
        assert scene.refusal(request("a", 2)) is UNKNOWN

    def test_a_static_member_returns_under_the_same_id(self) -> None:
        scene, client = alone(instance_id="i")
        owned = client.owned
        client.leave(-2)
        assert client.beat().assignment == owned
        assert client.member_epoch == 2
        assert scene.state == STABLE

    def test_a_static_member_keeps_its_partitions_while_it_is_away(self) -> None:
        scene, client = alone(instance_id="i")
        client.leave(-2)
        other = Client(scene, "b")
        settle([other])
        assert other.owned == frozenset()
        again = Client(scene, "c", instance_id="i")
        settle([again, other])
        assert len(again.owned) == len(other.owned) == 2

    def test_partitions_it_had_to_revoke_are_free_when_it_leaves(self) -> None:
        scene, client = alone(instance_id="i")
        other = Client(scene, "b")
        other.beat()
        client.beat()
        pending = scene.member("a").current.pending_revocation
        client.leave(-2)
        other.beat()
        assert other.owned == pending

    def test_a_static_member_that_stays_away_is_removed(self) -> None:
        scene, client = alone(instance_id="i")
        client.leave(-2)
        scene.advance(SESSION_MS)
        assert scene.state == EMPTY
        assert not scene.group.static_members

    def test_an_instance_in_use_is_not_replaced(self) -> None:
        scene, client = alone(instance_id="i")
        assert scene.refusal(joining("b", "t", instance_id="i")) is ErrorCode.unreleased_instance_id
        assert scene.refusal(request("b", 2, instance_id="i")) is ErrorCode.fenced_instance_id
        assert client.beat().member_epoch == 2

    def test_a_lost_answer_to_its_join_or_its_leave(self) -> None:
        scene, client = alone(instance_id="i")
        client.member_epoch = 0
        assert client.beat().member_epoch == 2
        client.leave(-2)
        client.leave(-2)
        assert scene.member("a").member_epoch == -2

    def test_a_static_member_leaves_for_good(self) -> None:
        scene, client = alone(instance_id="i")
        client.leave()
        assert not scene.group.static_members
        assert scene.send(joining("b", "t", instance_id="i")).assignment == scene.cluster.places()

    def test_a_restart_while_a_static_member_is_away(self) -> None:
        scene, client = alone(instance_id="i")
        owned = client.owned
        client.leave(-2)
        scene.restart()
        again = Client(scene, "b", instance_id="i")
        assert again.beat().assignment == owned
        scene.restart()
        assert scene.group.static_members == {"i": "b"}
        assert again.beat().member_epoch == 2

    def test_a_member_that_names_its_instance_later(self) -> None:
        scene, client = alone()
        assert scene.refusal(request("a", 2, instance_id="i")) is UNKNOWN
        client.member_epoch, client.instance_id = 0, "i"
        client.beat()
        assert scene.group.static_members == {"i": "a"}
        client.member_epoch, client.instance_id = 0, "j"
        client.beat()
        assert scene.group.static_members == {"j": "a"}
        assert snapshot(scene.replayed()) == snapshot(scene.groups)


class TestRevokingOneAfterTheOther:
    def test_what_is_no_longer_subscribed_to_is_revoked_at_once(self) -> None:
        scene = ConsumerScene(t=2, u=2)
        first = Client(scene, "a", ("t", "u"))
        first.beat(server_assignor="range")
        Client(scene, "b", ("t", "u")).beat()
        first.beat(keeps_for_now=True)
        member = scene.member("a")
        assert len(member.current.pending_revocation) == 2
        kept_of_t = member.current.assigned & scene.cluster.places("t")
        reply = scene.send(request("a", first.member_epoch, subscribed_names=("t",)))
        assert reply.assignment == kept_of_t
        assert member.current.pending_revocation == scene.cluster.places() - kept_of_t
        assert snapshot(scene.replayed()) == snapshot(scene.groups)


class TestRestarts:
    def test_a_member_that_is_revoking_may_commit(self) -> None:
        scene, first = alone()
        second = Client(scene, "b")
        second.beat()
        for client in (first, second, first, second, first, second):
            scene.restart()
            client.beat()
        assert scene.state == STABLE
        assert not first.owned & second.owned

    def test_a_heartbeat_without_news_writes_nothing(self) -> None:
        scene, first, second = scene_of_two()
        count = len(scene.records)
        first.beat()
        second.beat()
        scene.send(request("a", first.member_epoch))
        assert len(scene.records) == count

    def test_all_stored_state_can_be_rewritten(self) -> None:
        scene, *_ = scene_of_two()
        group = scene.group
        scene.records = [
            record for key in ROWS.stored_keys(group) if (record := group.record_of(*key)) is not None
        ]
        assert snapshot(scene.replayed()) == snapshot(scene.groups)
        assert group.record_of(8, "nobody") is None

    def test_leftover_records_do_not_restore_a_deleted_group(self) -> None:
        scene = ConsumerScene()
        scene.records = [consumer_group.CURRENT.of(GROUP, "a", None)]
        assert not scene.replayed().groups
