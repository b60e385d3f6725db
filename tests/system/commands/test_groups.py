"""`seqgate groups` against real gateways and clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest
from seqgate.gateway.admin.groups.listing import ListGroupsRequest
from seqgate.gateway.admin.groups.reset import ResetOffsetsRequest, TopicSelection
from seqgate.gateway.admin.request import ControlError
from tests.support.batches import DEFAULT_TIMESTAMP, Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire
from tests.system.commands.clients import create_topic
from tests.system.commands.conftest import Outcome, seqgate

WAIT_S = 120.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with the topic `orders` (two partitions of ten records, the first from offset 3 on) and the
    empty `flights`.
    """
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    with GatewayProcess(tmp_path / "data", settings=settings) as process:
        create_topic(process.bootstrap, "orders", 2)
        create_topic(process.bootstrap, "flights", 1)
        for partition in (0, 1):
            _produce(process.bootstrap, partition)
        with Wire(process.bootstrap) as wire:
            deleted = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 3}]}]
            wire.call("delete_records", 2, topics=deleted, timeout=10_000)
        yield process


def _produce(bootstrap: str, partition: int) -> None:
    """Produce ten records, 100 ms apart."""
    batch = Batch(records(10, step_ms=100)).encode()
    data = [{"name": "orders", "partition_data": [{"index": partition, "records": batch}]}]
    with Wire(bootstrap) as wire:
        answer = wire.call("produce", 9, acks=-1, timeout=10_000, topic_data=data).fields
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def groups(gateway: GatewayProcess, command: str, *arguments: str, code: int = 0) -> Outcome:
    return seqgate("groups", command, *arguments, "--data-dir", gateway.data_dir, code=code)


def offsets_of(gateway: GatewayProcess, group: str) -> dict[tuple[str, int], int | None]:
    described = groups(gateway, "describe", group, "--json").json
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in described["partitions"]}


def commit(gateway: GatewayProcess, group: str, *offsets: TopicPartition) -> None:
    """Commit offsets as a consumer that assigns its own partitions."""
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


