"""The coordinators' state: the partitions of one internal topic, each with its state machine and the log that
makes it durable.

A shard is loaded when an operation first needs it. A shard whose log could not be written, or lost records,
is dropped: its state is ahead of its log, so the next operation loads it again.

**Operations** have four steps: judge → append → fold in → wait.

    judge     the operation reads the state and yields a `Change`: its answer, and the records of what changes
    append    the records join the batch that is about to be written
    fold in   the state replays the records, by the code that also builds it from the log at start
    wait      the batch is written, and no answer is sent before the batch is durable

The metadata waits first and folds in then (`MetadataLog`). docs/contributing/decisions/groups.md says why.

**Rounds.** Operations that arrive in one turn of the event loop form a *round*, and so do operations that
arrive during a flush: one batch, one flush. When more shards wait than a flush persists quickly, those that
waited longest have their round first, and the others gather more operations. A round runs without an await.
Each operation sees the changes of earlier ones, but no answer shows a state that is ahead of its log. If a
batch can't be written, or is lost, the shard is dropped and loaded from its log again, and all waiting
clients must retry.

`CoordinatorShards.run` joins the next round and waits. `CoordinatorShards.apply` runs a round at once, for
callers that do not wait, or that need the offset to wait for.

**Rewrites.** A log that is much larger than its state is rewritten: all state is written again at the end of
the log, and the older records are deleted. As after a compaction, the newest record of each key remains.
Other operations continue between the batches of a rewrite. Each record is encoded from the state at the time
it is written, so that no older state follows newer state.

Source: Kafka's `CoordinatorRuntime` with `group.coordinator.append.linger.ms` -1, its default.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import Config
from seqgate.gateway.coordinator.change import Change, Pending, TransactionEnd, Waiter
from seqgate.gateway.coordinator.rows import RECORD_OVERHEAD_BYTES, newer_version_in, size_of
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import Partition, persist_start_and_remove
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.topic_lifecycle import InternalTopics
from seqgate.log import IncompatibleFormat, InvalidProducerEpoch, LogError, RecordTooLarge, retention
from seqgate.log.format.record_batch import BatchHeader
from seqgate.log.format.records import Record, build_batch, iterate_records, read_end_marker

logger = logging.getLogger(__name__)


A = TypeVar("A")


class State(Protocol):
    """A state machine whose stored state only records change. If the log has transactions, the state also
    replays `Pending` records and `TransactionEnd`.
    """

    def replay(self, record: Any, now_ms: int) -> None: ...

    def stored_keys(self) -> Iterable[Any]: ...

    def records_of(self, key: Any) -> Sequence[Any]: ...


S = TypeVar("S", bound=State)


ShardOperation = Callable[[S, int], Change[A]]
"""Judges a state at a time (ms). If it raises, it must have changed nothing; the caller gets the error."""

Answered = Callable[[Any, Exception | None], None]
"""The one function that answers a request: called once, with the answer or the error that refuses it."""

Noted = Callable[[Any, int], None]
"""Called when a round is written, not durable yet: with the answer and the round's last offset."""


class Unavailable(Exception):
    """The coordinator can't answer now; `error_code` tells the client to retry."""

    def __init__(self, error_code: ErrorCode = ErrorCode.coordinator_not_available) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


ASK_TIMEOUT_S: Final = 5.0
"""Time for the answer of one gateway."""


async def ask_coordinator(peers: AsksPeers, leader: int, request: Any) -> Any:
    """Return the answer of another gateway. Raises Unavailable, also when it takes too long."""
    try:
        return await peers.ask(leader, request, timeout_s=ASK_TIMEOUT_S)
    except PeerUnavailable as error:
        raise Unavailable from error


def error_code_of(error: Exception | None) -> ErrorCode:
    """Return the error code for a refused operation. Any error but Unavailable is a bug."""
    if isinstance(error, Unavailable):
        return error.error_code
    logger.error("an operation failed", exc_info=error)
    return ErrorCode.unknown_server_error


