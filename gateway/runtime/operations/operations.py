"""Carries out operations on state that a log holds, in four steps: judge → append → fold in → wait.

    judge     the operation reads the state and yields a `Change`: its answer, and the records of what changes
    append    the records join the batch that is about to be written
    fold in   the state replays the records, by the code that also builds it from the log at start
    wait      the batch is written, and no answer is sent before the batch is durable

Two classes carry operations out. docs/decisions.md says why they differ.

    `Operations`     folds in, then waits    groups, share groups, transactions: one shard for each partition
    `DurableFirst`   waits, then folds in    topics and other metadata: everyone reads the image without waiting for it

**Rounds** (`Operations`). Operations that arrive in one turn of the event loop form a *round*, and so do
operations that arrive during a flush: one batch, one flush. When more shards wait than a flush persists
quickly, those that waited longest have their round first, and the others gather more operations. A round runs
without an await. Each operation sees the changes of earlier ones, but no answer shows a state that is ahead
of its log. If a batch can't be written, or is lost, the shard is dropped and loaded from its log again, and
all waiting clients must retry.

`Operations.run` joins the next round and waits. `Operations.apply` runs a round at once, for callers that do
not wait, or that need the offset to wait for.

Source: Kafka's `CoordinatorRuntime` with `group.coordinator.append.linger.ms` -1, its default.

Operations one at a time, each durable before it is folded in; `operations` compares this with the other way.

Each operation judges a state that has every earlier change, and no change can be taken back. So an operation
begins when the one before it is durable and folded in. Where several processes write one log, an operation
that finds another's records in its place is judged again on the state that has them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change, Waiter
from seqgate.gateway.coordinator.stored_versions import newer_version_in
from seqgate.gateway.coordinator.transactional import Pending, TransactionEnd
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import IncompatibleFormat, InvalidProducerEpoch, LogError, RecordTooLarge
from seqgate.log.format.end_marker import read_end_marker
from seqgate.log.format.record_batch import BatchHeader
from seqgate.log.format.records import Record, build_batch, iterate_records

logger = logging.getLogger(__name__)


class Journal(Protocol):
    """The log of a state whose changes are durable before they are folded in. Others may write the log, too."""

    async def catch_up(self) -> None:
        """Fold in all records that are in the log and not in the state. Raises LogError."""

    async def commit(self, records: Sequence[Any]) -> bool:
        """Write the records right behind those of the state, and fold them in once they are durable.

        Return False where another writer was first: its records are folded in, and these are not written.
        Raises LogError.
        """


class _Look:
    """The operation that changes nothing."""

    records: Final = ()
    answer: Final = None


class DurableFirst:
    """Runs operations one at a time, each durable before it is folded in.

    An operation continues when its caller is cancelled, because its records may be in the log already.
    `judge` is called again when another writer of the log was first, so it must change nothing.

    A look at the log serves all operations that waited when it began: where the log is slow, clients that ask
    again and again would otherwise queue up more looks than are ever made. A commit is a look, too.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = asyncio.Lock()
        self._begun = 0
        """The number of the newest look at the log."""
        self._seen = 0
        """The number of the newest look that has ended: the state has all that was in the log when it began.
        """
        self.when_committed: list[Callable[[], None]] = []
        """Called after each operation of this process whose records are durable and folded in."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._next_look: tuple[int, asyncio.Task[None]] | None = None
        """The newest look without an operation, and the number of the newest look that had begun before it.
        """

    @property
    def is_running(self) -> bool:
        """Whether an operation is in progress."""
        return self._lock.locked()

    def start(self, judge: Callable[[], Decided[A]]) -> asyncio.Task[A]:
        """Carry out an operation after those before it. The task raises LogError, and what `judge` raises."""
        task = asyncio.get_running_loop().create_task(self._run(judge))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, judge: Callable[[], Decided[A]]) -> A:
        """Carry out an operation as `start` does; returns its answer once it is durable and folded in."""
        task = self.start(judge)
        # The error of an operation whose caller was cancelled has nobody left to take it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def look(self) -> None:
        """Fold in everything that is in the log by now. Callers share looks, however many they are. Raises
        LogError.
        """
        known = self._next_look
        if known is None or known[0] != self._begun or known[1].done():
            task = self.start(_Look)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            known = self._next_look = self._begun, task
        await asyncio.shield(known[1])

    async def _run(self, judge: Callable[[], Decided[A]]) -> A:
        before = self._begun
        async with self._lock:
            if self._seen <= before:
                await self._look(self._journal.catch_up())
            while True:
                change = judge()
                if not change.records:
                    return change.answer
                if await self._look(self._journal.commit(change.records)):
                    for committed in self.when_committed:
                        committed()
                    return change.answer

    async def _look(self, look: Awaitable[A]) -> A:
        self._begun += 1
        found = await look
        self._seen = self._begun
        return found

    async def finish(self) -> None:
        """Wait for the operations in progress."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Since Python 3.12 a gather of ended tasks does not yield, and `_tasks` would never lose them.
            await asyncio.sleep(0)


