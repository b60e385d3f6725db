"""`seqgate names` on a running gateway, and on a stopped one."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.topics import fresh_topic
from tests.support.batches import Batch
from tests.support.gateway_process import GatewayProcess
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.wire import Wire
from tests.system.commands.conftest import seqgate


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("names") / "data") as process:
        yield process


def produce(bootstrap: str, topic: str, batch: Batch) -> tuple[int, int]:
    """Produce a batch; return the error code and base offset of the answer."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]
    with Wire(bootstrap) as wire:
        answer = wire.call("produce", 9, acks=-1, timeout=10_000, topic_data=data).fields
    (row,) = answer["responses"][0]["partition_responses"]
    return row["error_code"], row["base_offset"]


def test_names_and_what_became_of_records(gateway: GatewayProcess) -> None:
    topic = fresh_topic(gateway.bootstrap, "ledger", configs=DEDUPLICATED)
    assert produce(gateway.bootstrap, topic, named("Köln", 1, 2, 3)) == (0, 0)
    assert produce(gateway.bootstrap, topic, named("Köln", 2, 3)) == (0, -1)
    assert produce(gateway.bootstrap, topic, named(b"\xff\x1b[31m", 8, epoch=5)) == (0, 3)
    told = seqgate("names", topic, "--json", "--data-dir", gateway.data_dir).json
    by_name = {base64.b64decode(row["name_base64"]): row for row in told["names"]}
    row = by_name["Köln".encode()]
    assert (row["topic"], row["partition"], row["name"]) == (topic, 0, "Köln")
    assert (row["persisted_sequence"], row["pushed_sequence"], row["epoch"]) == (3, 3, -1)
    assert (row["is_pending"], row["age_ms"] >= 0, row["dropped_records"]) == (False, True, 2)
    told_of_other = by_name[b"\xff\x1b[31m"]
    assert (told_of_other["epoch"], told_of_other["dropped_records"]) == (5, 0)
    assert (told["counters"]["remembered"], told["counters"]["dropped_records"]) == (2, 2)
    assert (told["gateway"], told["untold"]) == ("running", [])
    shown = seqgate("names", "--data-dir", gateway.data_dir).stdout
    assert "Köln" in shown
    assert "\x1b" not in shown
    assert "2 records acknowledged but not stored" in shown
    one = seqgate("names", topic, "--name", "Köln", "--partition", "0", "--data-dir", gateway.data_dir).stdout
    assert "Köln" in one
    assert "31m" not in one
    status = seqgate("status", "--data-dir", gateway.data_dir).stdout
    assert "2 tracked, 2 records dropped as duplicates" in status


def test_a_gateway_that_was_killed_knows_them_again(gateway: GatewayProcess) -> None:
    topic = fresh_topic(gateway.bootstrap, "ledger", partitions=2, configs=DEDUPLICATED)
    for sequence_id in range(5):
        assert produce(gateway.bootstrap, topic, named("reader", sequence_id)) == (0, sequence_id)
    gateway.restart(kill=True)
    told = seqgate("names", topic, "--json", "--data-dir", gateway.data_dir).json
    assert [(row["name"], row["persisted_sequence"]) for row in told["names"]] == [("reader", 4)]
    assert produce(gateway.bootstrap, topic, named("reader", 4)) == (0, -1)


def test_a_topic_that_remembers_no_names(gateway: GatewayProcess) -> None:
    topic = fresh_topic(gateway.bootstrap, "plain")
    refused = seqgate("names", topic, "--data-dir", gateway.data_dir, code=1)
    assert "message.deduplication.enable" in refused.stderr


def test_a_partition_is_one_of_a_topic(gateway: GatewayProcess) -> None:
    assert "TOPIC" in seqgate("names", "--partition", "0", "--data-dir", gateway.data_dir, code=2).stderr


def test_a_gateway_that_was_stopped_left_them(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        topic = fresh_topic(gateway.bootstrap, "ledger", configs=DEDUPLICATED)
        assert produce(gateway.bootstrap, topic, named("b", 1, 2, epoch=3)) == (0, 0)
        assert produce(gateway.bootstrap, topic, named("a", 777_777)) == (0, 2)
        unused = fresh_topic(gateway.bootstrap, "unused", configs=DEDUPLICATED)
        gateway.stop()
        told = seqgate("names", topic, "--json", "--data-dir", gateway.data_dir).json
        assert (told["gateway"], told["counters"]) == ("stopped", None)
        assert [(row["name"], row["persisted_sequence"], row["epoch"]) for row in told["names"]] == [
            ("a", 777_777, -1),
            ("b", 2, 3),
        ]
        assert {row["dropped_records"] for row in told["names"]} == {-1}
        one = seqgate("names", "--name", "b", "--data-dir", gateway.data_dir).stdout
        assert "not running" in one
        assert "777777" not in one
        refused = seqgate("names", "nowhere", "--data-dir", gateway.data_dir, code=1)
        assert "no topic nowhere" in refused.stderr
        refused = seqgate("names", topic, "--partition", "7", "--data-dir", gateway.data_dir, code=1)
        assert "no partition 7" in refused.stderr
        assert seqgate("names", unused, "--json", "--data-dir", gateway.data_dir).json["names"] == []


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    refused = seqgate("names", "--data-dir", tmp_path, code=1).stderr
    assert "no data directory" in refused
    assert "Redis" not in refused
