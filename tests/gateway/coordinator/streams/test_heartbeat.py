"""Members of a streams group: joining, staying, leaving, epochs, the topology and its topics."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.coordinator.streams.internal_topics import StreamsGroupStatus
from seqgate.gateway.coordinator.streams.records import NOT_VALIDATED, StreamsEndpoint
from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskAssignment, TaskId
from seqgate.gateway.coordinator.streams.topology import CopartitionGroup, Topology
from tests.gateway.coordinator.streams.applications import (
    COUNT,
    PIPE,
    FakeTopics,
    changelog,
    repartition,
    subtopology,
)
from tests.gateway.coordinator.streams.group_scene import (
    AT_ONCE,
    REBALANCE_TIMEOUT_MS,
    Scene,
    active,
    asking,
    joining,
    statuses,
)

FIRST_EPOCH = 2
"""The group epoch after the first member has joined."""


def pipe(*member_ids: str, lines: int = 4) -> Scene:
    scene = Scene(FakeTopics(lines=lines))
    for member_id in member_ids:
        scene.join(member_id)
    return scene


class TestJoining:
    def test_the_first_member_gets_all_tasks(self) -> None:
        scene = pipe()
        reply = scene.join("a")
        assert reply.member_epoch == FIRST_EPOCH
        assert reply.tasks == active(0, 1, 2, 3)
        assert not reply.notes
        assert scene.group.state_text == "Stable"

    def test_members_share_the_tasks(self) -> None:
        scene = pipe("a", "b")
        scene.settle("a", "b")
        assert sorted(len(scene.tasks[name].active) for name in "ab") == [2, 2]

    def test_a_member_that_knows_its_tasks_gets_no_list(self) -> None:
        scene = pipe("a")
        reply = scene.stay("a", tells=False)
        assert (reply.member_epoch, reply.tasks, reply.notes) == (FIRST_EPOCH, None, ())

    def test_a_member_that_joins_again_gets_its_tasks_again(self) -> None:
        scene = pipe("a")
        assert scene.join("a").tasks == active(0, 1, 2, 3)
        assert scene.group.group_epoch == FIRST_EPOCH, "nothing has changed"

    def test_a_full_group_takes_no_member(self) -> None:
        scene = Scene(FakeTopics(lines=4), replace(AT_ONCE, max_size=1))
        scene.join("a")
        text = "The streams group has reached its maximum capacity of 1 members."
        assert scene.refusal(joining("b")) == (ErrorCode.group_max_size_reached, text)
        assert scene.join("a").tasks == active(0, 1, 2, 3), "its member joins again"

    def test_a_changed_description_raises_the_epoch(self) -> None:
        scene = pipe("a")
        scene.beat(asking("a", FIRST_EPOCH, client_tags=(("zone", "z"), ("area", "a"))))
        assert scene.group.group_epoch == FIRST_EPOCH + 1
        assert scene.group.members["a"].value.client_tags == (("area", "a"), ("zone", "z"))
        scene.stay("a")
        assert scene.group.members["a"].value.client_tags, "client_tags of null must leave the tags unchanged"
        assert scene.group.group_epoch == FIRST_EPOCH + 1


class TestEpochs:
    def test_a_stranger_must_join(self) -> None:
        scene = pipe("a")
        assert scene.refusal(asking("x", 3)) == (
            ErrorCode.unknown_member_id,
            "Member x is not a member of group application.",
        )

    @pytest.mark.parametrize(("epoch", "word"), [(9, "greater"), (1, "smaller")])
    def test_a_wrong_epoch_is_fenced(self, epoch: int, word: str) -> None:
        error, text = pipe("a").refusal(asking("a", epoch, owned=NO_ASSIGNMENT))
        assert error is ErrorCode.fenced_member_epoch
        assert text.startswith(f"The streams group member has a {word} member epoch ({epoch})")

    def test_the_previous_epoch_is_a_lost_answer(self) -> None:
        scene = pipe("a")
        scene.topics_changed(lines=6)
        scene.stay("a")
        assert scene.group.members["a"].current.previous_member_epoch == FIRST_EPOCH
        reply = scene.beat(asking("a", FIRST_EPOCH, owned=active(0, 1, 2, 3)))
        assert reply.member_epoch == FIRST_EPOCH + 1

    @pytest.mark.parametrize("owned", [None, active(7), TaskAssignment(standby=frozenset({TaskId("0", 0)}))])
    def test_the_previous_epoch_with_other_tasks_is_fenced(self, owned: TaskAssignment | None) -> None:
        scene = pipe("a")
        scene.topics_changed(lines=6)
        scene.stay("a")
        error, _ = scene.refusal(asking("a", FIRST_EPOCH, owned=owned))
        assert error is ErrorCode.fenced_member_epoch

    def test_epochs_survive_a_restart(self) -> None:
        scene = pipe("a", "b")
        scene.settle("a", "b")
        epoch = scene.group.group_epoch
        scene.restart()
        scene.settle("a", "b")
        assert scene.group.group_epoch == epoch


class TestLeaving:
    def test_the_others_get_the_tasks_of_a_member_that_leaves(self) -> None:
        scene = pipe("a", "b")
        scene.settle("a", "b")
        scene.leave("a")
        scene.settle("b")
        assert scene.tasks["b"] == active(0, 1, 2, 3)

    def test_a_session_times_out(self) -> None:
        scene = pipe("a", "b")
        scene.settle("a", "b")
        scene.now_ms += 900
        scene.stay("b")
        scene.now_ms += 100
        scene.expire()
        assert list(scene.group.members) == ["b"]

    def test_a_member_that_does_not_revoke_in_time_is_removed(self) -> None:
        scene = pipe("a", "b")
        scene.stay("a", tells=False)
        scene.now_ms += REBALANCE_TIMEOUT_MS - 1
        scene.expire()
        assert "a" in scene.group.members
        scene.now_ms += 1
        scene.expire()
        assert list(scene.group.members) == ["b"]

    def test_an_empty_group_is_empty(self) -> None:
        scene = pipe("a")
        scene.leave("a")
        assert scene.group.state_text == "Empty"
        assert not scene.group.subscription_test()("lines")


class TestStaticMembers:
    """Members with an instance id (KIP-1071, Kafka 4.4), which keep their tasks while they are away."""

    @pytest.fixture
    def scene(self) -> Scene:
        scene = pipe("b")
        scene.join("a", instance_id="i")
        scene.settle("a", "b")
        return scene

    def test_a_member_that_returns_keeps_its_tasks(self, scene: Scene) -> None:
        tasks, group_epoch = scene.tasks["a"], scene.group.group_epoch
        scene.leave("a", member_epoch=-2, instance_id="i")
        assert scene.group.state_text == "Reconciling"
        assert scene.group.members["a"].current.member_epoch == -2
        scene.restart()
        reply = scene.join("a2", instance_id="i", process_id="process-a")
        assert (reply.tasks, reply.member_epoch) == (tasks, group_epoch)
        assert scene.group.group_epoch == group_epoch, "nobody needs other tasks"
        assert (sorted(scene.group.members), scene.group.state_text) == (["a2", "b"], "Stable")
        assert scene.group.static_members == {"i": "a2"}

    def test_a_member_that_returns_at_another_process_raises_the_epoch(self, scene: Scene) -> None:
        tasks, group_epoch = scene.tasks["a"], scene.group.group_epoch
        scene.leave("a", member_epoch=-2, instance_id="i")
        reply = scene.join("a2", instance_id="i")
        assert (reply.tasks, reply.member_epoch) == (tasks, group_epoch + 1)

    def test_a_client_that_says_something_else_of_itself_does_not(self, scene: Scene) -> None:
        group_epoch = scene.group.group_epoch
        scene.beat(asking("a", scene.epochs["a"], instance_id="i", rebalance_timeout_ms=7))
        assert scene.group.members["a"].value.rebalance_timeout_ms == 7
        assert scene.group.group_epoch == group_epoch

    def test_a_member_that_stays_away_is_removed(self, scene: Scene) -> None:
        scene.now_ms += 500
        scene.leave("a", member_epoch=-2, instance_id="i")
        scene.stay("b")
        scene.now_ms += 500
        scene.expire()
        assert sorted(scene.group.members) == ["b"]
        assert not scene.group.static_members

    def test_a_member_that_is_away_has_not_to_revoke(self, scene: Scene) -> None:
        scene.join("c")
        assert scene.stay("a").tasks is not None
        assert scene.group.members["a"].must_revoke
        scene.leave("a", member_epoch=-2, instance_id="i")
        scene.now_ms += REBALANCE_TIMEOUT_MS
        scene.expire()
        assert "a" in scene.group.members

    def test_an_instance_id_in_use_is_refused(self, scene: Scene) -> None:
        text = (
            "Static member x with instance id i cannot join the group because the instance id is owned by a "
            "member."
        )
        assert scene.refusal(joining("x", instance_id="i")) == (ErrorCode.unreleased_instance_id, text)

    def test_a_member_that_was_replaced_is_fenced(self, scene: Scene) -> None:
        scene.leave("a", member_epoch=-2, instance_id="i")
        scene.join("a2", instance_id="i")
        text = "Static member a with instance id i was fenced by member a2."
        for epoch in (3, -1, -2):
            request = asking("a", epoch, instance_id="i")
            assert scene.refusal(request) == (ErrorCode.fenced_instance_id, text)

    def test_an_unknown_instance_id_must_join(self, scene: Scene) -> None:
        text = "Instance id x is unknown."
        assert scene.refusal(asking("b", 3, instance_id="x")) == (ErrorCode.unknown_member_id, text)

    def test_a_full_group_takes_its_static_member_back(self, scene: Scene) -> None:
        scene.limits = replace(AT_ONCE, max_size=2)
        scene.leave("a", member_epoch=-2, instance_id="i")
        scene.join("a2", instance_id="i")
        scene.leave("a2", instance_id="i")
        assert scene.group.static_members == {}

    def test_a_member_that_never_got_the_answer_to_its_join_joins_again(self, scene: Scene) -> None:
        assert scene.join("a", instance_id="i").tasks == scene.tasks["a"]


class TestTaskOffsets:
    def test_a_member_keeps_the_offsets_that_it_does_not_report_anew(self) -> None:
        scene = pipe("a")
        epoch, task = scene.epochs["a"], TaskId("0", 1)
        scene.beat(asking("a", epoch, task_offsets=((task, 5),), task_end_offsets=((task, 9),)))
        scene.beat(asking("a", epoch, task_end_offsets=()))
        member = scene.group.members["a"]
        assert (member.task_offsets, member.task_end_offsets) == ({task: 5}, {})


class TestTopology:
    def test_the_topology_must_stay(self) -> None:
        scene = pipe("a")
        other = Topology(0, (subtopology("0", "lines", "more"),))
        text = "Topology updates are not supported yet."
        assert scene.refusal(joining("b", other)) == (ErrorCode.invalid_request, text)
        assert scene.refusal(joining("b", PIPE._replace(epoch=1))) == (ErrorCode.invalid_request, text)

    def test_an_older_topology_is_stale(self) -> None:
        scene = Scene(FakeTopics(lines=4))
        scene.join("a", PIPE._replace(epoch=3))
        reply = scene.join("b", PIPE._replace(epoch=2))
        assert [(note.status, note.detail) for note in reply.notes] == [
            (
                StreamsGroupStatus.STALE_TOPOLOGY,
                "The member's topology epoch 2 is behind the group's topology epoch 3.",
            )
        ]
        assert statuses(scene.stay("b")) == [StreamsGroupStatus.STALE_TOPOLOGY]

    def test_missing_source_topics_leave_a_group_not_ready(self) -> None:
        scene = Scene(FakeTopics())
        reply = scene.join("a")
        assert statuses(reply) == [StreamsGroupStatus.MISSING_SOURCE_TOPICS]
        assert reply.tasks == NO_ASSIGNMENT
        assert scene.group.state_text == "NotReady"
        assert scene.group.value.validated_topology_epoch == NOT_VALIDATED
        scene.topics_changed(lines=2)
        assert scene.stay("a").tasks == active(0, 1)
        assert scene.group.state_text == "Stable"

    def test_tasks_follow_internal_topics(self) -> None:
        scene = Scene(FakeTopics(lines=2))
        reply = scene.join("a", COUNT)
        assert statuses(reply) == [StreamsGroupStatus.MISSING_INTERNAL_TOPICS]
        assert {topic.name: topic.partitions for topic in reply.missing} == {"words": 2, "counts": 2}
        scene.topics.create(reply.missing)
        scene.group.topics_changed = True
        reply = scene.stay("a")
        assert not reply.missing
        assert reply.tasks is not None
        assert len(reply.tasks.active) == 4

    def test_a_source_topic_that_vanishes_takes_the_tasks_away(self) -> None:
        scene = pipe("a")
        del scene.topics.counts["lines"]
        scene.topics_changed()
        reply = scene.stay("a", tells=False)
        assert statuses(reply) == [StreamsGroupStatus.MISSING_SOURCE_TOPICS]
        assert reply.tasks == NO_ASSIGNMENT
        assert scene.group.state_text == "NotReady"

    @pytest.mark.parametrize(
        ("owned", "text"),
        [
            (active(0, subtopology_id="9"), "Subtopology 9 does not exist in the topology."),
            (active(4), "Task 4 for subtopology 0 is invalid. Number of tasks for this subtopology: 4"),
        ],
    )
    def test_a_member_can_have_no_tasks_outside_of_the_topology(self, owned: Any, text: str) -> None:
        refusal = pipe("a").refusal(asking("a", FIRST_EPOCH, owned=owned))
        assert refusal == (ErrorCode.invalid_request, text)

    def test_a_topology_is_the_same_in_any_order(self) -> None:
        scene = Scene(FakeTopics(lines=2))
        scene.join("a", COUNT)
        reply = scene.join("b", Topology(0, COUNT.subtopologies[::-1]))
        assert statuses(reply) == [StreamsGroupStatus.MISSING_INTERNAL_TOPICS]


class TestDelays:
    def test_an_empty_group_gathers_members_first(self) -> None:
        scene = Scene(FakeTopics(lines=4), replace(AT_ONCE, initial_delay_ms=500))
        for name in "ab":
            reply = scene.join(name)
            assert (reply.member_epoch, reply.tasks) == (1, NO_ASSIGNMENT)
            assert statuses(reply) == [StreamsGroupStatus.ASSIGNMENT_DELAYED]
        scene.now_ms += 500
        scene.expire()
        scene.settle("a", "b")
        records = [record for record in scene.records if record.row is streams_records.GROUP]
        assert len(records) == 2, "one epoch for each member, and no more"

    def test_a_restart_ends_the_delay(self) -> None:
        scene = Scene(FakeTopics(lines=4), replace(AT_ONCE, initial_delay_ms=500))
        scene.join("a")
        scene.restart()
        assert scene.stay("a").tasks == active(0, 1, 2, 3)

    def test_the_delay_of_a_group_that_is_empty_again_assigns_nothing(self) -> None:
        scene = Scene(FakeTopics(lines=4), replace(AT_ONCE, initial_delay_ms=500))
        scene.join("a")
        scene.leave("a")
        before = scene.state()
        scene.now_ms += 500
        scene.expire()
        assert scene.state() == before

    def test_assignments_keep_their_interval(self) -> None:
        scene = Scene(FakeTopics(lines=4), replace(AT_ONCE, assignment_interval_ms=200))
        scene.join("a")
        reply = scene.join("b")
        assert [note.detail for note in reply.notes] == [
            "Assignment delayed due to the configured assignment interval."
        ]
        assert scene.group.state_text == "Assigning"
        scene.now_ms += 200
        scene.settle("a", "b")
        assert all(len(scene.tasks[name].active) == 2 for name in "ab")
        scene.now_ms -= 3_600_000
        scene.join("c")
        scene.settle("a", "b", "c")
        assert scene.tasks["c"].active, "the clock was set back: nobody knows how old the target is"


class TestConfigs:
    def test_standby_tasks_begin_when_they_are_configured(self) -> None:
        scene = Scene(FakeTopics(lines=2, words=2, counts=2))
        scene.join("a", COUNT)
        scene.join("b", COUNT)
        scene.settle("a", "b")
        assert not any(scene.tasks[name].standby for name in "ab")
        scene.limits = replace(AT_ONCE, standby_replicas=1)
        scene.settle("a", "b")
        stateful = [task for task in scene.tasks["a"].active if task.subtopology_id == "1"]
        assert scene.tasks["b"].standby == frozenset(stateful)

    def test_members_learn_which_client_tags_they_lack(self) -> None:
        scene = pipe("a")
        group_epoch = scene.group.group_epoch
        scene.limits = replace(AT_ONCE, tags=("zone", "rack"))
        assert not scene.stay("a").notes, "a client of version 0 does not know the status"
        assert scene.group.group_epoch == group_epoch + 1
        assert scene.group.value.assignment_configs[1] == ("rack.aware.assignment.tags", "zone,rack")
        epoch = scene.epochs["a"]
        reply = scene.beat(asking("a", epoch, api_version=1, client_tags=(("zone", "z"),)))
        assert statuses(reply) == [StreamsGroupStatus.MISSING_CLIENT_TAGS]
        assert "[rack]" in reply.notes[0].detail
        epoch = scene.epochs["a"]
        tags = (("zone", "z"), ("rack", "r"))
        assert not scene.beat(asking("a", epoch, api_version=1, client_tags=tags)).notes


class TestShutdown:
    def test_every_member_hears_that_one_asked_for_a_shutdown(self) -> None:
        scene = pipe("a", "b")
        scene.settle("a", "b")
        asked = replace(asking("a", scene.epochs["a"]), is_shutdown_asked=True)
        assert statuses(scene.beat(asked)) == [StreamsGroupStatus.SHUTDOWN_APPLICATION]
        scene.leave("a")
        reply = scene.stay("b")
        assert [note.detail for note in reply.notes] == [
            (
                "Streams group member a encountered a fatal error and requested a shutdown for the entire "
                "application."
            )
        ]
        scene.leave("b")
        assert not scene.join("b").notes, "an empty group forgets the shutdown"

    def test_a_member_may_ask_while_it_leaves(self) -> None:
        scene = pipe("a", "b")
        scene.leave("a", is_shutdown_asked=True)
        assert statuses(scene.stay("b")) == [StreamsGroupStatus.SHUTDOWN_APPLICATION]


class TestEndpoints:
    def test_members_learn_where_the_partitions_are(self) -> None:
        scene = Scene(FakeTopics(lines=3, words=3, counts=3))
        here, there = StreamsEndpoint("here", 1), StreamsEndpoint("there", 2)
        scene.join("a", COUNT, user_endpoint=here)
        scene.join("b", COUNT, user_endpoint=there)
        scene.settle("a", "b")
        reply = scene.stay("a")
        assert reply.endpoints is not None
        found = {each.endpoint: dict(each.active) for each in reply.endpoints}
        assert [each.endpoint for each in reply.endpoints] == [there, here], (
            "the endpoint of the member that asks must come last"
        )
        for topic in ("lines", "words"):
            assert sorted(found[here].get(topic, ()) + found[there].get(topic, ())) == [0, 1, 2]
        known = asking("a", scene.epochs["a"], endpoint_epoch=reply.endpoint_epoch)
        assert scene.beat(known).endpoints is None

    def test_a_smaller_topic_has_no_partition_for_the_last_tasks(self) -> None:
        scene = Scene(FakeTopics(small=1, large=3))
        reply = scene.join(
            "a", Topology(0, (subtopology("0", "small", "large"),)), user_endpoint=StreamsEndpoint("h", 1)
        )
        assert reply.endpoints is not None
        assert dict(reply.endpoints[0].active) == {"small": (0,), "large": (0, 1, 2)}

    def test_members_learn_of_an_endpoint_that_changes(self) -> None:
        scene = pipe("a", "b")
        scene.settle("a", "b")
        before = scene.group.endpoint_epoch
        reply = scene.beat(asking("a", scene.epochs["a"], user_endpoint=StreamsEndpoint("here", 7)))
        assert reply.endpoint_epoch == before + 1
        scene.join("a")
        assert scene.group.members["a"].value.user_endpoint is None, "a member that joins says all of itself"
        assert scene.group.endpoint_epoch == before + 2

    def test_without_endpoints_nothing_is_sent(self) -> None:
        assert pipe().join("a").endpoints is None


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (asking(" ", 0), ErrorCode.invalid_request, "MemberId can't be empty."),
        (joining("a", rack_id=""), ErrorCode.invalid_request, "RackId can't be empty."),
        (joining("a", instance_id=""), ErrorCode.invalid_request, "InstanceId can't be empty."),
        (
            joining("a", owned=TaskAssignment(warmup=frozenset({TaskId("0", 0)}))),
            ErrorCode.invalid_request,
            "WarmupTasks must be empty when (re-)joining.",
        ),
        (
            joining("a", task_offsets=((TaskId("0", 1), 5), (TaskId("0", 1), 6))),
            ErrorCode.invalid_request,
            "Task offsets contain a duplicate entry for subtopology 0 and partition 1.",
        ),
        (
            joining("a", task_end_offsets=tuple((TaskId("0", index), 0) for index in range(10_001))),
            ErrorCode.invalid_request,
            "TaskEndOffsets can't have more than 10000 entries.",
        ),
        (
            joining("a", Topology(0, (PIPE.subtopologies[0]._replace(source_topic_regex=("a.*",)),))),
            ErrorCode.invalid_request,
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            joining("a", rebalance_timeout_ms=-1),
            ErrorCode.invalid_request,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            joining("a", owned=active(0)),
            ErrorCode.invalid_request,
            "ActiveTasks must be empty when (re-)joining.",
        ),
        (
            joining("a", owned=TaskAssignment(standby=frozenset({TaskId("0", 0)}))),
            ErrorCode.invalid_request,
            "StandbyTasks must be empty when (re-)joining.",
        ),
        (
            asking("a", 0, rebalance_timeout_ms=1),
            ErrorCode.invalid_request,
            "Topology must be non-null when (re-)joining.",
        ),
        (asking("a", -2), ErrorCode.invalid_request, "InstanceId can't be null."),
        (
            asking("a", -3),
            ErrorCode.invalid_request,
            "MemberEpoch is -3, but must be greater than or equal to -2.",
        ),
        (
            asking("a", 3, has_some_owned=True),
            ErrorCode.invalid_request,
            "If one task-type is non-null, all must be non-null.",
        ),
        (
            asking("a", 3, topology=PIPE),
            ErrorCode.invalid_request,
            "Topology can only be provided when (re-)joining.",
        ),
        (
            joining("a", Topology(0, (subtopology("0", "in", changelogs=[repartition("log", 3)]),))),
            ErrorCode.streams_invalid_topology,
            "Changelog topic log must have an undefined partition count, but it is set to 3.",
        ),
        (
            joining("a", Topology(-1, PIPE.subtopologies)),
            ErrorCode.invalid_request,
            "The topology epoch must be 0 or more, not -1.",
        ),
        (
            joining("a", Topology(0, PIPE.subtopologies * 2)),
            ErrorCode.streams_invalid_topology,
            "Two subtopologies have the same id.",
        ),
        (
            joining("a", Topology(0, (subtopology("0", "in", repartitions=[repartition("r", -1)]),))),
            ErrorCode.streams_invalid_topology,
            "Repartition topic r can't have -1 partitions.",
        ),
        (
            joining(
                "a",
                Topology(
                    0, (PIPE.subtopologies[0]._replace(copartition_groups=(CopartitionGroup((1,), (), ()),)),)
                ),
            ),
            ErrorCode.streams_invalid_topology,
            "A copartition group of subtopology 0 names a topic that the subtopology does not have.",
        ),
        (
            joining("a", process_id="p" * 1025),
            ErrorCode.invalid_request,
            "ProcessId can't be longer than 1024 bytes.",
        ),
        (
            joining("a", Topology(0, (subtopology("0", "in", changelogs=[changelog("c" * 300_000)]),))),
            ErrorCode.invalid_request,
            "Topology can't be longer than 262144 bytes.",
        ),
    ],
)
def test_an_invalid_request_is_refused(request_: Any, error: ErrorCode, text: str) -> None:
    assert Scene(FakeTopics(lines=1)).refusal(request_) == (error, text)
