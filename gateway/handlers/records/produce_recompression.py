"""Recompresses the batches of a Produce that are not in the codec of their topic (`compression.type`).

Such a batch leaves the event loop before it has changed anything: a thread recompresses a copy, and then the batch is
appended as any other. Until then later requests of the connection wait, so that batches are appended in the order in
which they were sent; they do not wait for the flush. The other batches of the request are appended at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gateway.handlers.answering.api import Answer, Deferred, RequestContext
from gateway.handlers.records.produce_append import ATTRIBUTES_POSITION, CODEC_BITS, FIRST_ZSTD_VERSION, ZSTD
from gateway.handlers.records.produce_later import failing
from gateway.handlers.records.produce_quota import kept_entry
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import PartitionRecords, ProduceRow
from gateway.runtime.coordinators.transactions_elsewhere import TookPart
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.recompressor import Outcome
from gateway.runtime.partitions.registry import TopicPartitions
from log import measures
from log.format.compression import Compression
from log.format.record_batch import HEADER_BYTES, parse_header

logger = logging.getLogger(__name__)


AT_ONCE: Final = 4
"""Batches of one request that threads recompress at a time; the others wait, so that other requests have
their turns.
"""


class LateBatch(NamedTuple):
    """A batch that is appended after its recompression, or after the answer of a coordinator, and the place of its row in the answer."""

    rows: list[ProduceRow]
    position: int
    key: str | bytes
    topic: TopicPartitions
    partition: Partition
    compression: Compression | None
    """The codec in which the batch is stored; None stores the batch as it was sent."""
    entry: PartitionRecords
    took_part: TookPart | None = None
    """The answer of the gateway that coordinates the transaction, where that is another one."""


def must_recompress(
    api_version: int, partition: Partition, codec: int, records: memoryview | None, now_ms: int
) -> bool:
    """Return whether a batch must be stored in another codec than its own, `codec`.

    A duplicate need not, because its original is stored; neither does a batch that is refused whatever its records are.
    """
    if records is None or len(records) < HEADER_BYTES or partition.log.offline:
        return False
    own_codec = records[ATTRIBUTES_POSITION] & CODEC_BITS
    if own_codec == codec or (own_codec == ZSTD and api_version < FIRST_ZSTD_VERSION):
        return False
    return not measures.is_repeated(partition.log, parse_header(records), now_ms)


class Recompression:
    """The batches of one request that threads recompress. Each is appended when it is ready."""

    def __init__(
        self,
        context: RequestContext[ProduceServices],
        late: list[LateBatch],
        append: Callable[[LateBatch, Outcome], None],
        answer: Callable[[], Answer | Deferred | None],
    ) -> None:
        self._context = context
        self._append = append
        self._answer = answer
        self._left = len(late)
        self._kept_bytes = sum(len(batch.entry.records or b"") for batch in late)
        self._waiting = deque(late)
        self._deferred = Deferred(holds_back=True)

    def begin(self) -> Deferred | None:
        """Copy the batches and give the first ones to the threads; return None if there is no room to keep them until then."""
        if not self._context.services.backlog.held.room.try_keep(self._kept_bytes):
            return None
        self._waiting = deque(batch._replace(entry=kept_entry(batch.entry)) for batch in self._waiting)
        for _ in range(min(AT_ONCE, len(self._waiting))):
            self._put_next()
        return self._deferred

    def _put_next(self) -> None:
        batch = self._waiting.popleft()
        assert batch.compression is not None
        self._context.services.recompressor.put(
            batch.entry.records or memoryview(b""),
            batch.compression,
            batch.partition.log.config,
            self._context.node.clock.now_ms(),
            partial(self._take, batch),
        )

    def _take(self, batch: LateBatch, outcome: Outcome) -> None:
        """Append one batch; answer the request after the last."""
        deferred = self._deferred
        if not deferred.failed:
            with failing(self._context, deferred):
                self._append(batch, outcome)
        self._left -= 1
        if self._waiting:
            self._put_next()
        elif not self._left:
            self._end()

    def _end(self) -> None:
        context, deferred = self._context, self._deferred
        context.services.backlog.held.room.release_kept(self._kept_bytes)
        if deferred.failed:
            return
        with failing(context, deferred):
            deferred.follow(self._answer())
            deferred.let_others_begin()
