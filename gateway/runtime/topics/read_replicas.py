"""Reads of uploaded records at other gateways than the leader (`preferred_read_replica`, KIP-392).

The leader chooses the gateway from which a consumer reads (`ReadReplicas`). A consumer that comes back to the
leader within RETURNED_FOR_S is served by the leader: what it read is not at the other gateway, or that one
can't serve it now. A client that does not know preferred replicas asks the leader again at once, so it gets
its records, too.

The other gateway asks the leaders for their log start offsets with ListOffsets (`LeaderStarts`). A leader
that may be deposed does not answer that, and neither does one of another leader epoch than this gateway
knows. Source: Kafka's ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from seqgate.gateway.cluster.bucket_reads import NotConfirmed, left_bytes
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.config.cluster import RACK_SELECTOR, SPREADING_SELECTOR
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, MetadataImage
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.brokers import NO_LEADER, Brokers
from seqgate.gateway.runtime.topics.latest_offsets import list_offsets_request
from seqgate.gateway.tasks import end_tasks

LEAST_BYTES: Final = 1 << 20
"""Uploaded bytes that a consumer must have before it; fewer are not worth the way to another gateway."""
RETURNED_FOR_S: Final = 90.0
"""librdkafka rejects a preferred replica that comes within a minute of the last one."""
CLIENTS_KEPT: Final = 10_000
"""Clients and partitions that were decided about. A client that is dropped early is decided about again."""


class ReplicaReader(NamedTuple):
    """A client that reads: its host, its client id, its rack or "", and the listener that it uses."""

    host: str
    client_id: str
    rack: str
    listener: str
    committed_only: bool


class Replica(NamedTuple):
    node_id: int
    rack: str | None


class ReadReplicas:
    def __init__(
        self,
        selector: str,
        node_id: int,
        image: MetadataImage,
        brokers: Brokers,
        uploaded: Callable[[PartitionKey], Manifest | None],
        seconds: Callable[[], float],
    ) -> None:
        """Take `replica.selector.class`. `uploaded` returns a manifest that the bucket has, or None."""
        self._selector = selector
        self._node_id = node_id
        self._image = image
        self._brokers = brokers
        self._uploaded = uploaded
        self._seconds = seconds
        self._decided: OrderedDict[tuple[ReplicaReader, PartitionKey], float] = OrderedDict()
        """Until when a client is served here, after each decision."""
        self._load: Counter[int] = Counter()
        """How often each gateway was chosen since the last change of the live ones, to spread consumers."""
        self._live: Sequence[int] = ()

    def instead(self, partition: Partition, offset: int, reader: ReplicaReader) -> int | None:
        """Return the gateway that should serve a reader from an offset on; None for this one, the leader."""
        log = partition.log
        if not log.log_start_offset <= offset < log.high_watermark or partition.topic in INTERNAL_TOPICS:
            return None
        key = PartitionKey(partition.topic_id, partition.index)
        manifest = self._uploaded(key)
        if manifest is None or offset >= manifest.end_offset:
            return None
        now_s = self._seconds()
        until_s = self._decided.get((reader, key))
        if until_s is not None and now_s < until_s:
            return None
        bound = manifest.stable_offset if reader.committed_only else manifest.end_offset
        if left_bytes(manifest, offset, bound, LEAST_BYTES) < LEAST_BYTES:
            return None
        chosen = self._choose(key, reader)
        if chosen is None:
            return None
        self._decided[reader, key] = now_s + RETURNED_FOR_S
        self._decided.move_to_end((reader, key))
        if len(self._decided) > CLIENTS_KEPT:
            self._decided.popitem(last=False)
        return None if chosen == self._node_id else chosen

    def _choose(self, key: PartitionKey, reader: ReplicaReader) -> int | None:
        """Return the gateway that the selector chooses, perhaps this one; None where it has no choice."""
        partition = self._image.partition(*key)
        if partition is None:
            return None
        live = self._brokers.live_ids
        if live != self._live:
            self._live = live
            self._load.clear()
        replicas = [
            Replica(node_id, broker.rack)
            for node_id in self._brokers.isr_of(partition)
            if (broker := self._brokers.find_live(node_id, reader.listener)) is not None
        ]
        candidates = candidates_of(self._selector, replicas, self._node_id, reader.rack)
        if not candidates:
            return None
        chosen = min(candidates, key=lambda node_id: (self._load[node_id], node_id))
        self._load[chosen] += 1
        return chosen


def candidates_of(selector: str, replicas: Sequence[Replica], leader: int, rack: str) -> list[int]:
    """Return the replicas of which the least loaded one is chosen; none where the leader serves."""
    near = [replica.node_id for replica in replicas if rack and replica.rack == rack]
    if selector == RACK_SELECTOR:
        return [] if leader in near else near
    if selector == SPREADING_SELECTOR:
        return near or [replica.node_id for replica in replicas]
    return []


EARLIEST: Final = -2
ASK_FOR_S: Final = 3.0
"""Time that a leader has for its answer. It is short, because readers wait."""
MOST_AT_ONCE: Final = 1000
"""Partitions in one request; the rest go with the next one."""

_Place = tuple[str, int]


class _Asked(NamedTuple):
    leader_epoch: int
    answer: asyncio.Future[int]


class LeaderStarts:
    """The questions to leaders: one request at a time to each; the next takes what is asked meanwhile."""

    def __init__(self, image: MetadataImage, brokers: Brokers, peers: AsksPeers) -> None:
        self._image = image
        self._brokers = brokers
        self._peers = peers
        self._waiting: dict[int, dict[_Place, _Asked]] = {}
        """The partitions that go with the next request to a gateway, by its node id."""
        self._asking: dict[int, asyncio.Task[None]] = {}

    async def ask(self, key: PartitionKey) -> int:
        """Return the log start offset that the leader of a partition tells. Raises NotConfirmed."""
        topic = self._image.topics_by_id.get(key.topic_id)
        partition = None if topic is None else topic.partitions.get(key.partition)
        if topic is None or partition is None:
            raise NotConfirmed("the topic does not exist any more")
        leader = self._brokers.leader_of(partition)
        if leader == NO_LEADER or self._brokers.leads(partition):
            raise NotConfirmed("no other gateway leads the partition")
        place = (topic.name, key.partition)
        waiting = self._waiting.setdefault(leader, {})
        asked = waiting.get(place)
        if asked is None or asked.leader_epoch != partition.leader_epoch:
            asked = waiting[place] = _Asked(
                partition.leader_epoch, asyncio.get_running_loop().create_future()
            )
        if leader not in self._asking:
            self._asking[leader] = asyncio.get_running_loop().create_task(
                self._ask_all(leader), name="log starts"
            )
        return await asyncio.shield(asked.answer)

    async def stop(self) -> None:
        await end_tasks(*self._asking.values())

    async def _ask_all(self, leader: int) -> None:
        try:
            while waiting := self._waiting.pop(leader, None):
                places = list(waiting.items())
                for first in range(0, len(places), MOST_AT_ONCE):
                    await self._ask_some(leader, dict(places[first : first + MOST_AT_ONCE]))
        finally:
            del self._asking[leader]

    async def _ask_some(self, leader: int, some: Mapping[_Place, _Asked]) -> None:
        failure = f"broker {leader} did not tell its log start offset"
        try:
            places = ((place, asked.leader_epoch) for place, asked in some.items())
            request = list_offsets_request(places, EARLIEST)
            answer = await self._peers.ask(leader, request, timeout_s=ASK_FOR_S)
            for topic in answer.topics:
                for row in topic.partitions:
                    asked = some.get((topic.name, row.partition_index))
                    if asked is not None and not int(row.error_code) and not asked.answer.done():
                        asked.answer.set_result(int(row.offset))
        except PeerUnavailable as error:
            failure = f"{failure}: {error}"
        finally:
            for asked in some.values():
                if not asked.answer.done():
                    asked.answer.set_exception(NotConfirmed(failure))
                    asked.answer.exception()  # Those who asked may be gone.
