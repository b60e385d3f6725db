"""A gateway in a bucket loses its disk: quotas, users, rights, settings, retries, names, share groups and
delayed records are what they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.share_member import ACCEPT, REJECT, ShareMember, fill, said, share_group
from tests.support.batches import Batch, Record
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Plain
from tests.system.cluster.test_lost_disk import DEADLINE_S, lose_the_disk

Part = Callable[["Scene"], Callable[[], None]]
HOUR_MS = 3_600_000
UPLOADED_MS = "500"
PARTS: dict[str, Part] = {}


def part(prepare: Part) -> Part:
    """Add a part of the state: a function that makes it, and returns one that checks it after the loss."""
    PARTS[prepare.__name__] = prepare
    return prepare


class Scene:
    """A gateway, and a connection to its present process."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self._peer: Peer | None = None

    @property
    def peer(self) -> Peer:
        if self._peer is None:
            self._peer = Peer(self.gateway.bootstrap, "lost-")
        return self._peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def ask(self, api: str, version: int, **request: Any) -> Plain:
        return self.peer.wire.call(api, version, **request).fields

    def append(self, topic: Topic, batch: Batch) -> Plain:
        answer = self.peer.produce(topic, batch)
        row: Plain = answer["responses"][0]["partition_responses"][0]
        assert row["error_code"] == 0, row
        return row

    def sharer(self, topic: Topic, group_id: str, number: int = 1) -> ShareMember:
        member = ShareMember(self.peer, group_id, [topic], number)
        member.await_partitions(1, subscribed_topic_names=[topic.name])
        return member


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    (tmp_path / "bucket").mkdir()
    process = GatewayProcess(
        tmp_path / "cache",
        settings={
            "seqgate.cluster": f"file://{tmp_path / 'bucket'}",
            "seqgate.cluster.upload.interval.ms": UPLOADED_MS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    process.start()
    yield process
    process.kill()


@part
def quotas(scene: Scene) -> Callable[[], None]:
    entity = [{"entity_type": "user", "entity_name": "ann"}]
    ops = [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]
    scene.ask("alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)

    def check() -> None:
        wanted = [{"entity_type": "user", "match_type": 0, "match": "ann"}]
        (entry,) = scene.ask("describe_client_quotas", 1, components=wanted, strict=True)["entries"]
        assert entry["values"] == [{"key": "producer_byte_rate", "value": 1000.0}]

    return check


@part
def users(scene: Scene) -> Callable[[], None]:
    credential = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16}
    rows = [{**credential, "salted_password": b"p" * 32}]
    scene.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=rows)

    def check() -> None:
        (found,) = scene.ask("describe_user_scram_credentials", 0, users=[{"name": "ann"}])["results"]
        assert found["credential_infos"] == [{"mechanism": 1, "iterations": 4096}]

    return check


@part
def rights(scene: Scene) -> Callable[[], None]:
    entry = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "t",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:ann",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.DENY,
    }
    scene.ask("create_acls", 3, creations=[entry])

    def check() -> None:
        found = scene.ask(
            "describe_acls",
            3,
            resource_type_filter=ResourceType.ANY,
            pattern_type_filter=PatternType.ANY,
            principal_filter="User:ann",
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )["resources"]
        assert [(row["resource_name"], row["acls"][0]["operation"]) for row in found] == [
            ("t", Operation.READ)
        ]

    return check


@part
def broker_settings(scene: Scene) -> Callable[[], None]:
    named = {"resource_type": 4, "resource_name": ""}
    change = {"name": "log.retention.ms", "config_operation": 0, "value": "987654321"}
    scene.ask("incremental_alter_configs", 1, resources=[{**named, "configs": [change]}])

    def check() -> None:
        asked = [{**named, "configuration_keys": ["log.retention.ms"]}]
        (found,) = scene.ask("describe_configs", 4, resources=asked)["results"]
        assert [row["value"] for row in found["configs"]] == ["987654321"]

    return check


