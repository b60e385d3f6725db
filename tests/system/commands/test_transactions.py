"""`seqgate transactions`, and the offsets that transactions hold in `seqgate groups`, against real gateways
and clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from typer.testing import CliRunner

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.transactions.hanging import FindHangingRequest
from seqgate.gateway.admin.transactions.list_and_describe import (
    DescribeTransactionRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.cli import app
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire
from tests.system.commands.clients import create_topic, next_producer_id, produce
from tests.system.commands.conftest import Outcome, seqgate

WAIT_S = 120.0
TRANSACTIONAL = 0x10
NEVER_MS = str(2**31 - 1)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER_MS,
    # accepts a transactional batch in a partition that belongs to no transaction
    "transaction.partition.verification.enable": "false",
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with the topics `orders` (two partitions) and `flights`, on which no transaction times out."""
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as process:
        create_topic(process.bootstrap, "orders", 2)
        create_topic(process.bootstrap, "flights", 1)
        yield process


def transactions(gateway: GatewayProcess, command: str, *arguments: str, code: int | None = 0) -> Outcome:
    return seqgate("transactions", command, *arguments, "--data-dir", gateway.data_dir, code=code)


def listed(gateway: GatewayProcess, *filters: str) -> list[str]:
    rows = transactions(gateway, "list", *filters, "--json").json["transactions"]
    return [row["transactional_id"] for row in rows]


def hanging(gateway: GatewayProcess, *filters: str) -> list[dict[str, Any]]:
    found = transactions(gateway, "find-hanging", *filters, "--json", code=None)
    rows: list[dict[str, Any]] = Outcome(0, found.stdout, found.stderr).json["hanging"]
    assert found.code == (1 if rows else 0)
    return rows


def producer_of(gateway: GatewayProcess, name: str, timeout_ms: int = 60_000) -> Producer:
    """Return a producer that has begun no transaction."""
    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(timeout_ms, 60_000),
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def writing(gateway: GatewayProcess, name: str, *partitions: int, timeout_ms: int = 60_000) -> Producer:
    """Return a producer whose open transaction has a record in each of these partitions of `orders`."""
    producer = producer_of(gateway, name, timeout_ms)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce("orders", name.encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0
    return producer


def consume_and_hold(
    gateway: GatewayProcess, producer: Producer, group: str, *offsets: TopicPartition
) -> None:
    """Add offsets of a group to the producer's open transaction."""
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group})
    producer.send_offsets_to_transaction(list(offsets), consumer.consumer_group_metadata(), WAIT_S)
    consumer.close()


def committed_records(gateway: GatewayProcess, *partitions: int) -> list[bytes]:
    """Return the committed records of `orders` up to the end of each partition."""
    reader = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition("orders", partition, 0) for partition in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        message = reader.poll(WAIT_S)
        assert message is not None
        if message.error():
            ends += 1
        else:
            found.append(message.value())
    reader.close()
    return found


def leave_open(gateway: GatewayProcess, name: str, producer_id: int, partition: int) -> int:
    """Append a transactional batch unknown to any coordinator; return its offset."""
    batch = Batch(records(1), attributes=TRANSACTIONAL).of(producer_id, 0, 0).encode()
    data = [{"name": "orders", "partition_data": [{"index": partition, "records": batch}]}]
    with Wire(gateway.bootstrap) as wire:
        wire.call("find_coordinator", 4, key_type=1, coordinator_keys=[name])
        answer = wire.call(
            "produce", 9, transactional_id=name, acks=-1, timeout=10_000, topic_data=data
        ).fields
    (row,) = answer["responses"][0]["partition_responses"]
    assert row["error_code"] == 0
    return int(row["base_offset"])


