"""Answers OffsetFetch for a producer name: the name's last sequence ids in the partitions of topics that deduplicate.

The offset is the name's last persisted sequence id, not the one after it; the metadata has the same number and the
epoch, as JSON. After a start a log may still be in replay. Then the request replays it for a while. If that is not
enough, the client gets COORDINATOR_LOAD_IN_PROGRESS, after which all client libraries try again. Partitions that other gateways lead are asked
for there (`peer_names`).

Another gateway may have created a topic a moment ago, and told the client of records in it. So a gateway that does not know what it is asked for
reads the metadata before it answers −1 (`catch_up`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.records import CommittedOffset
from gateway.coordinator.places import TopicPartition
from gateway.handlers.answering.api import RequestContext
from gateway.handlers.answering.rights import unseen_topics
from gateway.handlers.groups.peer_names import ask_leaders
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import TopicPartitions
from gateway.runtime.services import Services
from gateway.runtime.topics.brokers import NO_LEADER
from gateway.runtime.upkeep.names_replay import (
    complete_names,
    deduplicates,
    deduplicating_topics,
    may_know_names,
)
from gateway.security.acls.codes import Operation
from log import LogError
from seq_validator.names import NO_NAME_EPOCH, NameState

REQUEST_S: Final = 5.0
"""Time that one request may spend on opening partitions and replaying their logs, for all its names together."""


class NameOffset(NamedTuple):
    """The state of a name in one partition as an offset, and whether an open transaction may change it."""

    committed: CommittedOffset
    is_pending: bool


class NameOffsets:
    """The name lookups of one request: its deadline, and the list of topics that all its names share."""

    def __init__(self, context: RequestContext[Services]) -> None:
        """Start the deadline now."""
        self._context = context
        self._services = context.services
        self._deadline_s = context.node.loop.time() + REQUEST_S
        self._deduplicating: list[TopicPartitions] | None = None

    async def catch_up(self, asked: Sequence[Any] | None, *, by_id: bool) -> ErrorCode | None:
        """Read what other gateways have changed in the metadata, if the request asks for something unknown. Return the error if that fails.

        A request for all topics may always lack one. Waits for a read of the bucket, which all requests share.
        """
        if self._services.partitions.registry.lease is None or self._knows(asked, by_id=by_id):
            return None
        loop = self._context.node.loop
        look = loop.create_task(self._services.topics.metadata_log.catch_up())
        try:
            await asyncio.wait([look], timeout=self._deadline_s - loop.time())
        finally:
            look.cancel()  # the look that all share goes on
        is_caught_up = look.done() and not look.cancelled() and look.exception() is None
        return None if is_caught_up else ErrorCode.coordinator_load_in_progress

    def _knows(self, asked: Sequence[Any] | None, *, by_id: bool) -> bool:
        """Return whether the request names only partitions that track names, as far as the metadata is known here."""
        if asked is None:
            return False
        services = self._services
        registry, image = services.partitions.registry, services.topics.metadata_log.image
        by_key: Mapping[Any, TopicPartitions] = registry.by_id if by_id else registry.by_name
        for wanted in asked:
            topic = by_key.get(wanted.topic_id if by_id else wanted.name)
            if topic is None or not deduplicates(services.node.config, image, topic.name):
                return False
            if not all(map(topic.has, wanted.partition_indexes)):
                return False
        return True

    async def fetch(
        self,
        name: bytes,
        topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None,
        *,
        only_led_here: bool = False,
        require_stable: bool = False,
    ) -> dict[TopicPartition, NameOffset]:
        """Return the offsets of a name in the given partitions, or in all that the client may describe with None.

        With `only_led_here` other gateways are not asked, and a given partition that another one leads is refused. Opens partitions. Raises
        Unavailable.
        """
        if self._context.node.brokers.is_alone:
            return await self._led_here(name, topics, frozenset())
        elsewhere = await self._led_elsewhere(topics)
        if only_led_here and topics is not None and elsewhere:
            raise Unavailable(ErrorCode.not_coordinator)
        found = await self._led_here(
            name, topics, {place for places in elsewhere.values() for place in places}
        )
        if only_led_here:
            return found
        told = await ask_leaders(
            self._context.node.peers,
            name,
            elsewhere,
            require_stable=require_stable,
            timeout_s=max(0.0, self._deadline_s - self._services.node.loop.time()),
        )
        return found | {place: NameOffset(*offset) for place, offset in told.items()}

    async def _led_elsewhere(
        self, topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions to ask other leaders about, by leader. Raises Unavailable when a partition has no leader."""
        by_name = self._services.topics.metadata_log.image.topics_by_name
        brokers = self._context.node.brokers
        by_leader: dict[int, list[TopicPartition]] = {}
        async for topic, index in self._tracked(topics):
            image = by_name.get(topic.name)
            partition = None if image is None else image.partitions.get(index)
            if partition is None or brokers.leads(partition):
                continue
            leader = brokers.leader_of(partition)
            if leader == NO_LEADER:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            by_leader.setdefault(leader, []).append((topic.name, index))
        return by_leader

    async def _led_here(
        self,
        name: bytes,
        topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None,
        away: Collection[TopicPartition],
    ) -> dict[TopicPartition, NameOffset]:
        """Return the offsets in partitions that other gateways are not asked about (`away`).

        Raises Unavailable when a partition is not here: its leader changes, or it is being taken over.
        """
        by_name = self._services.partitions.registry.by_name
        directory = self._services.partitions.log_directory
        found: dict[TopicPartition, NameOffset] = {}
        async for topic, index in self._tracked(topics):
            place = topic.name, index
            # a topic may be deleted meanwhile
            if place in found or place in away or by_name.get(topic.name) is not topic:
                continue
            if not topic.has(index):
                continue
            if topic.refusal(index) is not None:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            if not may_know_names(directory, topic, index):
                continue
            if self._services.node.loop.time() >= self._deadline_s:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            partition = await self._partition(topic, index)
            state = partition.log.record_states.name_state(name)
            if state is not None:
                found[place] = _name_offset(state)
        return found

    async def _tracked(
        self, topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None
    ) -> AsyncIterator[tuple[TopicPartitions, int]]:
        """Yield the partitions that track names, among the given ones or all, in slices."""
        services = self._services
        if topics is None:
            if self._deduplicating is None:
                known = deduplicating_topics(
                    services.node.config,
                    services.topics.metadata_log.image,
                    services.partitions.registry,
                    await self._described(services.partitions.registry.by_name),
                )
                self._deduplicating = [topic async for topic in known]
            topics = [(topic, range(topic.count)) for topic in self._deduplicating]
        image = services.topics.metadata_log.image
        for topic, indexes in topics:
            if deduplicates(services.node.config, image, topic.name):
                async for index in in_slices(indexes):
                    yield topic, index

    async def _described(self, names: Iterable[str]) -> list[str]:
        """Return the topics that the client may describe."""
        wanted = list(names)
        hidden = await unseen_topics(self._context, Operation.DESCRIBE, wanted)
        return [name for name in wanted if name not in hidden]

    async def _partition(self, topic: TopicPartitions, index: int) -> Partition:
        """Return a partition that knows all its names. Raises Unavailable."""
        partition = topic.get(index)
        if partition is None:
            raise Unavailable
        try:
            await complete_names(partition, self._services.node.clock, self._deadline_s)
        except TimeoutError:
            raise Unavailable(ErrorCode.coordinator_load_in_progress) from None
        except LogError as error:
            raise Unavailable from error
        if partition.log.offline or partition.closed:
            raise Unavailable
        return partition


def _name_offset(state: NameState) -> NameOffset:
    epoch = None if state.epoch == NO_NAME_EPOCH else state.epoch
    metadata = json.dumps({"persisted": state.persisted_sequence, "epoch": epoch})
    committed = CommittedOffset(state.persisted_sequence, -1, metadata, state.last_active_ms)
    return NameOffset(committed, state.is_pending)
