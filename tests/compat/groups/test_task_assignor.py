"""Kafka's own task assignor and Seqgate's give the same assignment for the same group, task by task.

Kafka visits members and processes in the order of a hash map. Names of one letter that follow each other lie
there in the order of the alphabet, which is Seqgate's order; the first process has the name that comes before
`a`, because the map of processes has no more places than there are members.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from seqgate.gateway.coordinator.places import by_topic
from seqgate.gateway.coordinator.streams.task_assignor import (
    AssignmentMember,
    SubtopologyTasks,
    TaskAssignment,
    TaskId,
    Tasks,
    assign_tasks,
)
from tests.support.kafka_tools import TOOL_TIMEOUT_S, java_command
from tests.support.seeds import chosen_seed

SOURCE = Path(__file__).with_name("TaskAssignments.java")
HISTORIES = 150
CHANGES = 4
NAMES = "abcdefghijkl"
PROCESSES = "`abcdefghijk"

Members = dict[str, AssignmentMember]
Topology = dict[str, SubtopologyTasks]
Group = tuple[Members, Topology, int]


def _drawn_topology(draw: random.Random) -> Topology:
    return {
        str(number): SubtopologyTasks(draw.randint(0, 9), draw.random() < 0.6)
        for number in range(draw.randint(1, 4))
    }


def _drawn_tasks(draw: random.Random, topology: Topology) -> Tasks:
    names = [*topology, "gone"]
    return frozenset(TaskId(draw.choice(names), draw.randint(0, 10)) for _ in range(draw.randint(0, 8)))


def _drawn_offsets(draw: random.Random, topology: Topology) -> dict[TaskId, int]:
    """Return offsets of a few tasks, some of them equal to those of other members."""
    return {task: draw.randint(0, 5) for task in sorted(_drawn_tasks(draw, topology))}


def _drawn_members(draw: random.Random, former: list[AssignmentMember]) -> Members:
    """Return members with the former tasks of others, or none."""
    count = draw.randint(1, len(NAMES))
    processes = PROCESSES[: draw.randint(1, count)]
    at = [*processes, *(draw.choice(processes) for _ in range(count - len(processes)))]
    draw.shuffle(at)
    rows = [former.pop() if former and draw.random() < 0.9 else AssignmentMember("") for _ in at]
    return {
        name: row._replace(process_id=process_id)
        for name, row, process_id in zip(NAMES, rows, at, strict=False)
    }


def _history(draw: random.Random) -> list[Group]:
    """Return a group that changes: each time its members had the assignment of the time before, or anything."""
    topology = _drawn_topology(draw)
    groups: list[Group] = []
    former: list[AssignmentMember] = []
    for _ in range(CHANGES):
        members = _drawn_members(draw, former)
        if draw.random() < 0.2:
            topology = _drawn_topology(draw)
        if draw.random() < 0.2:
            members = {
                name: row._replace(active=_drawn_tasks(draw, topology), standby=_drawn_tasks(draw, topology))
                for name, row in members.items()
            }
        if draw.random() < 0.3:
            members = {
                name: row._replace(offsets=_drawn_offsets(draw, topology)) for name, row in members.items()
            }
        group = members, topology, draw.choice((0, 0, 1, 1, 2, 3))
        groups.append(group)
        assigned = assign_tasks(*group)
        former = [
            row._replace(active=assigned[name].active, standby=assigned[name].standby, offsets={})
            for name, row in members.items()
        ]
        draw.shuffle(former)
    return groups


def _written(group: Group) -> dict[str, Any]:
    members, topology, replicas = group
    return {
        "members": {
            name: {
                "process": row.process_id,
                "active": by_topic(row.active),
                "standby": by_topic(row.standby),
                "offsets": {
                    name: {partition: row.offsets[TaskId(name, partition)] for partition in partitions}
                    for name, partitions in by_topic(row.offsets).items()
                },
            }
            for name, row in members.items()
        },
        "topology": {
            name: {"partitions": row.partitions, "stateful": row.is_stateful}
            for name, row in topology.items()
        },
        "standby_replicas": replicas,
    }


def _as_kafka_writes(assignment: dict[str, TaskAssignment]) -> dict[str, Any]:
    return {
        name: {"active": by_topic(tasks.active), "standby": by_topic(tasks.standby)}
        for name, tasks in assignment.items()
    }


def _assigned_by_kafka(groups: list[Group]) -> list[dict[str, Any]]:
    asked = json.dumps([_written(group) for group in groups])
    command = java_command(str(SOURCE))
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def test_kafkas_assignor_gives_the_same_assignments() -> None:
    draw = random.Random(chosen_seed())
    groups = [group for _ in range(HISTORIES) for group in _history(draw)]
    for group, expected in zip(groups, _assigned_by_kafka(groups), strict=True):
        assert _as_kafka_writes(assign_tasks(*group)) == expected, _written(group)
