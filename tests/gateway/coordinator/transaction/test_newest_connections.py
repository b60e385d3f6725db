"""The connections of producers whose requests do not name their transaction."""

from __future__ import annotations

from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.rules import NewestConnections, Producer

ONE, LATER_EPOCH, OTHER = Producer(7, 0), Producer(7, 1), Producer(8, 0)


def test_only_requests_of_older_connections_are_late() -> None:
    connections = NewestConnections()
    told = [connections.is_late(ONE, number) for number in (3, 3, 2, 5, 3, 5, 4, 6)]
    assert told == [False, False, True, False, True, False, True, False]


def test_another_instance_and_another_producer_have_connections_of_their_own() -> None:
    connections = NewestConnections()
    assert not connections.is_late(ONE, 5)
    assert not connections.is_late(LATER_EPOCH, 4)
    assert not connections.is_late(OTHER, 1)


def test_of_too_many_producers_the_longest_silent_one_is_forgotten() -> None:
    connections = NewestConnections()
    assert not connections.is_late(ONE, 5)
    assert not connections.is_late(OTHER, 5)
    assert not connections.is_late(ONE, 5)
    for producer_id in range(100, 99 + rules.PRODUCERS_KEPT):
        assert not connections.is_late(Producer(producer_id, 0), 5)
    assert connections.is_late(ONE, 4)
    assert not connections.is_late(OTHER, 4)
