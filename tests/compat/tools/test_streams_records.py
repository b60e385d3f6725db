"""Kafka's DumpLogSegments decodes every kind of record that a streams group leaves in the offsets topic."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.compat.groups.members import await_that
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.group_members import describe_topology
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
}
GROUP, CHANGELOG = "counter", "counter-changelog"
KINDS = {17, 19, 20, 21, 22, 23}
PARTITIONS = 2


def _topology(topic: str) -> dict[str, Any]:
    changelog = {
        "name": CHANGELOG,
        "partitions": 0,
        "replication_factor": -1,
        "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
    }
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [topic],
        "source_topic_regex": [],
        "state_changelog_topics": [changelog],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [
            {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": []}
        ],
    }
    return {"epoch": 0, "subtopologies": [subtopology]}


class Member:
    """A member that adopts each assignment at once."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._name = name
        self._epoch = 0
        self.tasks: dict[str, Any] = {}

    def join(self, topic: str) -> None:
        described = {
            "rebalance_timeout": 60_000,
            "process_id": f"process-{self._name}",
            "user_endpoint": {"host": self._name, "port": 50_000},
            "client_tags": [{"key": "zone", "value": "north"}],
            "topology": _topology(topic),
        }
        self._send(described | dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ()))

    def stay(self) -> None:
        self._send({"rebalance_timeout": -1, "process_id": None, "user_endpoint": None} | self.tasks)

    def leave(self) -> None:
        self._epoch = -1
        self.stay()

    def _send(self, more: dict[str, Any]) -> None:
        nothing = dict.fromkeys(("topology", "client_tags", "task_offsets", "task_end_offsets"))
        asked = {"group_id": GROUP, "member_id": self._name, "member_epoch": self._epoch}
        asked |= nothing | {"endpoint_information_epoch": 0} | more
        answer = self._wire.call("streams_group_heartbeat", 0, asked).fields
        assert answer["error_code"] == 0, answer
        self._epoch = answer["member_epoch"]
        if answer["active_tasks"] is not None:
            self.tasks = {name: answer[name] for name in ("active_tasks", "standby_tasks", "warmup_tasks")}


def test_dump_log_decodes_streams_groups(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "lines", partitions=PARTITIONS)
        with Wire(gateway.bootstrap) as wire:
            first, second = Member(wire, "m-1"), Member(wire, "m-2")
            first.join(topic)

            def has_tasks() -> bool:
                first.stay()
                return bool(first.tasks["active_tasks"])

            await_that(has_tasks, "the changelog exists and tasks are assigned")
            second.join(topic)
            for _ in range(4):
                first.stay()
                second.stay()
            second.leave()
            describe_topology(wire, GROUP, topic, "m-1")
        files = sorted(
            path for path in gateway.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size
        )
        gateway.stop()
    names = ",".join(map(str, files))
    dumped = run_tool("kafka-dump-log", "--offsets-decoder", "--files", names).expect_success().stdout
    assert "isvalid: false" not in dumped
    assert "could not be decoded" not in dumped.lower()
    written: dict[tuple[int, str | None], list[Any]] = {}
    for key, value in re.findall(r"key: (\{.*?\}) payload: (.*)$", dumped, re.MULTILINE):
        row = json.loads(key)
        content = json.loads(value)["data"] if value.startswith("{") else None
        written.setdefault((int(row["type"]), row["data"].get("memberId")), []).append(content)
    assert {kind for kind, _ in written} == KINDS
    (topology,) = written[23, None]
    (subtopology,) = topology["subtopologies"]
    assert (subtopology["sourceTopics"], subtopology["copartitionGroups"][0]["sourceTopics"]) == (
        [topic],
        [0],
    )
    assert subtopology["stateChangelogTopics"][0]["topicConfigs"] == [
        {"key": "cleanup.policy", "value": "compact"}
    ]
    described = written[19, "m-1"][0]
    assert described["userEndpoint"] == {"host": "m-1", "port": 50_000}
    assert described["clientTags"] == [{"key": "zone", "value": "north"}]
    assert described["processId"] == "process-m-1"
    group = written[17, None][-1]
    assert group["lastAssignmentConfigs"] == [{"key": "num.standby.replicas", "value": "1"}]
    assert group["validatedTopologyEpoch"] == 0
    assert written[20, None][-1]["assignmentTimestamp"] > 0
    states = [row["state"] for row in written[22, "m-1"]]
    assert 2 in states, "the first member must have revoked a task"
    current = written[22, "m-1"][-1]
    (active,), (standby,) = current["activeTasks"], current["standbyTasks"]
    assert len(active["assignmentEpochs"]) == len(active["partitions"]) == 1
    assert active["partitions"] + standby["partitions"] in ([0, 1], [1, 0])
    assert written[21, "m-1"][-1]["activeTasks"][0]["partitions"] == active["partitions"]
    assert all(written[kind, "m-2"][-1] is None for kind in (19, 21, 22)), "the member must have left"
