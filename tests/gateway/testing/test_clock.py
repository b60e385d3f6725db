"""What happens in a broker when a test moves its clock."""

from __future__ import annotations

import time

import pytest

from seqgate.gateway.testing import Broker
from tests.gateway.testing.exchanges import batch, eventually, initialise, produce, produce_on, values
from tests.support.wire import Wire

TRANSACTIONAL = 16


def test_retention_removes_old_records_with_its_next_pass(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": "3600000"})
    produce(broker, b"old", base_timestamp=round(time.time() * 1000))
    broker.clock.advance(minutes=50)
    produce(broker, b"still there")
    assert values(broker) == [b"old", b"still there"]
    broker.clock.advance(hours=2)
    eventually(lambda: values(broker) == [], "retention has removed all records")
    row = produce(broker, b"new", base_timestamp=round((time.time() + 10_200) * 1000))
    assert row["base_offset"] == 2
    assert values(broker) == [b"new"]


def test_a_transaction_times_out(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        producer_id, epoch = initialise(wire, "x", timeout_ms=60_000)
        wire.call(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )
        named = {"producer_id": producer_id, "producer_epoch": epoch, "attributes": TRANSACTIONAL}
        produce_on(wire, batch(b"open", **named, base_sequence=0), transactional_id="x")
        broker.clock.advance(seconds=59)
        assert broker.producers("t")[0].has_open_transaction
        broker.clock.advance(seconds=2)
        eventually(lambda: not broker.producers("t")[0].has_open_transaction, "the transaction is aborted")
        late = produce_on(wire, batch(b"late", **named, base_sequence=1), transactional_id="x")
        assert late["error_code"] != 0
    assert values(broker) == []


def test_a_member_of_a_group_loses_its_session(broker: Broker) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        request = {
            "group_id": "g",
            "session_timeout": 45_000,
            "rebalance_timeout": 45_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        eventually(
            lambda: wire.call("join_group", 3, {**request, "member_id": ""}).fields["error_code"] == 0,
            "the member has joined",
        )
        assert broker.groups()["g"] == "CompletingRebalance"
        broker.clock.advance(seconds=30)
        assert broker.groups()["g"] == "CompletingRebalance"
        broker.clock.advance(seconds=30)
        eventually(lambda: broker.groups()["g"] == "Empty", "the session of the member is over")


def test_an_idle_producer_is_forgotten(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        producer_id, epoch = initialise(wire)
    produce(broker, b"one", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    assert [row.producer_id for row in broker.producers("t")] == [producer_id]
    broker.clock.advance(days=2)
    eventually(lambda: broker.producers("t") == [], "the producer is forgotten")
    assert values(broker) == [b"one"]


def test_the_clock_of_a_stopped_broker_moves_as_well_and_only_forward() -> None:
    with Broker() as broker:
        broker.create_topic("t", configs={"retention.ms": "3600000"})
        produce(broker, b"old", base_timestamp=round(time.time() * 1000))
        broker.stop()
        broker.clock.advance(days=1)
        broker.start()
        broker.clock.advance(minutes=10)
        eventually(lambda: values(broker) == [], "retention has removed all records")
        with pytest.raises(ValueError, match="the clock only moves forward, not by -1 day"):
            broker.clock.advance(days=-1)


def test_many_small_steps_are_one_large_step(broker: Broker) -> None:
    broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    produce(broker, b"before")
    for _ in range(500):
        broker.clock.advance(milliseconds=7_200)
    produce(broker, b"after")
    before, after = (record.timestamp for record in broker.records("t"))
    assert 3_600_000 <= after - before < 3_660_000
