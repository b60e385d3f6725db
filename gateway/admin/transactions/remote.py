"""The transactions of a cluster that is asked over the Kafka protocol. Raises ControlError or an error of
kafka-python. Unlike the control socket of a gateway, the Kafka protocol does not report which offsets of
groups a transaction holds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import KafkaProducer
from kafka.admin import AbortTransactionSpec, OffsetSpec
from kafka.admin import TransactionState as StateName
from kafka.errors import TransactionalIdNotFoundError

from seqgate.gateway.admin.remote.cluster import Cluster, led_partitions, opened, topic_partition
from seqgate.gateway.admin.request import ControlError, Request, from_source
from seqgate.gateway.admin.transactions import answers, command
from seqgate.gateway.admin.transactions.answers import KnownTransaction, OpenProducer, row_of
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.records import BY_NAME, NO_TIME, ONGOING, Transaction
from seqgate.gateway.metadata.image import OFFSETS_TOPIC

IDS_AT_ONCE: Final = 500
"""Transactional ids in one request; the rest go with the next one."""


def list_transactions(cluster: Cluster, request: command.ListTransactionsRequest) -> command.TransactionPage:
    """Return all transactional ids that pass the filters, in order."""
    try:
        states = [StateName.build_from(state).value for state in request.states]
    except (KeyError, ValueError) as error:
        raise ControlError(f"there is no state like one of {', '.join(request.states)}") from error
    listed = cluster.admin.list_transactions(
        producer_id_filters=request.producer_ids or None,
        state_filters=states or None,
        duration_filter_ms=request.longer_than_ms,
        transactional_id_pattern=request.pattern,
    )
    return command.TransactionPage(rows_of(cluster, _ids(listed)), True, [])


def _ids(listed: dict[Any, Any]) -> list[str]:
    return sorted({row.transactional_id for rows in listed.values() for row in rows})


def rows_of(cluster: Cluster, ids: Sequence[str]) -> list[command.TransactionRow]:
    """Return these ids with their transactions, without ids that are gone by now."""
    found: dict[str, Transaction] = {}
    try:
        found = _described(cluster, ids)
    except TransactionalIdNotFoundError:
        for name in ids:
            with contextlib.suppress(TransactionalIdNotFoundError):
                found |= _described(cluster, [name])
    now_ms = _now_ms()
    return [row_of(name, found[name], now_ms) for name in ids if name in found]


def _described(cluster: Cluster, ids: Sequence[str]) -> dict[str, Transaction]:
    """Return the transactions of ids. Raises TransactionalIdNotFoundError if one is gone."""
    found: dict[str, Transaction] = {}
    for first in range(0, len(ids), IDS_AT_ONCE):
        answer = cluster.admin.describe_transactions(list(ids[first : first + IDS_AT_ONCE]))
        found |= {name: _transaction(told) for name, told in answer.items()}
    return found


def _transaction(told: Any) -> Transaction:
    return Transaction(
        int(told.producer_id),
        int(told.producer_epoch),
        int(told.transaction_timeout_ms),
        BY_NAME[told.state.value],
        frozenset((place.topic, place.partition) for place in told.topic_partitions),
        NO_TIME,
        int(told.transaction_start_time_ms),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ClusterTransactions:
    """The transactions of a cluster: a `TransactionSource` whose coroutines only wait for the network."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.offline_partitions: list[int] = []
        """Nobody reports them over the Kafka protocol."""

    @property
    def now_ms(self) -> int:
        return _now_ms()

    def find(self, transactional_id: str) -> Transaction:
        try:
            return _described(self._cluster, [transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            raise ControlError(f"there is no transactional id {transactional_id}") from None

    def taking_part(
        self, places: Sequence[TopicPartition], producer_id: int
    ) -> list[command.TransactionPartition]:
        stable = self._cluster.offsets(places, OffsetSpec.LATEST, "read_committed")
        ends = self._cluster.offsets(places, OffsetSpec.LATEST)
        first = {
            producer.place: producer.first_offset
            for producer in self._opened([topic_partition(*place) for place in places])
            if producer.producer_id == producer_id
        }
        return [
            command.TransactionPartition(*place, first.get(place), stable[place], ends[place])
            for place in places
        ]

    def pending(self, transactional_id: str | None, producer_id: int) -> None:
        """Return None: the Kafka protocol does not report the offsets."""

    async def fence(self, transactional_id: str, before: Transaction) -> command.FencedBy:
        producer = opened(
            KafkaProducer,
            **self._cluster.client_settings(),
            transactional_id=transactional_id,
            transaction_timeout_ms=before.timeout_ms,
        )
        try:
            producer.init_transactions()
        finally:
            producer.close(timeout=0)
        after = self.find(transactional_id)
        return command.FencedBy(after.producer_id, after.producer_epoch)

    async def open_producers(self, request: command.FindHangingRequest) -> AsyncIterator[list[OpenProducer]]:
        """Yield the producers of all partitions at once."""
        places = led_partitions(
            self._cluster,
            request.topic,
            request.partition,
            lambda name, is_internal: not is_internal or name == OFFSETS_TOPIC,
        )
        leaders = self._cluster.leaders()
        yield [producer._replace(broker_id=leaders[producer.place]) for producer in self._opened(places)]

    def open_in(self, topic: str, partition: int) -> list[OpenProducer]:
        return self._opened(led_partitions(self._cluster, topic, partition))

    def _opened(self, places: Sequence[Any]) -> list[OpenProducer]:
        found = self._cluster.admin.describe_producers(places) if places else {}
        return sorted(
            OpenProducer(
                place.topic,
                place.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_transaction_start_offset,
                producer.last_timestamp,
                producer.last_timestamp,
                broker_id=-1,
            )
            for place, state in found.items()
            for producer in state.active_producers
            if producer.current_transaction_start_offset >= 0
        )

    def known(self, producer_ids: Iterable[int]) -> Callable[[int], KnownTransaction | None]:
        wanted = sorted(producer_ids)
        if not wanted:
            return lambda _: None
        ids = _ids(self._cluster.admin.list_transactions(producer_id_filters=wanted))
        return {
            found.producer_id: KnownTransaction(name, found)
            for name, found in _described(self._cluster, ids).items()
        }.get

    def is_overdue(self, transaction: Transaction) -> bool:
        """Compare with this machine's clock, which may lag behind the coordinator's."""
        open_ms = _now_ms() - transaction.start_ms
        is_open = transaction.state is ONGOING and transaction.start_ms >= 0
        return is_open and open_ms > transaction.timeout_ms

    def client(self, producer_id: int, producer_epoch: int) -> None:
        """Return None: the Kafka protocol does not report clients."""

    async def abort_in(self, producer: OpenProducer) -> None:
        self._cluster.admin.abort_transaction(
            AbortTransactionSpec(
                topic_partition(*producer.place),
                producer.producer_id,
                producer.producer_epoch,
                # The coordinator epoch is -1 before the first marker; Kafka's tool then sends 0 as well.
                max(0, producer.coordinator_epoch),
            )
        )


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    command.ListTransactionsRequest: list_transactions,
    command.DescribeTransactionRequest: from_source(ClusterTransactions, answers.describe_transaction),
    command.FindHangingRequest: from_source(ClusterTransactions, answers.find_hanging),
    command.AbortTransactionRequest: from_source(ClusterTransactions, answers.abort_transaction),
    command.AbortHangingRequest: from_source(ClusterTransactions, answers.abort_hanging),
}
"""The answers to the requests of commands."""