# The batch that a shard is about to write: records of several operations, as many as a batch can hold.

Encode = Callable[[Any], tuple[bytes, bytes | None]]
"""Encodes the key and the value of a record. Raises ValueError if a string of the record is too long."""

_new_tuple = tuple.__new__
RECORD_OVERHEAD_BYTES: Final = 30
"""An upper bound of the bytes that a record takes in a batch, without its key and value."""
BATCH_OVERHEAD_BYTES: Final = 1024
"""An upper bound of the bytes that a batch takes, without its records."""


class OpenBatch:
    """Gathers encoded records and appends them to the log of a partition."""

    def __init__(self, partition: Partition, encode: Encode) -> None:
        self._partition = partition
        self._encode = encode
        self._records: list[Record] = []
        self._size_bytes = 0
        self._now_ms = 0

    def add(self, records: Sequence[Any], now_ms: int) -> None:
        """Add the records of one operation, in one batch if a batch can hold them: a crash then leaves all or
        none.

        Records of a transaction (`Pending`) are written at once, in batches of their own. Raises LogError,
        and ValueError before anything is added. After InvalidProducerEpoch nothing was written.
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
                self.write()
                self._gather([record.record for record in same], producer)
                self.write(producer)

    def write(self, producer: tuple[int, int] | None = None) -> None:
        """Append the gathered records to the log, as a part of the producer's transaction if there is one.
        Raises LogError.
        """
        if not self._records:
            return
        records, self._records, self._size_bytes = self._records, [], 0
        if producer is None:
            self._partition.append(build_batch(records), self._now_ms)
            return
        producer_id, producer_epoch = producer
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True
        )
        self._partition.append(batch, self._now_ms, is_client=False)

    def _gather(self, records: Iterable[Any], producer: tuple[int, int] | None) -> None:
        """Gather the records; write each batch that is full. A record that no batch can hold is written
        alone, so that the log refuses it.
        """
        encode, now_ms = self._encode, self._now_ms
        gathered: list[Record] = []
        size_bytes = 0
        for record in records:
            key, value = encode(record)
            # the constructor of a NamedTuple takes three times as long, and this line runs for every record
            gathered.append(_new_tuple(Record, (0, now_ms, key, value, ())))
            size_bytes += _size(key, value)
        max_bytes = self._partition.log.config.max_message_bytes - BATCH_OVERHEAD_BYTES
        if self._size_bytes + size_bytes > max_bytes:
            self.write(producer)
        if size_bytes <= max_bytes:
            self._records += gathered
            self._size_bytes += size_bytes
        else:
            self._write_in_parts(gathered, max_bytes, producer)

    def _write_in_parts(
        self, records: Sequence[Record], max_bytes: int, producer: tuple[int, int] | None
    ) -> None:
        for record in records:
            size_bytes = _size(record.key, record.value)
            if self._size_bytes + size_bytes > max_bytes:
                self.write(producer)
            self._records.append(record)
            self._size_bytes += size_bytes
        if self._size_bytes > max_bytes:
            self.write(producer)


def size_of(encode: Encode, records: Iterable[Any]) -> int:
    """Return roughly how many bytes a batch of these records takes."""
    plain = (record.record if isinstance(record, Pending) else record for record in records)
    return sum(_size(*encode(record)) for record in plain)


def _size(key: bytes | None, value: bytes | None) -> int:
    return len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES


def _producer_of(record: Any) -> tuple[int, int] | None:
    """Return the producer in whose transaction a record must be written."""
    return (record.producer_id, record.producer_epoch) if isinstance(record, Pending) else None


A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


# One partition of an internal topic as its coordinator serves it: a state machine and the log that makes it
# durable.


class State(Protocol):
    """A state machine that changes its stored state only by records.

    If the log has transactions, the state also replays `Pending` records and `TransactionEnd`.
    """

    def replay(self, record: Any, now_ms: int) -> None: ...

    def stored_keys(self) -> Iterable[Any]: ...

    def records_of(self, key: Any) -> Sequence[Any]: ...


S = TypeVar("S", bound=State)

Operation = Callable[[S, int], Change[A]]
"""Judges a state at a time (ms). If it raises, it must have changed nothing, and the caller gets the error.
"""

Answered = Callable[[Any, Exception | None], None]
"""The one function that answers a request: called once, with the answer of an operation or the error that
refuses it.
"""

Noted = Callable[[Any, int], None]
"""The function that is called when a round is written, not durable yet: with the answer and the round's last
offset.
"""


class Unavailable(Exception):
    """The coordinator can't answer now; `error_code` tells the client to retry."""

    def __init__(self, error_code: ErrorCode = ErrorCode.coordinator_not_available) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


