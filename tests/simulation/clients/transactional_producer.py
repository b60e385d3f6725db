"""A producer with a transactional id that speaks either protocol version: with or without the second part of
KIP-890.

Several instances may share one id: each new instance fences the others, which continue until an error tells
them. Now and then one dies in the middle. Then its successor, or the coordinator after the timeout, must end
the transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.batch_sender import BatchSender
from tests.simulation.clients.error_codes import CLOCK_JUMPS, FENCED, RETRIABLE
from tests.simulation.clients.group_offsets import OUTDATED, Offsets
from tests.simulation.clients.links import link_of
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.clients.surroundings import IdRequests, Surroundings
from tests.simulation.clients.transactional_requests import Producer, TransactionalRequests
from tests.simulation.history import (
    Fenced,
    GotProducerId,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)
from tests.support.wire import Plain

ADDING_VERSIONS, ADDED_VERSIONS = (12, 13), (3, 5, 7, 8, 9, 10, 11)
IDLE_S = 1.0


@dataclass(frozen=True)
class TransactionHabits:
    pause_s: float = 0.2
    max_batches: int = 6
    max_records: int = 4
    timeout_ms: int = 5_000
    commit_chance: float = 0.75
    death_chance: float = 0.03
    offsets_chance: float = 0.4


class Lost(Exception):
    """This incarnation can't continue, because it died or was fenced."""


