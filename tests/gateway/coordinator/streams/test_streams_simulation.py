"""Any history of a streams group: no active task has two owners, and members that go on get all tasks."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskId
from tests.gateway.coordinator.streams.applications import COUNT, FakeTopics
from tests.gateway.coordinator.streams.group_scene import AT_ONCE, Scene

NAMES = ("a", "b", "c", "d")
PROCESSES = ("p", "q", "r")
ROUNDS = 12
"""Heartbeats of each member in which a group without further changes must settle."""


class StreamsGroupMachine(RuleBasedStateMachine):
    """Members that follow their assignments, fall silent, leave and return."""

    @initialize(partitions=st.integers(1, 5), replicas=st.integers(0, 2))
    def begin(self, partitions: int, replicas: int) -> None:
        topics = FakeTopics(lines=partitions, words=partitions, counts=partitions)
        self.scene = Scene(topics, replace(AT_ONCE, standby_replicas=replicas))
        self.processes: dict[str, str] = {}

    @property
    def members(self) -> list[str]:
        return sorted(self.scene.group.members)

    def come(self, name: str, process_id: str) -> None:
        self.processes[name] = process_id
        self.scene.tasks[name] = NO_ASSIGNMENT
        self.scene.join(name, COUNT, process_id=process_id)

    @rule(name=st.sampled_from(NAMES), process_id=st.sampled_from(PROCESSES))
    def join(self, name: str, process_id: str) -> None:
        self.come(name, self.processes[name] if name in self.scene.group.members else process_id)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), tells=st.booleans())
    def stay(self, data: st.DataObject, tells: bool) -> None:
        self.scene.stay(data.draw(st.sampled_from(self.members)), tells=tells)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.scene.leave(data.draw(st.sampled_from(self.members)))

    @rule(passed_ms=st.sampled_from((100, 300, 1_000)))
    def fall_silent(self, passed_ms: int) -> None:
        self.scene.now_ms += passed_ms
        self.scene.expire()

    @rule(partitions=st.integers(1, 8))
    def enlarge(self, partitions: int) -> None:
        count = max(partitions, self.scene.topics.counts["lines"])
        self.scene.topics_changed(lines=count, words=count, counts=count)

    @rule(replicas=st.integers(0, 2))
    def configure(self, replicas: int) -> None:
        self.scene.limits = replace(AT_ONCE, standby_replicas=replicas)

    @rule()
    def restart(self) -> None:
        self.scene.restart()

    @invariant()
    def tasks_have_one_owner(self) -> None:
        active: list[TaskId] = []
        of_processes: list[tuple[str, TaskId]] = []
        for member in self.scene.group.members.values():
            of_member: set[TaskId] = set()
            for held in (member.current.assigned, member.current.pending_revocation):
                active += held.active
                of_member.update(held.active, held.standby, held.warmup)
            of_processes += ((member.value.process_id, task) for task in of_member)
        assert len(active) == len(set(active))
        assert len(of_processes) == len(set(of_processes))

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.scene.group
        assert group.assignment_epoch <= group.group_epoch
        for member in group.members.values():
            assert member.current.member_epoch <= group.group_epoch

    def teardown(self) -> None:
        if not self.members:
            return
        for _ in range(ROUNDS):
            for name in self.members:
                self.scene.stay(name)
        group = self.scene.group
        assert group.state_text == "Stable"
        active = [task for name in self.members for task in self.scene.tasks[name].active]
        count = self.scene.topics.counts["lines"]
        assert sorted(active) == [TaskId(name, index) for name in ("0", "1") for index in range(count)]
        for name in self.members:
            assert group.members[name].current.assigned.tasks == self.scene.tasks[name] == group.targets[name]


TestStreamsGroup = StreamsGroupMachine.TestCase
TestStreamsGroup.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
