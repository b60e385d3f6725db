"""Commands that ask all gateways of a cluster: through the control socket of one of them, and over the
network.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gateway_cluster import GatewayCluster, await_true
from tests.system.commands.clients import produce
from tests.system.commands.conftest import seqgate

OK = 0


@pytest.mark.parametrize("over_the_network", [False, True], ids=["control socket", "bootstrap"])
def test_every_gateway_tells_its_verdicts_lines_and_tasks(tmp_path: Path, over_the_network: bool) -> None:
    with GatewayCluster(tmp_path, 2) as cluster:
        cluster.create()
        await_true(lambda: sorted(cluster.leaders().values()) == [3, 3], "leaders are spread evenly")
        first = cluster.gateways[0]
        reach = ["--bootstrap", first.bootstrap] if over_the_network else ["--data-dir", first.data_dir]
        for partition in range(6):
            outcomes = [
                [produce(gateway.bootstrap, "lines", partition, 7, 0, 5)[0] for _ in range(2)]
                for gateway in cluster.gateways
            ]
            assert [OK, OK] in outcomes, "one gateway leads the partition, and answers the duplicate"
        verdicts = seqgate("verdicts", *reach, "--json").json["verdicts"]
        duplicates = [row for row in verdicts if row["outcome"] == "duplicate"]
        assert sorted(row["partition"] for row in duplicates) == list(range(6))
        assert {row["node_id"] for row in duplicates} == {1, 2}
        newest = seqgate("verdicts", *reach, "--limit", "3", "--json").json["verdicts"]
        assert newest == sorted(verdicts, key=lambda row: -row["time_ms"])[:3]
        assert "node" in seqgate("verdicts", *reach).stdout.splitlines()[0]
        assert {line["node_id"] for line in seqgate("logs", *reach, "--json").json["lines"]} == {1, 2}
        assert " node 2 " in seqgate("logs", *reach).stdout
        assert seqgate("tasks", *reach, "--json").json["nodes"] == [1, 2]


def test_status_has_a_row_for_each_gateway_and_names_the_one_that_is_away(tmp_path: Path) -> None:
    with GatewayCluster(tmp_path, 2) as cluster:
        cluster.create()
        await_true(lambda: sorted(cluster.leaders().values()) == [3, 3], "leaders are spread evenly")
        first, second = cluster.gateways
        node_ids = {f"127.0.0.1:{port}": node_id for port, node_id in cluster.brokers().items()}
        pids = sorted((node_ids[each.bootstrap], each.pid) for each in cluster.gateways)
        status = seqgate("status", "--data-dir", first.data_dir, "--json").json
        assert [(row["node_id"], row["pid"]) for row in status["workers"]] == pids
        assert sum(row["connections"] for row in status["workers"]) == status["connections"]
        assert status["missing_workers"] == []
        assert "gateway on node 2" in seqgate("status", "--data-dir", first.data_dir).stdout
        brokers = seqgate("status", "--bootstrap", first.bootstrap, "--json").json["brokers"]
        assert [(row["node_id"], row["gateway"]["pid"]) for row in brokers] == pids
        cluster.gateways.remove(second)
        second.stop()
        await_true(lambda: len(cluster.brokers()) == 1, "the second gateway has left")
        alone = seqgate("status", "--data-dir", first.data_dir, "--json").json
        assert (alone["workers"], alone["pid"]) == ([], first.pid)
