"""Apache Kafka's own command line tools run against the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.batches import DEFAULT_TIMESTAMP, Batch, Record, records
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_tools import ToolRun, run_tool
from tests.support.wire import Wire


def _run(gateway: GatewayProcess, name: str, *arguments: str, stdin: str | None = None) -> ToolRun:
    return run_tool(name, "--bootstrap-server", gateway.bootstrap, *arguments, stdin=stdin).expect_success()


def _produce(gateway: GatewayProcess, topic: str, *batches: Batch, partition: int = 0) -> None:
    with Wire(gateway.bootstrap) as wire:
        for batch in batches:
            data = [{"index": partition, "records": batch.encode()}]
            topic_data = [{"name": topic, "partition_data": data}]
            answer = wire.call("produce", 9, acks=-1, timeout=5_000, topic_data=topic_data).fields
            row = answer["responses"][0]["partition_responses"][0]
            assert row["error_code"] == 0, row


def _three_batches(gateway: GatewayProcess, topic: str) -> None:
    """Produce seven records in three batches; offset 4 has the largest timestamp, 900 ms after the first
    record's."""
    _produce(
        gateway,
        topic,
        Batch(records(3, step_ms=100)),
        Batch((Record(timestamp_delta=500), Record(timestamp_delta=900))),
        Batch((Record(timestamp_delta=600), Record(timestamp_delta=700))),
    )


@pytest.mark.tier("test")
def test_kafka_topics(shared_gateway: GatewayProcess) -> None:
    topic = f"tool-topics-{id(shared_gateway)}"
    named = ("--topic", topic)
    created = _run(
        shared_gateway,
        "kafka-topics",
        "--create",
        *named,
        "--partitions",
        "3",
        "--config",
        "retention.ms=86400000",
    )
    assert f"Created topic {topic}." in created.stdout
    described = _run(shared_gateway, "kafka-topics", "--describe", *named).stdout
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=86400000" in described
    assert "Leader: none" not in described
    _run(shared_gateway, "kafka-topics", "--alter", *named, "--partitions", "5")
    assert "PartitionCount: 5" in _run(shared_gateway, "kafka-topics", "--describe", *named).stdout
    assert topic in _run(shared_gateway, "kafka-topics", "--list").stdout.split()
    again = run_tool("kafka-topics", "--bootstrap-server", shared_gateway.bootstrap, "--create", *named)
    assert again.exit_code != 0
    assert "already exists" in again.stdout + again.stderr
    _run(shared_gateway, "kafka-topics", "--delete", *named)
    assert topic not in _run(shared_gateway, "kafka-topics", "--list").stdout.split()


@pytest.mark.tier("test")
def test_kafka_configs(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "tool-configs")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    _run(
        shared_gateway,
        "kafka-configs",
        *entity,
        "--alter",
        "--add-config",
        "retention.ms=1234567,segment.bytes=1048576",
    )
    described = _run(shared_gateway, "kafka-configs", *entity, "--describe").stdout
    assert "retention.ms=1234567" in described
    assert "segment.bytes=1048576" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1234567" in described
    _run(shared_gateway, "kafka-configs", *entity, "--alter", "--delete-config", "retention.ms")
    described = _run(shared_gateway, "kafka-configs", *entity, "--describe", "--all").stdout
    assert "retention.ms=604800000" in described
    assert "segment.bytes=1048576" in described


def test_kafka_configs_of_the_gateway_and_its_loggers(gateway: GatewayProcess) -> None:
    node = ("--entity-type", "brokers", "--entity-name", "1")
    _run(gateway, "kafka-configs", *node, "--alter", "--add-config", "seqgate.admin.timeout.ms=40000")
    described = _run(gateway, "kafka-configs", *node, "--describe").stdout
    assert "DYNAMIC_BROKER_CONFIG:seqgate.admin.timeout.ms=40000" in described
    assert "DEFAULT_CONFIG:seqgate.admin.timeout.ms=30000" in described
    bootstrap = ("--bootstrap-server", gateway.bootstrap)
    refused = run_tool("kafka-configs", *bootstrap, *node, "--alter", "--add-config", "num.partitions=3")
    assert refused.exit_code != 0
    assert "Cannot update these configs dynamically: [num.partitions]" in refused.stdout + refused.stderr
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    _run(gateway, "kafka-configs", *loggers, "--alter", "--add-config", "seqgate.gateway.server=DEBUG")
    described = _run(gateway, "kafka-configs", *loggers, "--describe").stdout
    assert "seqgate.gateway.server.connection=DEBUG" in described
    assert "seqgate.gateway.runtime.partitions.flusher=INFO" in described


def test_kafka_get_offsets(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "tool-offsets", partitions=2)
    _three_batches(shared_gateway, topic)
    by_time = str(DEFAULT_TIMESTAMP + 550)
    expected = {"earliest": "0", "latest": "7", "max-timestamp": "4", by_time: "4"}
    for time, offset in expected.items():
        shown = _run(shared_gateway, "kafka-get-offsets", "--topic", topic, "--time", time).stdout.split()
        assert f"{topic}:0:{offset}" in shown, (time, shown)


