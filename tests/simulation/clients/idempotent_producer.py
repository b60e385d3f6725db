"""A producer with enable.idempotence and acks=all: Kafka's TransactionManager without a transactional id.

Some producers bump their epoch themselves, as clients since 2.5 do. Others send InitProducerId for another
id, which is the only way once the epochs are used up. Now and then a producer dies with its batches in flight
and returns as another producer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.batch_sender import BatchSender
from tests.simulation.clients.connection import Connection, Disconnected
from tests.simulation.clients.error_codes import CLOCK_JUMPS, RETRIABLE
from tests.simulation.clients.links import link_of
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import GotProducerId

MAX_EPOCH = 32_767
MAX_WAITING_BATCHES = 20
BURSTS = (1, 1, 1, 4, 10)
"""Batches that a partition gets at once: some counts exceed what may be in flight, some what a broker
remembers.
"""
IDLE_S = 1.0


@dataclass(frozen=True)
class Habits:
    """How an application uses its producer. `pause_s`: the mean time between two batches."""

    pause_s: float = 0.05
    max_records: int = 5
    death_chance: float = 0.002
    local_bump: bool = True


async def get_producer_id(
    surroundings: Surroundings, sender: BatchSender, connection: Connection, version: int
) -> bool:
    """Send InitProducerId once; return whether the sender now has a new id."""
    asked_at_ms = surroundings.at_ms()
    request = {
        "transactional_id": None,
        "transaction_timeout": 2**31 - 1,
        "producer_id": sender.producer_id,
        "producer_epoch": sender.producer_epoch,
    }
    try:
        answer = await connection.send("init_producer_id", version, request, sender.request_timeout_s)
    except Disconnected:
        return False
    if answer.error_code is not ErrorCode.none:
        if answer.error_code not in surroundings.faults:
            surroundings.unexpected(sender.name, f"InitProducerId: {answer.error_code.name}")
        await asyncio.sleep(0.1)
        return False
    sender.become(answer.producer_id, answer.producer_epoch)
    surroundings.history.add(
        GotProducerId(
            surroundings.at_ms(),
            sender.name,
            sender.incarnation,
            sender.producer_id,
            sender.producer_epoch,
            asked_at_ms=asked_at_ms,
        )
    )
    return True


class IdempotentProducer:
    def __init__(self, surroundings: Surroundings, name: str, random: Random, habits: Habits) -> None:
        self._surroundings = surroundings
        self._random = random
        self._habits = habits
        self._link = link_of(surroundings, name, random)
        self._init_version = random.randint(3, 5)
        self._sender = BatchSender(surroundings, name, random, self._judge)
        self._new_id_wanted = True
        self._finished = False

    async def run(self) -> None:
        """Run until the end of the run, and then until every batch is acknowledged or given up."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apply())
            await self._send()
        self._link.close()

    async def _apply(self) -> None:
        """Send batches to random partitions at random times, as long as there is room, as an application
        does.
        """
        sender = self._sender
        while not self._surroundings.ending:
            if sum(len(queue.waiting) for queue in sender.queues.values()) < MAX_WAITING_BATCHES:
                partition = self._random.choice(self._surroundings.partitions())
                for _ in range(self._random.choice(BURSTS)):
                    sender.enqueue(partition, self._random.randint(1, self._habits.max_records))
            await self._surroundings.pause(self._random, self._habits.pause_s)
        self._finished = True
        sender.woken.set()

    async def _send(self) -> None:
        sender = self._sender
        while True:
            self._maybe_die()
            self._resolve_sequences()
            sender.expire()
            if self._finished and sender.is_settled:
                return
            connection = await self._link.connect()
            if self._new_id_wanted:
                await self._get_producer_id(connection)
                continue
            self._bump_if_wanted()
            sender.send_ready(self._link)
            await sender.wait(self._surroundings.now() + IDLE_S)

    def _maybe_die(self) -> None:
        if not self._finished and self._random.random() < self._habits.death_chance:
            self._link.close()
            self._sender.give_up_all("DEAD")
            self._new_id_wanted = True

    async def _get_producer_id(self, connection: Connection) -> None:
        got = await get_producer_id(self._surroundings, self._sender, connection, self._init_version)
        self._new_id_wanted = not got

    def _judge(self, queue: PartitionQueue, batch: ProducerBatch, error: ErrorCode) -> bool:
        """Judge an error as TransactionManager.canRetry and handleFailedBatch do."""
        if error is ErrorCode.out_of_order_sequence_number:
            if queue.unresolved_sequence is None and (
                batch.sequence_was_reset or not queue.is_next(batch.base_sequence)
            ):
                return True
            if queue.unresolved_sequence in {None, batch.base_sequence}:
                queue.bump_wanted = True
            return True
        if error in RETRIABLE:
            if error not in self._surroundings.faults:
                self._surroundings.unexpected(
                    self._sender.name, f"Produce to {queue.partition}: {error.name}"
                )
            return True
        if error in {
            ErrorCode.invalid_producer_epoch,
            ErrorCode.unknown_producer_id,
            ErrorCode.producer_fenced,
        }:
            self._new_id_wanted = True
            return False
        if error not in CLOCK_JUMPS:
            self._surroundings.unexpected(self._sender.name, f"Produce to {queue.partition}: {error.name}")
        queue.bump_wanted = True
        return False

    def _resolve_sequences(self) -> None:
        """After an expired batch: begin a new producer epoch, unless all sent batches were acknowledged after
        all.
        """
        for queue in self._sender.queues.values():
            if queue.unresolved_sequence is not None and not queue.in_flight:
                if not queue.is_next(queue.next_sequence):
                    queue.bump_wanted = True
                queue.unresolved_sequence = None

    def _bump_if_wanted(self) -> None:
        """Bump the producer epoch once no answer can arrive any more. Batches that may be stored are not sent
        again.
        """
        sender = self._sender
        wanting = [queue for queue in sender.queues.values() if queue.bump_wanted]
        if not wanting or not all(queue.is_answered for queue in wanting):
            return
        if not self._habits.local_bump or sender.producer_epoch == MAX_EPOCH:
            self._new_id_wanted = True
            sender.woken.set()
            return
        sender.producer_epoch += 1
        for queue in wanting:
            for batch in list(queue.in_flight):
                if batch.doubtful:
                    sender.give_up(queue, batch, "EPOCH_BUMP")
            queue.start_at_beginning(sender.producer_id, sender.producer_epoch)