class Codec(Protocol):
    """The format of the state's records in the log."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None: ...


class StateParts(NamedTuple):
    """The parts through which every coordinator keeps its state."""

    config: Config
    clock: Clock
    partitions: Partitions
    internal_topics: InternalTopics
    flusher: LogFlusher


class CoordinatorShards(Generic[S]):
    """Loads shards, carries out operations on them, and drops shards whose log lost records. `on_load` and
    `on_lost` are called once for every shard; a lost shard stays listed until it is replaced, unless its
    partition is closed.
    """

    def __init__(
        self,
        topic: str,
        settings: str,
        codec: Codec,
        fresh_state: Callable[[], S],
        parts: StateParts,
        *,
        on_load: Callable[[LoadedShard[S]], None] = lambda _: None,
        on_lost: Callable[[LoadedShard[S]], None] = lambda _: None,
    ) -> None:
        """`settings` is the prefix of the internal topic's settings `….num.partitions` and `….segment.bytes`;
        `codec` is the format of the topic's records.
        """
        config, self._clock, self._partitions, self._internal_topics, self._flusher = parts
        self.topic = topic
        self._num_partitions = config.int(f"{settings}.num.partitions")
        self._segment_bytes = config.int(f"{settings}.segment.bytes")
        self._codec = codec
        self._fresh_state = fresh_state
        self._on_load = on_load
        self._on_lost = on_lost
        self._loaded: dict[int, LoadedShard[S]] = {}
        self._is_stopped = False
        self._asked: dict[LoadedShard[S], list[_Asked]] = {}
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._partitions.when_closed.append(self._partition_closed)
        self._partitions.when_ready.append(self._partition_ready)

    def __iter__(self) -> Iterator[LoadedShard[S]]:
        return iter(list(self._loaded.values()))

    async def ensure_topic(self) -> None:
        """Create the topic unless it is there. Raises Unavailable."""
        try:
            await self._internal_topics.ensure(
                self.topic, num_partitions=self._num_partitions, segment_bytes=self._segment_bytes
            )
        except LogError as error:
            raise Unavailable from error

    def leader_of(self, owner: str) -> int:
        """Return the node id of the gateway with the state of a group or transactional id; -1 if none has."""
        return self._internal_topics.leader_for(self.topic, owner)

    def is_elsewhere(self, owner: str) -> bool:
        """Return whether another gateway holds the state of a group or a transactional id."""
        return self._internal_topics.is_elsewhere(self.topic, owner)

    # --- loading

    def of(self, owner: str) -> LoadedShard[S]:
        """Return the shard of a group or transactional id. Raises Unavailable, also if others may have it."""
        self._check_leads()
        index = self._internal_topics.index_for(self.topic, owner)
        if index is None:
            raise Unavailable
        return self.at(index)

    def index_of(self, owner: str) -> int:
        """Return the index of the partition with the state of `owner`. Raises Unavailable."""
        index = self._internal_topics.index_for(self.topic, owner)
        if index is None:
            raise Unavailable
        return index

    def again(self, loaded: LoadedShard[S], owner: str) -> LoadedShard[S]:
        """Return the shard as `of` does, which returned `loaded` for the owner before. Raises Unavailable."""
        if not loaded.is_current:
            return self.of(owner)
        self._check_leads()
        return loaded

    def _check_leads(self) -> None:
        """Check that no other gateway can have these partitions by now. Raises Unavailable."""
        lease = self._partitions.lease
        if lease is not None and lease.is_over():
            raise Unavailable(ErrorCode.not_coordinator)

    def loaded(self, index: int) -> LoadedShard[S] | None:
        """Return the shard of one partition if it is loaded; it may have failed since."""
        return self._loaded.get(index)

    def at(self, index: int) -> LoadedShard[S]:
        """Return the shard of one partition. Raises Unavailable."""
        loaded = self._loaded.get(index)
        if loaded is not None:
            if loaded.is_current:
                return loaded
            self.lose(loaded)
        if self._is_stopped:
            raise Unavailable
        name = self.topic
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
        loaded = LoadedShard(partition, self._fresh_state(), self._codec)
        loaded.load(self._clock.now_ms())
        self._loaded[partition.index] = loaded
        self._on_load(loaded)
        return loaded

    def _partition_ready(self, topic: str, index: int) -> None:
        """Load a partition that this gateway begins to lead: members and transactions in it have timeouts."""
        if topic == self.topic:
            with contextlib.suppress(Unavailable):  # the reason was logged already
                self.at(index)

    def load_at_start(self) -> None:
        """Load every partition that holds records; log which can't be loaded. Raises IncompatibleFormat."""
        for partition in self._stored():
            try:
                self._load(partition)
            except (LogError, Unavailable) as error:  # Unavailable: what loading adds can't be written
                logger.error("%s-%d can't be loaded: %s", self.topic, partition.index, error)  # noqa: TRY400

    def load_stored(self) -> None:
        """Load every partition that holds records. If one can't be loaded, its next operation tries again."""
        for partition in self._stored():
            with contextlib.suppress(Unavailable):  # the reason was logged already
                self.at(partition.index)

    def _stored(self) -> Iterator[Partition]:
        topic = self._partitions.by_name.get(self.topic)
        for partition in topic.with_records() if topic is not None else ():
            if partition.log.log_end_offset > partition.log.log_start_offset:
                yield partition

    def missing(self) -> list[int]:
        """Return the partitions led here whose state is not here: they are out of service, their records have
        not come yet, or can't be read. Loads what can be loaded.
        """
        topic = self._partitions.by_name.get(self.topic)
        if topic is None:
            return []
        self.load_stored()
        current = {loaded.partition.index for loaded in self if loaded.is_current}
        unread = {partition.index for partition in self._stored()} - current
        awaited = {index for index in range(topic.count) if topic.is_awaited(index)}
        return sorted(unread | awaited | {index for index in topic.served_here() if topic.is_unusable(index)})

    @property
    def is_loading(self) -> bool:
        """Whether a partition led here lacks its state and is in service: Metadata names its leader."""
        topic = self._partitions.by_name.get(self.topic)
        return topic is not None and not all(map(topic.is_unusable, self.missing()))

    @property
    def is_awaiting(self) -> bool:
        """Whether the records of a partition led here have not come yet."""
        topic = self._partitions.by_name.get(self.topic)
        return topic is not None and any(map(topic.is_awaited, range(topic.count)))

    def lose(self, loaded: LoadedShard[S]) -> None:
        """Drop a shard whose state is ahead of its log, or whose partition is gone; answer the requests that
        wait for a round of the shard with NOT_COORDINATOR.
        """
        loaded.failed = True
        if not loaded.lost:
            loaded.lost = True
            _answer(self._asked.pop(loaded, ()), Unavailable(ErrorCode.not_coordinator))
            self._on_lost(loaded)

    def _partition_closed(self, partition: Partition) -> None:
        """Drop the shard of a partition that another gateway leads now, or whose topic was deleted."""
        loaded = self._loaded.get(partition.index) if partition.topic == self.topic else None
        if loaded is not None and loaded.partition is partition:
            del self._loaded[partition.index]
            self.lose(loaded)

    def stop(self) -> None:
        """Drop all shards and load none any more: timers would still write when the log is sealed."""
        self._is_stopped = True
        for loaded in self:
            self.lose(loaded)

    # --- operations

    async def run(self, loaded: LoadedShard[S], operation: ShardOperation[S, A]) -> A:
        """Carry out an operation in the shard's next round; return its answer once the answer is durable.
        Raises Unavailable, and the errors of `operation`.
        """
        waiter: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.ask(loaded, operation, partial(settle, waiter))
        return await waiter

    def ask(
        self,
        loaded: LoadedShard[S],
        operation: ShardOperation[S, A],
        answered: Answered,
        noted: Noted | None = None,
    ) -> None:
        """Carry out an operation as `run` does, without a task. Calls `answered` with the answer or the
        error. Calls `noted` before, in the turn in which the round is written and the state changes.
        """
        asked = self._asked.get(loaded)
        if asked is None:
            self._asked[loaded] = [_Asked(operation, answered, noted)]
            if self._flusher.is_flushing and loaded.awaits_flush:
                self._flusher.after_next_round[self._flush_finished] = None
            else:
                self._schedule()
        else:
            asked.append(_Asked(operation, answered, noted))

    def apply(self, loaded: LoadedShard[S], operation: ShardOperation[S, A]) -> tuple[A, int]:
        """Carry out an operation at once, after the operations that wait for a round. Return its answer, and
        the last offset that must be durable before the answer leaves. Raises Unavailable, and the errors of
        `operation`.
        """
        mine = _Asked(operation)
        last_offset, _ = self._run_round(loaded, [*self._asked.pop(loaded, ()), mine])
        if mine.error is not None:
            raise mine.error
        assert mine.change is not None
        return mine.change.answer, last_offset

    async def persisted(self, loaded: LoadedShard[S], last_offset: int) -> None:
        """Wait until the log is durable up to an offset. Raises Unavailable if that fails."""
        if not loaded.partition.is_persisted(last_offset):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_persisted(loaded, last_offset, partial(settle, done, None))
            await done

    def when_persisted(
        self, loaded: LoadedShard[S], last_offset: int, callback: Callable[[Unavailable | None], None]
    ) -> bool:
        """Call back once it is decided whether the log becomes durable up to an offset; with an error if it
        does not. Return whether that was not decided yet.
        """
        partition = loaded.partition
        if partition.is_persisted(last_offset):
            callback(None)
            return False

        def decided(is_persisted: bool) -> None:
            if is_persisted:
                callback(None)
            else:
                self.lose(loaded)
                callback(Unavailable(ErrorCode.not_coordinator))

        partition.when_decided(last_offset, decided)
        return True

    def follow(self, index: int, record: TransactionEnd) -> None:
        """Fold in a marker that was just appended to the log of one partition."""
        with contextlib.suppress(Unavailable):  # a shard that is loaded later reads the marker from the log
            self.at(index).follow(record, self._clock.now_ms())

    # --- rounds

    def _flush_finished(self) -> None:
        if self._asked:
            # the callbacks of answered requests read durable state, so they must run before the next round
            # changes it
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run_rounds)

    def _run_rounds(self) -> None:
        self._scheduled = False
        room = 0 if self._flusher.is_flushing else self._flusher.logs_per_round
        for loaded in list(self._asked):
            if room <= 0 and loaded.awaits_flush:
                # A batch written now would not become durable sooner: let it grow until `_flush_finished`.
                self._flusher.after_next_round[self._flush_finished] = None
                continue
            asked = self._asked.pop(loaded, ())
            if asked and self._run_round(loaded, asked)[1]:
                room -= 1

    def _run_round(self, loaded: LoadedShard[S], asked: Sequence[_Asked]) -> tuple[int, bool]:
        """Carry out operations, write their batch, and answer when the batch is durable; return the last
        offset, and whether the answers wait.
        """
        last_offset = -1
        if not loaded.is_current:
            self._fail(loaded, asked, Unavailable(ErrorCode.not_coordinator))
            return last_offset, False
        try:
            now_ms = self._clock.now_ms()
            for one in asked:
                self._carry_out(loaded, one, now_ms)
            if loaded.write():
                self._rewrite_if_worth_it(loaded)
            last_offset = loaded.partition.log.log_end_offset - 1
            for one in asked:
                if one.noted is not None and one.change is not None and one.error is None:
                    one.noted(one.change.answer, last_offset)
        except Unavailable as error:
            self._fail(loaded, asked, error)
        except (LogError, ValueError, MemoryError) as error:
            self._fail(loaded, asked, self._unwritten(loaded, error))
        except Exception as error:
            # Refuse all requests of the round, so that a bug does not let them wait for ever.
            logger.exception("an unexpected error ended a round of operations")
            self._fail(loaded, asked, self._unwritten(loaded, error))
        else:
            return last_offset, self.when_persisted(loaded, last_offset, partial(_answer, asked))
        return last_offset, False

    def _carry_out(self, loaded: LoadedShard[S], one: _Asked, now_ms: int) -> None:
        """Judge, append and fold in one operation. Raises Unavailable; LogError, ValueError and MemoryError
        mean that the shard is lost.
        """
        if loaded.failed:
            raise Unavailable(ErrorCode.not_coordinator)
        try:
            change = one.operation(loaded.shard, now_ms)
        except Exception as error:  # noqa: BLE001 - any error is the answer of this operation only
            one.fail(error)
            return
        one.change = change
        if not change.records:
            return
        try:
            loaded.append(change.records, now_ms)
        except InvalidProducerEpoch as error:
            one.fail(error)  # the producer of the transaction was fenced: nothing was written
            return
        except RecordTooLarge as error:
            # As in Kafka, the client must not retry: records that are too large now stay too large.
            self._unwritten(loaded, error)
            one.fail(Unavailable(ErrorCode.unknown_server_error))
            raise Unavailable(ErrorCode.not_coordinator) from error
        if not change.is_folded_in:
            for record in change.records:
                loaded.shard.replay(record, now_ms)

    def _unwritten(self, loaded: LoadedShard[S], error: Exception) -> Unavailable:
        place = loaded.partition.log.place
        logger.error("%s could not be written; its state is loaded again from the log: %s", place, error)
        return Unavailable(ErrorCode.not_coordinator)

    def _fail(self, loaded: LoadedShard[S], asked: Sequence[_Asked], error: Unavailable) -> None:
        """Drop the shard, and refuse every operation of the round that is not refused yet."""
        self.lose(loaded)
        _answer(asked, error)

    # --- rewriting

    def _rewrite_if_worth_it(self, loaded: LoadedShard[S]) -> None:
        if loaded.is_worth_a_rewrite:
            loaded.is_rewritten = True
            task = asyncio.get_running_loop().create_task(self._rewrite(loaded))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _rewrite(self, loaded: LoadedShard[S]) -> None:
        try:
            await loaded.rewrite(self._clock)
        except LogError as error:
            logger.error(  # noqa: TRY400 - needs no traceback
                "%s-%d can't be rewritten: %s", self.topic, loaded.partition.index, error
            )


