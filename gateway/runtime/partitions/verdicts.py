"""The newest batches that were not stored: duplicates, and refused ones, which tell why. Logs who sends
batches again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.security.principals import ClientIdentity
from seqgate.log.format.record_batch import HEADER_BYTES, MAGIC, parse_header

logger = logging.getLogger(__name__)

DUPLICATE: Final = "duplicate"
VERDICTS_KEPT: Final = 10_000
"""Verdicts in memory; a further one replaces the oldest."""
RETRIED_EVERY_MS: Final = 30_000
"""Time between two log lines about batches that are refused with the same error, which clients retry."""
_LONGEST_MESSAGE: Final = 300
_LOST: Final = 1_000_000
"""The numbers that a restart leaves out: a killed gateway may have given them to verdicts that are lost, and
the console would take new verdicts for those.
"""
_LAST_KEPT: Final = 2**62
"""The highest number that counting goes on from: above it no room is left for numbers of 64 bits."""
REPORT_S: Final = 5.0
"""The time after the first duplicate when the log reports it, with all that came since."""
REPORTED: Final = 20
"""Lines in one report; the rest are one further line."""
COUNTED: Final = 1_000
"""Clients and partitions that one report counts apart; further ones are counted together."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that an answer can carry; a file may have others."""


class UnstoredBatch(NamedTuple):
    """A batch that was not stored, and why: `outcome` is `duplicate` or the name of Kafka's error.

    `base_offset` is the offset of a duplicate's original, and -1 for a refused batch. `number` grows with
    each verdict, over restarts too. Without a whole header fields are -1. `client` sent the batch.
    """

    number: Int64
    time_ms: Int64
    topic: str
    partition: Int64
    producer_id: Int64
    producer_epoch: Int64
    base_sequence: Int64
    last_sequence: Int64
    base_offset: Int64
    outcome: str
    message: str
    client: ClientIdentity


class Verdicts:
    """Counts the batches that were not stored, by outcome, and keeps the newest of them."""

    def __init__(self, kept: int = VERDICTS_KEPT) -> None:
        self.newest: deque[UnstoredBatch] = deque(maxlen=kept)
        self.refused: Counter[int] = Counter()
        """The refused batches by Kafka's error code."""
        self._count = 0
        self._retries = RetryReport()

    def last(self, limit: int) -> list[UnstoredBatch]:
        """Return the newest verdicts, the oldest first."""
        return list(islice(self.newest, max(0, len(self.newest) - limit), None))

    def forget(self, before_ms: int) -> None:
        """Drop the oldest verdicts up to the first that is not older."""
        while self.newest and self.newest[0].time_ms < before_ms:
            self.newest.popleft()

    def restore(self, kept: Iterable[UnstoredBatch], now_ms: int) -> None:
        """Take over the verdicts that an earlier process kept; call once, before the first verdict."""
        found = sorted(kept, key=lambda batch: (batch.time_ms, batch.number))
        if not found:
            return
        # several workers may have given the same numbers, and none has come as far as _LAST_KEPT
        last = max([len(found), *(batch.number for batch in found if batch.number <= _LAST_KEPT)])
        for number, batch in enumerate(found, last - len(found) + 1):
            # a clock that was set back must not keep a verdict longer
            self.newest.append(batch._replace(number=number, time_ms=min(batch.time_ms, now_ms)))
        self._count = last + _LOST

    def duplicate(
        self,
        topic: str,
        partition: int,
        records: memoryview,
        now_ms: int,
        base_offset: int,
        client: ClientIdentity,
    ) -> None:
        """Note a batch that was answered with the offset of its original, also for the next report."""
        self._note(topic, partition, records, now_ms, base_offset, DUPLICATE, client)
        self._retries.count(client, topic, partition)

    def refusal(
        self,
        topic: str,
        partition: int,
        records: memoryview | None,
        now_ms: int,
        code: int,
        client: ClientIdentity,
        message: str,
    ) -> UnstoredBatch:
        """Note a batch that was refused with this error; return the verdict."""
        self.refused[code] += 1
        name = ErrorCode(code).name.upper()
        return self._note(topic, partition, records, now_ms, -1, name, client, message[:_LONGEST_MESSAGE])

    def _note(
        self,
        topic: str,
        partition: int,
        records: memoryview | None,
        now_ms: int,
        base_offset: int,
        outcome: str,
        client: ClientIdentity,
        message: str = "",
    ) -> UnstoredBatch:
        self._count += 1
        producer = _producer_of(records)
        verdict = UnstoredBatch(
            self._count, now_ms, topic, partition, *producer, base_offset, outcome, message, client
        )
        self.newest.append(verdict)
        return verdict


def _producer_of(records: memoryview | None) -> tuple[int, int, int, int]:
    """Return producer id and epoch, first and last sequence of a batch; -1 for each unreadable one."""
    if records is None or len(records) < HEADER_BYTES:
        return -1, -1, -1, -1
    batch = parse_header(records)
    if batch.magic != MAGIC:  # the header of an older format has other fields in these places
        return -1, -1, -1, -1
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence


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
