"""Transactional clients without sockets, and the outcome of their records in the partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.records.produce_append import ProduceServices, append_batch
from seqgate.gateway.handlers.transactions.end_txn import EndRequest, end_transaction
from seqgate.gateway.handlers.transactions.init_producer_id import begin_producer
from seqgate.gateway.handlers.transactions.txn_offset_commit import (
    FIRST_WITH_TOPIC_IDS,
    commit_in_transaction,
)
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.protocol.produce_codec import ProduceRow
from seqgate.log import PartitionLog
from seqgate.log.format.records import iterate_records
from tests.gateway.handlers.support import FakePeer, Node
from tests.support.batches import Batch, Record

TOPIC = "accounts"
GROUP = "readers"
PARTITIONS = 2
TIMEOUT_MS = 60_000
TRANSACTIONAL = 0x10
ADDS_BY_PRODUCE, ADDS_FIRST = 12, 11
CONTROL_BIT = 0x20


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class Refused(Exception):
    """A batch was not acknowledged."""


@dataclass
class Attempt:
    """One transaction as its client saw it: the requested end, and whether the end was acknowledged."""

    label: str
    offset: int | None = None
    """The offset that the transaction commits for the group."""
    commit: bool | None = None
    answered: bool = False
    places: set[int] = field(default_factory=set)
    """The partitions whose batches were acknowledged."""


@dataclass
class Client:
    """A producer with a transactional id that speaks either protocol version."""

    node: Node
    transactional_id: str
    produce_version: int = ADDS_BY_PRODUCE
    producer: Producer = field(default_factory=Producer)
    sequences: dict[tuple[Producer, int], int] = field(default_factory=lambda: defaultdict(int))

    @property
    def client_version(self) -> int:
        return 2 if self.produce_version >= ADDS_BY_PRODUCE else 0

    async def begin(self) -> None:
        transactions = self.node.services.coordinators.transactions
        self.producer = await begin_producer(transactions, self.transactional_id, TIMEOUT_MS, Producer())

    async def write(self, label: str, partition: int) -> None:
        """Write one record, acknowledged as with acks=all."""
        transactions = self.node.services.coordinators.transactions
        if self.produce_version < ADDS_BY_PRODUCE:
            places = frozenset({(TOPIC, partition)})
            await transactions.add_partitions(self.transactional_id, self.producer, places, 0)
        found = self.append(label, partition)
        target = self.node.services.partitions.registry.get(TOPIC, partition)
        if target is None:
            raise Refused
        waiting = [(target, found)]
        state = transactions.unpersisted(self.transactional_id)
        if state is not None:
            waiting.append(state)
        if not all(await asyncio.gather(*(target.persisted(offset) for target, offset in waiting))):
            raise Refused

    def append(self, label: str, partition: int) -> int:
        """Run the first stage of a Produce, which does not wait; return the offset."""
        key = self.producer, partition
        batch = Batch(
            (Record(label.encode()),), attributes=TRANSACTIONAL, base_timestamp=self.node.clock.now_ms()
        ).of(*self.producer, self.sequences[key])
        target = self.node.services.partitions.registry.get(TOPIC, partition)
        if target is None:
            raise Refused
        peer = FakePeer()
        peer.is_nameless = True  # a refused batch is not sent again
        info = append_batch(
            ProduceServices.of(self.node.services),
            self.produce_version,
            peer,
            "test",
            TOPIC,
            target,
            memoryview(batch.encode()),
            self.transactional_id,
            self.node.clock.now_ms(),
        )
        if isinstance(info, ProduceRow):
            raise Refused(info)
        self.sequences[key] += 1
        return info.last_offset

    async def hold(self, offset: int) -> None:
        """Add an offset of the group to the transaction."""
        transactions = self.node.services.coordinators.transactions
        if self.produce_version < ADDS_BY_PRODUCE:
            index = self.node.services.coordinators.groups.shards.index_of(GROUP)
            places = frozenset({(OFFSETS_TOPIC, index)})
            await transactions.add_partitions(self.transactional_id, self.producer, places, 0)
        value = CommittedOffset(offset, -1, "", self.node.clock.now_ms())
        error = await commit_in_transaction(
            self.node.services.coordinators.groups,
            Committer(GROUP),
            self.producer,
            [OffsetCommitRecord(GROUP, TOPIC, 0, value)],
            lambda place: transactions.verify_or_add(
                self.transactional_id, self.producer, place, self.client_version
            ),
            FIRST_WITH_TOPIC_IDS,
        )
        if error is not ErrorCode.none:
            raise Refused(error)

    async def end(self, *, commit: bool) -> None:
        transactions = self.node.services.coordinators.transactions
        request = EndRequest(self.producer, commit, self.client_version)
        self.producer = await end_transaction(transactions, self.transactional_id, request)

    async def transact(self, attempt: Attempt, *, commit: bool) -> None:
        """Run a transaction over all partitions, with a group's offset if the attempt has one."""
        for partition in range(PARTITIONS):
            await self.write(attempt.label, partition)
            attempt.places.add(partition)
        if attempt.offset is not None:
            await self.hold(attempt.offset)
        attempt.commit = commit
        await self.end(commit=commit)
        attempt.answered = True


async def committed_offset(node: Node) -> int | None:
    """Return the group's committed offset; fail if a transaction still holds it."""
    shard = await node.services.coordinators.groups.durable_shard(GROUP)
    assert not shard.offsets.pending.is_held(GROUP, (TOPIC, 0))
    found = shard.offsets.of(GROUP).get((TOPIC, 0))
    return None if found is None else found.offset


def outcomes(node: Node) -> dict[str, list[Outcome]]:
    """Return the outcomes of the records by label, one per record and partition."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for partition in range(PARTITIONS):
        target = node.services.partitions.registry.get(TOPIC, partition)
        if target is None:
            continue
        for label, outcome in _decided(target.log):
            found[label].append(outcome)
    return dict(found)


def _decided(log: PartitionLog) -> Iterator[tuple[str, Outcome]]:
    undecided: dict[int, list[str]] = defaultdict(list)
    for header, batch in log.replay_batches(0):
        for record in iterate_records(batch):
            if header.attributes & CONTROL_BIT:
                assert record.key is not None
                outcome = Outcome.COMMITTED if record.key[3] else Outcome.ABORTED
                for label in undecided.pop(header.producer_id, ()):
                    yield label, outcome
            else:
                assert record.value is not None
                undecided[header.producer_id].append(bytes(record.value).decode())
    for labels in undecided.values():
        for label in labels:
            yield label, Outcome.OPEN


async def settle(node: Node) -> None:
    """Finish the transactions whose end was decided, and time out the others."""
    transactions = node.services.coordinators.transactions
    node.clock.time_ms += 10 * TIMEOUT_MS
    transactions.abort_overdue()
    await transactions.endings.finish()
