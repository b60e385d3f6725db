"""Kafka's own tools for consumer groups, and its formatters of the offsets topic, run against the gateway."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compat.topics import fresh_topic
from tests.support.batches import DEFAULT_TIMESTAMP, Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import ToolRun, run_tool
from tests.support.wire import Wire

COUNT = 10
STEP_MS = 1_000
COMMITTED = {0: 4, 1: 7}
DEADLINE_S = 20.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("tools") / "data", settings=SETTINGS) as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    """A topic with two partitions of COUNT records each, one second apart."""
    name = fresh_topic(gateway.bootstrap, "group-tools", partitions=2)
    batch = Batch(records(COUNT, step_ms=STEP_MS)).encode()
    data = [{"index": partition, "records": batch} for partition in (0, 1)]
    with Wire(gateway.bootstrap) as wire:
        wire.call("produce", 9, acks=-1, timeout=5_000, topic_data=[{"name": name, "partition_data": data}])
    return name


def _consumer(gateway: GatewayProcess, group: str) -> Consumer:
    settings: dict[str, Any] = {"bootstrap.servers": gateway.bootstrap, "group.id": group}
    settings |= {
        "client.id": "reader",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    return Consumer(settings)


def _commit(gateway: GatewayProcess, topic: str) -> str:
    """Commit COMMITTED for a group without members; return the group id."""
    group = f"group-of-{topic}"
    consumer = _consumer(gateway, group)
    places = [TopicPartition(topic, partition, offset) for partition, offset in COMMITTED.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    return group


def _join(gateway: GatewayProcess, topic: str, group: str) -> Consumer:
    """Join with a member that gets all partitions of the topic; return its consumer."""
    consumer = _consumer(gateway, group)
    consumer.subscribe([topic])
    for _ in range(100):
        if consumer.poll(DEADLINE_S / 100) is not None:
            return consumer
    raise AssertionError("the member has not read anything")


def _run(gateway: GatewayProcess, *arguments: str) -> ToolRun:
    run = run_tool("kafka-consumer-groups", "--bootstrap-server", gateway.bootstrap, *arguments)
    return run.expect_success()


def _table(text: str, first_column: str = "GROUP") -> list[dict[str, str]]:
    """Return the rows of a tool's table, keyed by the header. Blanks separate the columns."""
    lines = [line.split() for line in text.splitlines() if line.split()]
    start = next(number for number, line in enumerate(lines) if line[0] == first_column)
    header = lines[start]
    return [dict(zip(header, line, strict=False)) for line in lines[start + 1 :]]


def test_list_and_describe(gateway: GatewayProcess, topic: str) -> None:
    group = _commit(gateway, topic)
    listed = {row["GROUP"]: row["STATE"] for row in _table(_run(gateway, "--list", "--state").stdout)}
    assert listed[group] == "Empty"
    described = _run(gateway, "--describe", "--group", group)
    assert "has no active members" in described.stdout + described.stderr
    rows = {int(row["PARTITION"]): row for row in _table(described.stdout)}
    for partition, offset in COMMITTED.items():
        row = rows[partition]
        assert row["TOPIC"] == topic
        assert int(row["CURRENT-OFFSET"]) == offset
        assert int(row["LOG-END-OFFSET"]) == COUNT
        assert int(row["LAG"]) == COUNT - offset


def test_describe_members_and_state(gateway: GatewayProcess, topic: str) -> None:
    group = f"group-of-{topic}"
    consumer = _join(gateway, topic, group)
    try:
        members = _run(gateway, "--describe", "--group", group, "--members", "--verbose").stdout
        (row,) = _table(members)
        assert row["CLIENT-ID"] == "reader"
        assert row["HOST"] == "/127.0.0.1"
        assert row["#PARTITIONS"] == "2"
        assert f"{topic}:0,1 " in members
        state = _run(gateway, "--describe", "--group", group, "--state").stdout
        assert "Stable" in state
        assert "range" in state
        assert f"{gateway.bootstrap} " in state.replace("  ", " ")
        owners = _table(_run(gateway, "--describe", "--group", group).stdout)
        assert all(row["CONSUMER-ID"].startswith("reader-") for row in owners)
        refused = run_tool(
            "kafka-consumer-groups", "--bootstrap-server", gateway.bootstrap, "--delete", "--group", group
        )
        assert "GroupNotEmptyException" in refused.stdout + refused.stderr
    finally:
        consumer.close()


def _reset_to(gateway: GatewayProcess, topic: str, group: str, *how: str) -> dict[int, int]:
    run = _run(gateway, "--reset-offsets", "--group", group, "--topic", topic, *how)
    return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in _table(run.stdout)}


def _held(gateway: GatewayProcess, topic: str, group: str) -> dict[int, int]:
    consumer = _consumer(gateway, group)
    places = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=DEADLINE_S)
    consumer.close()
    return {place.partition: place.offset for place in places}


