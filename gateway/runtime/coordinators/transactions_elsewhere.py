"""Lets partitions of this gateway take part in transactions that another gateway coordinates.

Before the first batch, or the first offsets, of a transaction are appended to a partition, the coordinator is
asked: it verifies that the client has added the partition, or adds the partition (transaction version 2), and
answers when that is durable. Afterwards the open transaction in the partition's own log says that the
partition takes part. All questions to one coordinator go in one request after the other; those that come
meanwhile share the next one. Source: Kafka's AddPartitionsToTxnManager, KIP-890.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import TopicPartition, by_topic
from seqgate.gateway.coordinator.transaction.rules import VERSION_2, Producer, TransactionRefused
from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.coordinators.shards import Unavailable, settle
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.brokers import Brokers
from seqgate.gateway.runtime.topics.topic_lifecycle import InternalTopics

logger = logging.getLogger(__name__)

_ADD_PARTITIONS_TO_TXN: Final = 24
_VERSION: Final = 5
ANSWER_TIMEOUT_S: Final = 10.0
"""Time for the coordinator's answer. Then the producer is told to send the batch again."""
MOST_AT_ONCE: Final = 1000
"""Questions of one request; the rest go with the next one."""
MOST_WAITING: Final = 10_000
"""Questions that wait for one coordinator; further ones are refused with an error that producers retry."""
_RETRIED: Final = frozenset(
    (
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.operation_not_attempted,
        ErrorCode.kafka_storage_error,
    )
)
"""Errors that pass: the coordinator moves, or has not seen the topic yet."""


class TookPart(msgspec.Struct, eq=False, weakref=True):
    """The coordinator's answer for one partition; holds until a marker ends the transaction there, or another
    gateway leads the partition.
    """

    partition: Partition
    producer: Producer
    error: TransactionRefused | Unavailable | None = None
    """Why the partition does not take part; None when it does."""
    is_ended: bool = False
    """Whether a marker of the producer was appended since the question."""

    def check(self, partition: Partition | None) -> None:
        """Check that records may be appended now to the partition of the place. Raises TransactionRefused,
        Unavailable.
        """
        if self.error is not None:
            raise self.error
        if self.is_ended or partition is not self.partition:
            raise Unavailable


class _Question(NamedTuple):
    transactional_id: str
    producer: Producer
    places: frozenset[TopicPartition]
    adds: bool
    answered: asyncio.Future[dict[TopicPartition, ErrorCode]]


