"""All partitions of one internal topic, each with its state machine.

A shard is loaded when an operation first needs it. A shard whose log could not be written, or lost records,
is dropped: its state is ahead of its log, so the next operation loads it again. Source: Kafka's
`CoordinatorRuntime`.

Rewrites the log of a shard: all state is written again at the end of the log, and the older records are
deleted.

This is like compaction: the newest record of each key remains. Other operations continue between the batches
of a rewrite. Each record is encoded from the state at the time it is written, so that no older state follows
newer state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transactional import TransactionEnd
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.operations.operations import (
    Applied,
    Codec,
    LoadedShard,
    Operation,
    Operations,
    State,
    Unavailable,
)
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import Partition, remove
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.topic_lifecycle import InternalTopics
from seqgate.log import IncompatibleFormat, LogError, retention

logger = logging.getLogger(__name__)

A = TypeVar("A")
S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True)
class StateTopic:
    """The internal topic that stores the state of a coordinator, with the settings for its creation."""

    name: str
    num_partitions: int
    segment_bytes: int
    codec: Codec


class CoordinatorShards(Generic[S]):
    """Loads shards, carries out operations on them, and drops shards whose log lost records.

    `on_load` and `on_lost` are called once for every shard; a lost shard stays listed until it is replaced,
    unless its partition is closed.
    """

    def __init__(
        self,
        topic: StateTopic,
        fresh_state: Callable[[], S],
        clock: Clock,
        partitions: Partitions,
        internal_topics: InternalTopics,
        flusher: LogFlusher,
        *,
        on_load: Callable[[LoadedShard[S]], None] = lambda _: None,
        on_lost: Callable[[LoadedShard[S]], None] = lambda _: None,
    ) -> None:
        self.topic = topic
        self._fresh_state = fresh_state
        self._clock = clock
        self._partitions = partitions
        self._internal_topics = internal_topics
        self._on_load = on_load
        self._on_lost = on_lost
        self._loaded: dict[int, LoadedShard[S]] = {}
        self._is_stopped = False
        self._operations = Operations(clock, flusher, lose=self.lose, on_write=self._rewrite_if_worth_it)
        self.ask = self._operations.ask
        """Carries out an operation as `run` does, without a task (see `Operations.ask`)."""
        self._tasks: set[asyncio.Task[None]] = set()
        partitions.when_closed.append(self._partition_closed)
        partitions.when_ready.append(self._partition_ready)

    def __iter__(self) -> Iterator[LoadedShard[S]]:
        return iter(list(self._loaded.values()))

    async def ensure_topic(self) -> None:
        """Create the topic unless it is there. Raises Unavailable."""
        topic = self.topic
        try:
            await self._internal_topics.ensure(
                topic.name, num_partitions=topic.num_partitions, segment_bytes=topic.segment_bytes
            )
        except LogError as error:
            raise Unavailable from error

    def leader_of(self, owner: str) -> int:
        """Return the node id of the gateway that holds the state of a group or a transactional id; -1 while
        there is none.
        """
        return self._internal_topics.leader_for(self.topic.name, owner)

    def is_elsewhere(self, owner: str) -> bool:
        """Return whether another gateway holds the state of a group or a transactional id."""
        return self._internal_topics.is_elsewhere(self.topic.name, owner)

    # --- loading

    def of(self, owner: str) -> LoadedShard[S]:
        """Return the shard that holds the state of a group or a transactional id. Raises Unavailable, also
        while another gateway may have it.
        """
        if self._partitions.may_be_led_elsewhere:
            raise Unavailable(ErrorCode.not_coordinator)
        index = self._internal_topics.index_for(self.topic.name, owner)
        if index is None:
            raise Unavailable
        return self.at(index)

    def at(self, index: int) -> LoadedShard[S]:
        """Return the shard of one partition. Raises Unavailable."""
        loaded = self._loaded.get(index)
        if loaded is not None:
            if loaded.is_current:
                return loaded
            self.lose(loaded)
        if self._is_stopped:
            raise Unavailable
        name = self.topic.name
        partition = self._partitions.get(name, index)
        if (
            partition is None
            and self._partitions.error_without(name, index) is ErrorCode.not_leader_or_follower
        ):
            is_awaited = self._partitions.is_awaited(name, index)
            raise Unavailable(
                ErrorCode.coordinator_load_in_progress if is_awaited else ErrorCode.not_coordinator
            )
        if partition is None or partition.closed or partition.log.offline:
            raise Unavailable
        try:
            return self._load(partition)
        except (LogError, IncompatibleFormat) as error:
            logger.error("%s-%d can't be loaded: %s", name, index, error)  # noqa: TRY400 - needs no traceback
            raise Unavailable from error

    def _load(self, partition: Partition) -> LoadedShard[S]:
        """Load a shard from its log. Raises LogError, IncompatibleFormat."""
        loaded = LoadedShard(partition, self._fresh_state(), self.topic.codec)
        loaded.load(self._clock.now_ms())
        self._loaded[partition.index] = loaded
        self._on_load(loaded)
        return loaded

    def _partition_ready(self, topic: str, index: int) -> None:
        """Load a partition that this gateway begins to lead: members and transactions in it have timeouts."""
        if topic == self.topic.name:
            with contextlib.suppress(Unavailable):  # the reason was logged already
                self.at(index)

    def load_at_start(self) -> None:
        """Load a shard from its log. Raises LogError, IncompatibleFormat."""
        for partition in self._stored():
            try:
                self._load(partition)
            except LogError as error:
                logger.error("%s-%d can't be loaded: %s", self.topic.name, partition.index, error)  # noqa: TRY400

    def load_stored(self) -> None:
        """Load every partition that holds records. If one can't be loaded, its next operation tries again."""
        for partition in self._stored():
            with contextlib.suppress(Unavailable):  # the reason was logged already
                self.at(partition.index)

    def _stored(self) -> Iterator[Partition]:
        """Return the partitions that hold records."""
        topic = self._partitions.by_name.get(self.topic.name)
        for partition in topic.with_records() if topic is not None else ():
            if partition.log.log_end_offset > partition.log.log_start_offset:
                yield partition

    def lose(self, loaded: LoadedShard[S]) -> None:
        """Drop a shard whose state is ahead of its log, or whose partition is gone."""
        loaded.failed = True
        if not loaded.lost:
            loaded.lost = True
            self._operations.refuse(loaded)
            self._on_lost(loaded)

    def _partition_closed(self, partition: Partition) -> None:
        """Drop the shard of a partition that another gateway leads now, or whose topic was deleted."""
        loaded = self._loaded.get(partition.index) if partition.topic == self.topic.name else None
        if loaded is not None and loaded.partition is partition:
            del self._loaded[partition.index]
            self.lose(loaded)

    def stop(self) -> None:
        """Drop every shard and load none any more: a timer of its members would still write when the log is
        sealed.
        """
        self._is_stopped = True
        for loaded in self:
            self.lose(loaded)

    # --- operations

    async def run(self, loaded: LoadedShard[S], operation: Operation[S, A]) -> A:
        """Carry out an operation in the next round; return its answer once the answer is durable.

        Raises Unavailable, and the errors of `operation`.
        """
        return await self._operations.run(loaded, operation)

    def apply(self, loaded: LoadedShard[S], operation: Operation[S, A]) -> Applied[A]:
        """Carry out an operation at once. Raises Unavailable, and the errors of `operation`."""
        return self._operations.apply(loaded, operation)

    async def persisted(self, loaded: LoadedShard[S], last_offset: int) -> None:
        """Wait until the log is durable up to an offset. Raises Unavailable when its flush fails."""
        await self._operations.persisted(loaded, last_offset)

    def check_current(self, loaded: LoadedShard[S]) -> None:
        """Refuse a shard whose log no longer holds every record of its state. Raises Unavailable."""
        if not loaded.is_current:
            self.lose(loaded)
            raise Unavailable(ErrorCode.not_coordinator)

    def follow(self, index: int, record: TransactionEnd) -> None:
        """Fold in a marker that was just appended to the log of one partition."""
        with contextlib.suppress(Unavailable):  # a shard that is loaded later reads the marker from the log
            self.at(index).follow(record, self._clock.now_ms())

    def _rewrite_if_worth_it(self, loaded: LoadedShard[S]) -> None:
        if is_worth_a_rewrite(loaded):
            loaded.is_rewritten = True
            task = asyncio.get_running_loop().create_task(self._rewrite(loaded))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _rewrite(self, loaded: LoadedShard[S]) -> None:
        try:
            await rewrite(loaded, self._clock)
        except LogError as error:
            logger.error("%s-%d can't be rewritten: %s", self.topic.name, loaded.partition.index, error)  # noqa: TRY400 - needs no traceback


