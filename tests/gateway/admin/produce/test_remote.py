from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from seqgate.gateway.admin.produce.command import ProducedRecord
from seqgate.gateway.admin.produce.remote import produce
from seqgate.gateway.admin.remote.cluster import connected
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.testing import Broker

WRONG = "line 2: no key separator ':' in the line"
WHOLE = ProducedRecord(b"whole")


def whole_then_wrong() -> Iterator[ProducedRecord]:
    yield WHOLE
    raise ControlError(WRONG)


def send(broker: Broker, records: Iterator[ProducedRecord]) -> None:
    broker.create_topic("lines")
    host, port = broker.bootstrap.split(":")
    with connected([(host, int(port))]) as cluster:
        produce(cluster, "lines", records, compression=None, at_once=False)


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "kafka-producer" in thread.name]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_the_records_before_a_wrong_line_are_stored_however_often_they_are_refused(broker: Broker) -> None:
    with broker.faults.not_leader(times=15), pytest.raises(ControlError, match=WRONG):
        send(broker, whole_then_wrong())
    broker.assert_exactly_once("lines", [b"whole"])
    assert senders() == []


def test_a_producer_that_is_interrupted_ends_and_sends_no_more(broker: Broker) -> None:
    def interrupted() -> Iterator[ProducedRecord]:
        yield WHOLE
        raise KeyboardInterrupt

    with broker.faults.delay(3_600_000, api="Produce"), pytest.raises(KeyboardInterrupt):
        send(broker, interrupted())
    assert senders() == []
