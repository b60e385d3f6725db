"""The transaction coordinator of this node: decides about transactions, and lets requests wait for durable
records.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn join the next round (see `CoordinatorShards`).
A batch or an offset commit that adds its partition is applied at once, because its own answer waits for that
record. An end is decided when its record is durable. Then all markers are written, and finally the record
which completes the end. No request waits for that final record: if a crash loses it, the markers are written
again. A producer with the answer to its EndTxn can therefore begin the next transaction.

Kafka answers requests during an end with CONCURRENT_TRANSACTIONS, and its clients retry after a while. Here
the requests wait (`TransactionEndings`).

A batch and the record that adds its partition to the transaction are flushed independently, and a crash may
keep only the batch. So when its state is loaded, the coordinator compares its transactions with the open
transactions of the partitions (`OpenInPartition`). Source: Kafka's `TransactionCoordinator`,
`TransactionStateManager`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import ChainMap
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.rows import size_of
from seqgate.gateway.coordinator.transaction import records as transaction_records
from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import (
    DECIDED,
    NO_PRODUCER_ID,
    Transaction,
    TransactionRecord,
)
from seqgate.gateway.coordinator.transaction.rules import (
    NeedsProducerId,
    NewestConnections,
    Producer,
    TransactionLimits,
    TransactionRefused,
    TransactionShard,
)
from seqgate.gateway.metadata.image import (
    INTERNAL_TOPICS,
    MAX_NAME_LENGTH,
    OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from seqgate.gateway.runtime.coordinators.shards import (
    CoordinatorShards,
    LoadedShard,
    ShardOperation,
    StateParts,
    Unavailable,
    settle,
)
from seqgate.gateway.runtime.coordinators.transaction_markers import TransactionMarkers
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.log import LogError
from seqgate.pid_allocator import NoProducerIds, ProducerIdAllocator

logger = logging.getLogger(__name__)

NO_LIMIT: Final = 2**31
_LARGEST_PLACE_BYTES: Final = MAX_NAME_LENGTH + 16
"""An upper bound of what one partition adds to a record."""
_END_BYTES: Final = 64
"""An upper bound of what the end of a transaction adds to its record."""

_Loaded = LoadedShard[TransactionShard]


class TransactionCoordinator:
    def __init__(
        self, parts: StateParts, producer_ids: ProducerIdAllocator, markers: TransactionMarkers
    ) -> None:
        self._config, self._clock, self._partitions, self._internal_topics, _ = parts
        self._producer_ids = producer_ids
        self._markers = markers
        self.verifies: bool
        self.limits: TransactionLimits
        parts.config.follow(self._take_limits)
        self.endings = TransactionEndings()
        self.connections = NewestConnections()
        self.connections_of_offsets = NewestConnections()
        """The same for TxnOffsetCommit: librdkafka has a connection to each of the two coordinators."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._open_at_start: list[OpenInPartition] | None = None
        """The open transactions of all partitions, collected once for all shards that the start loads."""
        self.shards = CoordinatorShards(
            TRANSACTION_STATE_TOPIC,
            "transaction.state.log",
            transaction_records,
            TransactionShard,
            parts,
            on_load=self._resume,
            on_lost=self._give_up,
        )
        parts.partitions.when_ready.append(self._partition_ready)
        self._unpersisted: dict[str, tuple[Partition, int]] = {}
        """The partition and offset of an id's newest record, while that is not known to be durable."""

    def _take_limits(self) -> None:
        config = self._config
        self.verifies = config.bool("transaction.partition.verification.enable")
        self.limits = TransactionLimits(
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            max_partitions=config.int("seqgate.transaction.partitions.max"),
            max_transactional_ids=config.int("seqgate.transactional.id.max"),
        )

    # --- beginning and end

    async def ensure_topic(self) -> None:
        """Create `__transaction_state` when the first transactional id is looked up. Raises Unavailable."""
        await self.shards.ensure_topic()

    def start(self) -> None:
        """Load the state, finish decided ends, begin to time out transactions. Raises IncompatibleFormat."""
        self._open_at_start = open_in_partitions(self._partitions)
        self.shards.load_at_start()
        if self.coordinates_all:
            warn_of_strangers(self._open_at_start, [loaded.shard for loaded in self.shards])
        self._open_at_start = None
        config = self._config
        interval = config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._repeat("abort", interval, self.abort_overdue)
        interval = config.int("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._repeat("forget", interval, self.forget_expired)

    @property
    def coordinates_all(self) -> bool:
        """Whether all ids are coordinated here. Otherwise an unknown producer id may be another gateway's."""
        return self._internal_topics.leads_all(TRANSACTION_STATE_TOPIC)

    def stop(self) -> None:
        """Stop serving; ends that were decided continue with the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self.shards.stop()

    def _repeat(self, name: str, interval_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            self._repeat(name, interval_ms, work)
            work()

        self._timers[name] = asyncio.get_running_loop().call_later(interval_ms / 1000, run)

    def _resume(self, loaded: _Loaded) -> None:
        """Finish the ends that were decided, and add the partitions whose records a crash has lost."""
        shard = loaded.shard
        if not shard.transactions:
            return
        found = self._open_at_start
        if found is None:
            found = open_in_partitions(self._partitions)
        owner_of = owners(shard)
        of_decided: dict[str, list[OpenInPartition]] = {}
        for one in found:
            transactional_id = owner_of.get(one.producer.producer_id)
            if transactional_id in shard.decided:
                of_decided.setdefault(transactional_id, []).append(one)
            elif transactional_id is not None:
                self._adopt(loaded, transactional_id, one)
        last_offset = loaded.partition.log.log_end_offset - 1
        for transactional_id in list(shard.decided):
            decided = WrittenState(loaded, shard.transactions[transactional_id], last_offset)
            self._begin_ending(transactional_id, decided, of_decided.get(transactional_id, ()))

    def _partition_ready(self, topic: str, index: int) -> None:
        """Compare the transactions of a partition that is opened late with those coordinated here."""
        served = self._partitions.by_name.get(topic)
        partition = None if served is None else served.peek(index)
        if partition is None:
            return
        found = _open_in(partition)
        for loaded in self.shards if found else ():
            owner_of = owners(loaded.shard)
            for one in found:
                transactional_id = owner_of.get(one.producer.producer_id)
                if transactional_id is None:
                    continue
                ending = self.endings.of(transactional_id)
                if ending is None:
                    self._adopt_late(loaded, transactional_id, one)
                else:
                    # no partition joins a transaction that is ending: it may belong to the next one
                    ending.add_done_callback(partial(self._adopt_late, loaded, transactional_id, one))

    def _adopt_late(
        self, loaded: _Loaded, transactional_id: str, one: OpenInPartition, _ended: object = None
    ) -> None:
        if loaded.is_current:
            with contextlib.suppress(Unavailable):  # the shard is loaded again, and looks then
                self._adopt(loaded, transactional_id, one)

    def _give_up(self, loaded: _Loaded) -> None:
        self.endings.give_up(loaded)
        self._forget_unpersisted(loaded.shard.transactions)

    def _adopt(self, loaded: _Loaded, transactional_id: str, one: OpenInPartition) -> None:
        """Add a partition to its transaction again: a crash kept its batch, not the record that added it."""
        current = loaded.shard.transactions[transactional_id]
        is_forgotten = one.place not in current.partitions and one.is_open
        if not is_forgotten or one.producer.producer_id != current.producer_id:
            return
        if one.producer.producer_epoch < current.producer_epoch:
            self._abort_forgotten(loaded, current, one)
            return
        logger.info("%s-%d takes part in the transaction of %s again", *one.place, transactional_id)
        places = frozenset({one.place})
        # Refused if an operation of the same round has begun another producer just now.
        with contextlib.suppress(TransactionRefused):
            self._apply(
                loaded,
                transactional_id,
                lambda current, now_ms: rules.add_partitions(
                    current,
                    one.producer,
                    places,
                    0 if current is None else current.client_version,
                    NO_LIMIT,
                    now_ms,
                ),
            )

    def _abort_forgotten(self, loaded: _Loaded, current: Transaction, one: OpenInPartition) -> None:
        """Abort in one partition what a producer left there that was fenced, or whose transaction has ended.
        Nobody was told that it is stored, and the next transaction would commit it.
        """
        logger.info(
            "an earlier transaction of producer %d is aborted in %s-%d", current.producer_id, *one.place
        )
        producer = Producer(current.producer_id, current.producer_epoch)
        try:
            self._markers.append(
                one.partition, producer, commit=False, coordinator_epoch=loaded.partition.leader_epoch
            )
        except LogError as error:
            logger.warning("the marker could not be written, until the next start: %s", error)

    # --- state

    def _of(self, transactional_id: str) -> _Loaded:
        """Return the shard of a transactional id. Raises Unavailable."""
        if self._internal_topics.index_for(self.shards.topic, transactional_id) is None:
            # clients then look for the coordinator, which creates the topic
            raise Unavailable(ErrorCode.not_coordinator)
        return self.shards.of(transactional_id)

    def find(self, transactional_id: str) -> Transaction | None:
        """Return a transactional id as it is now. Raises Unavailable."""
        return self._of(transactional_id).shard.transactions.get(transactional_id)

    def all(self) -> list[tuple[str, Transaction]]:
        """Return every transactional id; those of a shard that can't be loaded (`shards.is_loading`) are left
        out.
        """
        self.shards.load_stored()
        return [
            item for loaded in self.shards if loaded.is_current for item in loaded.shard.transactions.items()
        ]

    def unpersisted(self, transactional_id: str) -> tuple[Partition, int] | None:
        """Return the partition and offset of an id's newest record, while that record is not durable."""
        found = self._unpersisted.get(transactional_id)
        if found is not None and found[0].is_persisted(found[1]):
            del self._unpersisted[transactional_id]
            return None
        return found

    async def _change(self, loaded: _Loaded, transactional_id: str, judge: Judge) -> WrittenState:
        """Change the state of a transactional id with the shard's next round.

        Returns once the round is written; the caller waits until it is durable
        (`CoordinatorShards.persisted`). Raises Unavailable, and the errors of `judge`.
        """
        waiter: asyncio.Future[WrittenState] = asyncio.get_running_loop().create_future()

        def noted(outcome: _Outcome, last_offset: int) -> None:
            settle(waiter, self._note(loaded, transactional_id, outcome, last_offset))

        operation = _operation(transactional_id, judge)
        self.shards.ask(loaded, operation, lambda _, error: settle(waiter, None, error), noted)
        return await waiter

    async def change_with_id(
        self,
        transactional_id: str,
        judge: Callable[[Transaction | None, int | None, int], Transaction | None],
        fresh_id: int | None = None,
    ) -> WrittenState:
        """Change an id as `_change` does. `judge` raises NeedsProducerId to get a fresh producer id; an
        operation of the same round may have used up the epochs, or forgotten the id.
        """
        loaded = self._of(transactional_id)
        try:
            if fresh_id is None:
                judge(loaded.shard.transactions.get(transactional_id), None, 0)
            return await self._change(
                loaded, transactional_id, lambda current, now_ms: judge(current, fresh_id, now_ms)
            )
        except NeedsProducerId:
            return await self.change_with_id(transactional_id, judge, await self._fresh_producer_id())

    async def _fresh_producer_id(self) -> int:
        """Return a new producer id. Raises Unavailable."""
        try:
            return await self._producer_ids.next_producer_id()
        except NoProducerIds as error:
            logger.warning("no producer id: %s", error)
            raise Unavailable(ErrorCode.coordinator_load_in_progress) from error

    def _apply(self, loaded: _Loaded, transactional_id: str, judge: Judge) -> WrittenState:
        """Change the state of a transactional id at once. Raises Unavailable, and the errors of `judge`."""
        outcome, last_offset = self.shards.apply(loaded, _operation(transactional_id, judge))
        return self._note(loaded, transactional_id, outcome, last_offset)

    def _note(
        self, loaded: _Loaded, transactional_id: str, outcome: _Outcome, last_offset: int
    ) -> WrittenState:
        """Remember the newest record of an id, and begin an end that it decides."""
        written = WrittenState(loaded, outcome.after, last_offset, outcome.is_new)
        if outcome.is_new:
            self._unpersisted[transactional_id] = loaded.partition, last_offset
            if outcome.after is not None and outcome.after.state in DECIDED:
                self._begin_ending(transactional_id, written)
        return written

    def _forget_unpersisted(self, transactional_ids: Iterable[str]) -> None:
        for transactional_id in transactional_ids:
            self._unpersisted.pop(transactional_id, None)

    # --- partitions of a transaction

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        places: frozenset[TopicPartition],
        client_version: int,
    ) -> None:
        """Carry out AddPartitionsToTxn, durably. Raises TransactionRefused, Unavailable."""
        loaded = self._of(transactional_id)
        await self._change(
            loaded, transactional_id, self._adding(loaded, transactional_id, producer, places, client_version)
        )
        found = self.unpersisted(transactional_id)
        if found is not None:
            await self.shards.persisted(loaded, found[1])
        if not loaded.is_current:
            self.shards.lose(loaded)
            raise Unavailable(ErrorCode.not_coordinator)

    def verify_or_add(
        self, transactional_id: str, producer: Producer, place: TopicPartition, client_version: int
    ) -> tuple[Partition, int] | None:
        """Check before an append that the partition belongs to the transaction, or add it (version 2).

        Returns the partition and offset of the record that must be durable, too, before the batch is
        acknowledged. Raises TransactionRefused, Unavailable.
        """
        loaded = self._of(transactional_id)
        if client_version >= rules.VERSION_2:
            places = frozenset({place})
            adding = self._adding(loaded, transactional_id, producer, places, client_version)
            self._apply(loaded, transactional_id, adding)
        elif self.verifies:
            rules.check_partition(loaded.shard.transactions.get(transactional_id), producer, place)
        return self.unpersisted(transactional_id)

    def _adding(
        self,
        loaded: _Loaded,
        transactional_id: str,
        producer: Producer,
        places: frozenset[TopicPartition],
        client_version: int,
    ) -> Judge:
        """Return what adds partitions, as many as one record can name."""
        most, longest_id_bytes = self.limits.max_partitions, 3 * len(transactional_id)
        max_bytes = loaded.max_batch_bytes - _END_BYTES

        def judge(current: Transaction | None, now_ms: int) -> Transaction | None:
            after = rules.add_partitions(current, producer, places, client_version, most, now_ms)
            most_bytes = (
                0 if after is None else len(after.partitions) * _LARGEST_PLACE_BYTES + longest_id_bytes
            )
            if after is not None and most_bytes > max_bytes:
                record = TransactionRecord(transactional_id, after)
                if size_of(transaction_records.encode, (record,)) > max_bytes:
                    raise TransactionRefused(ErrorCode.policy_violation)
            return after

        return judge

    # --- ends

    def _begin_ending(
        self, transactional_id: str, decided: WrittenState, left: Sequence[OpenInPartition] = ()
    ) -> None:
        """Write the markers of a decided end in a task of its own. The transactions that a crash has `left`
        open may belong to the next transaction, and are then added to it.
        """
        work = self._end(transactional_id, decided, left)
        self.endings.begin(transactional_id, decided.loaded, work)

    async def _end(
        self, transactional_id: str, decided: WrittenState, left: Sequence[OpenInPartition]
    ) -> None:
        loaded, value, last_offset, _ = decided
        assert value is not None
        try:
            await self.shards.persisted(loaded, last_offset)
            await self._markers.write(value, loaded.partition.leader_epoch)
            self._apply(loaded, transactional_id, lambda _, now_ms: rules.complete(value, now_ms))
            for one in left:
                self._adopt(loaded, transactional_id, one)
        except Unavailable:
            return  # the shard is loaded again, and loading begins the end again

    # --- time

    def abort_overdue(self) -> None:
        """Abort the open transactions that have timed out. Shards that were lost with their log are loaded
        again here at the latest, so that every decided end is finished.
        """
        self.shards.load_stored()
        now_ms = self._clock.now_ms()
        for loaded in self.shards:
            if not loaded.is_current:
                continue
            for transactional_id in loaded.shard.overdue(now_ms):
                try:
                    written = self._apply(loaded, transactional_id, _fenced_if_overdue)
                except Unavailable:
                    break
                if written.is_new:
                    self.endings.timed_out += 1
                    logger.info("the transaction of %s took too long and is aborted", transactional_id)

    def forget_expired(self) -> None:
        """Forget the transactional ids that have not been used for long."""
        expiration_ms = self._config.int("transactional.id.expiration.ms")

        def forget(shard: TransactionShard, now_ms: int) -> Change[list[str]]:
            expired = shard.expired(expiration_ms, now_ms)
            return Change(expired, [TransactionRecord(name, None) for name in expired])

        for loaded in self.shards:
            if not loaded.is_current:
                continue
            with contextlib.suppress(Unavailable):
                expired, _ = self.shards.apply(loaded, forget)
                self._forget_unpersisted(expired)


