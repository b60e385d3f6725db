"""Apache Kafka's tools for the quorum, leaders and reassignments, and those of seqgate, run against a cluster
of two gateways.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqgate.gateway.cli import app
from tests.support.gateway_cluster import NEVER_ENDING_LEASE_MS, GatewayCluster, await_true
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool

TOPIC = "tools"
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    settings = {
        "seqgate.cluster.balance.enable": "false",
        "seqgate.cluster.lease.ms": str(NEVER_ENDING_LEASE_MS),
    }
    with GatewayCluster(tmp_path_factory.mktemp("cluster"), 2, settings) as cluster:
        cluster.create(TOPIC, PARTITIONS)
        yield cluster


def tool(cluster: GatewayCluster, name: str, *arguments: str | Path) -> str:
    return run_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments).expect_success().stdout


def leader(cluster: GatewayCluster, index: int) -> int:
    return int(cluster.metadata().topics[TOPIC].partitions[index].leader)


def replicas(cluster: GatewayCluster, index: int) -> list[int]:
    return list(cluster.metadata().topics[TOPIC].partitions[index].replicas)


def plan(path: Path, moves: dict[int, list[int]]) -> Path:
    rows: list[Any] = [
        {"topic": TOPIC, "partition": index, "replicas": nodes} for index, nodes in moves.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}), encoding="utf-8")
    return path


def test_the_quorum_tool_lists_both_gateways(cluster: GatewayCluster) -> None:
    described = tool(cluster, "kafka-metadata-quorum", "describe", "--replication")
    rows = [line.split() for line in described.strip().splitlines()[1:]]
    assert sorted(row[0] for row in rows) == ["1", "2"]
    assert {row[3] for row in rows} == {"0"}


def test_a_reassignment_moves_the_leader(cluster: GatewayCluster, tmp_path: Path) -> None:
    other = 3 - leader(cluster, 0)
    wanted = ("--reassignment-json-file", plan(tmp_path / "plan.json", {0: [other]}))
    assert "Successfully started" in tool(cluster, "kafka-reassign-partitions", "--execute", *wanted)
    await_true(lambda: leader(cluster, 0) == other, "the other gateway leads")
    done = f"Reassignment of partition {TOPIC}-0 is completed."
    await_true(
        lambda: done in tool(cluster, "kafka-reassign-partitions", "--verify", *wanted),
        "the gateway that the tool asks knows of the move",
    )
    await_true(lambda: replicas(cluster, 0) == [other], "both gateways know of the move")


def test_an_election_moves_the_leader_to_the_preferred_replica(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    now = leader(cluster, 1)
    wanted = ("--reassignment-json-file", plan(tmp_path / "plan.json", {1: [3 - now, now]}))
    tool(cluster, "kafka-reassign-partitions", "--execute", *wanted)
    await_true(lambda: replicas(cluster, 1) == [3 - now, now], "the replicas are set")
    assert leader(cluster, 1) == now
    election = ("kafka-leader-election", "--election-type", "preferred", "--topic", TOPIC, "--partition", "1")
    elected = tool(cluster, *election)
    assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-1" in elected
    await_true(lambda: leader(cluster, 1) == 3 - now, "the preferred replica leads")


def seqgate(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["cluster", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def test_seqgate_lists_the_gateways_and_moves_a_partition(cluster: GatewayCluster) -> None:
    other = 3 - leader(cluster, 2)
    told = seqgate("move", f"{TOPIC}-2", str(other), "--bootstrap", cluster.bootstrap)
    assert told == f"Node {other} leads {TOPIC}-2.\n"
    await_true(lambda: leader(cluster, 2) == other, "both gateways know of the move")
    listed = json.loads(seqgate("gateways", "--bootstrap", cluster.bootstrap, "--json"))
    assert [(row["node_id"], row["state"]) for row in listed["gateways"]] == [(1, "live"), (2, "live")]
    assert sum(row["leaders"] for row in listed["gateways"]) >= PARTITIONS
    assert listed == json.loads(seqgate("status", "--bootstrap", cluster.bootstrap, "--json"))


@pytest.mark.parametrize("way", ["--bootstrap", "--data-dir"])
def test_a_drained_gateway_leads_nothing_until_the_drain_is_taken_back(
    cluster: GatewayCluster, way: str
) -> None:
    """The two ways answer the same."""
    data_dir = str(cluster.gateways[0].data_dir)
    asked = (way, cluster.bootstrap if way == "--bootstrap" else data_dir)
    planned = json.loads(seqgate("drain", "2", "--json", *asked))
    assert planned["node_id"] == 2
    told = seqgate("drain", "2", "--yes", *asked)
    assert told == "Node 2 leads nothing any more.\n"
    await_true(lambda: set(cluster.leaders(TOPIC)) == {1}, "every gateway tells that node 1 leads")
    rows = json.loads(seqgate("gateways", "--json", *asked))["gateways"]
    assert [row["state"] for row in rows] == ["live", "draining"]
    refused = CliRunner().invoke(app, ["cluster", "drain", "1", "--yes", *asked])
    assert refused.exit_code == 1
    assert "no other live gateway can take the partitions of node 1" in refused.output
    unknown = CliRunner().invoke(app, ["cluster", "drain", "7", "--yes", *asked])
    assert "no live gateway has the node id 7" in unknown.output
    assert seqgate("undrain", "2", *asked) == "Node 2 takes part again, and leads 0 partitions.\n"
    rows = json.loads(seqgate("gateways", "--json", *asked))["gateways"]
    assert [row["state"] for row in rows] == ["live", "live"]
    made = f"after-the-drain{way}"
    cluster.create(made, PARTITIONS)
    await_true(lambda: set(cluster.leaders(made)) == {1, 2}, "node 2 gets new partitions")
    again = json.loads(seqgate("undrain", "2", "--json", *asked))
    assert again == {"node_id": 2, "leaders": cluster.leaders(made)[2]}
    unknown = CliRunner().invoke(app, ["cluster", "undrain", "7", *asked])
    assert "no live gateway has the node id 7" in unknown.output


def test_the_status_of_the_bucket_has_the_gateways(cluster: GatewayCluster) -> None:
    bucket = cluster.settings["seqgate.cluster"]
    by_bucket = json.loads(seqgate("status", "--cluster", bucket, "--json"))["gateways"]
    by_gateway = json.loads(seqgate("gateways", "--data-dir", str(cluster.gateways[0].data_dir), "--json"))
    assert by_bucket == by_gateway
    ports = {gateway.port for gateway in cluster.gateways}
    assert {int(row["address"].rpartition(":")[2]) for row in by_bucket["gateways"]} == ports
    shown = seqgate("status", "--cluster", bucket)
    for row in by_bucket["gateways"]:
        assert row["address"] in shown


def test_a_gateway_alone_is_not_drained(tmp_path: Path) -> None:
    """It would close the connection without an answer, as Apache Kafka and older releases do."""
    with GatewayProcess(tmp_path) as alone:
        refused = CliRunner().invoke(app, ["cluster", "drain", "1", "--yes", "--bootstrap", alone.bootstrap])
    assert refused.exit_code == 1
    assert "drains no gateway over the network" in refused.output
