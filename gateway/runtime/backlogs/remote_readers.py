"""The groups that other gateways coordinate and that read partitions of topics with a backlog quota or a TTL.

The leader of a partition asks every other gateway for its groups (ListGroups), for their offsets (OffsetFetch), and for the start offsets of
its share groups (DescribeShareGroupOffsets), at each measurement. The last answer of a gateway that does not answer counts for KEPT_MS:
its offsets can only be too low, so producers wait rather too long than too short. After that its groups are unknown, and nobody waits for
them: writing must not stop because a coordinator is silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.coordinator.places import TopicPartition
from gateway.peer.asking import AsksPeers
from gateway.peer.errors import PeerUnavailable
from gateway.protocol.messages import build, request_module, request_type
from gateway.quota.backlog import Reader
from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.topics.brokers import Brokers

logger = logging.getLogger(__name__)

Found = dict[TopicPartition, list[Reader]]

KEPT_MS: Final = 60_000
"""Time (ms) for which the last answer of a silent gateway counts."""
ASK_FOR_S: Final = 3.0
"""Time that one gateway has for all its answers in one measurement; after it the gateway counts as silent."""
GROUPS_PER_REQUEST: Final = 100
"""Groups in one request for offsets; the rest go with the next one."""
MOST_PARTITIONS: Final = 10_000
"""Partitions about which other gateways are asked; further ones are measured without the groups of other gateways."""
_LIST_GROUPS, _OFFSET_FETCH, _SHARE_OFFSETS = 16, 9, 90
_LIST_VERSION, _FETCH_VERSION, _SHARE_VERSION = 5, 9, 1
_SHARE: Final = "share"


class _Answer(NamedTuple):
    """The readers that a gateway told, and when (ms)."""

    at_ms: int
    found: Found


class RemoteReaders:
    """Asks the other gateways. Where this gateway is alone, it asks nobody."""

    def __init__(self, clock: Clock, partitions: Partitions, brokers: Brokers, peers: AsksPeers) -> None:
        self._clock = clock
        self._partitions = partitions
        self._brokers = brokers
        self._peers = peers
        self._answers: dict[int, _Answer] = {}

    async def add_to(self, found: Found, names: Container[str]) -> None:
        """Add the readers of these topics' partitions that this gateway leads."""
        if self._brokers.is_alone:
            return
        others = self._brokers.others()
        places = self._led_here(names)
        await asyncio.gather(*(self._refresh(node_id, places) for node_id in others if places))
        now_ms = self._clock.now_ms()
        self._answers = {
            node_id: answer
            for node_id, answer in self._answers.items()
            if node_id in others and now_ms - answer.at_ms <= KEPT_MS
        }
        for answer in self._answers.values():
            for place, readers in answer.found.items():
                if place[0] in names:
                    found[place] = _each_once([*found.get(place, ()), *readers])

    def _led_here(self, names: Container[str]) -> Mapping[str, list[int]]:
        """Return the partitions of the topics that this gateway leads, by topic."""
        left = MOST_PARTITIONS
        led: dict[str, list[int]] = {}
        for name, topic in list(self._partitions.by_name.items()):
            if name in names and left > 0:
                led[name] = list(topic.served_here())[:left]
                left -= len(led[name])
        return {name: indexes for name, indexes in led.items() if indexes}

    async def _refresh(self, node_id: int, places: Mapping[str, list[int]]) -> None:
        try:
            async with asyncio.timeout(ASK_FOR_S):
                found = await self._ask(node_id, places)
        except (PeerUnavailable, TimeoutError) as error:
            logger.warning("the backlogs of groups at broker %d are not known now: %s", node_id, error)
            return
        self._answers[node_id] = _Answer(self._clock.now_ms(), found)

    async def _ask(self, node_id: int, places: Mapping[str, list[int]]) -> Found:
        """Return the readers that a gateway knows. Raises PeerUnavailable."""
        listed = await self._peers.ask(
            node_id,
            build(request_type(_LIST_GROUPS, _LIST_VERSION), states_filter=(), types_filter=()),
            timeout_s=ASK_FOR_S,
        )
        if int(listed.error_code):
            raise PeerUnavailable(f"its groups can't be listed: error {int(listed.error_code)}")
        found: Found = {}
        shares = [row.group_id for row in listed.groups if row.group_type.lower() == _SHARE]
        others = [row.group_id for row in listed.groups if row.group_type.lower() != _SHARE]
        for some in _pieces(others):
            answer = await self._peers.ask(node_id, _offsets_request(some, places), timeout_s=ASK_FOR_S)
            _add_offsets(found, answer)
        for some in _pieces(shares):
            answer = await self._peers.ask(node_id, _share_request(some, places), timeout_s=ASK_FOR_S)
            _add_share_offsets(found, answer)
        return found


def _each_once(readers: Sequence[Reader]) -> list[Reader]:
    """Return the readers without those that two gateways know, such as the coordinator of a share group and the gateway that stores its state.

    The lower offset counts.
    """
    by_group: dict[tuple[str, bool], Reader] = {}
    for reader in readers:
        known = by_group.get((reader.group, reader.is_share), reader)
        by_group[reader.group, reader.is_share] = min(reader, known)
    return list(by_group.values())


def _pieces(groups: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(groups), GROUPS_PER_REQUEST):
        yield groups[start : start + GROUPS_PER_REQUEST]


def _offsets_request(groups: Iterable[str], places: Mapping[str, list[int]]) -> Any:
    module = request_module(_OFFSET_FETCH, _FETCH_VERSION)
    topics = tuple(
        build(module.OffsetFetchRequestTopics, name=name, partition_indexes=tuple(indexes))
        for name, indexes in places.items()
    )
    asked = tuple(
        build(module.OffsetFetchRequestGroup, group_id=group, member_id=None, member_epoch=-1, topics=topics)
        for group in groups
    )
    return build(request_type(_OFFSET_FETCH, _FETCH_VERSION), groups=asked, require_stable=False)


def _add_offsets(found: Found, answer: Any) -> None:
    for group in answer.groups:
        for topic in () if int(group.error_code) else group.topics:
            for row in topic.partitions:
                if not int(row.error_code) and row.committed_offset >= 0:
                    reader = Reader(group.group_id, False, row.committed_offset)
                    found.setdefault((topic.name, row.partition_index), []).append(reader)


def _share_request(groups: Iterable[str], places: Mapping[str, list[int]]) -> Any:
    module = request_module(_SHARE_OFFSETS, _SHARE_VERSION)
    topics = tuple(
        build(module.DescribeShareGroupOffsetsRequestTopic, topic_name=name, partitions=tuple(indexes))
        for name, indexes in places.items()
    )
    asked = tuple(
        build(module.DescribeShareGroupOffsetsRequestGroup, group_id=group, topics=topics) for group in groups
    )
    return build(request_type(_SHARE_OFFSETS, _SHARE_VERSION), groups=asked)


def _add_share_offsets(found: Found, answer: Any) -> None:
    for group in answer.groups:
        for topic in () if int(group.error_code) else group.topics:
            for row in topic.partitions:
                if not int(row.error_code) and row.start_offset >= 0:
                    reader = Reader(group.group_id, True, row.start_offset)
                    found.setdefault((topic.topic_name, row.partition_index), []).append(reader)
