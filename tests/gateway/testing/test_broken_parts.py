"""A partition offline, a full disk, a forgotten producer, a fenced one; and blocks that end when the broker
has changed.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from seqgate.gateway.testing import Broker
from tests.gateway.testing.exchanges import batch, initialise, produce, produce_on, values
from tests.support.wire import Wire

KAFKA_STORAGE_ERROR = 56
INVALID_PRODUCER_EPOCH = 47
PRODUCER_FENCED = 90


def test_a_partition_is_offline_and_comes_back_with_its_records(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    produce(broker, b"before")
    with Wire(broker.bootstrap) as wire, broker.faults.partition_offline("t") as offline:
        assert produce_on(wire, batch(b"x"))["error_code"] == KAFKA_STORAGE_ERROR
        assert produce_on(wire, batch(b"y"), partition=1)["error_code"] == 0
        assert offline.struck == 2
        with broker.faults.partition_offline("t"):
            pass
    assert produce(broker, b"after")["base_offset"] == 1
    assert values(broker) == [b"before", b"after", b"y"]
    with (
        pytest.raises(LookupError, match="there is no partition t-2"),
        broker.faults.partition_offline("t", 2),
    ):
        pass


def test_a_full_disk_refuses_producers_and_loses_nothing(broker: Broker) -> None:
    produce(broker, b"before")
    with broker.faults.disk_full() as full:
        assert produce(broker, b"x")["error_code"] == KAFKA_STORAGE_ERROR
        assert values(broker) == [b"before"]
        assert full.struck == 1
    assert produce(broker, b"after")["base_offset"] == 1


@pytest.mark.parametrize("change", ["stop", "kill", "restart", "reset", "close"])
def test_a_block_ends_when_the_broker_has_changed_meanwhile(broker: Broker, change: str) -> None:
    broker.create_topic("t")
    with broker.faults.partition_offline("t"), broker.faults.disk_full():
        getattr(broker, change)()
    if not broker.is_running:
        broker.start()
    assert produce(broker, b"x")["error_code"] == 0


def test_a_forgotten_producer_begins_again(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    with Wire(broker.bootstrap) as wire:
        producer_id, epoch = initialise(wire)
        named = {"producer_id": producer_id, "producer_epoch": epoch}
        for partition in range(2):
            produce_on(wire, batch(b"one", **named, base_sequence=0), partition=partition)
        assert broker.faults.expire_producer(producer_id) == 2
        assert broker.faults.expire_producer(producer_id) == 0
        assert broker.producers("t") == []
        # Neither broker nor Kafka knows the first batch any more, so the retry is stored a second time.
        assert produce_on(wire, batch(b"one", **named, base_sequence=0))["base_offset"] == 1
        later = batch(b"later", **named, base_sequence=7)
        assert produce_on(wire, later, partition=1)["base_offset"] == 1, "a new producer begins anywhere"
    with pytest.raises(AssertionError, match="1 doubled: 'one'"):
        broker.assert_exactly_once("t", [b"one", b"one", b"later"])


def test_a_fenced_producer_is_refused(broker: Broker) -> None:
    with pytest.raises(LookupError, match="there is no transactional id 'x'"):
        broker.faults.fence("x")
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        producer_id, epoch = initialise(wire, "x")
        broker.faults.fence("x")
        request = {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        }
        answer = wire.call("add_partitions_to_txn", 3, request).fields
    row = answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]
    assert row["partition_error_code"] in {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
    with pytest.raises(LookupError, match="there is no transactional id 'y'"):
        broker.faults.fence("y")
    with ExitStack() as offline:
        for partition in broker.partitions("__transaction_state"):
            offline.enter_context(broker.faults.partition_offline("__transaction_state", partition))
        with pytest.raises(ValueError, match="transactional id 'x' can't be fenced: "):
            broker.faults.fence("x")


def test_parts_are_broken_while_requests_run(broker: Broker) -> None:
    """No request is lost or doubled while a partition goes and comes, and faults are ordered from another
    thread.
    """
    broker.create_topic("t")
    acknowledged: list[bytes] = []
    ends = threading.Event()

    def send() -> None:
        with Wire(broker.bootstrap) as wire:
            number = 0
            while not ends.is_set():
                value = b"%d" % number
                row = produce_on(wire, batch(value))
                if row["error_code"] == 0:
                    acknowledged.append(value)
                number += 1

    sending = threading.Thread(target=send)
    sending.start()
    for _ in range(20):
        with broker.faults.partition_offline("t") as offline:
            offline.wait_until_struck()
        with broker.faults.disk_full() as full:
            full.wait_until_struck()
        with broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", times=3) as refused:
            refused.wait_until_struck(3)
    ends.set()
    sending.join()
    broker.assert_exactly_once("t", acknowledged)
