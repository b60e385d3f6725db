from __future__ import annotations

import uuid

from seqgate.gateway.metadata.brokers import StoredBrokers
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def registered(node_id: int, epoch: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    place = BrokerEndpoint("PLAINTEXT", "host.example", 9092)
    return RegisterBrokerRecord(node_id, uuid.UUID(int=epoch), epoch, (place,), fenced=fenced)


def stored(*records: RegisterBrokerRecord) -> StoredBrokers:
    brokers = StoredBrokers()
    for record in records:
        brokers.replay(record)
    return brokers


def test_a_gateway_alone_is_the_only_live_broker() -> None:
    assert list(StoredBrokers().live(7)) == [7]


def test_live_brokers_are_those_that_are_not_fenced_in_order() -> None:
    brokers = stored(registered(3, 1), registered(1, 2), registered(2, 3, fenced=True))
    assert list(brokers.live(9)) == [1, 3]


def test_a_broker_is_fenced_and_unfenced() -> None:
    brokers = stored(registered(1, 5), registered(2, 6))
    brokers.replay(BrokerRegistrationChangeRecord(2, 6, fenced=1))
    assert list(brokers.live(1)) == [1]
    brokers.replay(BrokerRegistrationChangeRecord(2, 6, fenced=0))
    assert list(brokers.live(1)) == [1]
    brokers.replay(BrokerRegistrationChangeRecord(2, 6, fenced=-1))
    assert list(brokers.live(1)) == [1, 2]


def test_records_about_an_earlier_registration_change_nothing() -> None:
    brokers = stored(registered(1, 5), registered(1, 8))
    brokers.replay(BrokerRegistrationChangeRecord(1, 5, fenced=1))
    brokers.replay(UnregisterBrokerRecord(1, 5))
    assert list(brokers.live(1)) == [1]
    assert brokers.by_id[1].broker_epoch == 8


def test_a_broker_leaves() -> None:
    brokers = stored(registered(1, 5), registered(2, 6))
    brokers.replay(UnregisterBrokerRecord(2, 6))
    brokers.replay(UnregisterBrokerRecord(3, 6))
    assert list(brokers.by_id) == [1]


def test_a_session_ends_with_the_fencing_of_its_broker_or_a_later_session() -> None:
    brokers = stored(registered(1, 5))
    assert brokers.why_ended(1, 5) is None
    assert brokers.why_ended(1, 6) is None
    assert brokers.why_ended(2, 3) is None
    assert brokers.why_ended(1, 4) == "session 5 has registered the broker 1 after session 4"
    brokers.replay(BrokerRegistrationChangeRecord(1, 5, fenced=1))
    assert brokers.why_ended(1, 5) == "the broker 1 of session 5 is fenced"
