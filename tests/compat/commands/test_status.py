"""`seqgate status --bootstrap` of a gateway and of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.compat.commands.conftest import Peer
from tests.support.gateway_process import free_port
from tests.system.commands.conftest import seqgate

Fresh = Callable[[str], str]


def test_all_is_well(peer: Peer, fresh: Fresh) -> None:
    peer.run("topics", "create", fresh("seen"), "--partitions", "3")
    found = peer.json("status")
    assert (found["is_well"], found["offline"], found["under_replicated"]) == (True, [], [])
    assert found["topics"] >= 1
    assert found["partitions"] >= 3
    assert len(found["cluster_id"]) == 22
    (broker,) = found["brokers"]
    assert (broker["node_id"], broker["address"], broker["error"]) == (1, peer.bootstrap, None)
    assert (
        broker["apis"]["0"] == [0 if peer.name == "Apache Kafka" else 3, 13] or broker["apis"]["0"][1] == 13
    )
    (directory,) = broker["log_dirs"]
    assert Path(directory["path"]).is_dir()
    assert directory["error"] is None
    assert 0 < directory["free_bytes"] <= directory["total_bytes"]
    table = peer.run("status").stdout
    for words in (found["cluster_id"], peer.bootstrap, "log directory", "Produce", "Fetch", "features"):
        assert words in table


def test_nothing_answers() -> None:
    refused = seqgate("status", "--bootstrap", f"127.0.0.1:{free_port()}", code=1)
    assert refused.stderr.startswith("seqgate: nothing answers at 127.0.0.1:")
