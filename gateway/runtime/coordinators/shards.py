"""All partitions of one internal topic, each with the state machine that lives in it.

A shard is loaded when something of it is asked for. One whose log could not be written, or lost what was written,
is lost: its state is ahead of the log, so it is loaded anew. Source: Kafka's `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kio.schema.errors import ErrorCode

from gateway.coordinator.transactional import TransactionEnd
from gateway.runtime.coordinators.shard import Codec, LoadedShard, State
from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.topics.internal_topics import InternalTopics
from log import IncompatibleFormat, InvalidProducerEpoch, LogError, RecordTooLarge

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=State)


class Unavailable(Exception):
    """The coordinator can't answer now; `error_code` tells the client to ask again."""

    def __init__(self, error_code: ErrorCode = ErrorCode.coordinator_not_available) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class StateTopic:
    """An internal topic that a coordinator keeps its state in, as it is created when it is first needed."""

    name: str
    num_partitions: int
    segment_bytes: int
    codec: Codec


class CoordinatorShards(Generic[S]):
    """Loads shards, writes to their logs, and notices when one is lost.

    `on_load` and `on_lost` are told of every shard once; a lost one stays listed until it is replaced.
    """

    def __init__(
        self,
        topic: StateTopic,
        fresh_state: Callable[[], S],
        clock: Clock,
        partitions: Partitions,
        internal_topics: InternalTopics,
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
        self._tasks: set[asyncio.Task[None]] = set()

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

    # Loading.

    def of(self, text: str) -> LoadedShard[S]:
        """The shard that holds what is called `text`. Raises Unavailable."""
        index = self._internal_topics.index_for(self.topic.name, text)
        if index is None:
            raise Unavailable
        return self.at(index)

    def at(self, index: int) -> LoadedShard[S]:
        """The shard of one partition. Raises Unavailable."""
        name = self.topic.name
        partition = self._partitions.get(name, index)
        loaded = self._loaded.get(index)
        if loaded is not None:
            if loaded.partition is partition and loaded.is_current:
                return loaded
            self.lose(loaded)
        if partition is None or partition.closed or partition.log.offline:
            raise Unavailable
        try:
            return self._load(partition)
        except (LogError, IncompatibleFormat) as error:
            logger.error("%s-%d can't be loaded: %s", name, index, error)  # noqa: TRY400 - it says all
            raise Unavailable from error

    def _load(self, partition: Partition) -> LoadedShard[S]:
        """Raises LogError, IncompatibleFormat."""
        loaded = LoadedShard(partition, self._fresh_state(), self.topic.codec)
        loaded.load(self._clock.now_ms())
        self._loaded[partition.index] = loaded
        self._on_load(loaded)
        return loaded

    def load_at_start(self) -> None:
        """As `load_stored`, but raises IncompatibleFormat for what a later release wrote."""
        for partition in self._stored():
            try:
                self._load(partition)
            except LogError as error:
                logger.error("%s-%d can't be loaded: %s", self.topic.name, partition.index, error)  # noqa: TRY400

    def load_stored(self) -> None:
        """Load every partition that holds anything; one that can't be is tried again when it is asked for."""
        for partition in self._stored():
            with contextlib.suppress(Unavailable):  # told in the log
                self.at(partition.index)

    def _stored(self) -> Iterator[Partition]:
        """The partitions that hold anything."""
        topic = self._partitions.by_name.get(self.topic.name)
        for partition in topic.with_records() if topic is not None else ():
            if partition.log.log_end_offset > partition.log.log_start_offset:
                yield partition

    def lose(self, loaded: LoadedShard[S]) -> None:
        """Serve no more from a shard whose state is ahead of its log, or whose partition is gone."""
        loaded.failed = True
        if not loaded.lost:
            loaded.lost = True
            self._on_lost(loaded)

    def lose_all(self) -> None:
        """Serve no more."""
        for loaded in self:
            self.lose(loaded)

    # Writing.

    def check_current(self, loaded: LoadedShard[S]) -> None:
        """Raises Unavailable for a shard whose log no longer has what its state has."""
        if not loaded.is_current:
            self.lose(loaded)
            raise Unavailable(ErrorCode.not_coordinator)

    def append(self, loaded: LoadedShard[S], records: Sequence[Any]) -> int:
        """Write at least one record; returns the offset of the last.

        Raises Unavailable when it can't be done; the state is then ahead of the log, and the shard lost. Records in a
        transaction may be refused with InvalidProducerEpoch; then nothing was written.
        """
        try:
            last_offset = loaded.append(records, self._clock.now_ms())
        except InvalidProducerEpoch:
            raise
        except (LogError, ValueError, MemoryError) as error:
            index = loaded.partition.index
            logger.error("%s-%d could not be written, loading it anew: %s", self.topic.name, index, error)  # noqa: TRY400 - it says all
            self.lose(loaded)
            # as in Kafka: what is too large today is too large tomorrow, so its client must not ask again
            is_too_large = isinstance(error, RecordTooLarge)
            code = ErrorCode.unknown_server_error if is_too_large else ErrorCode.not_coordinator
            raise Unavailable(code) from error
        if loaded.is_worth_a_rewrite:
            loaded.is_rewritten = True
            self.start(self._rewrite(loaded))
        return last_offset

    async def persisted(self, loaded: LoadedShard[S], last_offset: int | None) -> None:
        """Wait until what was written is durable. Raises Unavailable when it will not be."""
        if last_offset is not None and not await loaded.persisted(last_offset):
            self.lose(loaded)
            raise Unavailable(ErrorCode.not_coordinator)

    async def settled(self, loaded: LoadedShard[S]) -> None:
        """Wait until all that the state has is durable. Raises Unavailable when it will not be."""
        await self.persisted(loaded, loaded.partition.log.log_end_offset - 1)

    async def _rewrite(self, loaded: LoadedShard[S]) -> None:
        try:
            await loaded.rewrite(self._clock.now_ms)
        except LogError as error:
            logger.error("%s-%d can't be written anew: %s", self.topic.name, loaded.partition.index, error)  # noqa: TRY400 - it says all

    def follow(self, index: int, record: TransactionEnd) -> None:
        """Fold in what somebody else has just appended to the log of one partition."""
        with contextlib.suppress(Unavailable):  # what is loaded later has it from the log
            self.at(index).follow(record, self._clock.now_ms())

    def start(self, work: asyncio._CoroutineLike[None]) -> None:
        """Go on with something in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