@part
def retries(scene: Scene) -> Callable[[], None]:
    """Send the last five batches of a producer again: each gets its first offset."""
    topic = scene.peer.topic("retried")
    producer = scene.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
    batches = [
        Batch((Record(value=b"%d" % number),)).of(producer["producer_id"], producer["producer_epoch"], number)
        for number in range(5)
    ]
    first = [scene.append(topic, batch)["base_offset"] for batch in batches]

    def check() -> None:
        assert [scene.append(topic, batch)["base_offset"] for batch in batches] == first

    return check


@part
def names(scene: Scene) -> Callable[[], None]:
    """Send named records again: none is stored twice."""
    topic = scene.peer.topic("named", configs={"message.deduplication.enable": "true"})

    def named(number: int) -> Batch:
        headers = ((b"dedup.name", b"loader"), (b"dedup.sequence", b"%d" % number))
        return Batch((Record(value=b"%d" % number, headers=headers),))

    for number in range(5):
        scene.append(topic, named(number))

    def check() -> None:
        for number in range(7):
            scene.append(topic, named(number))
        rows = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
        asked = [{"name": topic.name, "partitions": rows}]
        found = scene.ask("list_offsets", 7, replica_id=-1, topics=asked)["topics"][0]["partitions"][0]
        assert found["offset"] == 7

    return check


@part
def share_groups(scene: Scene) -> Callable[[], None]:
    """Accept four of ten records and reject one: the others are acquired by the next member."""
    topic, group_id = scene.peer.topic("shared"), share_group(scene.peer, "sharing")
    member = scene.sharer(topic, group_id)
    fill(member, 10)
    member.open(max_wait=3_000)
    member.acknowledge(said(0, 3, ACCEPT))
    member.acknowledge(said(4, 4, REJECT))

    def check() -> None:
        assert _acquired(scene.sharer(topic, group_id, 2)) == [5, 6, 7, 8, 9]

    return check


@part
def delayed_records(scene: Scene) -> Callable[[], None]:
    """Send records that are due now and in an hour: a member gets the former."""
    topic = scene.peer.topic("delayed", configs={"delivery.delay.header": "due"})
    now_ms = int(time.time() * 1000)
    for number in range(4):
        due_ms = now_ms + HOUR_MS * (number % 2)
        scene.append(topic, Batch((Record(value=b"%d" % number, headers=((b"due", b"%d" % due_ms),)),)))
    group_id = share_group(scene.peer, "delaying")
    scene.sharer(topic, group_id)

    def check() -> None:
        assert _acquired(scene.sharer(topic, group_id, 2)) == [0, 2]

    return check


def _acquired(member: ShareMember) -> list[int]:
    answer = member.open(max_wait=3_000)
    rows = answer["responses"][0]["partitions"][0]["acquired_records"]
    return [offset for row in rows for offset in range(row["first_offset"], row["last_offset"] + 1)]


@pytest.mark.parametrize("is_uploaded", [False, True], ids=["in the log", "in parts"])
def test_the_state_survives(gateway: GatewayProcess, *, is_uploaded: bool) -> None:
    scene = Scene(gateway)
    checks = [prepare(scene) for prepare in PARTS.values()]
    if is_uploaded:
        _await_parts(Path(gateway.settings["seqgate.cluster"].removeprefix("file://")))
    scene.close()
    lose_the_disk(gateway)
    for check in checks:
        check()
    scene.close()


def _await_parts(bucket: Path) -> None:
    """Wait until the write-ahead log has lost its last object of now: parts have all records by then."""
    last = max(path for path in (bucket / "wal").rglob("*") if path.name.isdigit())
    deadline_s = time.monotonic() + DEADLINE_S
    while last.exists():
        assert time.monotonic() < deadline_s, f"{last} is still there"
        time.sleep(0.05)
