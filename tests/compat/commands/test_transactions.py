"""`seqgate transactions --bootstrap` and `seqgate producers --bootstrap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException, Producer

from tests.compat.commands.conftest import Peer

Fresh = Callable[[str], str]


@dataclass
class Open:
    """An open transaction of one record in partition 1 of a topic."""

    name: str
    topic: str
    producer: Producer


@pytest.fixture
def opened(peer: Peer, fresh: Fresh) -> Open:
    topic, name = fresh("ledger"), fresh("billing")
    peer.run("topics", "create", topic, "--partitions", "2")
    peer.run("produce", topic, "--partition", "1", stdin=b"before\n")
    producer = Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(30)
    return Open(name, topic, producer)


def test_an_open_transaction(peer: Peer, opened: Open, fresh: Fresh) -> None:
    listed = {row["transactional_id"]: row for row in peer.json("transactions", "list")["transactions"]}
    row = listed[opened.name]
    assert (row["state"], row["partition_count"], row["timeout_ms"]) == ("Ongoing", 1, 60_000)
    assert row["start_ms"] > 0
    described = peer.json("transactions", "describe", opened.name)
    assert described["producer_id"] == row["producer_id"]
    assert described["partitions"] == [
        {
            "topic": opened.topic,
            "partition": 1,
            "first_offset": 1,
            "last_stable_offset": 1,
            "high_watermark": 2,
        }
    ]
    assert "Ongoing" in peer.run("transactions", "describe", opened.name).stdout
    assert opened.name in peer.run("transactions", "list", "--state", "Ongoing").stdout
    assert opened.name not in peer.run("transactions", "list", "--state", "CompleteCommit").stdout
    assert opened.name not in peer.run("transactions", "list", "--longer-than", "1h").stdout
    idle = fresh("idle")
    Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": idle}).init_transactions(30)
    longer = peer.json("transactions", "list", "--longer-than", "0ms")["transactions"]
    assert {opened.name, idle} & {row["transactional_id"] for row in longer} == {opened.name}

    rows = peer.json("producers", "--topic", opened.topic, "--partition", "1")["producers"]
    (producer,) = [row for row in rows if row["producer_id"] == described["producer_id"]]
    assert (producer["last_sequence"], producer["current_txn_start_offset"]) == (0, 1)
    assert len(rows) == 2
    assert str(described["producer_id"]) in peer.run("producers", "--topic", opened.topic).stdout


def test_it_does_not_hang_and_is_aborted_by_its_name(peer: Peer, opened: Open) -> None:
    assert peer.json("transactions", "find-hanging", "--topic", opened.topic)["hanging"] == []
    place = ("--topic", opened.topic, "--partition", "1", "--start-offset", "1", "--yes")
    assert (
        f"takes part in the transaction of {opened.name}"
        in peer.run("transactions", "abort", *place, code=1).stderr
    )
    planned = peer.json("transactions", "abort", opened.name)
    assert (planned["executed"], planned["partition_count"]) == (False, 1)
    done = peer.json("transactions", "abort", opened.name, "--yes")
    assert (done["executed"], done["fenced_by"]["producer_id"] >= 0) == (True, True)
    assert peer.run("consume", opened.topic).stdout == "before\n"
    with pytest.raises(KafkaException):
        opened.producer.commit_transaction(30)
    assert "has no open transaction" in peer.run("transactions", "abort", opened.name, "--yes", code=1).stderr


def test_what_there_is_not(peer: Peer, opened: Open, fresh: Fresh) -> None:
    missing = fresh("missing")
    for command in ("describe", "abort"):
        assert peer.run("transactions", command, missing, code=1).stderr == (
            f"seqgate: there is no transactional id {missing}\n"
        )
    place = ("--topic", opened.topic, "--partition", "1", "--start-offset", "0", "--yes")
    assert f"{opened.topic}-1 has no open transaction that begins at offset 0" in (
        peer.run("transactions", "abort", *place, code=1).stderr
    )
    assert f"topic {opened.topic} has no partition 7" in (
        peer.run("producers", "--topic", opened.topic, "--partition", "7", code=1).stderr
    )
    assert "Lost is not a state" in peer.run("transactions", "list", "--state", "Lost", code=1).stderr
