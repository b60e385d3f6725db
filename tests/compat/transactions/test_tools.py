"""Kafka's own transaction tools, run unchanged."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.topics import fresh_topic
from tests.compat.transactions.clients import Confluent, Jvm, started, values
from tests.compat.transactions.copier import Work
from tests.compat.transactions.copying import copying, message_copier_command
from tests.support.batches import Batch, Record
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import ToolRun, run_tool
from tests.support.wire import Wire

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
RECORDS = 2_000
TRANSACTIONAL = 0x10


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with GatewayProcess(tmp_path_factory.mktemp("tools") / "data", settings=SETTINGS) as process:
        yield process.bootstrap
        assert "Traceback" not in process.stderr_text()


def transactions_tool(bootstrap: str, *arguments: str) -> ToolRun:
    return run_tool("kafka-transactions", "--bootstrap-server", bootstrap, *arguments).expect_success()


def committed_end_offset(bootstrap: str, topic: str) -> int:
    asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    topics = [{"name": topic, "partitions": [asked]}]
    with Wire(bootstrap) as wire:
        answer = wire.call("list_offsets", 7, replica_id=-1, isolation_level=1, topics=topics)
    return int(answer.fields["topics"][0]["partitions"][0]["offset"])


def test_message_copiers_that_share_a_group(bootstrap: str, tmp_path: Path) -> None:
    topics = [fresh_topic(bootstrap, name, partitions=2) for name in ("in", "out")]
    name = f"copier-{uuid.uuid4().hex[:8]}"
    work = Work(bootstrap, *topics, 2, f"group-of-{name}", name, 0)
    with copying(bootstrap, work) as copied:
        copied.fill(200)
        shared = ("--input-partition", "-1", "--group-mode", "--use-group-metadata")
        commands = [message_copier_command(work._replace(name=f"{name}-{one}"), *shared) for one in range(2)]
        copied.start(commands, tmp_path)
        copied.expect_each_once(lambda value: value)


def test_performance_of_a_transactional_producer(bootstrap: str) -> None:
    topic = fresh_topic(bootstrap, "performance")
    told = run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", f"of-{topic}", "--transaction-duration-ms", "20"),
        *("--bootstrap-server", bootstrap),
    ).expect_success()
    assert f"{RECORDS} records sent" in told.stdout
    assert len(values(bootstrap, topic, isolation="read_committed")) == RECORDS
    assert committed_end_offset(bootstrap, topic) > RECORDS, "markers of several transactions follow them"


def test_verifiable_producer_with_idempotence(bootstrap: str, tmp_path: Path) -> None:
    """The tool begins no transaction, so this tests only idempotence."""
    topic = fresh_topic(bootstrap, "verifiable")
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=5\n")
    told = run_tool(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--topic", topic, "--bootstrap-server", bootstrap, "--max-messages", "100"),
        *("--command-config", settings),
    ).expect_success()
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert sum(row["name"] == "producer_send_success" for row in rows) == 100
    assert values(bootstrap, topic, isolation="read_committed") == [str(number) for number in range(100)]


def test_kafka_reads_the_state(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"transaction.state.log.num.partitions": "1"}
    with GatewayProcess(data, settings=settings) as gateway:
        topic = fresh_topic(gateway.bootstrap, "transactions")
        with started(Jvm, gateway.bootstrap, "watched") as producer:
            producer.init()
            producer.begin()
            producer.send(topic, 0, "a")
            listed = run_tool("kafka-transactions", "--bootstrap-server", gateway.bootstrap, "list")
            assert "Ongoing" in listed.expect_success().stdout
            told = run_tool(
                "kafka-transactions",
                *("--bootstrap-server", gateway.bootstrap, "describe", "--transactional-id", "watched"),
            )
            assert f"{topic}-0" in told.expect_success().stdout
            producer.commit()
        read = run_tool(
            "kafka-console-consumer",
            *("--bootstrap-server", gateway.bootstrap, "--topic", "__transaction_state", "--from-beginning"),
            *("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
            *("--max-messages", "4", "--timeout-ms", "20000"),
        ).expect_success()
        assert '"transactionalId":"watched"' in read.stdout
        assert '"transactionStatus":"CompleteCommit"' in read.stdout
    segment = data / "__transaction_state-0" / f"{0:020}.log"
    dumped = run_tool("kafka-dump-log", "--transaction-log-decoder", "--files", segment).expect_success()
    assert dumped.stdout.count('"transactionalId":"watched"') == 4
    assert '"transactionStatus":"CompleteCommit"' in dumped.stdout


def test_a_transaction_that_hangs_is_found_and_aborted(bootstrap: str) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    place = ("--topic", topic, "--partition", "0")
    with started(Confluent, bootstrap, f"of-{topic}") as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "hanging")
        rows = transactions_tool(bootstrap, "describe-producers", *place).stdout.splitlines()
        row = dict(zip(rows[0].split(), rows[1].split(), strict=True))
        assert row["CurrentTransactionStartOffset"] == "0"
        transactions_tool(bootstrap, "abort", *place, "--start-offset", "0")
        assert values(bootstrap, topic, isolation="read_committed") == []
        assert committed_end_offset(bootstrap, topic) == 2


def hang(bootstrap: str, topic: str) -> None:
    """Write a transactional batch without telling the coordinator, as old brokers allowed."""
    with Wire(bootstrap) as wire:
        name = f"of-{topic}"
        asked = {
            "transactional_id": name,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        while (began := wire.call("init_producer_id", 4, asked).fields)["error_code"]:
            wire.call("find_coordinator", 2, key_type=1, key=name)
        batch = Batch((Record(b"hanging"),), attributes=TRANSACTIONAL).of(
            began["producer_id"], began["producer_epoch"], 0
        )
        rows = [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]
        request = {"transactional_id": name, "acks": -1, "timeout": 10_000, "topic_data": rows}
        answer = wire.call("produce", 9, request).fields["responses"][0]["partition_responses"][0]
        assert answer["error_code"] == 0, answer


def test_a_transaction_that_nobody_knows_of_is_found_and_aborted(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transaction.partition.verification.enable": "false"}
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
        topic = fresh_topic(gateway.bootstrap, "transactions")
        hang(gateway.bootstrap, topic)
        place = ("--topic", topic, "--partition", "0")
        found = ("find-hanging", *place, "--max-transaction-timeout", "0")
        rows = transactions_tool(gateway.bootstrap, *found).stdout.splitlines()
        row = dict(zip(rows[0].split(), rows[1].split(), strict=True))
        assert (row["Topic"], row["Partition"], row["StartOffset"]) == (topic, "0", "0")
        transactions_tool(gateway.bootstrap, "abort", *place, "--start-offset", row["StartOffset"])
        assert len(transactions_tool(gateway.bootstrap, *found).stdout.splitlines()) == 1
        assert committed_end_offset(gateway.bootstrap, topic) == 2


def test_a_transaction_is_terminated_by_its_id(bootstrap: str) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    with started(Confluent, bootstrap, f"of-{topic}") as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "a")
        transactions_tool(bootstrap, "forceTerminateTransaction", "--transactionalId", f"of-{topic}")
        assert committed_end_offset(bootstrap, topic) == 2
        assert values(bootstrap, topic, isolation="read_committed") == []
