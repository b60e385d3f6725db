"""Apache Kafka's tools for the quorum, features, leaders and reassignments run against the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import ToolRun, run_tool


def _try(gateway: GatewayProcess, name: str, *arguments: str | Path) -> ToolRun:
    return run_tool(name, "--bootstrap-server", gateway.bootstrap, *arguments)


def _run(gateway: GatewayProcess, name: str, *arguments: str | Path) -> str:
    return _try(gateway, name, *arguments).expect_success().stdout


def _fields(text: str) -> dict[str, str]:
    """Return the lines `name: value` of a tool's output."""
    rows = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in rows}


def test_kafka_metadata_quorum(shared_gateway: GatewayProcess) -> None:
    fresh_topic(shared_gateway.bootstrap, "tool-quorum")
    tool = ("kafka-metadata-quorum", "describe")
    status = _fields(_run(shared_gateway, *tool, "--status"))
    assert (status["LeaderId"], status["MaxFollowerLag"], status["CurrentObservers"]) == ("1", "0", "[]")
    assert int(status["HighWatermark"]) > 0
    (voter,) = json.loads(status["CurrentVoters"])
    assert voter == {"id": 1, "endpoints": [f"PLAINTEXT://{shared_gateway.bootstrap}"]}
    _, row = _run(shared_gateway, *tool, "--replication").strip().splitlines()
    node_id, _, end_offset, lag, *_, state = row.split()
    assert (node_id, lag, state) == ("1", "0", "Leader")
    assert int(end_offset) > 0


def test_kafka_features(shared_gateway: GatewayProcess) -> None:
    described = _run(shared_gateway, "kafka-features", "describe")
    levels = {
        words[1]: words[words.index("FinalizedVersionLevel:") + 1]
        for words in (line.split() for line in described.splitlines())
    }
    assert levels == {
        "group.version": "1",
        "share.version": "2",
        "streams.version": "1",
        "transaction.version": "2",
    }
    _run(shared_gateway, "kafka-features", "upgrade", "--feature", "group.version=1")
    refused = _try(shared_gateway, "kafka-features", "downgrade", "--feature", "transaction.version=1")
    assert refused.exit_code != 0
    assert "Seqgate runs this feature at version 2 only" in refused.stdout + refused.stderr


def test_kafka_leader_election(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "tool-election", partitions=2)
    tool = ("kafka-leader-election", "--election-type", "preferred")
    assert "failed" not in _run(shared_gateway, *tool, "--all-topic-partitions").lower()
    elected = _run(shared_gateway, *tool, "--topic", topic, "--partition", "1")
    assert elected.strip() == f"Valid replica already elected for partitions {topic}-1"
    refused = _try(shared_gateway, *tool, "--topic", topic, "--partition", "7")
    assert refused.exit_code != 0
    assert "UnknownTopicOrPartition" in refused.stdout + refused.stderr


def _written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_kafka_reassign_partitions(shared_gateway: GatewayProcess, tmp_path: Path) -> None:
    """Follow the tool's own procedure: generate, execute, verify, list, cancel."""
    topic = fresh_topic(shared_gateway.bootstrap, "tool-reassign", partitions=2)
    tool = "kafka-reassign-partitions"
    topics = _written(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": topic}]})
    wanted = ("--topics-to-move-json-file", topics, "--broker-list", "1")
    generated = _run(shared_gateway, tool, "--generate", *wanted).strip().splitlines()[-1]
    moves = json.loads(generated)
    assert [(row["partition"], row["replicas"]) for row in moves["partitions"]] == [(0, [1]), (1, [1])]
    plan = ("--reassignment-json-file", _written(tmp_path / "plan.json", moves))
    started = _run(shared_gateway, tool, "--execute", *plan)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    verified = _run(shared_gateway, tool, "--verify", *plan)
    for index in (0, 1):
        assert f"Reassignment of partition {topic}-{index} is completed." in verified
    assert _run(shared_gateway, tool, "--list").strip() == "No partition reassignments found."
    cancelled = _run(shared_gateway, tool, "--cancel", *plan)
    assert "None of the specified partition reassignments are active." in cancelled


def test_kafka_reassign_partitions_to_a_data_directory(
    shared_gateway: GatewayProcess, tmp_path: Path
) -> None:
    """Kafka's tool moves partitions to the directory that holds them, and refuses another."""
    topic = fresh_topic(shared_gateway.bootstrap, "tool-reassign-dirs")
    here = str(shared_gateway.data_dir.absolute())

    def move(directory: str) -> ToolRun:
        row = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [directory]}
        plan = _written(tmp_path / "plan.json", {"version": 1, "partitions": [row]})
        arguments = ("--execute", "--reassignment-json-file", plan, "--timeout", "3000")
        return _try(shared_gateway, "kafka-reassign-partitions", *arguments)

    started = move(here).expect_success().stdout
    assert f"Successfully started moving log directory to {here} for replica {topic}-0" in started
    refused = move("/nowhere")
    assert refused.exit_code != 0
    assert "LogDirNotFound" in refused.stdout + refused.stderr


def test_kafka_cluster_unregister(shared_gateway: GatewayProcess) -> None:
    refused = _refused_unregistration(shared_gateway, 1)
    assert "Broker ID 1 is this gateway" in refused
    assert "is not currently registered" in _refused_unregistration(shared_gateway, 98)


def _refused_unregistration(gateway: GatewayProcess, broker: int) -> str:
    arguments = ("unregister", "--bootstrap-server", gateway.bootstrap, "--id", str(broker))
    run = run_tool("kafka-cluster", *arguments)
    return run.stdout + run.stderr
