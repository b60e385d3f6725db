"""The partitions of all topics, by topic name and by topic id. Those that this node leads can be opened."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kio.schema.errors import ErrorCode

from seqgate.gateway.runtime.loop.slices import each_in_slices
from seqgate.gateway.runtime.partitions.partition import FLUSH_NEVER, Partition
from seqgate.log import LogError, PartitionLog

if TYPE_CHECKING:
    from seqgate.gateway.cluster.silence import Lease

logger = logging.getLogger(__name__)


class PartitionSource(Protocol):
    def open(self, topic: str, index: int) -> Partition | None:
        """Open a partition of the topic; None when it can't be opened, and the reason is logged."""

    def is_empty(self, topic: str, index: int) -> bool:
        """Whether the partition certainly has no records; opens nothing."""

    def leads(self, topic: str, index: int) -> bool:
        """Whether this node leads the partition, and has its records."""

    def is_awaited(self, topic: str, index: int) -> bool:
        """Whether this node leads the partition, and does not have its records yet."""


StrictUntil = Callable[[], int]
#: Returns the time (ms) until which a partition that opens now is strict (`Partition.strict_until_ms`).


class TopicPartitions:
    """The partitions of one topic, dense by index. Each is opened by the first request for it."""

    __slots__ = (
        "_partitions",
        "_source",
        "_strict_until",
        "count",
        "failed",
        "name",
        "topic_id",
        "topic_id_bytes",
    )

    def __init__(
        self, name: str, topic_id: uuid.UUID, source: PartitionSource, strict_until: StrictUntil
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.topic_id_bytes = topic_id.bytes
        self._source = source
        self._strict_until = strict_until
        self._partitions: list[Partition | None] = []
        self.count = 0
        """The number of partitions of the topic, open or not; 0 once the topic is deleted."""
        self.failed: set[int] = set()
        """Indexes of the partitions that could not be opened at the last attempt."""

    def grow(self, count: int) -> None:
        self._partitions += [None] * (count - len(self._partitions))
        self.count = len(self._partitions)

    def has(self, index: int) -> bool:
        """Whether the topic has this partition; opens nothing."""
        return 0 <= index < len(self._partitions)

    def get(self, index: int) -> Partition | None:
        """Return the partition, opened if need be; None if it is unknown, led elsewhere, or fails to open."""
        if 0 <= index < len(self._partitions):
            return self._partitions[index] or self._open_now(index)
        return None

    def error_without(self, index: int) -> ErrorCode:
        """Return the error for a partition that `get` did not return."""
        return self.unknown_or_led_elsewhere(index) or ErrorCode.kafka_storage_error

    def unknown_or_led_elsewhere(self, index: int) -> ErrorCode | None:
        """Return the error of a partition that is unknown or led elsewhere; None otherwise. Opens nothing."""
        if not self.has(index):
            return ErrorCode.unknown_topic_or_partition
        return None if self._source.leads(self.name, index) else ErrorCode.not_leader_or_follower

    def served_here(self) -> Iterator[int]:
        """Yield the indexes of the partitions that this node leads; opens nothing."""
        return (index for index in range(self.count) if self._source.leads(self.name, index))

    def is_awaited(self, index: int) -> bool:
        return self._source.is_awaited(self.name, index)

    def peek(self, index: int) -> Partition | None:
        """Return the partition if it is open."""
        return self._partitions[index] if self.has(index) else None

    def is_unusable(self, index: int) -> bool:
        """Return whether a partition is missing, failed to open, or has an offline log. Opens nothing."""
        if not 0 <= index < len(self._partitions) or index in self.failed:
            return True
        partition = self._partitions[index]
        return partition is not None and partition.log.offline

    def take(self, index: int) -> Partition | None:
        """Return the partition if it is open, and forget it: the next request may open it again."""
        partition = self.peek(index)
        self.failed.discard(index)
        if partition is not None:
            self._partitions[index] = None
        return partition

    def forget_all(self) -> list[Partition]:
        """Forget all partitions, because the topic is deleted; return those that are open. Otherwise work in
        slices that has found the topic before would open the log of a new topic of the name.
        """
        opened = list(self.opened())
        self._partitions = []
        self.count = 0
        return opened

    def opened(self) -> Iterator[Partition]:
        return (partition for partition in self._partitions if partition is not None)

    def all(self) -> Iterator[Partition]:
        """Yield all partitions that can be opened, in order; opens them one by one."""
        return (partition for index in range(self.count) if (partition := self.get(index)) is not None)

    def with_records(self) -> Iterator[Partition]:
        """Yield the partitions that may hold records, in order; opens them one by one, and no others."""
        return (
            partition
            for index in range(self.count)
            if not self._source.is_empty(self.name, index) and (partition := self.get(index)) is not None
        )

    def _open_now(self, index: int) -> Partition | None:
        if not self._source.leads(self.name, index):
            return None
        partition = self._source.open(self.name, index)
        if partition is None:
            self.failed.add(index)
        else:
            self.failed.discard(index)
            partition.strict_until_ms = self._strict_until()
            self._partitions[index] = partition
        return partition


class Partitions:
    def __init__(self, lease: Lease | None = None, strict_until: StrictUntil = lambda: 0) -> None:
        """`lease` is that of this gateway; None where no other gateway can take its partitions over."""
        self.lease = lease
        self.strict_until = strict_until
        self.by_name: dict[str, TopicPartitions] = {}
        self.by_id: dict[uuid.UUID, TopicPartitions] = {}
        self.by_key: dict[str | bytes, TopicPartitions] = {}
        """The topics by name and by the 16 bytes of the topic id, as requests name topics."""
        self.flushed_by_time: dict[Partition, None] = {}
        """The open partitions that have a `flush.ms`."""
        self.opened_count = 0
        """The number of partitions opened since the start, closed ones included."""
        self.closed_count = 0
        """The open partitions closed since the start: their topic was deleted, or another node leads them."""
        self.tables: list[dict[Any, Any]] = [self.by_name, self.by_id, self.by_key, self.flushed_by_time]
        """Tables of topics or partitions; rebuilt in place after many deletions, to need less memory."""
        self.when_closed: list[Callable[[Partition], None]] = []
        """Called for each open partition that is closed, so that no reference keeps its log in memory."""
        self.when_ready: list[Callable[[str, int], None]] = []
        """Called with topic and index of a partition whose records came after this node began to lead it."""

    @property
    def may_be_led_elsewhere(self) -> bool:
        """Whether others may lead these partitions by now, so that nothing is answered as the latest."""
        return self.lease is not None and self.lease.is_over()

    def get(self, topic: str, index: int) -> Partition | None:
        """Return the partition, opened if need be; None if it is unknown, led elsewhere, or fails to open."""
        found = self.by_name.get(topic)
        return None if found is None else found.get(index)

    def serving(self, log: PartitionLog) -> Partition | None:
        """Return the open partition that serves a log; None if no partition serves it."""
        topic = self.by_name.get(log.topic)
        partition = None if topic is None else topic.peek(log.partition)
        if partition is None or partition.log is not log or partition.closed or log.offline:
            return None
        return partition

    def name_of(self, topic_key: str | bytes) -> str | None:
        """Return the name of a topic that is given as in `by_key`; None for an id that no topic has."""
        if isinstance(topic_key, str):
            return topic_key
        found = self.by_key.get(topic_key)
        return None if found is None else found.name

    def has(self, topic: str, index: int) -> bool:
        found = self.by_name.get(topic)
        return found is not None and found.has(index)

    def error_without(self, topic: str, index: int) -> ErrorCode:
        """Return the error for a partition that `get` did not return."""
        found = self.by_name.get(topic)
        return ErrorCode.unknown_topic_or_partition if found is None else found.error_without(index)

    def is_awaited(self, topic: str, index: int) -> bool:
        found = self.by_name.get(topic)
        return found is not None and found.is_awaited(index)

    def became_ready(self, topic: str, index: int) -> None:
        """Note that the records of a partition have come."""
        for begin in self.when_ready:
            begin(topic, index)

    def register(self, name: str, topic_id: uuid.UUID, count: int, source: PartitionSource) -> None:
        """Serve the first `count` partitions of a topic, which may already be registered with fewer."""
        topic = self.by_name.get(name)
        if topic is None:
            topic = TopicPartitions(name, topic_id, source, self._strict_from_now)
            self.by_name[name] = topic
            self.by_id[topic_id] = topic
            self.by_key[name] = self.by_key[topic.topic_id_bytes] = topic
        topic.grow(count)

    def _strict_from_now(self) -> int:
        return self.strict_until()

    def remove_topic(self, name: str) -> None:
        topic = self.by_name.pop(name, None)
        if topic is None:
            return
        self.by_id.pop(topic.topic_id, None)
        self.by_key.pop(topic.name, None)
        self.by_key.pop(topic.topic_id_bytes, None)
        for partition in topic.forget_all():
            self._close(partition)

    def release(self, name: str, index: int) -> None:
        """Stop serving a partition that another node leads now; waiting requests learn of it. Records that
        wait for their flush are still acknowledged. `Readiness` decides about the log.
        """
        topic = self.by_name.get(name)
        partition = None if topic is None else topic.take(index)
        if partition is not None:
            self._close(partition)

    def _close(self, partition: Partition) -> None:
        partition.close()
        self.flushed_by_time.pop(partition, None)
        self.closed_count += 1
        for forget in self.when_closed:
            forget(partition)

    def set_flush_policy(self, partition: Partition, flush_messages: int, flush_ms: int) -> None:
        """Set after how many messages and after what time an open partition is flushed."""
        partition.flush_messages = flush_messages
        partition.flush_ms = flush_ms
        if flush_ms == FLUSH_NEVER:
            self.flushed_by_time.pop(partition, None)
        else:
            self.flushed_by_time[partition] = None

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over open partitions; topics may be created meanwhile, or deleted and so closed."""
        for topic in list(self.by_name.values()):
            yield from topic.opened()

    def __len__(self) -> int:
        return sum(topic.count for topic in self.by_name.values())


async def for_each_partition(
    partitions: Iterable[Partition], work: Callable[[Partition], object], purpose: str
) -> None:
    """Call `work` for each open partition, in slices. Log its errors, and continue with the next."""

    def work_on(partition: Partition) -> None:
        if partition.closed or partition.log.offline:
            return
        try:
            work(partition)
        except LogError as error:
            logger.warning("%s of %s-%d: %s", purpose, partition.topic, partition.index, error)

    await each_in_slices(partitions, work_on)
