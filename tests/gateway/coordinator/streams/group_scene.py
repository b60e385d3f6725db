"""A streams group with the records of its whole life, for tests of its rules."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.streams import heartbeat as protocol
from seqgate.gateway.coordinator.streams.group import StreamsGroup
from seqgate.gateway.coordinator.streams.heartbeat import StreamsHeartbeat, StreamsLimits, StreamsReply, check
from seqgate.gateway.coordinator.streams.internal_topics import StreamsGroupStatus
from seqgate.gateway.coordinator.streams.records import ROWS
from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskAssignment, TaskId
from seqgate.gateway.coordinator.streams.topology import Topology
from tests.gateway.coordinator.streams.applications import PIPE, FakeTopics

GROUP = "application"
AT_ONCE = StreamsLimits(session_timeout_ms=1_000, initial_delay_ms=0, assignment_interval_ms=0)
REBALANCE_TIMEOUT_MS = 300


def active(*partitions: int, subtopology_id: str = "0") -> TaskAssignment:
    """Return active tasks of one subtopology."""
    return TaskAssignment(frozenset(TaskId(subtopology_id, partition) for partition in partitions))


def joining(member_id: str, topology: Topology = PIPE, **more: Any) -> StreamsHeartbeat:
    """Return the request of a member that joins; its process has the member's name."""
    fields: dict[str, Any] = {
        "process_id": f"process-{member_id}",
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "owned": NO_ASSIGNMENT,
    }
    return asking(member_id, 0, topology=topology, **(fields | more))


def asking(member_id: str, member_epoch: int, **more: Any) -> StreamsHeartbeat:
    """Return any request of a member."""
    return StreamsHeartbeat(GROUP, member_id, member_epoch, f"client-{member_id}", "/127.0.0.1", **more)


class Scene:
    """A group and its topics; every request checks that the records alone rebuild the group."""

    def __init__(self, topics: FakeTopics, limits: StreamsLimits = AT_ONCE) -> None:
        self.group = StreamsGroup(GROUP)
        self.topics = topics
        self.limits = limits
        self.now_ms = 1_000
        self.records: list[RowRecord] = []
        self.epochs: dict[str, int] = {}
        self.tasks: dict[str, TaskAssignment] = {}
        """The tasks in each member's last answer; the member owns them at once."""

    def beat(self, request: StreamsHeartbeat) -> StreamsReply:
        """Send a valid heartbeat."""
        check(request)
        reply, records = protocol.heartbeat(self.group, request, self.topics, self.limits, self.now_ms)
        self.records += records
        self.epochs[request.member_id] = reply.member_epoch
        if reply.tasks is not None:
            self.tasks[request.member_id] = reply.tasks
        self.check_log()
        return reply

    def join(self, member_id: str, topology: Topology = PIPE, **more: Any) -> StreamsReply:
        return self.beat(joining(member_id, topology, **more))

    def stay(self, member_id: str, *, tells: bool = True) -> StreamsReply:
        """Send a heartbeat of a member that has adopted its last assignment. It reports its tasks if it
        `tells`.
        """
        owned = self.tasks[member_id] if tells else None
        return self.beat(asking(member_id, self.epochs[member_id], owned=owned))

    def settle(self, *member_ids: str, rounds: int = 4) -> None:
        """Let members send heartbeats until each has its target."""
        for _ in range(rounds):
            for member_id in member_ids:
                self.stay(member_id)
        assert self.group.state_text == "Stable"

    def refusal(self, request: StreamsHeartbeat) -> tuple[ErrorCode, str]:
        """Return the error of a request that must change nothing."""
        before = self.state()
        send = self.beat if request.member_epoch >= 0 else self._leave
        with pytest.raises(HeartbeatRefused) as refused:
            send(request)
        assert self.state() == before
        return refused.value.error_code, str(refused.value)

    def leave(self, member_id: str, member_epoch: int = -1, **more: Any) -> None:
        self._leave(asking(member_id, member_epoch, **more))

    def _leave(self, request: StreamsHeartbeat) -> None:
        check(request)
        self.records += protocol.leave(self.group, request)[1]
        self.check_log()

    def expire(self) -> None:
        self.records += protocol.expire(self.group, self.limits, self.now_ms)
        self.check_log()

    def topics_changed(self, **partitions: int) -> None:
        self.topics.counts.update(partitions)
        self.group.topics_changed = True

    def again(self) -> StreamsGroup:
        """Return the group rebuilt from its records, as after a restart."""
        again = StreamsGroup(GROUP)
        for record in self.records:
            again.replay(record, self.now_ms, self.limits.session_timeout_ms)
        return again

    def restart(self) -> None:
        self.group = self.again()

    def state(self, group: StreamsGroup | None = None) -> object:
        """Return what the log must hold of a group."""
        group = group or self.group
        members = {name: (member.value, member.current) for name, member in group.members.items()}
        return group.value, group.assignment, group.topology, members, group.targets, group.static_members

    def check_log(self) -> None:
        assert self.state(self.again()) == self.state()
        kept = [self.group.record_of(*key) for key in ROWS.stored_keys(self.group)]
        compacted = StreamsGroup(GROUP)
        for record in kept:
            if record is not None:
                compacted.replay(record, self.now_ms, self.limits.session_timeout_ms)
        assert self.state(compacted) == self.state()


def statuses(reply: StreamsReply) -> list[StreamsGroupStatus]:
    return [note.status for note in reply.notes]
