"""Transactional producers of four libraries: commit, abort, the next producer of an id, and a gateway that is killed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.topics import fresh_topic
from tests.compat.transactions.clients import LIBRARIES, Failed, started, values
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire

PARTITIONS = 3
ROUNDS = 20
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}

each_library = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.lower())


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with GatewayProcess(tmp_path_factory.mktemp("transactions") / "data", settings=SETTINGS) as process:
        yield process.bootstrap
        assert "Traceback" not in process.stderr_text()


def fresh_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def described(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    with Wire(bootstrap) as wire:
        answer = wire.call("describe_transactions", 0, transactional_ids=[transactional_id])
    found: dict[str, Any] = answer.fields["transaction_states"][0]
    return found


@each_library
def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions", partitions=PARTITIONS)
    with started(library, bootstrap, fresh_id()) as producer:
        producer.init()
        for number in range(ROUNDS):
            producer.begin()
            for partition in range(PARTITIONS):
                producer.send(topic, partition, f"{number}-{partition}")
            producer.abort() if number % 4 == 1 else producer.commit()
    every = {f"{number}-{partition}" for number in range(ROUNDS) for partition in range(PARTITIONS)}
    committed = {value for value in every if int(value.split("-")[0]) % 4 != 1}
    read = values(bootstrap, topic, isolation="read_committed", partitions=PARTITIONS)
    assert sorted(read) == sorted(committed)
    read = values(bootstrap, topic, isolation="read_uncommitted", partitions=PARTITIONS)
    assert sorted(read) == sorted(every)


@each_library
def test_an_open_transaction_is_not_read(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    with started(library, bootstrap, fresh_id()) as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "a")
        assert values(bootstrap, topic, isolation="read_committed") == []
        assert values(bootstrap, topic, isolation="read_uncommitted") == ["a"]
        producer.commit()
        assert values(bootstrap, topic, isolation="read_committed") == ["a"]


@each_library
def test_the_next_producer_of_an_id_fences_the_one_before(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    transactional_id = fresh_id()
    with (
        started(library, bootstrap, transactional_id) as zombie,
        started(library, bootstrap, transactional_id) as successor,
    ):
        zombie.init()
        zombie.begin()
        zombie.send(topic, 0, "zombie")
        successor.init()
        successor.begin()
        successor.send(topic, 0, "successor")
        with pytest.raises(Failed):
            zombie.commit()
        successor.commit()
    assert values(bootstrap, topic, isolation="read_committed") == ["successor"]
    assert values(bootstrap, topic, isolation="read_uncommitted") == ["zombie", "successor"]


@each_library
def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    transactional_id = fresh_id()
    with started(library, bootstrap, transactional_id, timeout_ms=1_000) as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "late")
        while described(bootstrap, transactional_id)["transaction_state"] != "CompleteAbort":
            pass
        with pytest.raises(Failed):
            producer.commit()
    assert values(bootstrap, topic, isolation="read_committed") == []


@each_library
def test_a_transaction_goes_on_over_the_death_of_the_gateway(tmp_path: Path, library: type[Any]) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        topic = fresh_topic(gateway.bootstrap, "transactions", partitions=PARTITIONS)
        with started(library, gateway.bootstrap, fresh_id()) as producer:
            producer.init()
            for number in range(3):
                producer.begin()
                producer.send(topic, 0, f"{number}-0")
                gateway.restart(kill=True)
                producer.send(topic, 1, f"{number}-1")
                producer.commit()
        read = values(gateway.bootstrap, topic, isolation="read_committed", partitions=PARTITIONS)
        assert sorted(read) == sorted(f"{number}-{partition}" for number in range(3) for partition in (0, 1))
        assert "Traceback" not in gateway.stderr_text()


def test_kafka_reads_the_state(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"transaction.state.log.num.partitions": "1"}
    with GatewayProcess(data, settings=settings) as gateway:
        topic = fresh_topic(gateway.bootstrap, "transactions")
        with started(LIBRARIES[0], gateway.bootstrap, "watched") as producer:
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
        assert '"transactionStatus":4' in read.stdout
    segment = data / "__transaction_state-0" / f"{0:020}.log"
    dumped = run_tool("kafka-dump-log", "--transaction-log-decoder", "--files", segment).expect_success()
    assert dumped.stdout.count('"transactionalId":"watched"') == 4
    assert '"transactionStatus":4' in dumped.stdout


def test_a_transaction_that_hangs_is_found_and_aborted_with_kafkas_tool(bootstrap: str) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    with started(LIBRARIES[1], bootstrap, fresh_id()) as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "hanging")
        found = run_tool(
            "kafka-transactions",
            *("--bootstrap-server", bootstrap, "describe-producers", "--topic", topic, "--partition", "0"),
        ).expect_success()
        rows = found.stdout.splitlines()
        row = dict(zip(rows[0].split(), rows[1].split(), strict=True))
        assert row["CurrentTransactionStartOffset"] == "0"
        run_tool(
            "kafka-transactions",
            *("--bootstrap-server", bootstrap, "abort", "--topic", topic, "--partition", "0"),
            *("--start-offset", "0"),
        ).expect_success()
        assert values(bootstrap, topic, isolation="read_committed") == []
        with Wire(bootstrap) as wire:
            asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
            answer = wire.call(
                "list_offsets",
                7,
                replica_id=-1,
                isolation_level=1,
                topics=[{"name": topic, "partitions": [asked]}],
            )
        assert answer.fields["topics"][0]["partitions"][0]["offset"] == 2
