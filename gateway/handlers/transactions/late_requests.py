"""Refuses requests of transactions that arrive after the client has given up their connection."""

from __future__ import annotations

from gateway.coordinator.transaction.rules import NewestConnections, Producer
from gateway.handlers.answering.api import CloseConnection, Peer


def refuse_late(connections: NewestConnections, peer: Peer, producer: Producer) -> None:
    """Close the connection of a request of version 1 if its producer uses a newer connection. Raises CloseConnection.

    A client that uses both connections connects again, and then the request is in time.
    """
    if connections.is_late(producer, peer.number):
        raise CloseConnection(
            f"the producer {producer.producer_id} (epoch {producer.producer_epoch}) uses a newer connection for its transactions"
        )