class TransactionsElsewhere:
    """Knows which transactions another gateway coordinates, and asks that gateway."""

    def __init__(self, brokers: Brokers, internal_topics: InternalTopics, peers: AsksPeers) -> None:
        self._brokers = brokers
        self._internal_topics = internal_topics
        self._peers = peers
        self._waiting: dict[int, list[_Question]] = {}
        """The questions by coordinator; a coordinator is here while a task asks it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._unused: WeakSet[TookPart] = WeakSet()
        """The answers, and questions, whose records are not appended yet."""

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def coordinator_of(self, transactional_id: str) -> int | None:
        """Return the node id of the other gateway that coordinates an id; -1 if none does, None for this."""
        if self._brokers.is_alone:
            return None
        if self._internal_topics.index_for(TRANSACTION_STATE_TOPIC, transactional_id) is None:
            return None
        node_id = self._internal_topics.leader_for(TRANSACTION_STATE_TOPIC, transactional_id)
        return None if node_id == self._brokers.node_id else node_id

    @staticmethod
    def is_open_in(partition: Partition, producer: Producer) -> bool:
        """Return whether the producer's transaction is open in the partition: no need to ask again."""
        found = partition.log.transactions.open_transaction(producer.producer_id)
        return found is not None and found.producer_epoch == producer.producer_epoch

    def transaction_ended(
        self,
        partition: Partition,
        producer: Producer,
        is_commit: bool,  # noqa: ARG002 - a listener of markers
    ) -> None:
        """Note a marker that was appended: earlier answers about its producer don't hold any more."""
        for one in self._unused:
            if one.partition is partition and one.producer.producer_id == producer.producer_id:
                one.is_ended = True

    def unasked(self, partition: Partition, producer: Producer) -> TookPart:
        """Return the answer where nobody need ask; it holds until a marker, as any other."""
        took_part = TookPart(partition, producer)
        self._unused.add(took_part)
        return took_part

    async def ask(
        self, transactional_id: str, producer: Producer, partitions: Sequence[Partition], client_version: int
    ) -> list[TookPart]:
        """Ask whether the partitions take part, or add them (version 2); return an answer for each."""
        took_part = [TookPart(partition, producer) for partition in partitions]
        self._unused.update(took_part)
        places = {(partition.topic, partition.index) for partition in partitions}
        try:
            codes = await self._codes(transactional_id, producer, frozenset(places), client_version)
        except (TransactionRefused, Unavailable) as error:
            for one in took_part:
                one.error = error
            return took_part
        for one in took_part:
            place = one.partition.topic, one.partition.index
            one.error = _error_of(codes.get(place, ErrorCode.coordinator_not_available))
        return took_part

    async def _codes(
        self,
        transactional_id: str,
        producer: Producer,
        places: frozenset[TopicPartition],
        client_version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """Return the coordinator's answer for each partition. Raises TransactionRefused, Unavailable."""
        node_id = self.coordinator_of(transactional_id)
        if node_id is None or node_id < 0:
            raise Unavailable  # the coordinator has just moved
        waiting = self._waiting.get(node_id)
        if waiting is not None and len(waiting) >= MOST_WAITING:
            raise Unavailable
        loop = asyncio.get_running_loop()
        question = _Question(
            transactional_id, producer, places, client_version >= VERSION_2, loop.create_future()
        )
        if waiting is not None:
            waiting.append(question)
        else:
            self._waiting[node_id] = [question]
            task = loop.create_task(self._ask_all(node_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await question.answered

    async def _ask_all(self, node_id: int) -> None:
        while waiting := self._waiting[node_id]:
            now, self._waiting[node_id] = _of_one_request(waiting)
            try:
                answer = await self._peers.ask(node_id, _request(now), timeout_s=ANSWER_TIMEOUT_S)
                _settle(now, answer)
            except PeerUnavailable as error:
                logger.warning("the coordinator of %d transactions did not answer: %s", len(now), error)
                _refuse(now, Unavailable())
            except BaseException:
                _refuse([*now, *self._waiting.pop(node_id)], Unavailable())
                raise
        del self._waiting[node_id]


def _of_one_request(waiting: list[_Question]) -> tuple[list[_Question], list[_Question]]:
    """Return the questions of the next request, one for each transactional id, and the rest."""
    now: dict[str, _Question] = {}
    later = []
    for question in waiting:
        if len(now) < MOST_AT_ONCE and question.transactional_id not in now:
            now[question.transactional_id] = question
        else:
            later.append(question)
    return list(now.values()), later


def _request(questions: Sequence[_Question]) -> Any:
    transactions = [
        {
            "transactional_id": question.transactional_id,
            **question.producer._asdict(),
            "verify_only": not question.adds,
            "topics": [
                {"name": name, "partitions": tuple(indexes)}
                for name, indexes in by_topic(question.places).items()
            ],
        }
        for question in questions
    ]
    return build_request(_ADD_PARTITIONS_TO_TXN, _VERSION, transactions=transactions)


def _settle(questions: Sequence[_Question], answer: Any) -> None:
    """Hand out the parts of an answer."""
    if answer.error_code:
        name = ErrorCode(answer.error_code).name.upper()
        logger.error("the coordinator refuses to add partitions to transactions: %s", name)
        # as in Kafka: clients don't know the errors between brokers
        _refuse(questions, TransactionRefused(ErrorCode.invalid_txn_state))
        return
    results = {result.transactional_id: result.topic_results for result in answer.results_by_transaction}
    for question in questions:
        codes = {
            (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in results.get(question.transactional_id, ())
            for row in topic.results_by_partition
        }
        settle(question.answered, codes)


def _refuse(questions: Sequence[_Question], error: TransactionRefused | Unavailable) -> None:
    for question in questions:
        settle(question.answered, None, error)


def _error_of(code: ErrorCode) -> TransactionRefused | Unavailable | None:
    if code is ErrorCode.none:
        return None
    return Unavailable() if code in _RETRIED else TransactionRefused(code)
