"""A transactional producer for scenarios that sends each request explicitly, in a chosen version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from tests.compat.differential.group_member import committed
from tests.compat.differential.peer import Peer, Topic
from tests.support.batches import Batch, records
from tests.support.wire import Plain

TRANSACTIONAL = 0x10
COMMIT, ABORT = True, False
CONCURRENT_TRANSACTIONS = 51
NOT_FOUND = 105
ADDS_FIRST, ADDS_BY_PRODUCE = 11, 12
"""Versions of Produce: since version 12 (`ADDS_BY_PRODUCE`) a batch adds its partition to the transaction
(KIP-890)."""
KEEPS_EPOCH, RAISES_EPOCH = 4, 5
"""Versions of EndTxn: since version 5 (`RAISES_EPOCH`) every end raises the producer epoch (KIP-890)."""
ENDING = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}

Places = Mapping[str, Sequence[int]]


def is_answered(answer: Plain) -> bool:
    """Return whether the answer is final. Otherwise Kafka is still busy with the previous end, and the
    request is repeated."""
    return bool(answer["error_code"] != CONCURRENT_TRANSACTIONS)


def await_coordinator(peer: Peer, transactional_id: str) -> None:
    """Wait until the coordinator of an unused transactional id answers that it does not know the id."""
    asked = {"key": transactional_id, "key_type": 1}
    peer.until("find_coordinator", 3, lambda answer: answer["error_code"] == 0, asked)

    def is_loaded(answer: Plain) -> bool:
        return bool(answer["transaction_states"][0]["error_code"] == NOT_FOUND)

    peer.until("describe_transactions", 0, is_loaded, {"transactional_ids": [transactional_id]})


class TransactionalProducer:
    """A producer that keeps its producer id, its epoch and the sequence of each partition, as a client does."""

    def __init__(self, peer: Peer, suffix: str = "x") -> None:
        self.peer = peer
        self.transactional_id = peer.name(suffix)
        self.producer_id = -1
        self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        await_coordinator(peer, self.transactional_id)

    @property
    def identity(self) -> Plain:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def _adopt(self, answer: Plain) -> None:
        adopted = answer.get("producer_id", -1), answer.get("producer_epoch", -1)
        if answer.get("error_code") == 0 and adopted not in {
            (-1, -1),
            (self.producer_id, self.producer_epoch),
        }:
            self.producer_id, self.producer_epoch = adopted
            self._sequences.clear()

    def heir(self) -> TransactionalProducer:
        """Return another instance with the same transactional id that has not sent InitProducerId yet."""
        other = copy(self)
        other._sequences = {}
        return other

    def init(self, version: int = 5, **more: Any) -> Plain:
        """Send InitProducerId as a client that starts. Repeat it while a transaction is ending."""
        request = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = self.peer.eventually("init_producer_id", version, is_answered, **{**request, **more})
        self._adopt(answer)
        return answer

    def init_again(self, version: int = 5, **more: Any) -> Plain:
        """Send InitProducerId as a client that continues after an error (KIP-360)."""
        return self.init(version, **{**self.identity, **more})

    def add(self, places: Places, version: int = 3, **more: Any) -> Plain:
        """Send AddPartitionsToTxn for one transaction, in any version."""
        topics = [{"name": name, "partitions": list(indexes)} for name, indexes in places.items()]
        one = {**self.identity, "topics": topics, **more}
        below = {f"v3_and_below_{key}": value for key, value in one.items() if key != "verify_only"}
        return self.peer.call("add_partitions_to_txn", version, transactions=[one], **below)

    def add_offsets(self, group_id: str, version: int = 3, **more: Any) -> Plain:
        return self.peer.call(
            "add_offsets_to_txn", version, **{**self.identity, "group_id": group_id, **more}
        )

    def commit_offsets(
        self, group_id: str, topic: Topic, offsets: Mapping[int, int], version: int = 5, **more: Any
    ) -> Plain:
        """Send TxnOffsetCommit as a producer that is no member of the group."""
        request = {
            **self.identity,
            "group_id": group_id,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [committed(topic, offsets)],
        }
        request |= more
        return self.peer.call("txn_offset_commit", version, **request)

    def batch(self, topic: Topic, count: int = 1, partition: int = 0, **fields: Any) -> Batch:
        """Return the next batch for a partition; keyword arguments replace fields of the batch."""
        base_sequence = self._sequences.get((topic.name, partition), 0)
        batch = Batch(records(count), attributes=TRANSACTIONAL)
        return replace(batch.of(self.producer_id, self.producer_epoch, base_sequence), **fields)

    def send(self, topic: Topic, batch: Batch, partition: int = 0, version: int = ADDS_BY_PRODUCE) -> Plain:
        """Send a Produce request with one batch and the transactional id."""
        return self.peer.produce(
            topic, {partition: batch}, version=version, transactional_id=self.transactional_id
        )

    def produce(
        self, topic: Topic, count: int = 1, partition: int = 0, version: int = ADDS_BY_PRODUCE, **fields: Any
    ) -> Plain:
        """Produce the next batch, and advance the sequence if the batch is appended."""
        batch = self.batch(topic, count, partition, **fields)
        answer = self.send(topic, batch, partition, version)
        if answer and answer["responses"][0]["partition_responses"][0]["error_code"] == 0:
            self._sequences[topic.name, partition] = batch.base_sequence + count
        return answer

    def end(self, commit: bool, version: int = RAISES_EPOCH, **more: Any) -> Plain:
        """Send EndTxn, and wait until the transaction has ended."""
        answer = self.peer.call("end_txn", version, **{**self.identity, "committed": commit, **more})
        self._adopt(answer)
        self.settle()
        return answer

    def settle(self) -> None:
        """Wait until no transaction is ending. Kafka completes an end after its answer."""

        def is_settled(answer: Plain) -> bool:
            return answer["transaction_states"][0]["transaction_state"] not in ENDING

        self.peer.until(
            "describe_transactions", 0, is_settled, {"transactional_ids": [self.transactional_id]}
        )

    def describe(self) -> Plain:
        return self.peer.call("describe_transactions", 0, transactional_ids=[self.transactional_id])


def transact(
    producer: TransactionalProducer,
    topic: Topic,
    count: int = 1,
    *,
    commit: bool,
    version: int = RAISES_EPOCH,
) -> None:
    """Run a transaction of one batch in the protocol version that belongs to this version of EndTxn."""
    if version < RAISES_EPOCH:
        producer.add({topic.name: [0]})
    producer.produce(topic, count, version=ADDS_BY_PRODUCE if version >= RAISES_EPOCH else ADDS_FIRST)
    producer.end(commit, version)


def end_marker(producer: TransactionalProducer, topic: Topic, *partitions: int, **more: Any) -> Plain:
    """Return a marker that aborts the producer's transaction; keyword arguments replace fields."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": ABORT,
        "coordinator_epoch": 0,
        "transaction_version": 0,
        "topics": [{"name": topic.name, "partition_indexes": list(partitions or (0,))}],
    }
    return {**marker, **more}


def send_markers(peer: Peer, version: int, *markers: Plain) -> Plain:
    """Send WriteTxnMarkers, as a coordinator does."""
    return peer.call("write_txn_markers", version, markers=list(markers))


def describe_producers(peer: Peer, topic: Topic, *partitions: int) -> Plain:
    wanted = [{"name": topic.name, "partition_indexes": list(partitions or (0,))}]
    return peer.call("describe_producers", 0, topics=wanted)
