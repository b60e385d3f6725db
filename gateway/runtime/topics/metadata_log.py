"""The metadata log: every change of topics, configurations and producer-id blocks, durable before it is true.

A change is decided on the image, appended to the log of `__cluster_metadata` as one batch, flushed, and only then
replayed into the image and told to the listeners. The same replay builds the image at start, so there is one
code path for both. A batch that a crash tore is cut off by the log's recovery: a change is there whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar

from gateway.metadata.decision import Decision
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import MetadataRecord, decode_record, encode_record
from gateway.metadata.topic_names import METADATA_TOPIC
from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.flusher import Flusher
from gateway.runtime.partitions.log_replay import replay_records
from log import CorruptRecord, LogConfig, LogDirectory, UnifiedLog
from log.format.records import NewRecord, build_batch

logger = logging.getLogger(__name__)

#: Kafka gives the metadata topic this id (org.apache.kafka.common.Uuid.METADATA_TOPIC_ID).
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
MOST_UNDER_WAY: Final = 1_000
"""Changes that nobody waits for; whoever wants a further one asks again, as clients do that miss a topic."""
_INT32_MAX: Final = 2**31 - 1

T = TypeVar("T")
Decide = Callable[[MetadataImage], Decision[T]]
#: Called after a change was replayed, with its records; the next change waits for it.
Listener = Callable[[Sequence[MetadataRecord]], Awaitable[None]]

METADATA_LOG_CONFIG: Final = LogConfig(max_message_bytes=_INT32_MAX, retention_ms=-1, retention_bytes=-1)


def open_metadata_log(directory: LogDirectory) -> UnifiedLog:
    """The partition log of `__cluster_metadata`, created at the first start.

    Raises LogError, OSError, IncompatibleFormat. CorruptRecord also tells of records of topics that nothing is known of any more.
    """
    log = directory.get(METADATA_TOPIC, 0, is_mended=False)
    if (log is None or not log.log_end_offset) and _holds_records(directory):
        raise CorruptRecord(
            f"{METADATA_TOPIC}-0 is missing, empty or kept as *-stray, and there are partitions with records; put it back"
        )
    if log is None:
        log = directory.create(METADATA_TOPIC, METADATA_TOPIC_ID, 0, METADATA_LOG_CONFIG)
    log.update_config(METADATA_LOG_CONFIG)
    return log


def _holds_records(directory: LogDirectory) -> bool:
    keys = [*directory.stored(), *((log.topic, log.partition) for log in directory.logs())]
    return not all(topic == METADATA_TOPIC or directory.is_empty(topic, index) for topic, index in keys)


def read_records(log: UnifiedLog, offset: int) -> Iterator[MetadataRecord]:
    """All records from `offset` to the end of the log.

    Raises:
        UnknownRecordError: a later version of the program wrote the log.
        LogError: the log can't be read.
    """
    for record in replay_records(log, offset):
        yield decode_record(record.value or b"")


def replay_log(log: UnifiedLog, image: MetadataImage) -> int:
    """Replay all of the log into the image; returns the number of records. Raises as `read_records`."""
    count = 0
    for record in read_records(log, log.log_start_offset):
        image.replay(record)
        count += 1
    return count


class MetadataLog:
    """The image of the metadata and the only way to change it."""

    def __init__(self, log: UnifiedLog, flusher: Flusher, clock: Clock) -> None:
        self.image = MetadataImage()
        self._log = log
        self._flusher = flusher
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._under_way: set[Hashable] = set()
        self._replayed_end_offset = log.log_start_offset

    def replay(self) -> None:
        """Build the image from the log; before anything else, once. Raises what `replay_log` raises."""
        count = replay_log(self._log, self.image)
        self._log.advance_high_watermark(self._log.log_end_offset)
        self._replayed_end_offset = self._log.log_end_offset
        logger.info(
            "metadata: %d records give %d topics with %d partitions",
            count,
            len(self.image.topics_by_name),
            self.image.partition_count,
        )

    @property
    def last_offset(self) -> int:
        """The offset of the newest record that the image has; -1 without any."""
        return self._replayed_end_offset - 1

    @property
    def is_changing(self) -> bool:
        """Whether a change is being made true: its listeners may not have carried it out yet."""
        return self._lock.locked()

    @property
    def log(self) -> UnifiedLog:
        """The log that it writes."""
        return self._log

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` told of every later change."""
        self._listeners.append(listener)

    async def commit(self, decide: Decide[T]) -> T:
        """Decide on the present image and carry the decision out; returns its answer once it is durable.

        A caller that is cancelled leaves the change to go on: it may be in the log already.

        Raises:
            StorageFailed: the change could not be made durable; it is not in the image.
        """
        return await asyncio.shield(self._start(self._commit(decide)))

    def commit_soon(self, key: Hashable, decide: Decide[Any]) -> None:
        """Carry a decision out in the background, unless one under the same key is under way, or too many are."""
        if key in self._under_way or len(self._under_way) >= MOST_UNDER_WAY:
            return
        self._under_way.add(key)
        task = self._start(self._commit(decide))
        task.add_done_callback(lambda done: self._finish_background(key, done))

    def _finish_background(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(key)
        if not task.cancelled() and task.exception() is not None:
            logger.error("metadata change %s failed: %s", key, task.exception())

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _commit(self, decide: Decide[T]) -> T:
        async with self._lock:
            if self._replayed_end_offset != self._log.log_end_offset:
                await self._catch_up()
            decision = decide(self.image)
            if not decision.records:
                return decision.answer
            now_ms = self._clock.now_ms()
            batch = build_batch(
                [NewRecord(encode_record(record), timestamp=now_ms) for record in decision.records]
            )
            self._log.append(batch, now_ms=now_ms, is_client=False)
            await self._make_true(decision.records)
            return decision.answer

    async def _catch_up(self) -> None:
        """Replay what was written, could not be flushed, and is in the log again after it was reopened."""
        await self._make_true(list(read_records(self._log, self._replayed_end_offset)))

    async def _make_true(self, records: Sequence[MetadataRecord]) -> None:
        """Flush the log up to its end, then let the image and the listeners know its last `records`."""
        end_offset = self._log.log_end_offset
        await self._flusher.flushed(self._log)
        self._log.advance_high_watermark(end_offset)
        for record in records:
            self.image.replay(record)
        self._replayed_end_offset = end_offset
        for listener in self._listeners:
            await listener(records)

    async def close(self) -> None:
        """Wait for the changes under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
