"""Transactions of both protocol versions, their coordinator and its lists.

Kafka answers EndTxn before the markers are written, so a scenario waits for the markers before it continues.
When a producer begins during an open transaction, Kafka makes it retry, while Seqgate lets it wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import Batch, records
from tests.support.wire import Plain

CONCURRENT = 51
ONE = replace(Batch(records(1)), attributes=0x10)
TIMEOUT_MS = 60_000
ENDS = {"commit": True, "abort": False}
STRANGERS = {"id": (1, 0), "newer epoch": (0, 1), "older epoch": (0, -1)}
WHERE = {"v0": 0, "v1": 1, "v2": 2, "v3": 3, "v4": 4, "v5": 5}


class Client:
    """A transactional producer whose requests are recorded."""

    def __init__(self, peer: Peer, suffix: str = "txn") -> None:
        self.peer = peer
        self.name = peer.name(suffix)
        asked = {"key": self.name, "key_type": 1}
        peer.until("find_coordinator", 3, lambda answer: answer["error_code"] != 15, asked)
        self.producer_id = self.producer_epoch = -1
        self.sequence = 0

    def init(self, version: int = 5, *, producer_id: int = -1, producer_epoch: int = -1) -> Plain:
        """Send InitProducerId until the answer no longer asks for a retry; record that answer."""
        answer = self.peer.eventually(
            "init_producer_id",
            version,
            lambda answer: answer["error_code"] not in {14, 15, 16, CONCURRENT},
            transactional_id=self.name,
            transaction_timeout=TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        if answer.get("error_code") == 0:
            self.producer_id, self.producer_epoch = answer["producer_id"], answer["producer_epoch"]
            self.sequence = 0
        return answer

    def add(self, topic: Topic, *partitions: int, version: int = 3, verify: bool = False, **who: int) -> None:
        producer_id, producer_epoch = self._who(**who)
        topics = [{"name": topic.name, "partitions": list(partitions)}]
        if version < 4:
            self.peer.call(
                "add_partitions_to_txn",
                version,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=producer_epoch,
                v3_and_below_topics=topics,
            )
            return
        transaction = {
            "transactional_id": self.name,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "verify_only": verify,
            "topics": topics,
        }
        self.peer.call("add_partitions_to_txn", version, transactions=[transaction])

    def add_offsets(self, group: str, version: int = 3, **who: int) -> None:
        producer_id, producer_epoch = self._who(**who)
        self.peer.call(
            "add_offsets_to_txn",
            version,
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group,
        )

    def produce(self, topic: Topic, *, version: int, **who: int) -> None:
        producer_id, producer_epoch = self._who(**who)
        batch = ONE.of(producer_id, producer_epoch, self.sequence)
        answer = self.peer.produce(topic, batch, version=version, transactional_id=self.name)
        if not answer["responses"][0]["partition_responses"][0]["error_code"]:
            self.sequence += 1

    def end(self, *, commit: bool, version: int = 5, **who: int) -> None:
        producer_id, producer_epoch = self._who(**who)
        answer = self.peer.call(
            "end_txn",
            version,
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        if version >= 5 and answer["error_code"] == 0:
            self.producer_id, self.producer_epoch = answer["producer_id"], answer["producer_epoch"]
            self.sequence = 0
        if answer["error_code"] == 0:
            self.settle()

    def settle(self) -> None:
        """Wait until every marker is written."""
        asked = {"transactional_ids": [self.name]}
        self.peer.until(
            "describe_transactions",
            0,
            lambda answer: answer["transaction_states"][0]["transaction_state"].startswith("Complete"),
            asked,
        )

    def describe(self) -> None:
        self.peer.call("describe_transactions", 0, transactional_ids=[self.name])

    def _who(self, *, other_id: int = 0, other_epoch: int = 0) -> tuple[int, int]:
        return self.producer_id + other_id * 100_000, self.producer_epoch + other_epoch


def begun(peer: Peer) -> tuple[Client, Topic]:
    client = Client(peer)
    client.init()
    return client, peer.topic(partitions=2)


@scenario_for_each(range(6))
def init_producer(peer: Peer, version: int) -> None:
    """Begin three times: each time the producer epoch rises."""
    client = Client(peer)
    for _ in range(3):
        client.init(version)


@scenario_for_each((3, 4, 5))
def recover(peer: Peer, version: int) -> None:
    """Begin with an id and epoch: once, again, and with those of others (KIP-360)."""
    client = Client(peer)
    client.init()
    first = client.producer_id, client.producer_epoch
    client.init(version, producer_id=first[0], producer_epoch=first[1])
    client.init(version, producer_id=first[0], producer_epoch=first[1])
    client.init()
    client.init(version, producer_id=first[0], producer_epoch=first[1])
    client.init(version, producer_id=first[0] + 100_000, producer_epoch=first[1])
    client.init(version, producer_id=first[0], producer_epoch=-1)
    client.init(version, producer_id=-1, producer_epoch=3)


@scenario_for_each({"0": 0, "-1": -1, "longest": 900_000, "too long": 900_001})
def timeout(peer: Peer, timeout_ms: int) -> None:
    name = Client(peer).name
    peer.eventually(
        "init_producer_id",
        5,
        lambda answer: answer["error_code"] not in {14, 15, 16},
        transactional_id=name,
        transaction_timeout=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )


@scenario_for_each(ENDS)
def of_version_1(peer: Peer, commit: bool) -> None:
    """Add partitions before producing (transactions version 1): the producer epoch stays."""
    client, topic = begun(peer)
    for _ in range(2):
        client.add(topic, 0)
        client.produce(topic, version=9)
        client.describe()
        client.end(commit=commit, version=3)
        client.describe()
    peer.fetch(topic, version=12)
    peer.fetch(topic, version=12, isolation_level=1)


@scenario_for_each(ENDS)
def of_version_2(peer: Peer, commit: bool) -> None:
    """Produce without adding partitions (transactions version 2): every end raises the producer epoch."""
    client, topic = begun(peer)
    for _ in range(2):
        client.produce(topic, version=12)
        client.produce(topic, version=12)
        client.describe()
        client.end(commit=commit)
        client.describe()
    peer.fetch(topic, version=12)
    peer.fetch(topic, version=12, isolation_level=1)


@scenario_for_each(
    {f"{end} v{version}": (commit, version) for end, commit in ENDS.items() for version in range(6)}
)
def end(peer: Peer, case: tuple[bool, int]) -> None:
    """End a transaction, then repeat the same end and the opposite one."""
    commit, version = case
    client, topic = begun(peer)
    client.add(topic, 0, 1)
    client.end(commit=commit, version=version)
    again = {"other_epoch": -1 if version >= 5 else 0}
    for end_again in (commit, not commit):
        peer.call(
            "end_txn",
            version,
            transactional_id=client.name,
            producer_id=client.producer_id,
            producer_epoch=client.producer_epoch + again["other_epoch"],
            committed=end_again,
        )


@scenario_for_each(
    {f"{end} v{version}": (commit, version) for end, commit in ENDS.items() for version in (4, 5)}
)
def end_of_nothing(peer: Peer, case: tuple[bool, int]) -> None:
    """End a transaction that wrote nothing: as the first one, and after another."""
    commit, version = case
    client, topic = begun(peer)
    client.end(commit=commit, version=version)
    client.add(topic, 0)
    client.end(commit=True, version=version)
    client.end(commit=commit, version=version)


@scenario_for_each(
    {f"{who} v{version}": (who, version) for who in STRANGERS for version in (0, 1, 2, 3, 4, 5)}
)
def stranger_ends(peer: Peer, case: tuple[str, int]) -> None:
    who, version = case
    client, topic = begun(peer)
    client.init()
    client.add(topic, 0)
    other_id, other_epoch = STRANGERS[who]
    for commit in ENDS.values():
        client.end(commit=commit, version=version, other_id=other_id, other_epoch=other_epoch)


@scenario_for_each({f"{who} v{version}": (who, version) for who in STRANGERS for version in WHERE.values()})
def stranger_adds(peer: Peer, case: tuple[str, int]) -> None:
    who, version = case
    client, topic = begun(peer)
    client.init()
    other_id, other_epoch = STRANGERS[who]
    client.add(topic, 0, version=version, other_id=other_id, other_epoch=other_epoch)
    if version < 5:
        client.add_offsets(peer.group(), version, other_id=other_id, other_epoch=other_epoch)


@scenario_for_each({f"{who} v{version}": (who, version) for who in STRANGERS for version in (9, 11, 12)})
def stranger_writes(peer: Peer, case: tuple[str, int]) -> None:
    who, version = case
    client, topic = begun(peer)
    client.init()
    client.add(topic, 0)
    other_id, other_epoch = STRANGERS[who]
    client.produce(topic, version=version, other_id=other_id, other_epoch=other_epoch)


@scenario_for_each(WHERE)
def add_partitions(peer: Peer, version: int) -> None:
    """Add partitions: some, the same again, more, none, and some that do not exist."""
    client, topic = begun(peer)
    client.add(topic, 0, version=version)
    client.add(topic, 0, version=version)
    client.add(topic, 1, 0, version=version)
    client.add(topic, version=version)
    client.add(topic, 1, 7, version=version)
    client.add(replace(topic, name=peer.name("nowhere")), 0, version=version)
    client.describe()
    client.name = peer.name("nobody")
    client.add(topic, 0, version=version)
    client.name = ""
    client.add(topic, 0, version=version)


@scenario_for_each((4, 5))
def verify_partitions(peer: Peer, version: int) -> None:
    client, topic = begun(peer)
    client.add(topic, 0, version=version, verify=True)
    client.add(topic, 0, version=version)
    client.add(topic, 0, 1, version=version, verify=True)
    client.add(topic, 0, 5, version=version, verify=True)


@scenario_for_each(range(5))
def add_offsets(peer: Peer, version: int) -> None:
    client, _ = begun(peer)
    client.add_offsets(peer.group(), version)
    client.add_offsets("", version)
    client.name = peer.name("nobody")
    client.add_offsets(peer.group(), version)
    client.name = ""
    client.add_offsets(peer.group(), version)


@scenario_for_each((3, 7, 9, 10, 11))
def write_without_adding(peer: Peer, version: int) -> None:
    client, topic = begun(peer)
    client.produce(topic, version=version)


@scenario_for_each((9, 12))
def write_over_the_head_of_a_transaction(peer: Peer, version: int) -> None:
    """Produce a plain batch as a transactional producer, with and without an open transaction."""
    client, topic = begun(peer)
    plain = Batch(records(1)).of(client.producer_id, client.producer_epoch, 0)
    peer.produce(topic, plain, version=version)
    client.sequence = 1
    client.add(topic, 0)
    client.produce(topic, version=version)
    plain = Batch(records(1)).of(client.producer_id, client.producer_epoch, 2)
    peer.produce(topic, plain, version=version)


@scenario
def the_next_producer_fences_the_one_before(peer: Peer) -> None:
    client, topic = begun(peer)
    client.produce(topic, version=12)
    zombie = client.producer_id, client.producer_epoch
    client.init()
    successor = client.producer_id, client.producer_epoch
    client.producer_id, client.producer_epoch = zombie
    client.produce(topic, version=12)
    client.produce(topic, version=11)
    client.end(commit=True)
    client.end(commit=False)
    client.producer_id, client.producer_epoch = successor
    client.sequence = 0
    client.produce(topic, version=12)
    client.end(commit=True)
    peer.fetch(topic, version=12)


@scenario
def a_zombie_begins_over_an_open_transaction(peer: Peer) -> None:
    """Begin as a fenced producer: Kafka aborts the newer producer's transaction before it refuses."""
    client, topic = begun(peer)
    zombie = client.producer_id, client.producer_epoch
    client.init()
    client.produce(topic, version=12)
    peer.call(
        "init_producer_id",
        5,
        transactional_id=client.name,
        transaction_timeout=TIMEOUT_MS,
        producer_id=zombie[0],
        producer_epoch=zombie[1],
    )


