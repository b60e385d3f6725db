"""Backups of a gateway that unmodified clients write to meanwhile, restored and read by such clients."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.backup.busy_clients import (
    GROUP,
    LATEST,
    MOVED,
    ORDERS,
    PARTITIONS,
    WAIT_S,
    BusyClients,
    settle,
)
from tests.conftest import AS_THE_PEER
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.system.commands.conftest import seqgate
from tests.system.workers.scene import consecutive_ports

BACKUPS = 2
WORKERS = 3
SETTINGS = {**AS_THE_PEER, "log.cleaner.backoff.ms": "100"}
ROLLS_OFTEN = {"segment.ms": "300"}
COMPACTED = {**ROLLS_OFTEN, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


def settings_of(workers: int) -> dict[str, str]:
    return SETTINGS if workers == 1 else {**SETTINGS, "seqgate.workers": str(workers)}


@dataclass(frozen=True)
class Backed:
    """A backup, and what was acknowledged when its command began."""

    path: Path
    acknowledged: frozenset[str]
    committed: frozenset[int]
    latest: dict[str, int]


@dataclass(frozen=True)
class Lived:
    """A gateway that was backed up several times under load, and its clients, which have stopped writing."""

    workers: int
    gateway: GatewayProcess
    clients: BusyClients
    backups: list[Backed]


@pytest.fixture(scope="module", params=[1, WORKERS], ids=["one-process", "workers"])
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("live-backup")
    port = consecutive_ports(request.param)
    gateway = GatewayProcess(directory / "data", settings=settings_of(request.param), port=port).start()
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topics = [NewTopic(topic, PARTITIONS, 1, config=ROLLS_OFTEN) for topic in (ORDERS, MOVED)]
    topics.append(NewTopic(LATEST, PARTITIONS, 1, config=COMPACTED))
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    clients = BusyClients(gateway.bootstrap)
    for number in range(50):
        clients.send(clients.idle, f"idle-{number}")
    assert clients.idle.flush(WAIT_S) == 0
    backups = []
    with clients.running():
        for _ in range(BACKUPS):
            clients.await_progress()
            known = frozenset(clients.acknowledged), frozenset(clients.committed), dict(clients.latest)
            made = seqgate(
                "backup", "create", directory / "backups", "--data-dir", gateway.data_dir, "--json"
            )
            backups.append(Backed(Path(made.json["backup"]["path"]), *known))
        clients.await_progress()
    assert f"{LATEST}-0 was compacted" in gateway.stderr_text()
    yield Lived(request.param, gateway, clients, backups)
    gateway.stop()


def read_committed(bootstrap: str, topic: str) -> list[str]:
    """Return the values of a topic, in all partitions, that a consumer of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, ended = [], set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append(message.value().decode())
    consumer.close()
    return found


def committed_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition(ORDERS, 0)], WAIT_S)
    _, end = consumer.get_watermark_offsets(TopicPartition(ORDERS, 0), WAIT_S)
    consumer.close()
    assert end >= 0
    return int(found.offset)


def check_one_moment(bootstrap: str, backed: Backed, clients: BusyClients, kinds: Collection[str]) -> None:
    """Check that a restored backup has the state of one moment, behind all that was acknowledged before it.
    `kinds` are the producers whose records must have no gap.
    """
    orders = read_committed(bootstrap, ORDERS)
    assert backed.acknowledged <= set(orders)
    assert [value for value, count in Counter(orders).items() if count > 1] == []
    for kind in kinds:
        sent = sorted(int(value.partition("-")[2]) for value in orders if value.partition("-")[0] == kind)
        assert sent == list(range(len(sent))), "a producer's records end at one moment"
    # A gateway ends the transaction that was open: its producer opens it again, and is gone.
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"}).init_transactions(WAIT_S)
    moved = Counter(int(value) for value in read_committed(bootstrap, MOVED))
    assert set(moved.values()) == {PARTITIONS}, "a transaction is there whole, or not at all"
    assert backed.committed <= set(moved)
    assert not set(moved) & set(clients.aborted)
    latest = dict(value.split(":") for value in read_committed(bootstrap, LATEST))
    assert all(int(latest[key]) >= number for key, number in backed.latest.items())
    assert committed_offset(bootstrap) == max(moved), "offsets and records are of one moment"


