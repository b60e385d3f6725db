"""The tests of the shipping application: what it does when its broker fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import shipping
from confluent_kafka import Producer
from shipping import AT_ONCE, ORDERS, SHIPMENTS, Shipping, shipment

from seqgate.testing import Broker

COUNT, PARTITIONS = 300, 3
LIMIT_S = 60.0


def order(number: int) -> bytes:
    return json.dumps({"order": number, "item": f"item-{number % 10}"}).encode()


SHIPPED = [shipment(order(number)) for number in range(COUNT)]


def with_topics(broker: Broker) -> Broker:
    """Create the topics of the application."""
    for topic in (ORDERS, SHIPMENTS):
        broker.create_topic(topic, partitions=PARTITIONS)
    return broker


def place_orders(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(ORDERS, order(number), partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0


def ship_all(application: Shipping, broker: Broker) -> None:
    """Let the application work until each order has a shipment and nothing is left to do."""
    deadline_s = time.monotonic() + LIMIT_S
    while application.step() or len(broker.records(SHIPMENTS)) < COUNT:
        assert time.monotonic() < deadline_s


@pytest.fixture
def broker(seqgate: Broker) -> Broker:
    """The session's broker, with both topics and nothing in them."""
    seqgate.reset()
    return with_topics(seqgate)


@pytest.fixture
def own_broker(seqgate_fresh: Broker) -> Broker:
    """A broker of its own for tests that kill it or move its clock."""
    return with_topics(seqgate_fresh)


def ship_with_one_instance(broker: Broker) -> None:
    with Shipping(broker.bootstrap, "shipping-1") as application:
        ship_all(application, broker)


def test_each_order_is_shipped_once(broker: Broker) -> None:
    place_orders(broker)
    ship_with_one_instance(broker)
    broker.assert_exactly_once(SHIPMENTS, SHIPPED)


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_a_lost_answer_ships_nothing_twice(broker: Broker, api: str) -> None:
    place_orders(broker)
    with broker.faults.drop_answer(api=api, times=2) as fault:
        ship_with_one_instance(broker)
    assert fault.struck == 2
    broker.assert_exactly_once(SHIPMENTS, SHIPPED)


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn"])
def test_the_coordinator_moves(broker: Broker, api: str) -> None:
    place_orders(broker)
    with broker.faults.coordinator_moves(api=api, times=2) as fault:
        ship_with_one_instance(broker)
    assert fault.struck == 2
    broker.assert_exactly_once(SHIPMENTS, SHIPPED)


@pytest.mark.parametrize("seed", range(3))
def test_anything_may_fail(broker: Broker, seed: int) -> None:
    place_orders(broker)
    with broker.faults.script(seed, rate=0.2, times=20) as script:
        print(script)
        ship_with_one_instance(broker)
    assert script.struck > 0
    broker.assert_exactly_once(SHIPMENTS, SHIPPED)


def test_the_broker_is_killed_between_transactions(own_broker: Broker) -> None:
    place_orders(own_broker)
    with Shipping(own_broker.bootstrap, "shipping-1") as application:
        deadline_s = time.monotonic() + LIMIT_S
        while application.step() == 0:
            assert time.monotonic() < deadline_s
        own_broker.kill()
        own_broker.start()
        ship_all(application, own_broker)
    own_broker.assert_exactly_once(SHIPMENTS, SHIPPED)


@pytest.fixture
def killed_instance(own_broker: Broker) -> Broker:
    """A broker at which an instance was killed that had committed one transaction, and left the next one
    open.
    """
    place_orders(own_broker)
    with own_broker.faults.close(api="EndTxn", after=1, times=100_000) as fault:
        program = Path(shipping.__file__)
        running = subprocess.Popen(  # noqa: S603 - the application itself
            [sys.executable, program, own_broker.bootstrap, "shipping-1"]
        )
        try:
            fault.wait_until_struck(timeout_s=LIMIT_S)
        finally:
            running.kill()
            running.wait()
    return own_broker


def test_another_instance_goes_on_when_the_session_of_the_killed_one_ends(killed_instance: Broker) -> None:
    assert 0 < len(killed_instance.records(SHIPMENTS)) <= AT_ONCE
    with Shipping(killed_instance.bootstrap, "shipping-2") as application:
        # Ends the session of the killed instance (45 s) and its transaction (60 s) without a wait.
        killed_instance.clock.advance(minutes=2)
        ship_all(application, killed_instance)
    killed_instance.assert_exactly_once(SHIPMENTS, SHIPPED)