@pytest.mark.tier("test")
def test_console_producer_and_console_consumer(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "tool-console")
    lines = [f"line {number}" for number in range(50)]
    _run(shared_gateway, "kafka-console-producer", "--topic", topic, stdin="\n".join(lines) + "\n")
    expect_unbroken(stored_batches(shared_gateway.bootstrap, topic), len(lines))
    read = ("--topic", topic, "--partition", "0", "--timeout-ms", "20000")
    consumed = _run(
        shared_gateway, "kafka-console-consumer", *read, "--offset", "earliest", "--max-messages", "50"
    )
    assert consumed.stdout.splitlines() == lines
    consumed = _run(shared_gateway, "kafka-console-consumer", *read, "--offset", "40", "--max-messages", "10")
    assert consumed.stdout.splitlines() == lines[40:]


def test_kafka_delete_records(shared_gateway: GatewayProcess, tmp_path: Path) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "tool-delete-records")
    _three_batches(shared_gateway, topic)
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1})
    )
    deleted = _run(shared_gateway, "kafka-delete-records", "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in deleted.stdout
    shown = _run(shared_gateway, "kafka-get-offsets", "--topic", topic, "--time", "earliest").stdout
    assert f"{topic}:0:4" in shown


def test_kafka_log_dirs(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "tool-log-dirs", partitions=2)
    batch = Batch(records(5))
    _produce(shared_gateway, topic, batch, partition=1)
    shown = _run(shared_gateway, "kafka-log-dirs", "--describe", "--topic-list", topic).stdout
    report = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    (log_dir,) = report["brokers"][0]["logDirs"]
    assert log_dir["error"] is None
    sizes = {partition["partition"]: partition["size"] for partition in log_dir["partitions"]}
    assert sizes == {f"{topic}-0": 0, f"{topic}-1": len(batch.encode())}


def test_kafka_broker_api_versions(shared_gateway: GatewayProcess) -> None:
    shown = _run(shared_gateway, "kafka-broker-api-versions").stdout
    assert "(id: " in shown
    for supported in (
        "Fetch(1): 4 to 18",
        "ListOffsets(2): 1 to 11",
        "Metadata(3): 0 to 13",
        "CreateTopics(19): 2 to 7",
    ):
        assert f"{supported} [usable: " in shown


def test_jvm_producer(shared_gateway: GatewayProcess) -> None:
    """The idempotent JVM producer at full speed: every record is stored once and in order."""
    topic = fresh_topic(shared_gateway.bootstrap, "tool-perf", partitions=3)
    count = 30_000
    settings = (
        f"bootstrap.servers={shared_gateway.bootstrap} acks=all enable.idempotence=true linger.ms=2".split()
    )
    amount = ("--num-records", str(count), "--record-size", "100", "--throughput", "-1")
    run = run_tool("kafka-producer-perf-test", "--topic", topic, *amount, "--producer-props", *settings)
    assert f"{count} records sent" in run.expect_success().stdout
    held = 0
    for partition in range(3):
        batches = stored_batches(shared_gateway.bootstrap, topic, partition)
        in_partition = sum(batch.record_count for batch in batches)
        expect_unbroken(batches, in_partition)
        held += in_partition
    assert held == count


def test_dump_log_segments(gateway: GatewayProcess) -> None:
    """Kafka's tool reads the segment files and finds no error in the indexes."""
    configs = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
    topic = fresh_topic(gateway.bootstrap, "tool-dump", configs=configs)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    batches = [
        Batch(
            records(20, 3_000, step_ms=5),
            codec=codecs[index % 5],
            base_timestamp=DEFAULT_TIMESTAMP + index * 100,
        ).of(9_000, 0, index * 20)
        for index in range(100)
    ]
    _produce(gateway, topic, *batches)
    expect_unbroken(stored_batches(gateway.bootstrap, topic), 2_000)
    gateway.stop()
    directory = gateway.data_dir / f"{topic}-0"
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1, "the topic should have rolled"
    names = ",".join(map(str, logs))
    dumped = run_tool("kafka-dump-log", "--files", names, "--deep-iteration").expect_success().stdout
    assert dumped.count("isvalid: true") == 100
    assert "isvalid: false" not in dumped
    assert dumped.count("| offset: ") == 2_000
    indexes = ",".join(
        str(path) for path in sorted(directory.glob("*.index")) + sorted(directory.glob("*.timeindex"))
    )
    for check in ("--verify-index-only", "--index-sanity-check"):
        run = run_tool("kafka-dump-log", "--files", indexes, check).expect_success()
        assert not [line for line in (run.stdout + run.stderr).splitlines() if _is_complaint(line)], run
    gateway.start()


def _is_complaint(line: str) -> bool:
    return any(
        word in line.lower()
        for word in ("mismatch", "non-consecutive", "out of order", "exception", "corrupt")
    )


def test_tools_in_one_jvm_keep_apart(shared_gateway: GatewayProcess) -> None:
    """Each run has its own exit code and output; one that hangs ends with its JVM, and the next one gets
    another.
    """
    refused = run_tool("kafka-topics", "--list", "--no-such-option")
    assert refused.exit_code == 1
    assert "no-such-option" in refused.stderr
    assert _run(shared_gateway, "kafka-topics", "--list").stderr == ""
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(AssertionError, match="no end after"):
        run_tool("kafka-topics", "--bootstrap-server", nobody, "--list", timeout_s=1.0)
    assert _run(shared_gateway, "kafka-topics", "--list").stderr == ""