def error_code_of(error: Exception | None) -> ErrorCode:
    """Return the error code for a refused operation. Any error but Unavailable is a bug."""
    if isinstance(error, Unavailable):
        return error.error_code
    logger.error("an operation failed", exc_info=error)
    return ErrorCode.unknown_server_error


class Decided(Protocol[A_co]):
    """Records that carry out a change, all or none, and the answer that is true once they are durable."""

    @property
    def records(self) -> Sequence[Any]: ...

    @property
    def answer(self) -> A_co: ...


class Applied(NamedTuple, Generic[A]):
    """The answer of an operation, and the last offset that must be durable before the answer leaves."""

    answer: A
    last_offset: int


class _Asked:
    """One operation of a round, the request that waits for it, and its result."""

    __slots__ = ("answered", "change", "error", "noted", "operation")

    def __init__(
        self, operation: Operation[Any, Any], answered: Answered | None, noted: Noted | None = None
    ) -> None:
        self.operation = operation
        self.answered = answered
        self.noted = noted
        self.change: Change[Any] | None = None
        self.error: Exception | None = None

    def succeed(self) -> None:
        """Send the answers: the operation's changes are durable. A callback that raises keeps no answer back."""
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


class Operations(Generic[S]):
    """Runs the operations of one coordinator's shards.

    `lose` drops a shard whose state is ahead of its log; `on_write` is called after every round that wrote.
    """

    def __init__(
        self,
        clock: Clock,
        flusher: LogFlusher,
        *,
        lose: Callable[[LoadedShard[S]], None],
        on_write: Callable[[LoadedShard[S]], None],
    ) -> None:
        self._clock = clock
        self._flusher = flusher
        self._lose = lose
        self._on_write = on_write
        self._asked: dict[LoadedShard[S], list[_Asked]] = {}
        self._scheduled = False

    async def run(self, loaded: LoadedShard[S], operation: Operation[S, A]) -> A:
        """Carry out an operation in the shard's next round; return its answer once the answer is durable.

        Raises Unavailable, and the errors of `operation`.
        """
        waiter: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.ask(loaded, operation, partial(settle, waiter))
        return await waiter

    def ask(
        self,
        loaded: LoadedShard[S],
        operation: Operation[S, A],
        answered: Answered,
        noted: Noted | None = None,
    ) -> None:
        """Carry out an operation as `run` does, without a task. Calls `answered` with the answer or the
        error.

        Calls `noted` before, in the turn in which the round is written and the state changes.
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

    def apply(self, loaded: LoadedShard[S], operation: Operation[S, A]) -> Applied[A]:
        """Carry out an operation at once, after the operations that wait for a round. Raises Unavailable, and
        the errors of `operation`.
        """
        mine = _Asked(operation, None)
        last_offset = self._run_round(loaded, [*self._asked.pop(loaded, ()), mine])
        if mine.error is not None:
            raise mine.error
        assert mine.change is not None
        return Applied(mine.change.answer, last_offset)

    async def persisted(self, loaded: LoadedShard[S], last_offset: int) -> None:
        """Wait until the log is durable up to an offset. Raises Unavailable if that fails."""
        partition = loaded.partition
        if not partition.is_persisted(last_offset):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_persisted(loaded, last_offset, lambda error: settle(done, None, error))
            await done

    def when_persisted(
        self, loaded: LoadedShard[S], last_offset: int, callback: Callable[[Unavailable | None], None]
    ) -> None:
        """Call back once it is decided whether the log becomes durable up to an offset; with an error if it
        does not.
        """
        partition = loaded.partition

        def decided(is_persisted: bool) -> None:
            if is_persisted:
                callback(None)
            else:
                self._lose(loaded)
                callback(Unavailable(ErrorCode.not_coordinator))

        if partition.is_persisted(last_offset):
            callback(None)
        else:
            partition.when_decided(last_offset, decided)

    def refuse(self, loaded: LoadedShard[S]) -> None:
        """Answer all requests that wait for a round of this shard with NOT_COORDINATOR."""
        for one in self._asked.pop(loaded, ()):
            one.fail(Unavailable(ErrorCode.not_coordinator))

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
            if asked and not loaded.partition.is_persisted(self._run_round(loaded, asked)):
                room -= 1

    def _run_round(self, loaded: LoadedShard[S], asked: Sequence[_Asked]) -> int:
        """Carry out operations, write their batch, and answer when the batch is durable; return the last
        offset.
        """
        last_offset = -1
        if not loaded.is_current:
            self._fail(loaded, asked, Unavailable(ErrorCode.not_coordinator))
            return last_offset
        try:
            now_ms = self._clock.now_ms()
            for one in asked:
                self._carry_out(loaded, one, now_ms)
            if loaded.write():
                self._on_write(loaded)
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
            if loaded.partition.is_persisted(last_offset):
                _answer(asked, None)
            else:
                self.when_persisted(loaded, last_offset, lambda error: _answer(asked, error))
        return last_offset

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
        self._lose(loaded)
        _answer(asked, error)


def _answer(asked: Sequence[_Asked], error: Unavailable | None) -> None:
    """Answer the operations of a round and all requests that wait for it: the batch is durable, or `error`
    says why it is lost.
    """
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


class Codec(Protocol):
    """The format of the state's records in the log."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None: ...