def answering(gateway: GatewayProcess, answer: str, *arguments: str) -> tuple[int, str]:
    """Run `seqgate transactions abort` and answer its question; return the exit code and all output."""
    command = ["transactions", "abort", *arguments, "--data-dir", str(gateway.data_dir)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("seqgate.gateway.admin.options.is_answerable", lambda: True)
        result = CliRunner().invoke(app, command, input=answer, env={"COLUMNS": "100"})
    return result.exit_code, result.output


def _files(directory: Path) -> dict[Path, tuple[int, int]]:
    """Return the modification time and size of each file."""
    found = {path: path.stat() for path in directory.rglob("*")}
    return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}


class TestList:
    def test_no_transactional_ids(self, gateway: GatewayProcess) -> None:
        told = transactions(gateway, "list", "--json").json
        assert told == {
            "gateway": "running",
            "transactions": [],
            "offline_partitions": [],
            "partitions_elsewhere": [],
        }
        assert "0 transactional ids." in transactions(gateway, "list").stdout

    def test_tells_producers_and_transactions(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0, 1)
        producer_of(gateway, "idle", timeout_ms=5_000)
        billing, idle = transactions(gateway, "list", "--json").json["transactions"]
        assert billing.pop("age_ms") >= 0
        assert billing.pop("start_ms") <= billing.pop("last_update_ms")
        assert billing.pop("producer_id") != idle["producer_id"]
        assert billing.pop("client")["library"].startswith("confluent-kafka-python ")
        assert billing == {
            "transactional_id": "billing",
            "state": "Ongoing",
            "producer_epoch": 0,
            "timeout_ms": 60_000,
            "partition_count": 2,
        }
        assert (idle["state"], idle["timeout_ms"], idle["partition_count"]) == ("Empty", 5_000, 0)
        assert (idle["start_ms"], idle["age_ms"]) == (None, None)
        shown = transactions(gateway, "list").stdout
        assert "2 transactional ids." in shown
        producer.commit_transaction(WAIT_S)
        (row, _) = transactions(gateway, "list", "--json").json["transactions"]
        assert (row["state"], row["start_ms"], row["partition_count"]) == ("CompleteCommit", None, 0)

    def test_filters(self, gateway: GatewayProcess) -> None:
        writing(gateway, "billing-1", 0)
        producer_of(gateway, "billing-2")
        producer_of(gateway, "shipping-1")
        rows = transactions(gateway, "list", "--json").json["transactions"]
        ids = {row["transactional_id"]: str(row["producer_id"]) for row in rows}
        assert listed(gateway, "--state", "ongoing") == ["billing-1"]
        assert listed(gateway, "--state", "Ongoing", "--state", "Empty") == sorted(ids)
        wanted = ("--producer-id", ids["billing-2"], "--producer-id", ids["shipping-1"])
        assert listed(gateway, *wanted) == ["billing-2", "shipping-1"]
        assert listed(gateway, "--pattern", "billing-.*") == ["billing-1", "billing-2"]
        assert listed(gateway, "--pattern", "billing") == []
        assert listed(gateway, "--longer-than", "0ms", "--pattern", ".*-1") == ["billing-1"]
        assert listed(gateway, "--longer-than", "1d") == []

    @pytest.mark.parametrize(
        ("filters", "words", "code"),
        [
            (("--state", "Busy"), "Busy is not a state", 1),
            (("--pattern", "("), "not a regular expression", 1),
            (("--longer-than", "soon"), "--longer-than: 'soon' is not a length of time", 2),
            (("--longer-than", f"{10**17}d"), "is not a length of time", 2),
        ],
    )
    def test_filters_that_mean_nothing(
        self, gateway: GatewayProcess, filters: tuple[str, ...], words: str, code: int
    ) -> None:
        assert words in transactions(gateway, "list", *filters, code=code).stderr

    def test_pages_hold_every_id_once(self, gateway: GatewayProcess) -> None:
        names = sorted(f"id-{number}" for number in range(7))
        with Wire(gateway.bootstrap) as wire:
            for name in names:
                wire.call("find_coordinator", 4, key_type=1, coordinator_keys=[name])
                begun = wire.call("init_producer_id", 4, transactional_id=name, transaction_timeout=60_000)
                assert begun.fields["error_code"] == 0
        for limit in (1, 3, 7, 100):
            answer = ask(gateway.data_dir, ListTransactionsRequest(limit=limit))
            assert [row.transactional_id for row in answer.transactions] == names