def test_reset_offsets(gateway: GatewayProcess, topic: str) -> None:
    group = _commit(gateway, topic)
    moment = datetime.fromtimestamp((DEFAULT_TIMESTAMP + 3 * STEP_MS) / 1000, UTC)
    to_datetime = ("--to-datetime", moment.strftime("%Y-%m-%dT%H:%M:%S.000"))
    assert _reset_to(gateway, topic, group, "--to-earliest", "--dry-run") == {0: 0, 1: 0}
    assert _held(gateway, topic, group) == COMMITTED, "a dry run changes nothing"
    assert _reset_to(gateway, topic, group, "--shift-by", "2", "--execute") == {0: 6, 1: 9}
    assert _held(gateway, topic, group) == {0: 6, 1: 9}
    assert _reset_to(gateway, topic, group, *to_datetime, "--execute") == {0: 3, 1: 3}
    assert _held(gateway, topic, group) == {0: 3, 1: 3}
    assert _reset_to(gateway, topic, group, "--to-earliest", "--execute") == {0: 0, 1: 0}
    assert _held(gateway, topic, group) == {0: 0, 1: 0}


def test_delete_offsets_and_delete(gateway: GatewayProcess, topic: str) -> None:
    group = _commit(gateway, topic)
    deleted = _run(gateway, "--delete-offsets", "--group", group, "--topic", f"{topic}:1").stdout
    assert "Successful" in deleted
    assert _held(gateway, topic, group) == {0: COMMITTED[0], 1: -1001}
    assert f"('{group}') was successful" in _run(gateway, "--delete", "--group", group).stdout
    assert group not in _run(gateway, "--list").stdout.split()
    gone = run_tool(
        "kafka-consumer-groups", "--bootstrap-server", gateway.bootstrap, "--delete", "--group", group
    )
    assert "GroupIdNotFoundException" in gone.stdout + gone.stderr


def _formatted(gateway: GatewayProcess, formatter: str) -> list[dict[str, Any]]:
    """Return the JSON objects that the formatter prints one directly after the other."""
    read = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "3000")
    run = run_tool(
        "kafka-console-consumer",
        "--bootstrap-server",
        gateway.bootstrap,
        *read,
        "--formatter",
        f"org.apache.kafka.tools.consumer.{formatter}",
    )
    shown = []
    text = run.stdout.strip()
    while text:
        row, end = json.JSONDecoder().raw_decode(text)
        shown.append(row)
        text = text[end:].lstrip()
    return shown


def test_the_topic_of_the_groups_does_not_grow(gateway: GatewayProcess, topic: str) -> None:
    group = _commit(gateway, topic)
    grown = run_tool(
        "kafka-topics",
        *("--bootstrap-server", gateway.bootstrap, "--alter", "--topic", "__consumer_offsets"),
        *("--partitions", "60"),
    )
    assert grown.exit_code != 0
    assert "decides where each group" in grown.stdout + grown.stderr
    assert group in _run(gateway, "--list", "--timeout", "20000").stdout


def test_kafkas_formatters_read_the_offsets_topic(gateway: GatewayProcess, topic: str) -> None:
    group = _commit(gateway, topic)
    _join(gateway, topic, group).close()
    shown = [row for row in _formatted(gateway, "OffsetsMessageFormatter") if group in str(row)]
    offsets = {row["key"]["data"]["partition"]: row["value"]["data"]["offset"] for row in shown}
    assert offsets == COMMITTED
    shown = [row for row in _formatted(gateway, "GroupMetadataMessageFormatter") if group in str(row)]
    stable = next(row["value"]["data"] for row in shown if row["value"]["data"]["members"])
    assert stable["protocolType"] == "consumer"
    assert stable["members"][0]["clientId"] == "reader"
    empty = shown[-1]["value"]["data"]
    assert (empty["members"], empty["protocol"]) == ([], None)


def test_dump_log_decodes_offsets(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "dumped", partitions=2)
        batch = Batch(records(COUNT, step_ms=STEP_MS)).encode()
        data = [{"index": 0, "records": batch}]
        with Wire(gateway.bootstrap) as wire:
            wire.call(
                "produce", 9, acks=-1, timeout=5_000, topic_data=[{"name": topic, "partition_data": data}]
            )
        group = _commit(gateway, topic)
        _join(gateway, topic, group).close()
        files = sorted(
            path for path in gateway.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size
        )
        gateway.stop()
        names = ",".join(map(str, files))
        dumped = run_tool("kafka-dump-log", "--offsets-decoder", "--files", names).expect_success().stdout
        assert "isvalid: false" not in dumped
        assert f'"group":"{group}","topic":"{topic}","partition":1' in dumped
        assert '"offset":7,' in dumped
        assert '"protocolType":"consumer"' in dumped
        assert f'"assignedPartitions":[{{"topic":"{topic}","partitions":[0,1]}}]' in dumped
        assert "could not be decoded" not in dumped.lower()


