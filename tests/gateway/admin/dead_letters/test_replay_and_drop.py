from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from seqgate.gateway.admin import configs, dead_letters
from seqgate.gateway.admin.dead_letters import (
    REPLAYED,
    LetterCut,
    LetterFilter,
    ReplayPlan,
    ReplayReport,
    drop_letters,
    find_letters,
    plan_cuts,
    replay_letters,
)
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.testing import Broker

ALL = LetterFilter()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("dlq", partitions=2, configs={"errors.deadletterqueue.group.enable": "true"})
        yield broker


@contextmanager
def cluster_of(broker: Broker) -> Iterator[Cluster]:
    host, port = broker.bootstrap.split(":")
    with connected([(host, int(port))]) as cluster:
        yield cluster


def write(
    broker: Broker,
    offset: int,
    *own: tuple[str, bytes],
    partition: int = 0,
    source: str = "orders",
    value: bytes | None = None,
    group: str = "billing",
) -> None:
    """Write the letter of the record at an offset of partition 0 of its topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    texts = {"topic": source, "partition": "0", "offset": str(offset), "group": group, "message": "no"}
    headers = [*own, *((f"__dlq.errors.{name}", text.encode()) for name, text in texts.items())]
    producer.produce("dlq", value or b"v%d" % offset, headers=headers, partition=partition)
    assert producer.flush(60) == 0


def replay(broker: Broker, chosen: LetterFilter = ALL, limit: int | None = None) -> ReplayReport:
    with cluster_of(broker) as cluster:
        return replay_letters(cluster, "dlq", chosen, limit)


def sent(report: ReplayReport) -> dict[str, int]:
    return {row.topic: row.records for row in report.replayed}


def test_the_notes_outlive_every_choice_of_letters(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_AT_ONCE", 2)
    for offset in range(6):
        write(broker, offset, partition=offset % 2, group="billing" if offset < 5 else "other")
    assert sent(replay(broker, LetterFilter(group="other"))) == {"orders": 1}
    assert sent(replay(broker, limit=2)) == {"orders": 2}
    assert (sent(report := replay(broker)), report.already_replayed) == ({"orders": 3}, 3)
    assert (sent(report := replay(broker)), report.already_replayed) == ({}, 6)
    found = [row.value for row in broker.records("orders")]
    assert sorted(map(str, found)) == sorted(str(b"v%d" % offset) for offset in range(6))
    with cluster_of(broker) as cluster:
        assert find_letters(cluster, "dlq", ALL)[1] == 0


def test_a_topic_that_deduplicates_by_names_takes_the_record_again(broker: Broker) -> None:
    broker.create_topic("named", configs={"message.deduplication.enable": "true"})
    names = [("dedup.name", b"loader"), ("dedup.sequence", b"3")]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("named", b"v3", headers=names)
    assert producer.flush(60) == 0
    write(broker, 0, *names, ("own", b"1"), source="named", value=b"v3")
    write(broker, 1, *names, ("own", b"1"))
    assert sent(replay(broker)) == {"named": 1, "orders": 1}
    assert sent(replay(broker)) == {}  # ends the transaction of the first
    assert [row.headers for row in broker.records("named")] == [tuple(names), (("own", b"1"),)]
    assert [row.headers for row in broker.records("orders")] == [(*names, ("own", b"1"))]


def test_a_record_that_its_topic_refuses_ends_the_replay_and_no_letter_is_lost(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_AT_ONCE", 2)
    broker.create_topic("small", configs={"max.message.bytes": "200"})
    for offset in range(3):
        write(broker, offset)
    write(broker, 3, source="small", value=b"x" * 300)
    with pytest.raises(ControlError, match=r"2 letters are replayed, and those from dlq-0@2 on are not"):
        replay(broker)
    only = LetterFilter(source_topic="orders")
    assert [sent(replay(broker, only)) for _ in range(2)] == [{"orders": 1}, {}]
    broker.assert_exactly_once("orders", [b"v0", b"v1", b"v2"])


def test_the_report_leaves_out_what_was_dropped_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(3):
        write(broker, offset)
    plan = dead_letters.plan_replay

    def planned_and_dropped(cluster: Cluster, topic: str, *chosen: Any) -> ReplayPlan:
        planned = plan(cluster, topic, *chosen)
        drop_letters(cluster, topic, [LetterCut(0, 0, 2)])
        return planned

    monkeypatch.setattr(dead_letters, "plan_replay", planned_and_dropped)
    assert sent(replay(broker)) == {"orders": 1}
    assert [row.value for row in broker.records("orders")] == [b"v2"]


def test_a_damaged_note_stops_the_replay(broker: Broker) -> None:
    write(broker, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("dlq", b"?", headers=[(REPLAYED, b"")], partition=0)
    assert producer.flush(60) == 0
    with pytest.raises(ControlError, match=f"dlq-0@1 has the header {REPLAYED}, but does not say"):
        replay(broker)
    assert broker.records("orders") == []


def test_where_a_drop_cuts(broker: Broker) -> None:
    for offset in range(4):
        write(broker, offset)
    assert [sent(replay(broker, limit=2)), sent(replay(broker, LetterFilter(group="none")))] == [
        {"orders": 2},
        {},
    ]
    middle = broker.records("dlq")[1].timestamp
    with cluster_of(broker) as cluster:

        def cuts(*given: int | None, replayed: bool = False) -> list[tuple[int, int]]:
            partition, before, until = given
            rows = plan_cuts(cluster, "dlq", partition, before, until, replayed=replayed)
            return [(row.partition, row.new_start_offset) for row in rows]

        assert cuts(None, None, None) == [(0, 6), (1, 0)]
        assert cuts(None, None, None, replayed=True) == [(0, 2), (1, 0)]
        assert cuts(0, None, middle) == [
            (0, next(row.offset for row in broker.records("dlq") if row.timestamp >= middle))
        ]
        assert cuts(0, 3, None) == [(0, 3)]
        assert cuts(0, 99, None) == [(0, 6)]
        with pytest.raises(
            ControlError, match=r"topic orders does not have .*, so it is no dead-letter topic"
        ):
            plan_cuts(cluster, "orders", None, None, None, replayed=False)
        with pytest.raises(ControlError, match="topic dlq has no partition 2, only 0 to 1"):
            cuts(2, 3, None)
        drop_letters(cluster, "dlq", [LetterCut(0, 0, 3)])
        assert cuts(0, 1, None) == [(0, 3)]


def test_without_the_configurations_of_a_topic_nothing_is_sent_to_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the topic might drop the record as a duplicate, and the note would hide the letter."""
    write(broker, 0)
    monkeypatch.setattr(configs, "described", lambda *_: {})  # as of a user without the right
    with pytest.raises(ControlError, match="the configurations of topic orders can't be read"):
        replay(broker)
    assert broker.records("orders") == []