class TransactionalProducer:
    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        random: Random,
        transactional_id: str,
        habits: TransactionHabits,
    ) -> None:
        self._surroundings = surroundings
        self._name = name
        self._random = random
        self._id = transactional_id
        self._habits = habits
        self._group = f"offsets-of-{transactional_id}"
        self._link = link_of(surroundings, name, random)
        self._adds_implicitly = random.random() < 0.5
        self._requests = TransactionalRequests(
            surroundings, self._link, random, transactional_id, adds_implicitly=self._adds_implicitly
        )
        self.sender = self._make_sender(ADDING_VERSIONS if self._adds_implicitly else ADDED_VERSIONS)
        self._lost = False
        self._abort_wanted = False
        self._is_ending = False
        """Whether the end of the transaction was asked for and is not answered."""
        self._began_at = 0.0
        self._requests_before = IdRequests()
        self._jumps_before = 0

    def _make_sender(self, versions: tuple[int, ...]) -> BatchSender:
        return BatchSender(
            self._surroundings,
            self._name,
            self._random,
            self._judge,
            self._id,
            self._may_be_refused,
            versions,
        )

    def leave(self) -> None:
        """Stop this incarnation; requests already sent may still arrive."""
        self.sender.drop_unsent()
        self.sender.give_up_all("LOST")
        self._link.close()

    async def begin(self) -> None:
        """Begin as a new incarnation. Raises `Lost`."""
        await self._begin(known=None)

    async def transform(self, group: str, offsets: Offsets, member: Plain) -> ErrorCode:
        """Run a transaction with records and a group's offsets; return the error of the offsets, if any.

        Without an error the transaction may still have been aborted. Raises `Lost`.
        """
        self._begin_transaction()
        await self._send_some()
        error = ErrorCode.none
        if not self._abort_wanted:
            error = await self._requests.commit_offsets(self._producer, group, offsets, member)
        if error in {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch}:
            self._lose(error, "TxnOffsetCommit")
        if error is not ErrorCode.none:
            self._abort_wanted = True
            if error not in OUTDATED and error is not ErrorCode.transaction_abortable:
                self._surroundings.unexpected(self._name, f"TxnOffsetCommit: {error.name}")
        await self._pump(None)
        committed = await self._end(group, () if self._abort_wanted else offsets)
        return error if committed or error is not ErrorCode.none else ErrorCode.transaction_abortable

    async def run(self) -> None:
        self._surroundings.note_group(self._group)
        while not self._surroundings.ending:
            try:
                await self._live()
            except Lost:
                self.leave()
                await self._surroundings.pause(self._random, self._random.choice((0.1, 2.0)))
        self._link.close()

    async def _live(self) -> None:
        """Run one incarnation until it is lost or the run is over."""
        await self.begin()
        while not self._surroundings.ending:
            await self._transact()
            await self._surroundings.pause(self._random, self._habits.pause_s)

    @property
    def _producer(self) -> Producer:
        return Producer(self.sender.producer_id, self.sender.producer_epoch)

    async def _begin(self, known: Producer | None) -> None:
        """Send InitProducerId: as a new incarnation, or after an error as the same one, which gets another
        producer epoch.
        """
        asked_at_ms = self._surroundings.at_ms()
        self._requests_before = replace(self._surroundings.id_requests(self._id))
        self._start_clock()
        error, producer = await self._requests.init_producer_id(self._habits.timeout_ms, known)
        if error is not ErrorCode.none:
            self._lose(error, "InitProducerId")
        if known is None:
            self.sender.become(producer.producer_id, producer.producer_epoch)
            self._lost = False
        self._take_identity(producer, asked_at_ms)

    def _take_identity(self, producer: Producer, asked_at_ms: int) -> None:
        self.sender.producer_id, self.sender.producer_epoch = producer.producer_id, producer.producer_epoch
        self._surroundings.history.add(
            GotProducerId(
                self._surroundings.at_ms(),
                self._name,
                self.sender.incarnation,
                producer.producer_id,
                producer.producer_epoch,
                self._id,
                asked_at_ms,
            )
        )

    def _start_clock(self) -> None:
        self._surroundings.at_ms()
        self._began_at = self._surroundings.now()
        self._jumps_before = self._surroundings.clock_jumps

    def _may_be_fenced(self) -> bool:
        """Return whether another instance may have begun later, or the transaction may have timed out."""
        self._surroundings.at_ms()
        before = self._requests_before
        age_ms = (self._surroundings.now() - self._began_at) * 1000
        return (
            self._surroundings.id_requests(self._id).sent > before.sent + 1
            or before.sent > before.answered
            or age_ms >= self._surroundings.least_ms(self._habits.timeout_ms)
            or self._surroundings.clock_jumps > self._jumps_before
            or self._surroundings.clocks_differ
        )

    def _may_be_refused(self) -> bool:
        """Return whether a batch may be fenced. The end of its own transaction fences one that was given up
        and is still on its way: its gateway need not be the coordinator.
        """
        return self._is_ending or self._may_be_fenced()

    def _lose(self, error: ErrorCode, what: str) -> None:
        """End this incarnation, and record a breach if the error has no explanation. Raises `Lost`."""
        if error not in FENCED or not self._may_be_fenced():
            self._surroundings.unexpected(self._name, f"{what}: {error.name}")
        fenced = Fenced(self._surroundings.at_ms(), self._name, self.sender.incarnation, self._id)
        self._surroundings.history.add(fenced)
        raise Lost

    def _begin_transaction(self) -> None:
        self.sender.transaction += 1
        self._abort_wanted = False
        self._start_clock()

    async def _transact(self) -> None:
        self._begin_transaction()
        await self._send_some()
        offsets = await self._commit_offsets()
        await self._pump(None)
        self._maybe_die()
        await self._end(self._group, offsets)

    async def _send_some(self) -> None:
        """Send batches to random partitions, after adding these to the transaction if the protocol requires
        that.
        """
        added: list[TopicPartition] = []
        for _ in range(self._random.randint(1, self._habits.max_batches)):
            place = self._random.choice(self._surroundings.partitions())
            if place not in added:
                error = await self._requests.add_partition(self._producer, place)
                if error is not ErrorCode.none:
                    self._lose(error, "AddPartitionsToTxn")
                added.append(place)
            self.sender.enqueue(place, self._random.randint(1, self._habits.max_records))
            await self._pump(self._random.expovariate(1 / self._habits.pause_s))
            self._maybe_die()
            if self._abort_wanted:
                break

    async def _commit_offsets(self) -> Offsets:
        if self._abort_wanted or self._random.random() >= self._habits.offsets_chance:
            return ()
        offset = self._surroundings.next_group_offset(self._group)
        place = self._random.choice(self._surroundings.partitions())
        error = await self._requests.commit_offsets(self._producer, self._group, ((place, offset),))
        if error is ErrorCode.transaction_abortable:
            self._abort_wanted = True
            return ()
        if error is not ErrorCode.none:
            self._lose(error, "TxnOffsetCommit")
        return ((place, offset),)

    async def _pump(self, duration_s: float | None) -> None:
        """Send for some time, or until every batch is answered."""
        until = None if duration_s is None else self._surroundings.now() + duration_s
        while True:
            if self._abort_wanted:
                self.sender.drop_unsent()
            self._expire()
            if self._lost:
                raise Lost
            if until is None and self.sender.is_settled:
                return
            await self._link.connect()
            self.sender.send_ready(self._link)
            now = self._surroundings.now()
            if until is not None and now >= until:
                return
            await self.sender.wait(now + IDLE_S if until is None else until)

    def _expire(self) -> None:
        """Abort if a batch has expired, even one that was never sent (TransactionManager.handleFailedBatch)."""
        if self.sender.expire():
            self._abort_wanted = True
        for queue in self.sender.queues.values():
            queue.unresolved_sequence = None

    def _maybe_die(self) -> None:
        if not self._surroundings.ending and self._random.random() < self._habits.death_chance:
            raise Lost

    async def _end(self, group: str, offsets: Offsets) -> bool:
        """End the transaction; return whether it was committed."""
        commit = not self._abort_wanted and self._random.random() < self._habits.commit_chance
        history, sender = self._surroundings.history, self.sender
        who = self._name, sender.incarnation, sender.transaction
        asked_at_ms = self._surroundings.at_ms()
        history.add(TransactionEnding(asked_at_ms, *who, commit, group if offsets else "", offsets))
        self._is_ending = True
        try:
            error, producer = await self._requests.end(self._producer, commit=commit)
        finally:
            self._is_ending = False
        if error is not ErrorCode.none:
            self._lose(error, f"EndTxn ({'commit' if commit else 'abort'})")
        history.add(TransactionEnded(self._surroundings.at_ms(), *who, commit))
        if producer != self._producer:
            self._take_identity(producer, asked_at_ms)
        elif self._abort_wanted:
            await self._begin(known=producer)
        return commit

    def _judge(self, queue: PartitionQueue, batch: ProducerBatch, error: ErrorCode) -> bool:
        """Judge an error as a transactional producer does (TransactionManager.canRetry,
        maybeTransitionToErrorState).
        """
        if error is ErrorCode.out_of_order_sequence_number and not queue.is_next(batch.base_sequence):
            return True
        if error in RETRIABLE:
            if error not in self._surroundings.faults and error is not ErrorCode.concurrent_transactions:
                self._surroundings.unexpected(self._name, f"Produce to {queue.partition}: {error.name}")
            return True
        self._abort_wanted = True
        if error in FENCED:
            self._lost = True
            if not self._may_be_fenced():
                self._surroundings.unexpected(self._name, f"Produce to {queue.partition}: {error.name}")
        elif error is ErrorCode.transaction_abortable:
            if not self._may_be_fenced():
                self._surroundings.unexpected(self._name, f"Produce to {queue.partition}: {error.name}")
        elif error not in CLOCK_JUMPS and error is not ErrorCode.out_of_order_sequence_number:
            self._surroundings.unexpected(self._name, f"Produce to {queue.partition}: {error.name}")
        return False