def test_dump_log_decodes_share_groups(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "shared", partitions=2)
        asked = {"group_id": "sharers", "rack_id": "north"}
        with Wire(gateway.bootstrap) as wire:
            for member_id, member_epoch, names in (
                ("m-1", 0, [topic]),
                ("m-2", 0, [topic]),
                ("m-2", -1, None),
            ):
                told = {"member_id": member_id, "member_epoch": member_epoch, "subscribed_topic_names": names}
                wire.call("share_group_heartbeat", 1, asked | told)
        files = sorted(
            path for path in gateway.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size
        )
        gateway.stop()
    names = ",".join(map(str, files))
    dumped = run_tool("kafka-dump-log", "--offsets-decoder", "--files", names).expect_success().stdout
    assert "isvalid: false" not in dumped
    assert "could not be decoded" not in dumped.lower()
    rows = [
        (json.loads(key), json.loads(value) if value.startswith("{") else None)
        for key, value in re.findall(r"key: (\{.*?\}) payload: (.*)$", dumped, re.MULTILINE)
    ]
    written: dict[tuple[int, str | None], list[Any]] = {}
    for key, value in rows:
        member_id = key["data"].get("memberId")
        written.setdefault((int(key["type"]), member_id), []).append(value and value["data"])
    member = {"rackId": "north", "clientHost": "/127.0.0.1", "subscribedTopicNames": [topic]}
    assert written[10, "m-1"][-1].items() >= member.items()
    assert [value["epoch"] for value in written[11, None]] == [3, 4, 5]
    assert [value["assignmentEpoch"] for value in written[12, None]] == [3, 4]
    assert [row["partitions"] for row in written[13, "m-1"][0]["topicPartitions"]] == [[0, 1]]
    current = written[14, "m-2"][0]
    assert (current["memberEpoch"], current["previousMemberEpoch"], current["state"]) == (4, 0, 0)
    begun = written[15, None][-1]["initializedTopics"]
    assert [(row["topicName"], row["partitions"]) for row in begun] == [(topic, [0, 1])]
    assert all(written[kind, "m-2"][-1] is None for kind in (10, 13, 14)), "the member must have left"


def test_dump_log_decodes_assignment_epochs(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "assigned", partitions=2)
        asked = {"group_id": "g", "rebalance_timeout": 60_000, "topic_partitions": []}
        with Wire(gateway.bootstrap) as wire:
            wire.call("find_coordinator", 3, key="g")
            for member_id in ("m-1", "m-2"):
                joining = {**asked, "member_id": member_id, "subscribed_topic_names": [topic]}
                wire.call("consumer_group_heartbeat", 1, {**joining, "member_epoch": 0})
        files = sorted(
            path for path in gateway.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size
        )
        gateway.stop()
    names = ",".join(map(str, files))
    dumped = run_tool("kafka-dump-log", "--offsets-decoder", "--files", names).expect_success().stdout
    rows = re.findall(r'key: (\{"type":"8".*?\}) payload: (\{.*)$', dumped, re.MULTILINE)
    assigned = [json.loads(value)["data"]["assignedPartitions"] for _, value in rows]
    assert [(row["partitions"], row["assignmentEpochs"]) for row in assigned[0]] == [([0, 1], [2, 2])]


def test_kafka_configs_of_a_group_survive_a_kill(tmp_path: Path) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "readers")

    def configs(*arguments: str) -> ToolRun:
        return run_tool("kafka-configs", "--bootstrap-server", process.bootstrap, *arguments)

    with GatewayProcess(tmp_path / "data") as process:
        values = "share.auto.offset.reset=by_duration:PT1H,consumer.session.timeout.ms=50000"
        configs(*entity, "--alter", "--add-config", values).expect_success()
        process.restart(kill=True)
        described = configs("--entity-type", "groups", "--describe").expect_success().stdout
        assert "group readers are:" in described
        assert "DYNAMIC_GROUP_CONFIG:share.auto.offset.reset=by_duration:PT1H" in described
        everything = configs(*entity, "--describe", "--all").expect_success().stdout
        for shown in (
            "consumer.session.timeout.ms=50000",
            "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000",
            "share.record.lock.duration.ms=30000",
        ):
            assert shown in everything
        refused = configs(*entity, "--alter", "--add-config", "share.record.lock.duration.ms=1")
        assert refused.exit_code != 0
        assert "group.share.min.record.lock.duration.ms" in refused.stdout + refused.stderr
        names = "share.auto.offset.reset,consumer.session.timeout.ms"
        configs(*entity, "--alter", "--delete-config", names).expect_success()
        assert "readers" not in configs("--entity-type", "groups", "--describe").expect_success().stdout
