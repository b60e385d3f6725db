"""Asks the leaders of partitions for their log start offsets, for readers at this gateway (ListOffsets).

A leader that may be deposed does not answer that, and neither does one of another leader epoch than this
gateway knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.cluster.reading.bucket_reads import NotConfirmed
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.messages import build, request_module, request_type
from seqgate.gateway.runtime.topics.brokers import NO_LEADER, Brokers

LIST_OFFSETS: Final = 2
VERSION: Final = 7
EARLIEST: Final = -2
ASK_FOR_S: Final = 3.0
"""Time that a leader has for its answer. It is short, because readers wait."""
MOST_AT_ONCE: Final = 1000
"""Partitions in one request; the rest go with the next one."""

_Place = tuple[str, int]


class _Asked(NamedTuple):
    """A partition that a leader is asked for."""

    leader_epoch: int
    answer: asyncio.Future[int]


class LeaderStarts:
    """The questions to leaders. One request at a time goes to each; what is asked meanwhile goes with the
    next one.
    """

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
        """Ask no more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_all(self, leader: int) -> None:
        """Ask a gateway until nobody waits for it."""
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
            answer = await self._peers.ask(leader, _request(some), timeout_s=ASK_FOR_S)
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


def _request(some: Mapping[_Place, _Asked]) -> Any:
    module = request_module(LIST_OFFSETS, VERSION)
    by_topic: dict[str, list[Any]] = {}
    for (name, index), asked in some.items():
        row = build(
            module.ListOffsetsPartition,
            partition_index=index,
            current_leader_epoch=asked.leader_epoch,
            timestamp=EARLIEST,
        )
        by_topic.setdefault(name, []).append(row)
    topics = tuple(
        build(module.ListOffsetsTopic, name=name, partitions=tuple(rows)) for name, rows in by_topic.items()
    )
    return build(request_type(LIST_OFFSETS, VERSION), replica_id=-1, isolation_level=0, topics=topics)