class TestDescribe:
    def test_tells_partitions_and_offsets_held(self, gateway: GatewayProcess) -> None:
        produce(gateway.bootstrap, "orders", 1, next_producer_id(gateway.bootstrap), 0, 4)
        producer = writing(gateway, "billing", 0, 1)
        consume_and_hold(gateway, producer, "readers", TopicPartition("flights", 0, 7))
        told = transactions(gateway, "describe", "billing", "--json").json
        assert (told["state"], told["partition_count"], told["complete"]) == ("Ongoing", 3, True)
        offsets_partition, first, second = told["partitions"]
        assert offsets_partition["topic"] == "__consumer_offsets"
        assert first == {
            "topic": "orders",
            "partition": 0,
            "first_offset": 0,
            "last_stable_offset": 0,
            "high_watermark": 1,
        }
        assert (second["first_offset"], second["last_stable_offset"], second["high_watermark"]) == (4, 4, 5)
        assert told["pending_offset_count"] == 1
        assert told["pending_offsets"] == [
            {
                "group": "readers",
                "topic": "flights",
                "partition": 0,
                "offset": 7,
                "producer_id": told["producer_id"],
                "producer_epoch": told["producer_epoch"],
                "transactional_id": "billing",
                "superseded": False,
            }
        ]
        shown = transactions(gateway, "describe", "billing").stdout
        assert "Transactional id billing: Ongoing" in shown
        assert "readers" in shown
        producer.abort_transaction(WAIT_S)
        after = transactions(gateway, "describe", "billing", "--json").json
        assert (after["state"], after["partitions"], after["pending_offsets"]) == ("CompleteAbort", [], [])

    def test_an_id_that_does_not_exist(self, gateway: GatewayProcess) -> None:
        refused = transactions(gateway, "describe", "nobody", code=1).stderr
        assert "there is no transactional id nobody" in refused
        producer_of(gateway, "somebody")
        assert "no transactional id nobody" in transactions(gateway, "describe", "nobody", code=1).stderr

    def test_names_of_clients_are_harmless(self, gateway: GatewayProcess) -> None:
        name = "bad\x1b[2J"
        writing(gateway, name, 0)
        for shown in (transactions(gateway, "list").stdout, transactions(gateway, "describe", name).stdout):
            assert "\x1b" not in shown
            assert "\\x1b" in shown

    def test_pages_hold_every_partition_once(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "wide", 9)
        producer = producer_of(gateway, "billing")
        producer.begin_transaction()
        for partition in range(9):
            producer.produce("wide", b"", partition=partition)
        consume_and_hold(gateway, producer, "readers", TopicPartition("flights", 0, 7))
        assert producer.flush(WAIT_S) == 0
        answer = ask(gateway.data_dir, DescribeTransactionRequest("billing", limit=4))
        told = [(row.topic, row.partition) for row in answer.partitions]
        assert told[1:] == [("wide", partition) for partition in range(9)]
        assert (len(answer.pending_offsets), answer.pending_offset_count) == (1, 1)


