"""A power cut loses what was not flushed, and nothing else; the logs are sound after it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seqgate.gateway.testing import Broker
from seqgate.gateway.testing.inside import DurablePart
from tests.gateway.testing.exchanges import batch, eventually, initialise, produce, produce_on, values
from tests.support.wire import Closed, Wire

TRANSACTIONAL = 16
FLUSH = {"log.flush.interval.messages": "1"}


def test_without_a_flush_unflushed_records_are_lost_and_offsets_begin_again() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        for number in range(5):
            produce(broker, b"%d" % number)
        broker.power_cut()
        broker.start()
        assert values(broker) == []
        assert broker.producers("t") == []
        assert produce(broker, b"again")["base_offset"] == 0
        assert values(broker) == [b"again"]


def test_what_a_clean_stop_flushed_survives() -> None:
    with Broker() as broker:
        produce(broker, b"kept")
        broker.restart()
        produce(broker, b"lost")
        broker.power_cut()
        broker.start()
        assert values(broker) == [b"kept"]
        assert produce(broker, b"next")["base_offset"] == 1


@pytest.mark.tier("all")
def test_with_a_flush_for_each_answer_no_acknowledged_record_is_lost() -> None:
    """Several producers send while the power fails, three times."""
    with Broker(settings=FLUSH) as broker:
        broker.create_topic("t", partitions=4)
        acknowledged: list[bytes] = []

        def send(partition: int, turn: int) -> None:
            try:
                with Wire(broker.bootstrap) as wire:
                    number = 0
                    while True:
                        value = b"%d-%d-%d" % (turn, partition, number)
                        row = produce_on(wire, batch(value), partition=partition)
                        if row["error_code"] == 0:
                            acknowledged.append(value)
                        number += 1
            except (Closed, OSError):
                return

        for turn in range(3):
            threads = [threading.Thread(target=send, args=(each, turn)) for each in range(4)]
            before = len(acknowledged)
            for thread in threads:
                thread.start()
            eventually(lambda before=before: len(acknowledged) >= before + 200, "200 answers")  # type: ignore[misc]
            broker.power_cut()
            for thread in threads:
                thread.join()
            broker.start()
            stored = values(broker)
            assert set(acknowledged) <= set(stored)
            assert len(stored) == len(set(stored))


def test_segments_beyond_the_cut_go_and_the_log_is_sound() -> None:
    """A segment is flushed when the next one begins, as in Kafka; the records of the last one are lost."""
    with Broker() as broker:
        broker.create_topic("t", configs={"segment.bytes": "1048576"})
        sent = [b"%d" % number * 500_000 for number in range(8)]
        with Wire(broker.bootstrap) as wire:
            for value in sent:
                assert produce_on(wire, batch(value))["error_code"] == 0
        broker.power_cut()
        broker.start()
        kept = values(broker)
        assert len(kept) < len(sent)
        assert kept == sent[: len(kept)]
        for number in range(4):
            assert produce(broker, b"%d" % number * 500_000)["base_offset"] == len(kept) + number
        broker.restart()
        assert len(values(broker)) == len(kept) + 4


def test_the_first_segment_stays_when_nothing_in_it_is_durable(tmp_path: Path) -> None:
    """DeleteRecords and rolling leave a log that begins above 0."""
    segment = tmp_path / f"{100:020}.log"
    segment.write_bytes(batch(b"x", base_offset=100))
    (tmp_path / f"{101:020}.log").write_bytes(batch(b"y", base_offset=101))
    (tmp_path / f"{101:020}.index").write_bytes(b"")
    DurablePart(tmp_path, 100).lose_the_rest()
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [(segment.name, 0)]


@pytest.mark.parametrize("settings", [{}, FLUSH])
def test_a_producer_continues_with_the_sequence_that_survived(settings: dict[str, str]) -> None:
    with Broker(settings=settings) as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap) as wire:
            producer_id, epoch = initialise(wire)
        named = {"producer_id": producer_id, "producer_epoch": epoch}
        produce(broker, b"one", **named, base_sequence=0)
        broker.restart()
        produce(broker, b"two", **named, base_sequence=1)
        broker.power_cut()
        broker.start()
        survived = 1 if settings else 0
        assert [row.last_sequence for row in broker.producers("t")] == [survived]
        again = produce(broker, b"two", **named, base_sequence=1)
        assert (again["error_code"], again["base_offset"]) == (0, 1)
        broker.assert_exactly_once("t", [b"one", b"two"])


def test_an_open_transaction_is_lost_or_can_be_ended() -> None:
    with Broker(settings=FLUSH) as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap) as wire:
            producer_id, epoch = initialise(wire, "x")
            added = wire.call(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[{"name": "t", "partitions": [0]}],
            ).fields
            assert (
                added["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"]
                == 0
            )
            records = batch(
                b"open",
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                attributes=TRANSACTIONAL,
            )
            assert produce_on(wire, records, transactional_id="x")["error_code"] == 0
        broker.power_cut()
        broker.start()
        assert values(broker) == []
        assert broker.producers("t")[0].has_open_transaction
        broker.faults.fence("x")
        eventually(lambda: not broker.producers("t")[0].has_open_transaction, "the transaction is aborted")
        produce(broker, b"after")
        assert values(broker) == [b"after"]


def test_topics_survive_and_faults_stay() -> None:
    with Broker(settings=FLUSH) as broker:
        broker.create_topic("t")
        fault = broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce")
        broker.power_cut()
        broker.start()
        assert broker.topics() == ["t"]
        assert produce(broker, b"x")["error_code"] == 19
        assert fault.struck == 1
