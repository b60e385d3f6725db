"""Random sequences of transaction requests, from the current producer, fenced ones, and another one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.compat.differential.group_member import committed, fetch_offsets, fetched
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario_for_each
from tests.compat.differential.transactional import (
    ADDS_BY_PRODUCE,
    ADDS_FIRST,
    KEEPS_EPOCH,
    RAISES_EPOCH,
    TransactionalProducer,
    describe_producers,
)

SEEDS = 60
STEPS = 40


@dataclass
class Conversation:
    """Draws requests at random for one transactional id with its successive producer instances."""

    peer: Peer
    choice: random.Random
    topic: Topic
    group_id: str
    producer: TransactionalProducer
    other: TransactionalProducer
    fenced: list[TransactionalProducer] = field(default_factory=list)

    def run(self) -> None:
        self.producer.init()
        steps: list[tuple[int, Callable[[], object]]] = [
            (2, self.begin),
            (1, self.go_on),
            (3, self.add),
            (6, self.write),
            (4, self.write_without_adding),
            (2, self.commit_offsets),
            (6, self.end),
            (2, self.zombie_writes),
            (2, self.zombie_ends),
            (1, self.end_again),
            (2, self.other_writes),
            (2, self.other_ends),
            (1, self.write_marker),
            (1, self.delete_records),
            (1, self.commit_plainly),
            (1, self.claim),
            (3, self.read),
        ]
        weights, functions = zip(*steps, strict=True)
        for step in self.choice.choices(functions, weights, k=STEPS):
            step()
            self.producer.describe()
        self.look()

    def other_writes(self) -> None:
        """Produce as a producer that shares only the partitions with this one."""
        if self.other.producer_id < 0:
            self.other.init()
        self.other.produce(self.topic, partition=self.choice.randrange(2))

    def other_ends(self) -> None:
        self.other.end(self.choice.random() < 0.5)

    def write_marker(self) -> None:
        """Write a marker as an administrator does who ends a hanging transaction."""
        marker = {
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "transaction_result": self.choice.random() < 0.5,
            "coordinator_epoch": 0,
            "transaction_version": 0,
            "topics": [{"name": self.topic.name, "partition_indexes": [self.choice.randrange(2)]}],
        }
        self.peer.call("write_txn_markers", self.choice.randrange(1, 3), markers=[marker])

    def delete_records(self) -> None:
        """Delete all records of a partition: −1 stands for the high watermark."""
        partitions = [{"partition_index": self.choice.randrange(2), "offset": -1}]
        topics = [{"name": self.topic.name, "partitions": partitions}]
        self.peer.call("delete_records", 2, topics=topics, timeout=5_000)

    def commit_plainly(self) -> None:
        outside = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        rows = [committed(self.topic, {0: self.choice.randrange(100)})]
        self.peer.call("offset_commit", 9, group_id=self.group_id, topics=rows, **outside)

    def claim(self) -> None:
        """Send InitProducerId with the id and epoch of the current or an earlier instance (KIP-360)."""
        who = self.choice.choice([self.producer, *self.fenced])
        state = self.producer.describe()["transaction_states"][0]["transaction_state"]
        if who is self.producer or state != "Ongoing":
            self.producer.heir().init(**who.identity)

    def read(self) -> None:
        isolation_level = self.choice.randrange(2)
        self.peer.fetch(
            self.topic, self.choice.randrange(20), isolation_level=isolation_level, max_wait=0, version=12
        )
        self.peer.offsets(self.topic, -1, isolation_level=isolation_level)
        fetch_offsets(
            self.peer, self.group_id, [fetched(self.topic, 0)], require_stable=self.choice.random() < 0.5
        )

    def look(self) -> None:
        """Record everything that can be observed: producers, committed records, committed offsets."""
        describe_producers(self.peer, self.topic, 0, 1)
        self.peer.fetch(self.topic, isolation_level=1)
        fetch_offsets(self.peer, self.group_id, [fetched(self.topic, 0)], require_stable=True)

    def begin(self) -> None:
        """Start another instance, which fences the earlier ones."""
        self.fenced.append(self.producer)
        self.producer = self.producer.heir()
        self.producer.init()

    def go_on(self) -> None:
        self.producer.init_again()

    def add(self) -> None:
        self.producer.add({self.topic.name: [self.choice.randrange(2)]}, self.choice.randrange(6))

    def write(self) -> None:
        partition = self.choice.randrange(2)
        self.producer.add({self.topic.name: [partition]})
        self.producer.produce(
            self.topic, self.choice.randrange(1, 3), partition=partition, version=ADDS_FIRST
        )

    def write_without_adding(self) -> None:
        self.producer.produce(self.topic, partition=self.choice.randrange(2), version=ADDS_BY_PRODUCE)

    def commit_offsets(self) -> None:
        offsets = {0: self.choice.randrange(100)}
        if self.choice.random() < 0.5:
            self.producer.add_offsets(self.group_id)
        self.producer.commit_offsets(self.group_id, self.topic, offsets, self.choice.choice((3, 4, 5)))

    def end(self) -> None:
        commit = self.choice.random() < 0.6
        self.producer.end(commit, self.choice.choice((KEEPS_EPOCH, RAISES_EPOCH, RAISES_EPOCH)))

    def end_again(self) -> None:
        """End a transaction twice, the second time with the identity from before the first end."""
        before = self.producer.identity
        commit = self.choice.random() < 0.5
        self.producer.end(commit)
        other = self.producer.heir()
        other.end(self.choice.random() < 0.5, **before)

    def zombie_writes(self) -> None:
        if self.fenced:
            self.choice.choice(self.fenced).produce(self.topic, version=ADDS_BY_PRODUCE)

    def zombie_ends(self) -> None:
        if self.fenced:
            zombie = self.choice.choice(self.fenced)
            zombie.end(self.choice.random() < 0.5, self.choice.randrange(6))


@scenario_for_each({str(seed): seed for seed in range(SEEDS)})
def seeded(peer: Peer, seed: int) -> None:
    choice = random.Random(seed)
    producer, other = TransactionalProducer(peer), TransactionalProducer(peer, "other")
    Conversation(peer, choice, peer.topic(partitions=2), peer.group(), producer, other).run()