@scenario
def describe(peer: Peer) -> None:
    client, topic = begun(peer)
    client.add(topic, 1, 0)
    names = [client.name, "", peer.name("nobody"), client.name]
    peer.call("describe_transactions", 0, transactional_ids=names)
    peer.call("describe_transactions", 0, transactional_ids=[])


@scenario_for_each(range(3))
def list_transactions(peer: Peer, version: int) -> None:
    """List transactions by filters, restricted to the producer id of this scenario."""
    client, topic = begun(peer)
    client.add(topic, 0)
    own: Plain = {"producer_id_filters": [client.producer_id], "duration_filter": -1}
    more: list[Plain] = [
        {},
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["Empty", "ongoing", "Dead", "bogus"]},
        {"duration_filter": 3_600_000},
        {"transactional_id_pattern": ".*txn"},
        {"transactional_id_pattern": "txn"},
        {"transactional_id_pattern": ""},
    ]
    for filters in more:
        peer.call("list_transactions", version, **{**own, **filters})


@scenario_for_each({"open": "(", "repeat": "a**", "empty": ""})
def list_by_what_is_no_pattern(peer: Peer, pattern: str) -> None:
    client, _ = begun(peer)
    own: dict[str, Any] = {"producer_id_filters": [client.producer_id], "duration_filter": -1}
    peer.call("list_transactions", 2, transactional_id_pattern=pattern, **own)


@scenario_for_each((1, 2))
def write_markers(peer: Peer, version: int) -> None:
    """Write markers directly, as an administrator does who ends a hanging transaction."""
    client, topic = begun(peer)
    client.add(topic, 0)
    client.produce(topic, version=9)
    for producer_epoch in (0, 0, 1, 0):
        marker = {
            "producer_id": client.producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "transaction_version": 0,
            "topics": [
                {"name": topic.name, "partition_indexes": [0, 9]},
                {"name": peer.name("nowhere"), "partition_indexes": [0]},
            ],
        }
        peer.call("write_txn_markers", version, markers=[marker])
    peer.fetch(topic, version=12)
    peer.call("write_txn_markers", version, markers=[])
