"""The transactions of a cluster that is asked over the Kafka protocol. Raises ControlError or an error of
kafka-python. Unlike the control socket of a gateway, the Kafka protocol does not report which offsets of
groups a transaction holds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i64

from seqgate.gateway.admin.producers import active_producers
from seqgate.gateway.admin.remote.cluster import (
    LATEST,
    TRANSACTION,
    Cluster,
    led_partitions,
    opened,
    topic_partition,
)
from seqgate.gateway.admin.request import ControlError, Request, from_source
from seqgate.gateway.admin.transactions import answers, command
from seqgate.gateway.admin.transactions.answers import KnownTransaction, OpenProducer, row_of, state_of
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.records import BY_NAME, NO_TIME, ONGOING, Transaction
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.protocol.messages import milliseconds, response_type
from seqgate.gateway.security.principals import ClientIdentity

IDS_AT_ONCE: Final = 500
"""Transactional ids in one request; the rest go with the next one."""
_API: Final = 65, 0
"""The key and the version of DescribeTransactions."""
_GONE: Final = ErrorCode.transactional_id_not_found
_NOT_BEGUN: Final = -1


def list_transactions(cluster: Cluster, request: command.ListTransactionsRequest) -> command.TransactionPage:
    """Return all transactional ids that pass the filters, in order."""
    states = [state_of(state) for state in request.states]
    ids = _ids(cluster, request.producer_ids, states, request.longer_than_ms, request.pattern)
    return command.TransactionPage(rows_of(cluster, ids), True, [])


def _ids(
    cluster: Cluster,
    producer_ids: Sequence[int],
    states: Sequence[str] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[str]:
    """Return the transactional ids that pass the filters, in order; an empty filter lets all pass."""
    asked = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(map(ProducerId, producer_ids)),
        duration_filter=i64(-1 if longer_than_ms is None else longer_than_ms),
        transactional_id_pattern=pattern,
    )
    told = cluster.ask_all(asked, ListTransactionsResponse)
    if told is not None:
        return sorted({str(row.transactional_id) for answer in told for row in answer.transaction_states})
    listed = cluster.admin.list_transactions(
        producer_id_filters=producer_ids or None,
        state_filters=states or None,
        duration_filter_ms=longer_than_ms,
        transactional_id_pattern=pattern,
    )
    return sorted({row.transactional_id for rows in listed.values() for row in rows})


def rows_of(cluster: Cluster, ids: Sequence[str]) -> list[command.TransactionRow]:
    """Return these ids with their transactions, without ids that are gone by now."""
    found = _described(cluster, ids)
    now_ms = _now_ms()
    return [row_of(name, *found[name], now_ms) for name in ids if name in found]


class _Described(NamedTuple):
    """A transaction, and the client of its producer."""

    transaction: Transaction
    client: ClientIdentity | None


def _described(cluster: Cluster, ids: Sequence[str]) -> dict[str, _Described]:
    """Return the transactions of ids, without ids that are gone."""
    found: dict[str, _Described] = {}
    for first in range(0, len(ids), IDS_AT_ONCE):
        some = ids[first : first + IDS_AT_ONCE]
        told = cluster.ask_coordinators(TRANSACTION, some, _question, response_type(*_API))
        rows = [row for answer in told or () for row in answer.transaction_states]
        if told is None or any(row.error_code not in {0, _GONE} for row in rows):
            found |= _described_by_kafka_python(cluster, some)
        else:
            found |= {str(row.transactional_id): _told(row) for row in rows if not row.error_code}
    return found


def _question(ids: Sequence[str]) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=tuple(map(TransactionalId, ids)))


def _told(row: Any) -> _Described:
    start = row.transaction_start_time
    transaction = Transaction(
        row.producer_id,
        row.producer_epoch,
        milliseconds(row.transaction_timeout),
        BY_NAME[row.transaction_state],
        frozenset((topic.topic, partition) for topic in row.topics for partition in topic.partitions),
        NO_TIME,
        _NOT_BEGUN if start is None else round(start.timestamp() * 1000),
    )
    return _Described(transaction, ClientIdentity.from_json(row.client))


def _described_by_kafka_python(cluster: Cluster, ids: Sequence[str]) -> dict[str, _Described]:
    from kafka.errors import TransactionalIdNotFoundError  # noqa: PLC0415 - slow to import

    try:
        answer = cluster.admin.describe_transactions(list(ids))
    except TransactionalIdNotFoundError:
        if len(ids) == 1:
            return {}
        return {
            name: told for each in ids for name, told in _described_by_kafka_python(cluster, [each]).items()
        }
    return {
        name: _Described(
            Transaction(
                int(told.producer_id),
                int(told.producer_epoch),
                int(told.transaction_timeout_ms),
                BY_NAME[told.state.value],
                frozenset((place.topic, place.partition) for place in told.topic_partitions),
                NO_TIME,
                int(told.transaction_start_time_ms),
            ),
            client,
        )
        for name, (told, client) in answer.items()
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ClusterTransactions:
    """The transactions of a cluster: a `TransactionSource` whose coroutines only wait for the network."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.offline_partitions: list[int] = []
        """Nobody reports them over the Kafka protocol."""
        self._clients: dict[tuple[int, int], ClientIdentity | None] = {}
        """The clients of producers, by producer id and epoch."""

    @property
    def now_ms(self) -> int:
        return _now_ms()

    def find(self, transactional_id: str) -> Transaction:
        found = _described(self._cluster, [transactional_id]).get(transactional_id)
        if found is None:
            raise ControlError(f"there is no transactional id {transactional_id}")
        transaction, client = found
        self._clients[transaction.producer_id, transaction.producer_epoch] = client
        return transaction

    def taking_part(
        self, places: Sequence[TopicPartition], producer_id: int
    ) -> list[command.TransactionPartition]:
        stable = self._cluster.offsets(places, LATEST, "read_committed")
        ends = self._cluster.offsets(places, LATEST)
        first = {
            producer.place: producer.first_offset
            for producer in self._opened(places)
            if producer.producer_id == producer_id
        }
        return [
            command.TransactionPartition(*place, first.get(place), stable[place], ends[place])
            for place in places
        ]

    def pending(self, transactional_id: str | None, producer_id: int) -> None:
        """Return None: the Kafka protocol does not report the offsets."""

    async def fence(self, transactional_id: str, before: Transaction) -> command.FencedBy:
        from kafka import KafkaProducer  # noqa: PLC0415 - slow to import

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

    def _opened(self, places: Sequence[TopicPartition]) -> list[OpenProducer]:
        active = active_producers(self._cluster, places) if places else []
        self._clients |= {(row.producer_id, row.producer_epoch): row.client for row in active if row.client}
        return sorted(
            OpenProducer(
                producer.topic,
                producer.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
                producer.last_timestamp,
                broker_id=-1,
            )
            for producer in active
            if producer.current_txn_start_offset >= 0
        )

    def known(self, producer_ids: Iterable[int]) -> Callable[[int], KnownTransaction | None]:
        wanted = sorted(producer_ids)
        if not wanted:
            return lambda _: None
        found = _described(self._cluster, _ids(self._cluster, wanted))
        return {each.producer_id: KnownTransaction(name, each) for name, (each, _) in found.items()}.get

    def is_overdue(self, transaction: Transaction) -> bool:
        """Compare with this machine's clock, which may lag behind the coordinator's."""
        open_ms = _now_ms() - transaction.start_ms
        is_open = transaction.state is ONGOING and transaction.start_ms >= 0
        return is_open and open_ms > transaction.timeout_ms

    def client(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        """Return the client as the answers so far told it; Kafka itself tells none."""
        return self._clients.get((producer_id, producer_epoch))

    async def abort_in(self, producer: OpenProducer) -> None:
        from kafka.admin import AbortTransactionSpec  # noqa: PLC0415 - slow to import

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
