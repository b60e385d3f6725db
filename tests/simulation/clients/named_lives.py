"""One life of a named application: a producer that sends a source's lines from a position on, until it fails
or is ended.

It sends with a producer id, without one, or in transactions. Anything that could leave a line out ends the
life; then the application starts again behind the lines that it knows to be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.batch_sender import BatchSender
from tests.simulation.clients.error_codes import CLOCK_JUMPS, RETRIABLE
from tests.simulation.clients.idempotent_producer import MAX_EPOCH, get_producer_id
from tests.simulation.clients.links import link_of
from tests.simulation.clients.named_lines import Line, LineSender, Source, Writer
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.transactional_producer import Lost, TransactionalProducer, TransactionHabits
from tests.simulation.history import TopicPartition

IDLE_S = 1.0
MAX_WAITING_BATCHES = 12


@dataclass
class Position:
    """A life's position in the source. `known` is the sequence id per partition up to which lines are stored."""

    index: int
    known: dict[TopicPartition, int] = field(default_factory=dict)

    def take(self, source: Source, count: int, target: int | None) -> list[Line]:
        """Take the next lines to send; none from `target` on."""
        lines: list[Line] = []
        while len(lines) < count and (target is None or self.index < target):
            line = source.line(self.index)
            self.index += 1
            if line.sequence > self.known.get(line.place, -1):
                lines.append(line)
        return lines


@dataclass
class Progress:
    """The progress of all lives of an application. `highest` is the number of lines that were ever sent."""

    highest: int = 0
    stored: set[int] = field(default_factory=set)
    first_missing: int = 0

    def sent(self, line: Line) -> None:
        self.highest = max(self.highest, line.number + 1)

    def acknowledged(self, line: Line) -> None:
        self.stored.add(line.number)
        while self.first_missing in self.stored:
            self.first_missing += 1


@dataclass
class Task:
    """The task of a life: `target` is the line (exclusive) at which it ends, None until the run ends."""

    source: Source
    position: Position
    progress: Progress
    pause_s: float
    max_lines: int
    target: int | None = None


class PipelinedLife:
    """A life of a named application whose producer is idempotent, or has no producer id and one request in
    flight.
    """

    def __init__(
        self, surroundings: Surroundings, writer: Writer, random: Random, task: Task, *, local_bump: bool
    ) -> None:
        self._surroundings = surroundings
        self._random = random
        self._task = task
        self._local_bump = local_bump
        name = f"{writer.name}.{writer.life}"
        self._link = link_of(surroundings, name, random)
        self._init_version = random.randint(3, 5)
        self._sender = LineSender(surroundings, name, random, self._judge, writer)
        self._sender.on_sent = task.progress.sent
        self._sender.on_acknowledged = task.progress.acknowledged
        self._sender.on_lost = self._lose
        self._new_id_wanted = writer.has_producer_id
        self._failed = False
        self._next_at = 0.0
        if not writer.has_producer_id:
            self._sender.incarnation = 1

    def leave(self) -> None:
        """Send and receive nothing more; requests already sent may still arrive."""
        self._link.close()

    async def run(self) -> None:
        sender = self._sender
        while True:
            sender.expire()
            if self._failed or self._is_done:
                self.leave()
                return
            connection = await self._link.connect()
            if self._new_id_wanted:
                got = await get_producer_id(self._surroundings, sender, connection, self._init_version)
                self._new_id_wanted = not got
                continue
            self._fill()
            self._bump_if_wanted()
            sender.send_ready(self._link)
            await sender.wait(max(self._next_at, self._surroundings.now() + 0.001))

    def _lose(self, error: str) -> None:
        self._failed = True

    @property
    def _is_done(self) -> bool:
        task = self._task
        if task.target is None:
            return self._surroundings.ending and self._sender.is_settled
        return task.position.index >= task.target and self._sender.is_settled

    def _fill(self) -> None:
        task, now = self._task, self._surroundings.now()
        if task.target is None and self._surroundings.ending:
            self._next_at = now + IDLE_S
            return
        if now < self._next_at:
            return
        self._next_at = now + min(self._random.expovariate(1 / task.pause_s), 10 * task.pause_s)
        if self._sender.waiting_batches < MAX_WAITING_BATCHES:
            count = self._random.randint(1, task.max_lines)
            self._sender.enqueue_lines(task.position.take(task.source, count, task.target))

    def _judge(self, queue: PartitionQueue, batch: ProducerBatch, error: ErrorCode) -> bool:
        """Judge an error as an idempotent producer does, but end the life if a batch can't be sent again."""
        if error is ErrorCode.out_of_order_sequence_number:
            if not batch.sequence_was_reset and queue.is_next(batch.base_sequence):
                queue.bump_wanted = True
            return True
        if error in RETRIABLE:
            if error not in self._surroundings.faults:
                self._surroundings.unexpected(
                    self._sender.name, f"Produce to {queue.partition}: {error.name}"
                )
            return True
        if error is not ErrorCode.producer_fenced and error not in CLOCK_JUMPS:
            self._surroundings.unexpected(self._sender.name, f"Produce to {queue.partition}: {error.name}")
        return False

    def _bump_if_wanted(self) -> None:
        """Begin a new producer epoch and send all unanswered batches again. Their names let the gateway find
        the duplicates.
        """
        sender = self._sender
        wanting = [queue for queue in sender.queues.values() if queue.bump_wanted]
        if not wanting or not all(queue.is_answered for queue in wanting):
            return
        if not self._local_bump or sender.producer_epoch == MAX_EPOCH:
            self._failed = True
            return
        sender.producer_epoch += 1
        for queue in wanting:
            queue.start_at_beginning(sender.producer_id, sender.producer_epoch)