def _fenced_if_overdue(current: Transaction | None, now_ms: int) -> Transaction | None:
    # An operation of the same round may have ended the transaction just now.
    if current is None or not rules.is_overdue(current, now_ms):
        return None
    return rules.fence(current, now_ms)


T = TypeVar("T")

END_WAIT_S: Final = 5.0
"""Time that a request waits for the markers of a transaction; then it is answered without them."""


class TransactionEndings:
    """The tasks that finish ending transactions, by transactional id, with their owner (a shard)."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[object, asyncio.Task[None]]] = {}
        self.timed_out = 0
        """Transactions that were aborted since the start because they were open too long."""

    def begin(self, transactional_id: str, owner: object, work: Coroutine[Any, Any, None]) -> None:
        """Start the task that finishes an end."""
        ending = asyncio.get_running_loop().create_task(work)
        self._running[transactional_id] = owner, ending
        ending.add_done_callback(lambda _: self._forget(transactional_id, ending))

    def _forget(self, transactional_id: str, ending: asyncio.Task[None]) -> None:
        if self.of(transactional_id) is ending:
            del self._running[transactional_id]

    def of(self, transactional_id: str) -> asyncio.Task[None] | None:
        """Return the task that finishes the end of a transactional id; None when there is none."""
        return self._running.get(transactional_id, (None, None))[1]

    def give_up(self, owner: object) -> None:
        for transactional_id, (of, ending) in list(self._running.items()):
            if of is owner:
                ending.cancel()
                del self._running[transactional_id]

    async def repeat_after_ends(self, transactional_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt; while another transaction of the id is ending, wait and repeat. Raises its errors."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + END_WAIT_S
        while True:
            try:
                return await attempt()
            except TransactionRefused as error:
                running = self.of(transactional_id)
                left_s = deadline_s - loop.time()
                is_busy = error.error_code is ErrorCode.concurrent_transactions
                if not is_busy or running is None or left_s <= 0:
                    raise
                await wait_for_end(running, left_s)

    async def finish(self) -> None:
        """Wait until all ends are complete."""
        while self._running:
            await asyncio.wait({ending for _, ending in self._running.values()})


async def wait_for_end(ending: asyncio.Task[None], timeout_s: float | None = None) -> None:
    """Wait for an end, but only for a limited time. The task continues in any case."""
    await asyncio.wait({ending}, timeout=END_WAIT_S if timeout_s is None else timeout_s)


class OpenInPartition(NamedTuple):
    """A transaction that was open in a partition's log."""

    partition: Partition
    producer: Producer

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic, self.partition.index

    @property
    def is_open(self) -> bool:
        """Whether the transaction is still open in the partition."""
        found = self.partition.log.transactions.open_transaction(self.producer.producer_id)
        return found is not None and found.producer_epoch == self.producer.producer_epoch


