"""Carries out operations on state that a log holds, in four steps: judge → append → fold in → wait.

    judge     the operation reads the state and yields a `Change`: its answer, and the records of what changes
    append    the records join the batch that is about to be written
    fold in   the state replays the records, by the code that also builds it from the log at start
    wait      the batch is written, and no answer is sent before the batch is durable

Two classes carry operations out. docs/decisions.md says why they differ.

    `Operations`     folds in, then waits    groups, share groups, transactions: one shard for each partition
    `DurableFirst`   waits, then folds in    topics and other metadata: everyone reads the image without waiting for it

**Rounds** (`Operations`). Operations that arrive in one turn of the event loop form a *round*, and so do operations that
arrive during a flush: one batch, one flush. When more shards wait than a flush persists quickly, those that waited longest
have their round first, and the others gather more operations. A round runs without an await. Each operation sees the
changes of earlier ones, but no answer shows a state that is ahead of its log. If a batch can't be written, or is lost, the
shard is dropped and loaded from its log again, and all waiting clients must retry.

`Operations.run` joins the next round and waits. `Operations.apply` runs a round at once, for callers that do not wait,
or that need the offset to wait for.

Source: Kafka's `CoordinatorRuntime` with `group.coordinator.append.linger.ms` -1, its default.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Change, Waiter
from gateway.runtime.loop.clock import Clock
from gateway.runtime.operations.loaded_shard import LoadedShard, State
from gateway.runtime.partitions.log_flusher import LogFlusher
from log import InvalidProducerEpoch, LogError, RecordTooLarge

logger = logging.getLogger(__name__)

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
S = TypeVar("S", bound=State)

Operation = Callable[[S, int], Change[A]]
"""Judges a state at a time (ms). If it raises, it must have changed nothing, and the caller gets the error."""

Answered = Callable[[Any, Exception | None], None]
"""The one function that answers a request: called once, with the answer of an operation or the error that refuses it."""

Noted = Callable[[Any, int], None]
"""The function that is called when a round is written, not durable yet: with the answer and the round's last offset."""


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
        flusher.after_round.append(self._flush_finished)

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
        """Carry out an operation as `run` does, without a task. Calls `answered` with the answer or the error.

        Calls `noted` before, in the turn in which the round is written and the state changes.
        """
        asked = self._asked.get(loaded)
        if asked is None:
            self._asked[loaded] = [_Asked(operation, answered, noted)]
            if not self._scheduled and not (self._flusher.is_flushing and loaded.awaits_flush):
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
        """Call back once it is decided whether the log becomes durable up to an offset; with an error if it does not."""
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
            # the callbacks of answered requests read durable state, so they must run before the next round changes it
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
                continue  # a batch written now would not become durable sooner: let it grow until `_flush_finished`
            asked = self._asked.pop(loaded, ())
            if asked and not loaded.partition.is_persisted(self._run_round(loaded, asked)):
                room -= 1

    def _run_round(self, loaded: LoadedShard[S], asked: Sequence[_Asked]) -> int:
        """Carry out operations, write their batch, and answer when the batch is durable; return the last offset."""
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
        """Judge, append and fold in one operation. Raises Unavailable; LogError, ValueError and MemoryError mean that
        the shard is lost.
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
    """Answer the operations of a round and all requests that wait for it: the batch is durable, or `error` says why it
    is lost.
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