@pytest.mark.parametrize("number", range(BACKUPS))
def test_a_restored_gateway_has_the_state_of_one_moment(lived: Lived, tmp_path: Path, number: int) -> None:
    backed = lived.backups[number]
    data = tmp_path / "restored"
    seqgate("backup", "restore", backed.path, "--data-dir", data)
    # A directory of workers starts with workers, and without them.
    count = lived.workers if number else 1
    with GatewayProcess(data, settings=settings_of(count), port=consecutive_ports(count)) as restored:
        check_one_moment(restored.bootstrap, backed, lived.clients, ("librdkafka", "python"))


def test_producers_live_on_against_the_restored_gateway(lived: Lived, tmp_path: Path) -> None:
    """One producer wrote nothing after the backup, and continues. The other must learn that acknowledged
    records are gone.
    """
    gateway, clients = lived.gateway, lived.clients
    data = tmp_path / "restored"
    seqgate("backup", "restore", lived.backups[-1].path, "--data-dir", data)
    handed_out = seqgate("pids", "list", "--data-dir", gateway.data_dir, "--json").json
    highest = max(block["last_producer_id"] for block in handed_out["blocks"])
    gateway.stop()
    refused: list[Any] = []
    with GatewayProcess(data, settings=SETTINGS, port=gateway.port) as restored:
        for number in range(50):
            clients.send(clients.idle, f"idle-again-{number}")
            clients.send(clients.living, f"after-{number}", refused.append)
        settle(clients.idle)
        settle(clients.living)
        acknowledged = {
            value for value in clients.acknowledged if value.startswith(("idle-again-", "after-"))
        }
        again = [value for value in acknowledged if value.startswith("idle-again-")]
        assert (clients.errors, len(again)) == ([], 50)
        assert len(acknowledged) + len(refused) == 100
        assert refused, "the gap in its sequence was reported"
        found = Counter(read_committed(restored.bootstrap, ORDERS))
        assert acknowledged <= set(found)
        assert [value for value, count in found.items() if count > 1] == []
        newcomer = Producer({"bootstrap.servers": restored.bootstrap, "enable.idempotence": True})
        newcomer.produce(ORDERS, "newcomer")
        assert newcomer.flush(WAIT_S) == 0
        page = seqgate("producers", "--topic", ORDERS, "--data-dir", data, "--json").json
        newest = max(row["producer_id"] for row in page["producers"])
        assert newest > highest + 1_000_000
    gateway.start()


def test_kafka_reads_the_files_of_a_backup(lived: Lived) -> None:
    backed = lived.backups[0]
    logs = sorted((backed.path / "data" / f"{ORDERS}-0").glob("*.log"))
    dumped = run_tool(
        "kafka-dump-log", "--deep-iteration", "--files", ",".join(map(str, logs))
    ).expect_success()
    assert "Found" not in dumped.stdout
    assert len(re.findall(r"^\| offset: ", dumped.stdout, re.MULTILINE)) > 0
    assert all(valid == "true" for valid in re.findall(r"isvalid: (\w+)", dumped.stdout))


def test_later_backups_share_closed_segments(lived: Lived) -> None:
    rows = json.loads(seqgate("backup", "list", lived.backups[0].path.parent, "--json").stdout)
    assert [row["complaint"] for row in rows] == [None] * BACKUPS
    assert all(row["copied_bytes"] < row["size_bytes"] for row in rows[1:])
    for backed in lived.backups:
        seqgate("backup", "verify", backed.path)