class TestGroups:
    def test_offsets_that_a_transaction_holds_are_told_with_it(self, gateway: GatewayProcess) -> None:
        place = TopicPartition("flights", 0, 7)
        producer = writing(gateway, "billing", 0)
        consume_and_hold(gateway, producer, "readers", place)
        described = ("groups", "describe", "readers", "--data-dir", gateway.data_dir)
        (row,) = seqgate(*described, "--json").json["partitions"]
        (held,) = row["pending"]
        assert (row["committed_offset"], row["lag"]) == (None, None)
        assert (held["offset"], held["transactional_id"], held["superseded"]) == (7, "billing", False)
        shown = seqgate(*described).stdout
        assert "Held by open transactions" in shown
        assert "billing" in shown
        producer.commit_transaction(WAIT_S)
        (row,) = seqgate(*described, "--json").json["partitions"]
        assert (row["committed_offset"], row["pending"]) == (7, [])
        assert "Held by open transactions" not in seqgate(*described).stdout

    def test_one_that_another_commit_followed_is_superseded(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0)
        consume_and_hold(gateway, producer, "readers", TopicPartition("flights", 0, 7))
        consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("flights", 0, 9)], asynchronous=False)
        consumer.close()
        described = ("groups", "describe", "readers", "--data-dir", gateway.data_dir)
        (row,) = seqgate(*described, "--json").json["partitions"]
        assert (row["committed_offset"], row["pending"][0]["superseded"]) == (9, True)
        assert "superseded" in seqgate(*described).stdout
        assert "superseded" in transactions(gateway, "describe", "billing").stdout


class TestFindHanging:
    def test_nothing_hangs_while_transactions_are_under_way(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0, 1)
        consume_and_hold(gateway, producer, "readers", TopicPartition("flights", 0, 7))
        assert hanging(gateway) == []
        assert "0 hanging transactions." in transactions(gateway, "find-hanging").stdout

    def test_the_kafka_protocol_tells_the_same_and_aborts(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0)
        known = transactions(gateway, "describe", "billing", "--json").json["producer_id"]
        leave_open(gateway, "nobody", next_producer_id(gateway.bootstrap), 0)
        leave_open(gateway, "billing", known, 1)
        there = ("--bootstrap", gateway.bootstrap)
        found = seqgate("transactions", "find-hanging", *there, "--json", code=1).document["hanging"]
        expected = hanging(gateway)
        for row in (*found, *expected):
            assert row.pop("age_ms") >= 0
        assert found == expected
        for row in found:
            place = ("--topic", row["topic"], "--partition", str(row["partition"]))
            first = ("--start-offset", str(row["first_offset"]), "--yes")
            assert (
                "Aborted in 1 partition." in seqgate("transactions", "abort", *place, *first, *there).stdout
            )
        assert hanging(gateway) == []
        producer.commit_transaction(WAIT_S)

    def test_tells_why_each_hangs(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0)
        known = transactions(gateway, "describe", "billing", "--json").json["producer_id"]
        stranger = next_producer_id(gateway.bootstrap)
        unknown_offset = leave_open(gateway, "nobody", stranger, 0)
        leave_open(gateway, "billing", known, 1)
        first, second = hanging(gateway)
        assert first.pop("age_ms") >= 0
        assert first.pop("last_timestamp") > 0
        assert first.pop("client")["client_id"] == "wire"
        assert first == {
            "broker_id": 1,
            "topic": "orders",
            "partition": 0,
            "producer_id": stranger,
            "producer_epoch": 0,
            "coordinator_epoch": -1,
            "first_offset": unknown_offset,
            "transactional_id": None,
            "reason": "unknown producer",
        }
        assert (second["partition"], second["transactional_id"], second["reason"]) == (
            1,
            "billing",
            "not part",
        )
        (only,) = hanging(gateway, "--topic", "orders", "--partition", "1")
        assert {**only, "age_ms": second["age_ms"]} == second
        assert hanging(gateway, "--topic", "flights") == []
        answer = ask(gateway.data_dir, FindHangingRequest(limit=1))
        told = [(row.topic, row.partition, row.producer_id) for row in answer.hanging]
        assert answer.complete
        assert told == [("orders", 0, stranger), ("orders", 1, known)]
        producer.abort_transaction(WAIT_S)

    def test_overdue(self, gateway: GatewayProcess) -> None:
        writing(gateway, "late", 1, timeout_ms=1_000)
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = hanging(gateway)
        assert [(row["partition"], row["reason"]) for row in rows] == [(1, "overdue")]
        shown = transactions(gateway, "find-hanging", code=1).stdout
        assert "1 hanging transaction." in shown

    @pytest.mark.parametrize(
        ("filters", "words", "code"),
        [
            (("--topic", "nothing"), "no topic nothing", 1),
            (("--topic", "orders", "--partition", "9"), "no partition 9", 1),
            (("--partition", "0"), "--partition needs --topic", 2),
        ],
    )
    def test_places_that_do_not_exist(
        self, gateway: GatewayProcess, filters: tuple[str, ...], words: str, code: int
    ) -> None:
        assert words in transactions(gateway, "find-hanging", *filters, code=code).stderr