class _Asked(msgspec.Struct, eq=False):
    """One operation of a round, the request that waits for it, and its result."""

    operation: ShardOperation[Any, Any]
    answered: Answered | None = None
    noted: Noted | None = None
    change: Change[Any] | None = None
    error: Exception | None = None

    def succeed(self) -> None:
        """Send the answers: the changes are durable. A callback that raises keeps no answer back."""
        change = self.change
        assert change is not None
        if change.when_durable is not None:
            _call(change.when_durable)
        if self.answered is not None:
            _call(self.answered, change.answer, None)
        for waiter, reply in change.replies:
            _call(settle, waiter, reply)

    def fail(self, error: Exception) -> None:
        """Refuse the operation, and the requests that wait for its answer."""
        self.error = error
        if self.answered is not None:
            _call(self.answered, None, error)
        for waiter, _ in () if self.change is None else self.change.replies:
            _call(settle, waiter, None, error)


def _answer(asked: Sequence[_Asked], error: Unavailable | None) -> None:
    """Answer a round's operations and waiting requests: the batch is durable, or lost because of `error`."""
    for one in asked:
        if error is not None and one.error is None:
            one.fail(error)
        elif one.error is None:
            one.succeed()


def _call(callback: Callable[..., None], *arguments: object) -> None:
    """Call back, and log an error of the callback, so that the answers after it are still sent."""
    try:
        callback(*arguments)
    except Exception:
        logger.exception("a callback of a durable or refused operation failed")


