"""Remembers the client of each producer id, and logs the clients that send batches again.

A batch carries a producer id and nothing else about its sender; the connection knows the rest. A gateway
notes the client when a connection sends the first batch of a producer, or asks for the producer of a
transactional id. The table is in memory, and empty after a start: Kafka's record format has no field for a
client, and a living producer is noted again with its next batch.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from seqgate.gateway.security.principals import ClientIdentity

logger = logging.getLogger(__name__)

REPORT_S: Final = 5.0
"""The time after the first duplicate when the log reports it, with all that came since."""
REPORTED: Final = 20
"""Lines in one report; the rest are one further line."""
COUNTED: Final = 1_000
"""Clients and partitions that one report counts apart; further ones are counted together."""


class ProducerClients:
    """The clients by producer id, up to `limit`; beyond it the one noted longest ago is dropped."""

    def __init__(self) -> None:
        self.limit = 0
        """The present value of `seqgate.producer.clients.max`."""
        self._known: dict[int, tuple[int, ClientIdentity]] = {}
        """By producer id the client, and the lowest producer epoch that is known to be the client's."""

    def __len__(self) -> int:
        return len(self._known)

    def note(self, producer_id: int, producer_epoch: int, client: ClientIdentity) -> None:
        """Note the client of a producer; of the epochs that another client used none is known from now on."""
        if producer_id < 0:
            return
        before = self._known.pop(producer_id, None)
        if before is not None and before[1] == client:
            producer_epoch = min(before[0], producer_epoch)
        self._known[producer_id] = producer_epoch, client
        while len(self._known) > self.limit:
            del self._known[next(iter(self._known))]

    def find(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        """Return the client of a producer in an epoch; None where it is unknown."""
        epoch, client = self._known.get(producer_id, (0, None))
        return client if producer_epoch >= epoch else None

    def newest(self, producer_id: int) -> ClientIdentity | None:
        """Return the client that had the producer last; None where it is unknown."""
        return self._known.get(producer_id, (0, None))[1]


class RetryReport:
    """Logs who sent batches again that were stored before: one line for each client and partition, with the
    number of batches, at most every REPORT_S seconds.
    """

    def __init__(self) -> None:
        self._batches: dict[tuple[ClientIdentity, str, int], int] = {}
        self._others = 0

    def count(self, client: ClientIdentity, topic: str, partition: int) -> None:
        """Count a batch; the first one begins the time of the next report."""
        if not self._batches:
            asyncio.get_running_loop().call_later(REPORT_S, self.report)
        key = (client, topic, partition)
        if key in self._batches or len(self._batches) < COUNTED:
            self._batches[key] = self._batches.get(key, 0) + 1
        else:
            self._others += 1

    def report(self) -> None:
        """Log the batches that were counted, the most first, and begin again."""
        found = sorted(self._batches.items(), key=lambda item: -item[1])
        others = self._others + sum(batches for _, batches in found[REPORTED:])
        self._batches, self._others = {}, 0
        for (client, topic, partition), batches in found[:REPORTED]:
            logger.info("%s retried %s of %s-%d", client, _batches(batches), topic, partition)
        if others:
            logger.info("others retried %s", _batches(others))


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"
