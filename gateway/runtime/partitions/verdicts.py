"""The newest batches that were not stored: duplicates, and refused ones, which tell why."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.runtime.partitions.producer_clients import RetryReport
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.log.format.record_batch import HEADER_BYTES, MAGIC, parse_header

DUPLICATE: Final = "duplicate"
VERDICTS_KEPT: Final = 10_000
"""Verdicts in memory; a further one replaces the oldest."""
RETRIED_EVERY_MS: Final = 30_000
"""Time between two log lines about batches that are refused with the same error, which clients retry."""
_LONGEST_MESSAGE: Final = 300


class UnstoredBatch(NamedTuple):
    """A batch that was not stored, and why: `outcome` is `duplicate` or the name of Kafka's error.

    `base_offset` is the offset of a duplicate's original, and -1 for a refused batch. `number` counts the
    verdicts since the start. Without a whole header fields are -1. `client` sent the batch.
    """

    number: int
    time_ms: int
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    outcome: str
    message: str
    client: ClientIdentity


class RetriedRefusals:
    """Decides which refusals are logged of those that clients retry until the cause is gone: of each error
    the first, and then one in RETRIED_EVERY_MS.
    """

    def __init__(self) -> None:
        self._last_ms: dict[int, int] = {}
        self._left_out: Counter[int] = Counter()

    def left_out(self, code: int, now_ms: int) -> int | None:
        """Return how many refusals were left out before this one; None: leave this one out, too."""
        last_ms = self._last_ms.get(code)
        if last_ms is not None and 0 <= now_ms - last_ms < RETRIED_EVERY_MS:
            self._left_out[code] += 1
            return None
        self._last_ms[code] = now_ms
        return self._left_out.pop(code, 0)


class Verdicts:
    """Counts the batches that were not stored, by outcome, and keeps the newest of them."""

    def __init__(self, kept: int = VERDICTS_KEPT) -> None:
        self.newest: deque[UnstoredBatch] = deque(maxlen=kept)
        self.refused: Counter[int] = Counter()
        """The refused batches by Kafka's error code."""
        self._count = 0
        self._retries = RetryReport()

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
