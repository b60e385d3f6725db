"""Transactions of two instances under one transactional id: batches, offsets, ends, and the answers to a
fenced instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tests.compat.differential.group_member import committed, fetch_offsets
from tests.compat.differential.peer import Peer, Topic, fetch_request
from tests.compat.differential.random.sequence import World, drawn, one_of
from tests.compat.differential.transactional import (
    ABORT,
    ADDS_BY_PRODUCE,
    ADDS_FIRST,
    COMMIT,
    KEEPS_EPOCH,
    RAISES_EPOCH,
    TransactionalProducer,
    describe_producers,
)
from tests.support.wire import Plain

READ_COMMITTED = 1
instance = one_of(0, 0, 1)
partition = one_of(0, 1)
COMMITS: dict[str, Plain] = {
    "right": {},
    "generation": {"generation_id": 3},
    "member": {"member_id": "nobody"},
    "epoch": {"producer_epoch": 7},
    "producer": {"producer_id": 2**60},
    "group": {"group_id": ""},
}


class Transactions(World):
    family = "transactions"
    table: ClassVar = {
        "init": (4, drawn(instance)),
        "init_again": (2, drawn(instance)),
        "add": (4, drawn(instance, partition)),
        "add_offsets": (3, drawn(instance)),
        "produce": (12, drawn(instance, partition, one_of(1, 3), one_of(ADDS_FIRST, 12, 12, 13))),
        "retry": (3, drawn(instance, partition)),
        "two_batches": (1, drawn(instance, partition)),
        "commit_offsets": (5, drawn(instance, one_of(3, 4, 5, 5), one_of("right", "right", *COMMITS))),
        "large_metadata": (1, drawn(instance, one_of(3, 4, 5))),
        "end": (6, drawn(instance, one_of(COMMIT, ABORT), one_of(KEEPS_EPOCH, RAISES_EPOCH, RAISES_EPOCH))),
        "end_at": (1, drawn(instance, one_of(COMMIT, ABORT), one_of(-1, 1))),
        "describe": (3, drawn()),
        "fetch": (2, drawn(partition)),
    }
    length = 24

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        super().__init__(peer, name, topics)
        self.topic = peer.topic(partitions=2)
        self.group_id = peer.group()
        first = TransactionalProducer(peer)
        self.producers = [first, first.heir()]
        self.added: set[tuple[int, int]] = set()
        self.last: dict[tuple[int, int], object] = {}
        self.has_kept_epoch = False
        self.offset = 0
        self.has_group = False
        """Whether an offset of the group was taken."""
        self.is_in_memory = False
        """Whether a refused commit has made the group, in Kafka's memory only."""

    def init(self, number: int) -> None:
        self.producers[number].init()
        self.added.clear()

    def init_again(self, number: int) -> None:
        """Send InitProducerId as a client that continues.

        A fenced instance does not, because its answer has a known difference.
        """
        producer = self.producers[number]
        if producer.producer_epoch == max(one.producer_epoch for one in self.producers):
            producer.init_again()
            self.added.clear()

    def add(self, number: int, index: int) -> None:
        answer = self.producers[number].add({self.topic.name: [index]})
        if (
            answer
            and not answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0][
                "partition_error_code"
            ]
        ):
            self.added.add((number, index))

    def add_offsets(self, number: int) -> None:
        self.producers[number].add_offsets(self.group_id)

    def produce(self, number: int, index: int, count: int, version: int) -> None:
        """Send a batch.

        A batch to a partition that was not added is sent by the newer protocol, because Kafka keeps its
        sequence.
        """
        producer = self.producers[number]
        if producer.producer_id < 0:
            return
        if (number, index) not in self.added:
            version = max(version, ADDS_BY_PRODUCE)
        self.last[number, index] = producer.batch(self.topic, count, index)
        producer.produce(self.topic, count, index, version)

    def retry(self, number: int, index: int) -> None:
        batch = self.last.get((number, index))
        if batch is not None:
            self.producers[number].send(self.topic, batch, index)  # type: ignore[arg-type]

    def two_batches(self, number: int, index: int) -> None:
        producer = self.producers[number]
        if producer.producer_id < 0:
            return
        batch = producer.batch(self.topic, 1, index)
        raw = batch.encode() + replace(batch, base_sequence=batch.base_sequence + 1).encode()
        identity = producer.transactional_id
        self.peer.produce(self.topic, {index: raw}, version=ADDS_BY_PRODUCE, transactional_id=identity)

    def commit_offsets(self, number: int, version: int, kind: str) -> None:
        self.offset += 1
        offsets = {0: self.offset, 1: self.offset}
        more = COMMITS[kind]
        if self.is_in_memory and not self.has_group and kind in {"generation", "member"}:
            return  # to Kafka the group has no such member; here there is no group
        group_id = more.get("group_id", self.group_id)
        rest = {name: value for name, value in more.items() if name != "group_id"}
        answer = self.producers[number].commit_offsets(group_id, self.topic, offsets, version, **rest)
        errors = [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]
        self.has_group = self.has_group or not any(errors)

    def large_metadata(self, number: int, version: int) -> None:
        if not self.offset:
            return  # of a group that is not there: Kafka makes one in memory, without a record of it
        self.is_in_memory = not self.has_group
        rows = [committed(self.topic, {0: 5}, committed_metadata="m" * 5_000)]
        self.producers[number].commit_offsets(self.group_id, self.topic, {}, version, topics=rows)

    def end(self, number: int, commit: bool, version: int) -> None:
        """End the transaction. In the same epoch no batch of it is sent again, as no client does: Kafka would
        answer with its offset, and refuse the next one as out of order. A fenced instance does not end what
        its successor has ended so, because its answer has a known difference.
        """
        producer = self.producers[number]
        newest = max(one.producer_epoch for one in self.producers)
        if version == RAISES_EPOCH and self.has_kept_epoch and producer.producer_epoch < newest:
            return
        if producer.end(commit, version)["error_code"] == 0:
            self.has_kept_epoch = version == KEEPS_EPOCH
        self.added.clear()
        if version == KEEPS_EPOCH:
            self.last.clear()

    def end_at(self, number: int, commit: bool, delta: int) -> None:
        producer = self.producers[number]
        if delta < 0 and self.has_kept_epoch:
            return  # as in `end`: Kafka takes it for a retry of an end that raised the epoch
        producer.end(commit, producer_epoch=producer.producer_epoch + delta)

    def describe(self) -> None:
        self.producers[0].describe()
        describe_producers(self.peer, self.topic, 0, 1)

    def fetch(self, index: int) -> None:
        request = fetch_request(self.topic, partition=index, max_wait=0, isolation_level=READ_COMMITTED)
        self.peer.call("fetch", 12, **request)

    def finish(self) -> None:
        self.describe()
        for index in (0, 1):
            self.fetch(index)
            self.peer.offsets(self.topic, -1, partition=index, isolation_level=READ_COMMITTED)
        fetch_offsets(self.peer, self.group_id, None)