class LoadedShard(Generic[S]):
    """The state of one partition, loaded from its log; every record that is appended changes the state too."""

    def __init__(self, partition: Partition, shard: S, codec: Codec) -> None:
        self.partition = partition
        self.shard = shard
        self._codec = codec
        self._batch = OpenBatch(partition, codec.encode)
        self.append = self._batch.add
        """Adds records to the batch that `write` writes. Raises LogError, ValueError (see `OpenBatch.add`).
        """
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
        self.needed_bytes = sum(self.size_of(self.shard.records_of(key)) for key in self.shard.stored_keys())
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
        self._batch.write()
        before, self._end_offset = self._end_offset, self.partition.log.log_end_offset
        return self._end_offset > before

    def size_of(self, records: Iterable[Any]) -> int:
        """Estimate how many bytes a batch of these records takes."""
        return size_of(self._codec.encode, records)

    async def persisted(self, last_offset: int) -> bool:
        """Wait until the log is durable up to an offset; False when its flush fails."""
        if await self.partition.persisted(last_offset):
            return True
        self.failed = True
        return False


def decoded(codec: Codec, header: BatchHeader, batch: memoryview, log_name: str) -> Iterator[Any]:
    """Return the decoded records of a batch. A damaged record is logged and left out.

    Raises IncompatibleFormat for a record of a later release.
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