class TestAbort:
    def test_shows_and_asks_first(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0, 1)
        for answer in ("n\n", "", "\n"):
            code, output = answering(gateway, answer, "billing")
            assert code == 1
            shown, question = output.index("ends its records in 2 partitions"), output.index("Abort it?")
            assert shown < question < output.index("Nothing is changed.")
        planned = transactions(gateway, "abort", "billing", "--json").json
        assert (planned["executed"], planned["fenced_by"]) == (False, None)
        assert listed(gateway, "--state", "Ongoing") == ["billing"]
        producer.commit_transaction(WAIT_S)
        assert committed_records(gateway, 0, 1) == [b"billing", b"billing"]

    @pytest.mark.parametrize("confirms", [True, False])
    def test_by_id_ends_it_everywhere_and_fences_the_producer(
        self, gateway: GatewayProcess, *, confirms: bool
    ) -> None:
        producer = writing(gateway, "billing", 0, 1)
        consume_and_hold(gateway, producer, "readers", TopicPartition("flights", 0, 7))
        before = transactions(gateway, "describe", "billing", "--json").json
        code, output = (
            answering(gateway, "y\n", "billing") if confirms else answering(gateway, "", "billing", "--yes")
        )
        assert code == 0
        assert "and 1 offset of groups with them" in output
        assert "Aborted in 3 partitions" in output
        assert ("Abort it?" in output) is confirms
        after = transactions(gateway, "describe", "billing", "--json").json
        assert (after["state"], after["producer_id"]) == ("Empty", before["producer_id"])
        assert after["producer_epoch"] > before["producer_epoch"]
        assert hanging(gateway) == []
        described = seqgate(
            "groups", "describe", "readers", "--data-dir", gateway.data_dir, "--json", code=None
        )
        assert '"offset": 7' not in described.stdout
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(WAIT_S)
        assert refused.value.args[0].fatal()
        gateway.restart(kill=True)
        assert committed_records(gateway, 0, 1) == []

    def test_in_one_partition(self, gateway: GatewayProcess) -> None:
        stranger = next_producer_id(gateway.bootstrap)
        offset = str(leave_open(gateway, "nobody", stranger, 1))
        writing(gateway, "billing", 1).commit_transaction(WAIT_S)
        place = ("--topic", "orders", "--partition", "1", "--start-offset", offset)
        planned = transactions(gateway, "abort", *place, "--json").json
        assert (planned["executed"], planned["producer_id"], planned["age_ms"] >= 0) == (
            False,
            stranger,
            True,
        )
        assert committed_records(gateway, 1) == []
        code, output = answering(gateway, "y\n", *place)
        assert code == 0
        assert "of no transactional id" in output
        assert "Aborted in 1 partition." in output
        assert committed_records(gateway, 1) == [b"billing"]
        assert hanging(gateway) == []
        again = transactions(gateway, "abort", *place, "--yes", code=1).stderr
        assert f"no open transaction that begins at offset {offset}" in again

    def test_a_partition_is_not_torn_out_of_a_transaction(self, gateway: GatewayProcess) -> None:
        producer = writing(gateway, "billing", 0, 1)
        place = ("--topic", "orders", "--partition", "1", "--start-offset", "0")
        refused = transactions(gateway, "abort", *place, "--yes", code=1).stderr
        assert "seqgate transactions abort billing" in refused
        producer.commit_transaction(WAIT_S)
        assert committed_records(gateway, 0, 1) == [b"billing", b"billing"]

    @pytest.mark.parametrize(
        ("arguments", "words", "code"),
        [
            (("nobody",), "there is no transactional id nobody", 1),
            (("idle",), "idle has no open transaction", 1),
            ((), "name either", 2),
            (("idle", "--topic", "orders"), "name either", 2),
            (("--topic", "orders", "--partition", "1"), "name either", 2),
            (("--topic", "orders", "--partition", "9", "--start-offset", "0"), "no partition orders-9", 1),
            (
                ("--topic", "__transaction_state", "--partition", "0", "--start-offset", "0"),
                "holds no trans",
                1,
            ),
        ],
    )
    def test_what_is_not_open(
        self, gateway: GatewayProcess, arguments: tuple[str, ...], words: str, code: int
    ) -> None:
        producer_of(gateway, "idle")
        assert words in transactions(gateway, "abort", *arguments, "--yes", code=code).stderr