class TransactionalLife(TransactionalProducer):
    """A life that commits every few lines. Another transaction sends the lines of an aborted one again."""

    def __init__(
        self,
        surroundings: Surroundings,
        writer: Writer,
        random: Random,
        task: Task,
        *,
        transactional_id: str,
        habits: TransactionHabits,
    ) -> None:
        self._task = task
        self._writer = writer
        self._in_transaction: list[Line] = []
        self._added: set[TopicPartition] = set()
        super().__init__(surroundings, f"{writer.name}.{writer.life}", random, transactional_id, habits)

    def _make_sender(self, versions: tuple[int, ...]) -> BatchSender:
        sender = LineSender(
            self._surroundings,
            self._name,
            self._random,
            self._judge,
            self._writer,
            transactional_id=self._id,
            may_be_fenced=self._may_be_refused,
            produce_versions=versions,
        )
        sender.on_sent = self._task.progress.sent
        sender.on_acknowledged = self._in_transaction.append
        sender.on_lost = self._abort
        self._lines: LineSender = sender
        return sender

    def _abort(self, error: str) -> None:
        """Abort the transaction after a lost batch, be it one that was never sent
        (TransactionManager.handleFailedBatch).

        Otherwise the lines of the batch would be left out, and later ones stored.
        """
        self._abort_wanted = True

    async def run(self) -> None:
        try:
            await self.begin()
            while not self._is_done:
                await self._send_lines()
                await self._surroundings.pause(self._random, self._task.pause_s)
        except Lost:
            pass
        self._link.close()

    @property
    def _is_done(self) -> bool:
        target = self._task.target
        return self._surroundings.ending if target is None else self._task.position.index >= target

    async def _send_lines(self) -> None:
        """Send the lines of one transaction."""
        first = self._task.position.index
        self._begin_transaction()
        self._in_transaction.clear()
        await self._send_some()
        await self._pump(None)
        if not self._added:
            return
        if not await self._end("", ()):
            self._task.position.index = first
            return
        for line in self._in_transaction:
            self._task.progress.acknowledged(line)

    async def _send_some(self) -> None:
        task = self._task
        self._added.clear()
        for _ in range(self._random.randint(1, self._habits.max_batches)):
            lines = task.position.take(task.source, self._random.randint(1, task.max_lines), task.target)
            for line in lines:
                if line.place not in self._added:
                    error = await self._requests.add_partition(self._producer, line.place)
                    if error is not ErrorCode.none:
                        self._lose(error, "AddPartitionsToTxn")
                    self._added.add(line.place)
            self._lines.enqueue_lines(lines)
            await self._pump(self._random.expovariate(1 / task.pause_s))
            if self._abort_wanted:
                break

    def _judge(self, queue: PartitionQueue, batch: ProducerBatch, error: ErrorCode) -> bool:
        """Judge an error. PRODUCER_FENCED concerns the name; a fenced producer epoch has another error."""
        if error is ErrorCode.producer_fenced:
            self._abort_wanted = self._lost = True
            return False
        return super()._judge(queue, batch, error)


Life = PipelinedLife | TransactionalLife
MakeLife = Callable[[Writer, Task], Life]