def settle(waiter: Waiter, answer: object, error: Exception | None = None) -> None:
    """Give a waiting request its answer or its error, unless its client is gone."""
    assert isinstance(waiter, asyncio.Future)
    if waiter.done():
        return
    if error is None:
        waiter.set_result(answer)
    else:
        waiter.set_exception(error)
        waiter.exception()  # the client may be gone


# The state of one partition, and the batch that it is about to write: records of several operations, as many
# as a batch can hold.


REWRITE_AT_LEAST_BYTES: Final = 8 << 20
"""The size up to which a log is never rewritten."""
REWRITE_FACTOR: Final = 3
"""A log is rewritten when it is this many times as large as its newest records of all keys."""
RECORDS_AT_ONCE: Final = 500
"""Keys rewritten in one turn; then other work of the event loop gets its turn."""
_new_tuple = tuple.__new__
_BATCH_OVERHEAD_BYTES: Final = 1024
"""An upper bound of the bytes that a batch takes, without its records."""


class LoadedShard(Generic[S]):
    """The state of one partition, loaded from its log; every record that is appended changes it too."""

    def __init__(self, partition: Partition, shard: S, codec: Codec) -> None:
        self.partition = partition
        self.shard = shard
        self._codec = codec
        self._records: list[Record] = []
        """The records of the batch that `write` writes."""
        self._size_bytes = 0
        self._now_ms = 0
        self.failed = False
        """Whether the state is ahead of the log, so that it must be loaded again."""
        self.lost = False
        """Whether the coordinator has learned that the shard failed."""
        self.needed_bytes = 0
        """The estimated size of the log if it were rewritten now."""
        self.is_rewritten = False
        self._end_offset = 0
        """The state contains all records of the log below this offset, and no others."""

    @property
    def is_current(self) -> bool:
        """Whether this gateway leads the partition, and the log holds every record of the state: a log that
        was reopened may end earlier.
        """
        log = self.partition.log
        return (
            not self.failed
            and not self.partition.closed
            and log.offline_because is None
            and log.log_end_offset >= self._end_offset
        )

    @property
    def max_batch_bytes(self) -> int:
        """The most bytes of records that one batch of this shard can hold, as `size_of` counts them."""
        return self.partition.log.config.max_message_bytes - _BATCH_OVERHEAD_BYTES

    @property
    def awaits_flush(self) -> bool:
        """Whether a batch of this shard must wait for a flush before its operations are answered."""
        return self.partition.flush_messages == 1

    def load(self, now_ms: int) -> None:
        """Build the state from the log. Raises LogError, IncompatibleFormat."""
        log = self.partition.log
        count = 0
        for header, batch in log.replay_batches(log.log_start_offset):
            for record in decoded(self._codec, header, batch, f"{log.topic}-{log.partition}"):
                self.shard.replay(record, now_ms)
            count += header.record_count
        self._end_offset = log.log_end_offset
        self.needed_bytes = sum(
            size_of(self._codec.encode, self.shard.records_of(key)) for key in self.shard.stored_keys()
        )
        if count:
            logger.info(
                "%s-%d: %d records loaded, %d bytes of them needed",
                log.topic,
                log.partition,
                count,
                self.needed_bytes,
            )

    def follow(self, record: TransactionEnd, now_ms: int) -> None:
        """Fold in a marker that was just appended to the log."""
        self._end_offset = self.partition.log.log_end_offset
        self.shard.replay(record, now_ms)

    def write(self) -> bool:
        """Write the gathered records to the log; return whether the log grew. Raises LogError."""
        self._write_batch()
        before, self._end_offset = self._end_offset, self.partition.log.log_end_offset
        return self._end_offset > before

    # --- the batch

    def append(self, records: Sequence[Any], now_ms: int) -> None:
        """Add the records of one operation to the batch that `write` writes, in one batch if a batch can hold
        them: a crash then leaves all or none.

        Records of a transaction (`Pending`) are written at once, in batches of their own. Raises LogError,
        and ValueError before anything is added. After InvalidProducerEpoch nothing was written, and after
        RecordTooLarge none of the records.
        """
        self._now_ms = now_ms
        for record in records:
            if isinstance(record, Pending):
                self._add_to_transactions(records)
                return
        self._gather(records, None)

    def _add_to_transactions(self, records: Sequence[Any]) -> None:
        for producer, same in groupby(records, _producer_of):
            if producer is None:
                self._gather(same, None)
            else:
                self._write_batch()
                self._gather([record.record for record in same], producer)
                self._write_batch(producer)

    def _write_batch(self, producer: tuple[int, int] | None = None) -> None:
        """Append the gathered records, as part of the producer's transaction if any. Raises LogError."""
        if not self._records:
            return
        records, self._records, self._size_bytes = self._records, [], 0
        if producer is None:
            self.partition.append(build_batch(records), self._now_ms)
            return
        producer_id, producer_epoch = producer
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True
        )
        self.partition.append(batch, self._now_ms, is_client=False)

    def _gather(self, records: Iterable[Any], producer: tuple[int, int] | None) -> None:
        """Gather the records; write full batches. A record that no batch can hold is refused before. Raises
        LogError.
        """
        encode, now_ms, max_bytes = self._codec.encode, self._now_ms, self.max_batch_bytes
        gathered: list[Record] = []
        size_bytes = 0
        for record in records:
            key, value = encode(record)
            # the constructor of a NamedTuple takes three times as long, and this line runs for every record
            gathered.append(_new_tuple(Record, (0, now_ms, key, value, ())))
            size_bytes += RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
        if self._size_bytes + size_bytes > max_bytes:
            self._write_batch(producer)
        if size_bytes <= max_bytes:
            self._records += gathered
            self._size_bytes += size_bytes
        else:
            self._write_in_parts(gathered, max_bytes, producer)

    def _write_in_parts(
        self, records: Sequence[Record], max_bytes: int, producer: tuple[int, int] | None
    ) -> None:
        sizes = [
            RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") for record in records
        ]
        if producer is None:
            self._check_alone(records[sizes.index(max(sizes))])
        for record, size_bytes in zip(records, sizes, strict=True):
            if self._size_bytes + size_bytes > max_bytes:
                self._write_batch(producer)
            self._records.append(record)
            self._size_bytes += size_bytes
        if self._size_bytes > max_bytes:
            self._write_batch(producer)

    def _check_alone(self, record: Record) -> None:
        """Check that the log takes a batch with only this record. Raises RecordTooLarge."""
        size_bytes, limit = len(build_batch([record])), self.partition.log.config.max_message_bytes
        if size_bytes > limit:
            raise RecordTooLarge(
                f"The record needs a batch of {size_bytes} bytes; max.message.bytes is {limit}."
            )

    # --- rewriting

    @property
    def is_worth_a_rewrite(self) -> bool:
        """Whether most of the log is no longer needed, and no rewrite is running."""
        size_bytes = self.partition.log.segments.size_bytes
        return (
            size_bytes > REWRITE_AT_LEAST_BYTES
            and not self.is_rewritten
            and size_bytes > REWRITE_FACTOR * self.needed_bytes
        )

    async def rewrite(self, clock: Clock) -> None:
        """Rewrite the log unless the shard is lost meanwhile. Raises LogError."""
        log = self.partition.log
        self.is_rewritten = True
        # Set the size before the attempt, so that a failure is not retried at once.
        self.needed_bytes = log.size_bytes
        try:
            log.roll(clock.now_ms())
            start_offset = log.log_end_offset
            if not await self._write_all(clock):
                return
            before = log.size_bytes
            if await self._delete_before(start_offset, clock):
                self.needed_bytes = log.size_bytes
                logger.info(
                    "%s-%d: rewritten, %d bytes instead of %d",
                    log.topic,
                    log.partition,
                    log.size_bytes,
                    before,
                )
        finally:
            self.is_rewritten = False

    async def _write_all(self, clock: Clock) -> bool:
        """Write all state durably; return False if the shard was lost meanwhile. Raises LogError."""
        keys = list(self.shard.stored_keys())
        for first in range(0, len(keys), RECORDS_AT_ONCE):
            some = keys[first : first + RECORDS_AT_ONCE]
            records = [record for key in some for record in self.shard.records_of(key)]
            if records:
                self.append(records, clock.now_ms())
                self.write()
            await asyncio.sleep(0)
            if not self.is_current:
                return False
        if not await self.partition.persisted(self.partition.log.log_end_offset - 1):
            self.failed = True
        return self.is_current

    async def _delete_before(self, start_offset: int, clock: Clock) -> bool:
        """Delete the records below `start_offset`; return False if the shard was lost. Raises LogError."""
        partition = self.partition
        ticket = retention.prepare_delete_records(partition.log, start_offset, clock.now_ms())
        if ticket is not None:
            await persist_start_and_remove(partition, ticket, clock.now_ms())
        return not partition.closed and self.is_current


def decoded(codec: Codec, header: BatchHeader, batch: memoryview, log_name: str) -> Iterator[Any]:
    """Return the decoded records of a batch; a damaged record is logged and left out. Raises
    IncompatibleFormat for a record of a later release.
    """
    if header.is_control:
        marker = read_end_marker(batch)
        if marker is not None:
            yield TransactionEnd(header.producer_id, marker.is_commit)
        return
    for record in iterate_records(batch):
        try:
            found = codec.decode(record.key or b"", record.value)
        except ValueError as error:
            newer = newer_version_in(error)
            if newer is not None:
                raise IncompatibleFormat(f"{log_name} has, at offset {record.offset}, {newer}.") from error
            logger.warning("%s, offset %d: %s", log_name, record.offset, error)
            continue
        if found is None:
            continue
        yield Pending(header.producer_id, header.producer_epoch, found) if header.is_transactional else found


def _producer_of(record: Any) -> tuple[int, int] | None:
    """Return the producer in whose transaction a record must be written."""
    return (record.producer_id, record.producer_epoch) if isinstance(record, Pending) else None
