"""Backups of a bucket whose gateways unmodified clients use meanwhile, restored into new buckets and read there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.backup.busy_clients import LATEST, MOVED, ORDERS, PARTITIONS, WAIT_S, BusyClients
from tests.compat.backup.test_live_backup import COMPACTED, ROLLS_OFTEN, Backed, check_one_moment
from tests.conftest import AS_THE_PEER
from tests.support.gateway_cluster import NEVER_ENDING_LEASE_MS, GatewayCluster, await_true
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

BACKUPS = 3
GATEWAYS = 3
SETTINGS = {
    **AS_THE_PEER,
    "log.cleaner.backoff.ms": "100",
    "seqgate.cluster.upload.interval.ms": "500",
    "seqgate.cluster.lease.ms": str(NEVER_ENDING_LEASE_MS),
}


@dataclass(frozen=True)
class Lived:
    clients: BusyClients
    backups: list[Backed]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    directory = tmp_path_factory.mktemp("live-bucket-backup")
    with GatewayCluster(directory, GATEWAYS, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(topic, PARTITIONS, config=ROLLS_OFTEN) for topic in (ORDERS, MOVED)]
        topics.append(NewTopic(LATEST, PARTITIONS, config=COMPACTED))
        for created in admin.create_topics(topics).values():
            created.result(WAIT_S)
        for topic in (ORDERS, MOVED):
            await_true(
                lambda topic=topic: len(cluster.leaders(topic) - Counter({-1: 1})) == GATEWAYS,  # type: ignore[misc]
                f"every gateway leads a partition of {topic}",
            )
        clients = BusyClients(cluster.bootstrap)
        backups = []
        with clients.running():
            for _ in range(BACKUPS):
                clients.await_progress()
                known = frozenset(clients.acknowledged), frozenset(clients.committed), dict(clients.latest)
                made = seqgate(
                    *("backup", "create", directory / "backups", "--json"),
                    *("--cluster", f"file://{directory / 'bucket'}", "--bootstrap", cluster.bootstrap),
                ).json["backup"]
                backups.append(Backed(Path(made["path"]), *known))
            clients.await_progress()
        yield Lived(clients, backups)


@pytest.mark.parametrize("number", range(BACKUPS))
def test_a_restored_bucket_has_the_state_of_one_moment(lived: Lived, tmp_path: Path, number: int) -> None:
    backed = lived.backups[number]
    bucket = f"file://{tmp_path / 'bucket'}"
    (tmp_path / "bucket").mkdir()
    seqgate("backup", "restore", backed.path, "--cluster", bucket)
    assert seqgate("cluster", "verify", "--cluster", bucket, "--json").json["damaged"] == []
    settings = {**SETTINGS, "seqgate.cluster": bucket}
    with (
        GatewayProcess(tmp_path / "cache-1", settings=settings) as restored,
        GatewayProcess(tmp_path / "cache-2", settings=settings),
    ):
        check_one_moment(restored.bootstrap, backed, lived.clients, ("python",))


def test_later_backups_share_parts(lived: Lived) -> None:
    rows = seqgate("backup", "list", lived.backups[0].path.parent, "--json").json
    assert [row["complaint"] for row in rows] == [None] * BACKUPS
    assert all(row["copied_bytes"] < row["size_bytes"] for row in rows[1:])
    for backed in lived.backups:
        seqgate("backup", "verify", backed.path)
