"""The newest connection of each producer that speaks version 1 of transactions.

In version 1 an end does not change the epoch, so a request names its producer, and not its transaction. An EndTxn that the network has held up, and
that the client has sent again over another connection since, would end the next transaction. The client has given up the old connection, so the
order of connections tells such a request. With version 2 the epoch tells it (KIP-890).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.coordinator.transaction.rules import Producer

PRODUCERS_KEPT: Final = 10_000
"""Producers whose newest connection is known. Beyond that the one that was silent longest is forgotten: a late request of it is carried out, as
in Kafka."""


class NewestConnections:
    """Notes the connections of requests; connections are numbered in the order in which they were accepted."""

    def __init__(self) -> None:
        self._newest: OrderedDict[Producer, int] = OrderedDict()

    def is_late(self, producer: Producer, connection: int) -> bool:
        """Note the connection of a request; return whether the producer has sent another one over a newer connection."""
        newest = self._newest.get(producer, connection)
        if connection < newest:
            return True
        self._newest[producer] = connection
        self._newest.move_to_end(producer)
        if len(self._newest) > PRODUCERS_KEPT:
            self._newest.popitem(last=False)
        return False