REWRITE_AT_LEAST_BYTES: Final = 8 << 20
"""The size up to which a log is never rewritten."""
REWRITE_FACTOR: Final = 3
"""A log is rewritten when it is this many times as large as its newest records of all keys."""
RECORDS_AT_ONCE: Final = 500
"""Keys rewritten in one turn; then other work of the event loop gets its turn."""


def is_worth_a_rewrite(loaded: LoadedShard[Any]) -> bool:
    """Return whether most of the log is no longer needed, and no rewrite is running."""
    size_bytes = loaded.partition.log.segments.size_bytes
    return (
        size_bytes > REWRITE_AT_LEAST_BYTES
        and not loaded.is_rewritten
        and size_bytes > REWRITE_FACTOR * loaded.needed_bytes
    )


async def rewrite(loaded: LoadedShard[Any], clock: Clock) -> None:
    """Rewrite the log unless the shard is lost meanwhile. Raises LogError."""
    log = loaded.partition.log
    loaded.is_rewritten = True
    loaded.needed_bytes = (
        log.size_bytes
    )  # set the size before the attempt, so that a failure is not retried at once
    try:
        log.roll(clock.now_ms())
        start_offset = log.log_end_offset
        if not await _write_all(loaded, clock):
            return
        before = log.size_bytes
        if await _delete_before(loaded, start_offset, clock):
            loaded.needed_bytes = log.size_bytes
            logger.info(
                "%s-%d: rewritten, %d bytes instead of %d", log.topic, log.partition, log.size_bytes, before
            )
    finally:
        loaded.is_rewritten = False


async def _write_all(loaded: LoadedShard[Any], clock: Clock) -> bool:
    """Write all state durably; return False if the shard was lost meanwhile. Raises LogError."""
    keys = list(loaded.shard.stored_keys())
    for first in range(0, len(keys), RECORDS_AT_ONCE):
        some = keys[first : first + RECORDS_AT_ONCE]
        records = [record for key in some for record in loaded.shard.records_of(key)]
        if records:
            loaded.append(records, clock.now_ms())
            loaded.write()
        await asyncio.sleep(0)
        if not loaded.is_current:
            return False
    return await loaded.persisted(loaded.partition.log.log_end_offset - 1) and loaded.is_current


async def _delete_before(loaded: LoadedShard[Any], start_offset: int, clock: Clock) -> bool:
    """Delete the records below `start_offset`; return False if the shard was lost meanwhile. Raises LogError."""
    partition = loaded.partition
    ticket = retention.prepare_delete_records(partition.log, start_offset, clock.now_ms())
    if ticket is not None:
        await remove(partition, ticket, clock.now_ms())
    return not partition.closed and loaded.is_current
