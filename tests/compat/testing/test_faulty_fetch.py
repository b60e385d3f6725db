"""Consumers of three client libraries read each record once, whatever fault strikes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import confluent_kafka
import pytest

from seqgate.gateway.testing import Broker, Fault
from tests.compat.testing.clients import CONSUMERS, LIMIT_S, produce_with_confluent_kafka

VALUES = [b"%d" % number for number in range(300)]
Order = Callable[[Broker], AbstractContextManager[Fault]]
ORDERS: dict[str, Order] = {
    "drop_answer": lambda broker: broker.faults.drop_answer(api="Fetch", topic="t", times=2),
    "close": lambda broker: broker.faults.close(api="Fetch", topic="t", times=2),
    "delay": lambda broker: broker.faults.delay(100, api="Fetch", times=3),
    "throttle": lambda broker: broker.faults.throttle(100, api="Fetch", times=2),
    "coordinator_moves": lambda broker: broker.faults.coordinator_moves(api="JoinGroup"),
    "coordinator_moves_late": lambda broker: broker.faults.coordinator_moves(),
    "no_coordinator": lambda broker: broker.faults.error("COORDINATOR_NOT_AVAILABLE", api="FindCoordinator"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic("t")
    produce_with_confluent_kafka(shared.bootstrap, "t", VALUES)
    return shared


@pytest.mark.parametrize("client", CONSUMERS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_fault_strikes_and_every_record_is_read_once(broker: Broker, client: str, order: str) -> None:
    with ORDERS[order](broker) as fault:
        assert CONSUMERS[client](broker.bootstrap, "t", len(VALUES)) == VALUES
    assert fault.struck > 0
    assert broker.groups() == {client: "Empty"}


def test_a_spoiled_batch_is_noticed_and_read_again(broker: Broker) -> None:
    """confluent-kafka with check.crcs; other libraries raise an error to the application, or read the batch
    again.
    """
    with broker.faults.corrupt(topic="t") as fault:
        assert CONSUMERS["confluent-kafka"](broker.bootstrap, "t", len(VALUES)) == VALUES
    assert fault.struck == 1


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_a_spoiled_batch_is_never_taken_for_a_good_one(broker: Broker, client: str) -> None:
    with broker.faults.corrupt(topic="t") as fault, contextlib.suppress(Exception):
        assert CONSUMERS[client](broker.bootstrap, "t", len(VALUES)) == VALUES
    assert fault.struck == 1


def test_a_transaction_is_committed_once_although_its_answer_is_lost(broker: Broker) -> None:
    producer = _transactional(broker)
    producer.begin_transaction()
    producer.produce("t", b"one more")
    with broker.faults.drop_answer(api="EndTxn") as fault:
        producer.commit_transaction(LIMIT_S)
    assert fault.struck == 1
    producer.begin_transaction()
    producer.produce("t", b"never")
    producer.abort_transaction(LIMIT_S)
    broker.assert_exactly_once("t", [*VALUES, b"one more"])


def test_a_fenced_producer_learns_it(broker: Broker) -> None:
    producer = _transactional(broker)
    producer.begin_transaction()
    producer.produce("t", b"never")
    producer.flush(LIMIT_S)
    broker.faults.fence("x")
    with pytest.raises(confluent_kafka.KafkaException, match=r"FENCED|fenced|epoch"):
        producer.commit_transaction(LIMIT_S)
    broker.assert_exactly_once("t", VALUES)


def test_a_consumer_that_stands_still_loses_its_place(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    with broker.faults.close(api="Heartbeat", times=99):
        while consumer.poll(0.1) is None:
            pass
        assert broker.groups()["g"] == "Stable"
        broker.clock.advance(minutes=5)
        while broker.groups()["g"] == "Stable":
            consumer.poll(0.1)
    while broker.groups()["g"] != "Stable":
        consumer.poll(0.1)
    consumer.close()


def _transactional(broker: Broker) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(LIMIT_S)
    return producer