class TestStoppedGateway:
    @pytest.mark.parametrize("is_killed", [True, False])
    def test_tells_what_lies_there_and_changes_nothing(
        self, gateway: GatewayProcess, *, is_killed: bool
    ) -> None:
        producer = writing(gateway, "billing", 0, 1)
        consume_and_hold(gateway, producer, "readers", TopicPartition("flights", 0, 7))
        producer_of(gateway, "idle").begin_transaction()
        ended = writing(gateway, "done", 1)
        consume_and_hold(gateway, ended, "others", TopicPartition("flights", 0, 3))
        ended.commit_transaction(WAIT_S)
        listing = transactions(gateway, "list", "--json").json["transactions"]
        running = transactions(gateway, "describe", "billing", "--json").json
        if is_killed:
            gateway.kill()
        else:
            gateway.stop()
        before = _files(gateway.data_dir)
        told = transactions(gateway, "list", "--json").json
        assert (told["gateway"], told["offline_partitions"]) == ("stopped", [])
        for row in (*told["transactions"], *listing):
            row["age_ms"] = row["client"] = None  # a restart forgets the clients
        assert told["transactions"] == listing
        assert listed(gateway, "--state", "Ongoing") == ["billing"]
        assert "The gateway is not running" in transactions(gateway, "list").stdout
        stopped = transactions(gateway, "describe", "billing", "--json").json
        assert stopped["pending_offsets"] == running["pending_offsets"]
        places = [(row["topic"], row["partition"]) for row in running["partitions"]]
        assert [(row["topic"], row["partition"]) for row in stopped["partitions"]] == places
        assert {row["first_offset"] for row in stopped["partitions"]} == {None}
        assert "The gateway is not running" in transactions(gateway, "describe", "billing").stdout
        assert transactions(gateway, "describe", "done", "--json").json["pending_offsets"] == []
        assert "no transactional id nobody" in transactions(gateway, "describe", "nobody", code=1).stderr
        assert "no gateway is running" in transactions(gateway, "abort", "billing", "--yes", code=1).stderr
        assert "no gateway is running" in transactions(gateway, "find-hanging", code=1).stderr
        assert _files(gateway.data_dir) == before

    def test_a_torn_batch_at_the_end_is_left_out(self, gateway: GatewayProcess) -> None:
        producer_of(gateway, "whole")
        gateway.kill()
        (segment,) = (
            path for path in gateway.data_dir.glob("__transaction_state-*/*.log") if path.stat().st_size
        )
        whole = segment.read_bytes()
        segment.write_bytes(whole + whole[:-1])
        assert listed(gateway) == ["whole"]

    def test_a_directory_without_a_gateway(self, tmp_path: Path) -> None:
        refused = seqgate("transactions", "list", "--data-dir", tmp_path, code=1).stderr
        assert "no data directory of a gateway" in refused
