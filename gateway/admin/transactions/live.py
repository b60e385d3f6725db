"""The transactions of a running gateway, from its own objects, and those in a data directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seqgate.gateway.admin.operation import (
    LiveGateway,
    StoppedGateway,
    as_control_error,
    check_led_here,
    find_topic,
    offline_partitions,
    partitions_after,
)
from seqgate.gateway.admin.request import ControlError, Elsewhere, in_words
from seqgate.gateway.admin.stored import metadata_directory, partition_directories
from seqgate.gateway.admin.transactions import answers, command
from seqgate.gateway.admin.transactions.answers import KnownTransaction, OpenProducer, described, rows_of_ids
from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.coordinator.group.offsets import GroupOffsets, HeldOffset, OffsetRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction import records as transaction_records
from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import Transaction
from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused, TransactionShard
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.coordinators.shards import Codec, decoded
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.log import IncompatibleFormat, LogError, Storage
from seqgate.log.stopped import stored_batches


def list_transactions(
    gateway: LiveGateway, request: command.ListTransactionsRequest
) -> command.TransactionPage:
    """Return one page of the transactional ids. Raises ControlError."""
    services = gateway.services
    now_ms = services.node.clock.now_ms()
    source = LiveTransactions(gateway)
    rows, complete = rows_of_ids(services.coordinators.transactions.all(), request, now_ms, source.client)
    return command.TransactionPage(rows, complete, source.offline_partitions, source.partitions_elsewhere())


async def find_hanging(gateway: LiveGateway, request: command.FindHangingRequest) -> command.HangingPage:
    """Return one page of the hanging transactions. Raises ControlError."""
    source = LiveTransactions(gateway)
    source.check_all_here()
    return await answers.find_hanging(source, request)


async def abort_hanging(
    gateway: LiveGateway, request: command.AbortHangingRequest
) -> command.TransactionAbort:
    """With `execute`, persist the marker that aborts a transaction in a partition. Raises ControlError."""
    source = LiveTransactions(gateway)
    source.check_all_here()
    return await answers.abort_hanging(source, request)


class LiveTransactions:
    """The transactions coordinated by this gateway, and the partitions it leads: a `TransactionSource`."""

    def __init__(self, gateway: LiveGateway) -> None:
        services = gateway.services
        self._services = services
        self._partitions = services.partitions.registry
        self._transactions = services.coordinators.transactions

    @property
    def now_ms(self) -> int:
        return self._services.node.clock.now_ms()

    @property
    def offline_partitions(self) -> list[int]:
        return offline_partitions(self._partitions, TRANSACTION_STATE_TOPIC)

    def partitions_elsewhere(self) -> list[int]:
        """Return the partitions of `__transaction_state` that other gateways lead, or that none leads now."""
        topic = self._services.topics.metadata_log.image.topics_by_name.get(TRANSACTION_STATE_TOPIC)
        brokers = self._services.node.brokers
        return [
            index
            for index, partition in sorted(topic.partitions.items() if topic is not None else ())
            if not brokers.leads(partition)
        ]

    def check_all_here(self) -> None:
        """Refuse a question about all gateways: the control socket reaches one. Raises ControlError."""
        if self.partitions_elsewhere():
            raise Elsewhere(f"other gateways coordinate transactions, too; {self._advice()}")

    def _advice(self) -> str:
        advertised = self._services.node.brokers.advertised.values()
        address = next((place.shown for place in advertised), "HOST:PORT")
        return f"ask the cluster with --bootstrap {address}"

    def find(self, transactional_id: str) -> Transaction:
        found = None
        if TRANSACTION_STATE_TOPIC in self._partitions.by_name:
            self._check_is_here(transactional_id)
            with as_control_error(f"transactional id {transactional_id}", TRANSACTION_STATE_TOPIC):
                found = self._transactions.find(transactional_id)
        if found is None:
            raise ControlError(f"there is no transactional id {transactional_id}")
        return found

    def _check_is_here(self, transactional_id: str) -> None:
        node_id = self._services.coordinators.elsewhere.coordinator_of(transactional_id)
        if node_id is None:
            return
        if node_id < 0:
            raise ControlError(
                f"no live gateway coordinates transactional id {transactional_id} now; try again later"
            )
        raise Elsewhere(
            f"gateway {node_id} coordinates transactional id {transactional_id}; {self._advice()}"
        )

    def taking_part(
        self, places: Sequence[TopicPartition], producer_id: int
    ) -> list[command.TransactionPartition]:
        return [self._taking_part(place, producer_id) for place in places]

    def _taking_part(self, place: TopicPartition, producer_id: int) -> command.TransactionPartition:
        partition = self._partitions.get(*place)
        if partition is None:
            return command.TransactionPartition(*place, None, None, None)
        log = partition.log
        found = log.transactions.open_transaction(producer_id)
        first_offset = None if found is None else found.first_offset
        return command.TransactionPartition(*place, first_offset, log.last_stable_offset, log.high_watermark)

    def pending(self, transactional_id: str | None, producer_id: int) -> list[command.PendingOffset]:
        return in_order(
            pending_offset(held, transactional_id)
            for shard in self._services.coordinators.groups.loaded_shards()
            for held in shard.offsets.pending.of_producer(producer_id)
        )

    async def fence(self, transactional_id: str, before: Transaction) -> command.FencedBy:
        # The limit of the timeout may be lower now than when the producer began.
        timeout_ms = min(before.timeout_ms, self._transactions.limits.max_timeout_ms)
        try:
            with as_control_error(f"transactional id {transactional_id}", TRANSACTION_STATE_TOPIC):
                producer = await self._transactions.begin_producer(transactional_id, timeout_ms, Producer())
        except TransactionRefused as error:
            raise ControlError(
                f"the abort of {transactional_id} is decided, but not written to every partition yet "
                f"({error.error_code.name}); the gateway continues the abort, and `seqgate status` shows "
                "whether a partition is offline"
            ) from error
        return command.FencedBy(*producer)

    async def open_producers(self, request: command.FindHangingRequest) -> AsyncIterator[list[OpenProducer]]:
        for partition in list(self._wanted(request)):
            yield self._opened(partition)
            # Let requests in between: a gateway may have a hundred thousand partitions.
            await asyncio.sleep(0)

    def _wanted(self, request: command.FindHangingRequest) -> Iterator[Partition]:
        if request.topic is None:
            names = sorted(filter(_holds_transactions, self._partitions.by_name))
            topics = [self._partitions.by_name[name] for name in names]
        else:
            topics = [find_topic(self._partitions, request.topic, request.partition)]
        return partitions_after(topics, TopicPartitions.opened, request.partition, request.after)

    def open_in(self, topic: str, partition: int) -> list[OpenProducer]:
        if not _holds_transactions(topic):
            raise ControlError(f"{topic} holds no transactions")
        return self._opened(self._partition(topic, partition))

    def _partition(self, topic: str, index: int) -> Partition:
        partition = self._partitions.get(topic, index)
        if partition is None:
            check_led_here(self._services, topic, index)
            raise ControlError(f"there is no partition {topic}-{index}")
        return partition

    def _opened(self, partition: Partition) -> list[OpenProducer]:
        log = partition.log
        opened = sorted(producer_id for producer_id, _ in log.transactions.open_transactions())
        entries = (log.producers.get(producer_id) for producer_id in opened)
        return [
            OpenProducer(
                partition.topic,
                partition.index,
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
                entry.last_timestamp,
                entry.last_active_ms,
                self._services.node.node_id,
            )
            for entry in entries
            if entry is not None
        ]

    def known(
        self,
        producer_ids: Iterable[int],  # noqa: ARG002 - finds any
    ) -> Callable[[int], KnownTransaction | None]:
        return known_producers(self._services.coordinators)

    def is_overdue(self, transaction: Transaction) -> bool:
        return rules.is_overdue(transaction, self.now_ms)

    def client(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        return self._services.partitions.counters.clients.find(producer_id, producer_epoch)

    async def abort_in(self, producer: OpenProducer) -> None:
        partition = self._partition(*producer.place)
        try:
            offset = self._transactions.markers.append(
                partition,
                Producer(producer.producer_id, producer.producer_epoch),
                commit=False,
                # The coordinator epoch is -1 before the first marker; Kafka's tool then sends 0 as well.
                coordinator_epoch=max(0, producer.coordinator_epoch),
            )
        except LogError as error:
            raise ControlError(f"{partition.topic}-{partition.index} takes no marker: {error}") from error
        if not await partition.persisted(offset):
            raise ControlError(
                f"the marker in {partition.topic}-{partition.index} could not be made durable: the partition "
                "is offline"
            )


def _holds_transactions(topic: str) -> bool:
    return topic not in INTERNAL_TOPICS or topic == OFFSETS_TOPIC


# The offsets that open transactions hold.


def known_producers(coordinators: CoordinatorServices) -> Callable[[int], KnownTransaction | None]:
    """Return the function from producer ids to transactions, None where no loaded shard knows the id."""
    shards = coordinators.transactions.shards
    shards.load_stored()
    loaded = [entry.shard for entry in shards if entry.is_current]

    def find(producer_id: int) -> KnownTransaction | None:
        for shard in loaded:
            name = shard.by_producer_id.get(producer_id)
            if name is not None:
                return KnownTransaction(name, shard.transactions[name])
        return None

    return find


def pending_in_group(
    coordinators: CoordinatorServices, shard: GroupShard, group_id: str
) -> dict[TopicPartition, list[command.PendingOffset]]:
    """Return the offsets of a group that open transactions hold, by partition, in the order they came."""
    found = shard.offsets.pending.of_group(group_id)
    if not found:
        return {}
    find = known_producers(coordinators)

    def row(held: HeldOffset) -> command.PendingOffset:
        known = find(held.producer_id)
        return pending_offset(held, None if known is None else known.transactional_id)

    return {place: [row(held) for held in holders] for place, holders in found.items()}


def pending_offset(held: HeldOffset, transactional_id: str | None) -> command.PendingOffset:
    """Return the row of an offset that a transaction holds."""
    record = held.record
    assert record.value is not None
    return command.PendingOffset(
        group=record.group_id,
        topic=record.topic,
        partition=record.partition,
        offset=record.value.offset,
        producer_id=held.producer_id,
        producer_epoch=held.producer_epoch,
        transactional_id=transactional_id,
        superseded=held.is_superseded,
    )


def in_order(pending: Iterable[command.PendingOffset]) -> list[command.PendingOffset]:
    """Sort offsets by group, topic and partition."""
    return sorted(pending, key=lambda held: (held.group, held.topic, held.partition))


# The transactional ids in a data directory that no gateway has open, read without a lock and without a
# change. The offsets that only open partition logs know are missing.


def list_transactions_stopped(
    gateway: StoppedGateway, request: command.ListTransactionsRequest
) -> command.TransactionPage:
    """Return all requested transactional ids, in order. Raises ControlError."""
    found = _stored_transactions(gateway.data_dir)
    rows, complete = rows_of_ids(found.items(), request, gateway.now_ms)
    return command.TransactionPage(rows, complete, [])


def describe_transaction_stopped(
    gateway: StoppedGateway, request: command.DescribeTransactionRequest
) -> command.TransactionDescription:
    """Return a transactional id with all its partitions, and the offsets it holds. Raises ControlError."""
    name = request.transactional_id
    transaction = _stored_transactions(gateway.data_dir).get(name)
    if transaction is None:
        raise ControlError(f"there is no transactional id {name}")
    return described(
        name,
        transaction,
        [command.TransactionPartition(*place, None, None, None) for place in sorted(transaction.partitions)],
        _stored_pending(gateway.data_dir, name, transaction.producer_id),
        None,
        gateway.now_ms,
        complete=True,
    )


def _stored_transactions(data_dir: Path) -> dict[str, Transaction]:
    metadata_directory(data_dir)
    shard = TransactionShard()
    for directory in partition_directories(data_dir, TRANSACTION_STATE_TOPIC):
        for record in _stored_records(directory, transaction_records):
            if isinstance(record, transaction_records.TransactionRecord):
                shard.replay(record, 0)
    return shard.transactions


def _stored_pending(data_dir: Path, transactional_id: str, producer_id: int) -> list[command.PendingOffset]:
    pending: list[command.PendingOffset] = []
    for directory in partition_directories(data_dir, OFFSETS_TOPIC):
        offsets = _stored_offsets(directory)
        pending += (
            pending_offset(held, transactional_id) for held in offsets.pending.of_producer(producer_id)
        )
    return in_order(pending)


def _stored_offsets(directory: Path) -> GroupOffsets:
    offsets = GroupOffsets()
    for record in _stored_records(directory, group_records):
        if isinstance(record, OffsetRecord):
            offsets.replay(record)
    return offsets


def _stored_records(directory: Path, codec: Codec) -> Iterator[Any]:
    try:
        for header, batch in stored_batches(Storage(), directory):
            yield from decoded(codec, header, batch, directory.name)
    except (LogError, IncompatibleFormat, OSError) as error:
        raise ControlError(f"{directory} can't be read: {in_words(error)}") from error