def open_in_partitions(partitions: Partitions) -> list[OpenInPartition]:
    """Return all transactions that are open in the partitions now."""
    return [one for partition in partitions for one in _open_in(partition)]


def _open_in(partition: Partition) -> list[OpenInPartition]:
    if partition.topic in INTERNAL_TOPICS and partition.topic != OFFSETS_TOPIC:
        return []
    return [
        OpenInPartition(partition, Producer(producer_id, found.producer_epoch))
        for producer_id, found in partition.log.transactions.open_transactions()
    ]


def owners(shard: TransactionShard) -> Mapping[int, str]:
    """Return the ids by producer id, including the next producer id of a transaction that is ending."""
    of_next = {shard.transactions[name].next_producer_id: name for name in shard.decided}
    of_next.pop(NO_PRODUCER_ID, None)
    return ChainMap(of_next, shard.by_producer_id)


def warn_of_strangers(found: Iterable[OpenInPartition], shards: Iterable[TransactionShard]) -> None:
    """Log the open transactions that no coordinator will end."""
    known = {producer_id for shard in shards for producer_id in owners(shard)}
    for one in found:
        if one.is_open and one.producer.producer_id not in known:
            logger.warning(
                "%s-%d has an open transaction of producer %d, epoch %d, which belongs to no transactional "
                "id; end it with kafka-transactions abort",
                *one.place,
                *one.producer,
            )


Judge = Callable[[Transaction | None, int], Transaction | None]
"""Decides an id's next state at a time (ms); None for no change. It may raise."""


class WrittenState(NamedTuple):
    """A state of an id, and the shard and offset that must be durable before an answer reports it."""

    loaded: LoadedShard[TransactionShard]
    value: Transaction | None
    last_offset: int
    is_new: bool = True
    """Whether the change has written a record; False when the state was the same before."""


class _Outcome(NamedTuple):
    after: Transaction | None
    is_new: bool


def _operation(transactional_id: str, judge: Judge) -> ShardOperation[TransactionShard, _Outcome]:
    def operation(shard: TransactionShard, now_ms: int) -> Change[_Outcome]:
        before = shard.transactions.get(transactional_id)
        after = judge(before, now_ms)
        if after is None:
            return Change(_Outcome(before, False))
        return Change(_Outcome(after, True), (TransactionRecord(transactional_id, after),))

    return operation
