"""A transactional client of several nodes: it sends each request to the node that leads or coordinates."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator

from seqgate.gateway.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from seqgate.log.format.records import iterate_records
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.several_nodes import Cluster
from tests.gateway.handlers.support import NOW_MS
from tests.support.batches import Batch, Record
from tests.support.wire import Plain

TOPIC, GROUP, NAME = "spread", "readers", "payments"
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
TRANSACTIONAL = 0x10


class Spread:
    """Where the partitions are: partition i of the topic at leaders[i], one partition of each internal topic."""

    def __init__(self, cluster: Cluster, leaders: tuple[int, ...], coordinator: int, group: int) -> None:
        self.cluster = cluster
        self.leaders = {(TOPIC, index): node_id for index, node_id in enumerate(leaders)}
        self.leaders |= {(STATE, 0): coordinator, (OFFSETS, 0): group}
        self.epochs = dict.fromkeys(self.leaders, 0)

    async def begin(self) -> None:
        names = dict.fromkeys(name for name, _ in self.leaders)
        await self.cluster.commit(*(TopicRecord(name, self._id(name)) for name in names))
        await self.cluster.commit(*(self._record(place) for place in self.leaders))

    async def move(self, place: tuple[str, int], node_id: int) -> None:
        """Name another leader; the new leader has none of the records of the old one."""
        self.leaders[place] = node_id
        self.epochs[place] += 1
        await self.cluster.commit(self._record(place))

    async def hand_over(self, place: tuple[str, int], node_id: int) -> None:
        """Name another leader, which has the records of the old one."""
        old = self.cluster.nodes[self.leaders[place]].services.partitions.registry.get(*place)
        assert old is not None
        batches = [bytes(batch) for _, batch in old.log.replay_batches(0)]
        await self.move(place, node_id)
        new = self.cluster.nodes[node_id].services.partitions.registry.get(*place)
        assert new is not None
        for batch in batches:
            new.append(batch, NOW_MS, is_client=False)

    async def delete_topic(self) -> None:
        await self.cluster.commit(RemoveTopicRecord(self._id(TOPIC)))
        for place in [place for place in self.leaders if place[0] == TOPIC]:
            del self.leaders[place]

    @staticmethod
    def _id(name: str) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, name)

    def _record(self, place: tuple[str, int]) -> PartitionRecord:
        leader = self.leaders[place]
        return PartitionRecord(place[1], self._id(place[0]), (leader,), (leader,), leader, self.epochs[place])

    def asking(self, place: tuple[str, int]) -> Asking:
        return Asking(self.cluster.nodes[self.leaders[place]])

    def outcomes(self) -> dict[str, list[str]]:
        """Return "committed", "aborted" or "open" for each copy of a record, by its text."""
        found: dict[str, list[str]] = defaultdict(list)
        for place in self.leaders:
            if place[0] == TOPIC:
                for label, outcome in self._decided(place):
                    found[label].append(outcome)
        return dict(found)

    def _decided(self, place: tuple[str, int]) -> Iterator[tuple[str, str]]:
        partition = self.cluster.nodes[self.leaders[place]].services.partitions.registry.get(*place)
        assert partition is not None
        undecided: list[str] = []
        for header, batch in partition.log.replay_batches(0):
            for record in iterate_records(batch):
                if header.is_control:
                    assert record.key is not None
                    yield from ((label, "committed" if record.key[3] else "aborted") for label in undecided)
                    undecided = []
                else:
                    undecided.append(bytes(record.value or b"").decode())
        yield from ((label, "open") for label in undecided)

    def markers(self, index: int) -> int:
        """Return the number of markers in a partition of the topic."""
        place = TOPIC, index
        partition = self.cluster.nodes[self.leaders[place]].services.partitions.registry.get(*place)
        assert partition is not None
        return sum(header.is_control for header, _ in partition.log.replay_batches(0))


class SpreadClient:
    """One producer; `is_new` speaks transaction version 2."""

    def __init__(self, spread: Spread, *, is_new: bool) -> None:
        self.spread = spread
        self.is_new = is_new
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[tuple[int, int], int] = defaultdict(int)
        self._connections: dict[int, Asking] = {}
        """The connection on which the client writes to each partition."""

    async def init(self) -> None:
        answer = await self.spread.asking((STATE, 0)).ask(
            "init_producer_id",
            5,
            transactional_id=NAME,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert answer["error_code"] == 0, answer
        self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]

    async def add(self, *indexes: int) -> None:
        """Announce partitions, as clients of version 1 do."""
        answer = await self.spread.asking((STATE, 0)).ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": TOPIC, "partitions": list(indexes)}],
        )
        rows = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
        assert {row["partition_error_code"] for row in rows} == {0}

    def fields(self, index: int, text: str) -> Plain:
        """Return the Produce request of one record, the next one of the partition."""
        sequence = self._sequences[self.epoch, index]
        batch = Batch((Record(text.encode()),), attributes=TRANSACTIONAL, base_timestamp=NOW_MS)
        data = batch.of(self.producer_id, self.epoch, sequence).encode()
        return {
            "transactional_id": NAME,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": index, "records": data}]}],
        }

    def sent(self, index: int) -> None:
        self._sequences[self.epoch, index] += 1

    def take_back(self, index: int) -> None:
        """Begin again with the batch before."""
        self._sequences[self.epoch, index] -= 1

    @property
    def produce_version(self) -> int:
        return 12 if self.is_new else 11

    async def produce(self, index: int, text: str) -> int:
        """Return the error code of one record."""
        fields = self.fields(index, text)
        if index not in self._connections:
            self._connections[index] = self.spread.asking((TOPIC, index))
        answer = await self._connections[index].ask("produce", self.produce_version, **fields)
        code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
        if not code:
            self.sent(index)
        return code

    async def write(self, index: int, text: str) -> None:
        if not self.is_new:
            await self.add(index)
        assert await self.produce(index, text) == 0

    async def add_offsets(self) -> None:
        answer = await self.spread.asking((STATE, 0)).ask(
            "add_offsets_to_txn",
            3,
            transactional_id=NAME,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
        )
        assert answer["error_code"] == 0

    async def commit_offset(self, offset: int) -> int:
        """Return the error code of an offset of the group."""
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = await self.spread.asking((OFFSETS, 0)).ask(
            "txn_offset_commit",
            5 if self.is_new else 4,
            transactional_id=NAME,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": TOPIC, "partitions": [row]}],
        )
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    async def hold(self, offset: int) -> None:
        if not self.is_new:
            await self.add_offsets()
        assert await self.commit_offset(offset) == 0

    async def end(self, *, commit: bool) -> int:
        """Return the error code; wait until the end is complete at the coordinator."""
        answer = await self.spread.asking((STATE, 0)).ask(
            "end_txn",
            5 if self.is_new else 4,
            transactional_id=NAME,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        code: int = answer["error_code"]
        if not code and self.is_new:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return code

    async def offset(self) -> int:
        """Return the group's committed offset; -1 without one."""
        answer = await self.spread.asking((OFFSETS, 0)).ask(
            "offset_fetch",
            8,
            groups=[{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}],
            require_stable=True,
        )
        row = answer["groups"][0]["topics"][0]["partitions"][0]
        assert row["error_code"] == 0, row
        offset: int = row["committed_offset"]
        return offset