@contextmanager
def consuming(
    gateway: GatewayProcess, group: str, *, commits: bool = True, **more: Any
) -> Iterator[Consumer]:
    """Yield a member of the group that has read and committed all of `orders`."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "client.id": "app",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(more or {"session.timeout.ms": 20_000}),
        }
    )
    consumer.subscribe(["orders"])
    assert len(consumer.consume(17, WAIT_S)) == 17
    if commits:
        consumer.commit(asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


class TestList:
    def test_no_groups(self, gateway: GatewayProcess) -> None:
        assert groups(gateway, "list", "--json").json == {"groups": [], "offline_partitions": []}
        assert "0 groups." in groups(gateway, "list").stdout

    def test_tells_state_members_and_lag(self, gateway: GatewayProcess) -> None:
        commit(gateway, "simple", TopicPartition("orders", 1, 4), TopicPartition("orders", 0, 8))
        with consuming(gateway, "billing"):
            simple = {
                "group": "simple",
                "state": "Empty",
                "type": "classic",
                "protocol_type": "",
                "protocol_name": None,
                "members": 0,
                "committed_partitions": 2,
                "total_lag": 6 + 2,
            }
            billing = {
                **simple,
                "group": "billing",
                "state": "Stable",
                "protocol_type": "consumer",
                "protocol_name": "range",
                "members": 1,
                "total_lag": 0,
            }
            assert groups(gateway, "list", "--json").json["groups"] == [billing, simple]
            shown = groups(gateway, "list").stdout
            assert "consumer, range" in shown
            assert "2 groups." in shown
            stable = groups(gateway, "list", "--state", "stable", "--json").json["groups"]
            assert [row["group"] for row in stable] == ["billing"]
            both = groups(gateway, "list", "--state", "Empty", "--state", "Stable", "--json").json["groups"]
            assert both == [billing, simple]

    def test_a_state_that_does_not_exist(self, gateway: GatewayProcess) -> None:
        refused = groups(gateway, "list", "--state", "Busy", code=1).stderr
        assert "Busy is not a state of a group" in refused
        assert "Stable" in refused

    def test_pages_hold_every_group_once(self, gateway: GatewayProcess) -> None:
        names = sorted(f"group-{number}" for number in range(11))
        for name in names:
            request = ResetOffsetsRequest(name, "earliest", topics=[TopicSelection("orders")], execute=True)
            ask(gateway.data_dir, request)
        for limit in (1, 4, 11, 100):
            answer = ask(gateway.data_dir, ListGroupsRequest(limit=limit))
            assert [row.group for row in answer.groups] == names

    def test_survives_a_crash(self, gateway: GatewayProcess) -> None:
        commit(gateway, "simple", TopicPartition("orders", 1, 4))
        before = groups(gateway, "list", "--json").json
        gateway.restart(kill=True)
        assert groups(gateway, "list", "--json").json == before


class TestDescribe:
    def test_tells_members_and_partitions(self, gateway: GatewayProcess) -> None:
        with consuming(
            gateway, "billing", **{"group.instance.id": "desk-1", "session.timeout.ms": 20_000}
        ) as consumer:
            commit(gateway, "other", TopicPartition("flights", 0, 0))
            consumer.commit(offsets=[TopicPartition("orders", 0, 7, metadata="half way")], asynchronous=False)
            told = groups(gateway, "describe", "billing", "--json").json
            assert (told["state"], told["generation_id"], told["protocol_name"]) == ("Stable", 1, "range")
            (member,) = told["members"]
            assert member.pop("member_id") == consumer.memberid()
            assert member.pop("rebalance_timeout_ms") > 0
            assert member == {
                "group_instance_id": "desk-1",
                "client_id": "app",
                "client_host": "/127.0.0.1",
                "session_timeout_ms": 20_000,
                "is_leader": True,
                "assignment": {"orders": [0, 1]},
                "streams": None,
            }
            first, second = told["partitions"]
            assert first.pop("age_ms") >= 0
            assert first.pop("metadata").rstrip("\0") == "half way"
            assert first.pop("commit_timestamp") > 1_700_000_000_000
            assert first == {
                "topic": "orders",
                "partition": 0,
                "committed_offset": 7,
                "log_start_offset": 3,
                "high_watermark": 10,
                "lag": 3,
                "member_id": consumer.memberid(),
                "pending": [],
                "delivery": None,
                "skipped": 0,
            }
            assert (second["partition"], second["committed_offset"], second["lag"]) == (1, 10, 0)
            shown = groups(gateway, "describe", "billing").stdout
            assert "Stable, 1 member, generation 1, protocol consumer, range." in shown
            assert "orders 0-1" in shown
            assert "half way" in shown
            assert "3 records to read" in shown

    def test_an_assigned_partition_without_a_commit(self, gateway: GatewayProcess) -> None:
        with consuming(gateway, "billing", commits=False) as consumer:
            first, second = groups(gateway, "describe", "billing", "--json").json["partitions"]
            for row in (first, second):
                assert (row["committed_offset"], row["lag"], row["age_ms"]) == (None, None, None)
                assert (row["high_watermark"], row["member_id"]) == (10, consumer.memberid())
            assert "2 partitions, 0 records to read" in groups(gateway, "describe", "billing").stdout

    def test_offsets_outside_of_the_log(self, gateway: GatewayProcess) -> None:
        commit(gateway, "lost", TopicPartition("orders", 0, 1), TopicPartition("orders", 1, 99))
        told = groups(gateway, "describe", "lost", "--json").json["partitions"]
        assert [row["lag"] for row in told] == [9, 0]
        assert "2 committed offsets outside of the log" in groups(gateway, "describe", "lost").stdout

    def test_metadata_and_names_of_clients_are_harmless(self, gateway: GatewayProcess) -> None:
        name = "bad\x1b[2J" + "g" * 200
        commit(gateway, name, TopicPartition("orders", 0, 5, metadata="\x1b]0;\x07" + "m" * 500))
        shown = groups(gateway, "describe", name).stdout + groups(gateway, "list").stdout
        assert "\x1b" not in shown
        assert "\\x1b]0;" in shown
        assert "g" * 200 in groups(gateway, "list").stdout  # on one line
        (row,) = groups(gateway, "describe", name, "--json").json["partitions"]
        assert row["metadata"].rstrip("\0") == "\x1b]0;\x07" + "m" * 500

    def test_a_group_that_does_not_exist(self, gateway: GatewayProcess) -> None:
        assert "there is no group nobody" in groups(gateway, "describe", "nobody", code=1).stderr
        commit(gateway, "simple", TopicPartition("orders", 0, 5))
        assert "there is no group nobody" in groups(gateway, "describe", "nobody", code=1).stderr

    def test_pages_hold_every_partition_once(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "wide", 25)
        groups(gateway, "reset", "g", "--topic", "wide", "--topic", "orders", "--to-latest", "--execute")
        whole = ask(gateway.data_dir, DescribeGroupRequest("g")).partitions
        assert len(whole) == 27
        answer = ask(gateway.data_dir, DescribeGroupRequest("g", limit=7))
        assert answer.complete
        assert [(row.topic, row.partition) for row in answer.partitions] == [
            (row.topic, row.partition) for row in whole
        ]


class TestReset:
    @pytest.mark.parametrize(
        ("target", "first", "second"),
        [
            (["--to-earliest"], (3, None), (0, None)),
            (["--to-latest"], (10, None), (10, None)),
            (["--to-offset", "5"], (5, None), (5, None)),
            (["--to-offset", "1"], (3, "clamped to the log start"), (1, None)),
            (["--to-offset", "11"], (10, "clamped to the log end"), (10, "clamped to the log end")),
            (["--shift-by", "-4"], (3, "clamped to the log start"), (4, None)),
            (["--shift-by", "2"], (7, None), (10, None)),
            (["--shift-by=3"], (8, None), (10, "clamped to the log end")),
            (["--to-timestamp", str(DEFAULT_TIMESTAMP + 601)], (7, None), (7, None)),
            (["--to-timestamp", "2001-01-01T00:00:00Z"], (3, None), (0, None)),
            (
                ["--to-timestamp", "2900-01-01"],
                (10, "no record is so late: the log end"),
                (10, "no record is so late: the log end"),
            ),
        ],
    )
    def test_to(
        self,
        gateway: GatewayProcess,
        target: list[str],
        first: tuple[int, str | None],
        second: tuple[int, str | None],
    ) -> None:
        before = {("orders", 0): 5, ("orders", 1): 8}
        commit(gateway, "billing", *(TopicPartition(*place, offset) for place, offset in before.items()))
        asked = ("billing", "--all-topics", *target)
        told = groups(gateway, "reset", *asked, "--json").json
        assert (told["executed"], told["state"]) == (False, "Empty")
        assert [(change["new_offset"], change["note"]) for change in told["changes"]] == [first, second]
        assert "Nothing is changed. --yes does it" in groups(gateway, "reset", *asked, code=1).stdout
        assert "to commit: 2 partitions." in groups(gateway, "reset", *asked, "--dry-run").stdout
        assert offsets_of(gateway, "billing") == before
        shown = groups(gateway, "reset", *asked, "--execute").stdout
        assert "in 2 partitions are committed" in shown
        assert offsets_of(gateway, "billing") == {("orders", 0): first[0], ("orders", 1): second[0]}
        gateway.restart(kill=True)
        assert offsets_of(gateway, "billing") == {("orders", 0): first[0], ("orders", 1): second[0]}

    def test_only_the_partitions_named(self, gateway: GatewayProcess) -> None:
        commit(gateway, "billing", TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 8))
        groups(
            gateway,
            "reset",
            "billing",
            "--topic",
            "orders:1",
            "--topic",
            "flights",
            "--to-earliest",
            "--execute",
        )
        assert offsets_of(gateway, "billing") == {("orders", 0): 5, ("orders", 1): 0, ("flights", 0): 0}

    def test_the_next_consumer_reads_from_there(self, gateway: GatewayProcess) -> None:
        with consuming(gateway, "billing"):
            pass
        groups(gateway, "reset", "billing", "--topic", "orders:0", "--to-earliest", "--execute")
        with consuming_from(gateway, "billing") as consumer:
            read = consumer.consume(7, WAIT_S)
            assert [(message.partition(), message.offset()) for message in read] == [
                (0, offset) for offset in range(3, 10)
            ]

    def test_a_group_that_does_not_exist_yet(self, gateway: GatewayProcess) -> None:
        asked = ("new", "--topic", "orders:0", "--to-offset", "6")
        assert "Group new does not exist yet." in groups(gateway, "reset", *asked, "--dry-run").stdout
        assert "there is no group new" in groups(gateway, "describe", "new", code=1).stderr
        assert "Group new did not exist." in groups(gateway, "reset", *asked, "--execute").stdout
        with consuming_from(gateway, "new") as consumer:
            read = consumer.consume(4, WAIT_S)
            assert [(message.partition(), message.offset()) for message in read] == [
                (0, offset) for offset in range(6, 10)
            ]

    def test_is_refused_while_somebody_is_in_the_group(self, gateway: GatewayProcess) -> None:
        with consuming(gateway, "billing"):
            for more in ((), ("--execute",)):
                refused = groups(gateway, "reset", "billing", "--all-topics", "--to-earliest", *more, code=1)
                assert "group billing is in use: 1 member, state Stable" in refused.stderr
        assert offsets_of(gateway, "billing") == {("orders", 0): 10, ("orders", 1): 10}

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--all-topics", "--to-latest"], "group g has no committed offsets"),
            (["--topic", "nothing", "--to-latest"], "there is no topic nothing"),
            (["--topic", "orders:7", "--to-latest"], "topic orders has no partition 7"),
            (["--topic", "orders:0", "--shift-by", "1"], "no committed offset in orders-0 that could be"),
        ],
    )
    def test_is_refused(self, gateway: GatewayProcess, arguments: list[str], sentence: str) -> None:
        assert sentence in groups(gateway, "reset", "g", *arguments, "--execute", code=1).stderr
        assert groups(gateway, "list", "--json").json["groups"] == []

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--to-latest"], "either topics with --topic, or --all-topics"),
            (["--topic", "a", "--all-topics", "--to-latest"], "either topics with --topic, or --all-topics"),
            (["--all-topics"], "exactly one of --to-earliest"),
            (["--all-topics", "--to-latest", "--shift-by", "0"], "exactly one of --to-earliest"),
            (["--all-topics", "--to-timestamp", "soon"], "'soon' is not a valid time"),
            (["--topic", "orders:x", "--to-latest"], "write TOPIC:0,3"),
        ],
    )
    def test_is_misused(self, tmp_path: Path, arguments: list[str], sentence: str) -> None:
        refused = seqgate("groups", "reset", "g", *arguments, "--data-dir", tmp_path, code=2)
        assert sentence in refused.stderr


@contextmanager
def consuming_from(gateway: GatewayProcess, group: str) -> Iterator[Consumer]:
    """Yield a member of the group that reads from the committed offsets on."""
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": group, "auto.offset.reset": "latest"}
    )
    consumer.subscribe(["orders"])
    try:
        yield consumer
    finally:
        consumer.close()


class TestDelete:
    def test_groups_go_with_their_offsets(self, gateway: GatewayProcess) -> None:
        for name in ("a", "b", "c"):
            commit(gateway, name, TopicPartition("orders", 0, 5))
        shown = groups(gateway, "delete", "a", "b", "--dry-run").stdout
        assert shown.count("would be deleted") == 2
        assert "Nothing is changed. --yes does it" in groups(gateway, "delete", "a", "b", code=1).stdout
        assert len(groups(gateway, "list", "--json").json["groups"]) == 3
        told = groups(gateway, "delete", "a", "b", "--execute", "--json").json["groups"]
        expected = {"state": "Empty", "committed_partitions": 1, "deleted": True, "refusal": None}
        assert told == [{"group": "a", **expected}, {"group": "b", **expected}]
        gateway.restart(kill=True)
        assert [row["group"] for row in groups(gateway, "list", "--json").json["groups"]] == ["c"]

    def test_others_go_when_one_can_not(self, gateway: GatewayProcess) -> None:
        commit(gateway, "idle", TopicPartition("orders", 0, 5))
        with consuming(gateway, "billing"):
            refused = groups(gateway, "delete", "nobody", "billing", "idle", "--execute", code=1)
            assert "seqgate: there is no group nobody\n" in refused.stderr
            assert "seqgate: group billing is in use: 1 member" in refused.stderr
            (left,) = groups(gateway, "list", "--json").json["groups"]
            assert (left["group"], left["state"]) == ("billing", "Stable")


class TestConsumerProtocol:
    """Groups whose partitions the gateway assigns (KIP-848)."""

    def test_is_told_guarded_and_deleted_as_a_classic_one(self, gateway: GatewayProcess) -> None:
        with consuming(gateway, "modern", **{"group.protocol": "consumer"}) as consumer:
            (row,) = groups(gateway, "list", "--json").json["groups"]
            assert (row["type"], row["state"], row["protocol_type"]) == ("consumer", "Stable", "consumer")
            assert (row["members"], row["committed_partitions"], row["total_lag"]) == (1, 2, 0)
            assert groups(gateway, "list", "--state", "reconciling", "--json").json["groups"] == []
            told = groups(gateway, "describe", "modern", "--json").json
            (member,) = told["members"]
            assert (member["member_id"], member["client_id"]) == (consumer.memberid(), "app")
            assert member["assignment"] == {"orders": [0, 1]}
            assert {row["member_id"] for row in told["partitions"]} == {consumer.memberid()}
            for command in (("reset", "modern", "--all-topics", "--to-earliest"), ("delete", "modern")):
                refused = groups(gateway, *command, "--execute", code=1)
                assert "group modern is in use: 1 member, state Stable" in refused.stderr
        groups(gateway, "reset", "modern", "--all-topics", "--to-offset", "4", "--execute")
        assert offsets_of(gateway, "modern") == {("orders", 0): 4, ("orders", 1): 4}
        groups(gateway, "delete", "modern", "--execute")
        assert groups(gateway, "list", "--json").json["groups"] == []


class TestAgainstKafkasTool:
    def test_reset_agrees(self, gateway: GatewayProcess) -> None:
        commit(gateway, "billing", TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 8))
        for target in (["--shift-by", "-4"], ["--to-offset", "99"]):
            done = run_tool(
                "kafka-consumer-groups",
                "--bootstrap-server",
                gateway.bootstrap,
                *("--reset-offsets", "--dry-run", "--group", "billing", "--all-topics"),
                *target,
            ).expect_success()
            rows = (line.split() for line in done.stdout.splitlines())
            wanted = {(row[1], int(row[2])): int(row[3]) for row in rows if row[:1] == ["billing"]}
            changes = groups(gateway, "reset", "billing", "--all-topics", *target, "--json").json["changes"]
            assert {
                (change["topic"], change["partition"]): change["new_offset"] for change in changes
            } == wanted

    def test_describe_agrees(self, gateway: GatewayProcess) -> None:
        with consuming(gateway, "billing"):
            done = run_tool(
                "kafka-consumer-groups",
                *("--bootstrap-server", gateway.bootstrap, "--describe", "--group", "billing"),
            ).expect_success()
            rows = [line.split()[:7] for line in done.stdout.splitlines() if line.startswith("billing")]
            told = groups(gateway, "describe", "billing", "--json").json["partitions"]
            assert sorted(rows) == [
                [
                    "billing",
                    *(
                        str(row[name])
                        for name in (
                            "topic",
                            "partition",
                            "committed_offset",
                            "high_watermark",
                            "lag",
                            "member_id",
                        )
                    ),
                ]
                for row in told
            ]


@pytest.mark.parametrize(
    "command", [["list"], ["describe", "g"], ["reset", "g", "--all-topics", "--to-latest"], ["delete", "g"]]
)
def test_the_gateway_must_run(tmp_path: Path, command: list[str]) -> None:
    refused = seqgate("groups", *command, "--data-dir", tmp_path, code=1)
    assert f"no gateway is running on {tmp_path}; start it, or name its data directory" in refused.stderr


def test_pages_have_a_size(gateway: GatewayProcess) -> None:
    for request in (ListGroupsRequest(limit=0), DescribeGroupRequest("g", limit=10_001)):
        with pytest.raises(ControlError, match="limit must be between 1 and 10000, not"):
            ask(gateway.data_dir, request)
