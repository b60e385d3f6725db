"""Membership in a group of the consumer protocol (KIP-848), which needs only ConsumerGroupHeartbeat."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.group_offsets import GroupOffsets, Identity
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import TopicPartition
from tests.support.wire import Plain

JOINING_EPOCH, LEAVING_EPOCH = 0, -1
NAMES_ITSELF_SINCE = 1
REBALANCE_TIMEOUT_MS = 8_000
HEARTBEAT_S = 0.4
GONE = {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch}


class ConsumerMembership:
    """A member of a consumer group. `beat` returns whether the assignment is still valid; every call raises
    `Disconnected`.

    A new assignment is used at once, and reported with the next heartbeat, which acknowledges it.
    """

    by_epoch = True

    def __init__(
        self, surroundings: Surroundings, link: Link, random: Random, offsets: GroupOffsets, label: str
    ) -> None:
        self._surroundings = surroundings
        self._link = link
        self._offsets = offsets
        self._version = random.randint(0, 1)
        self.who = Identity(label, generation=JOINING_EPOCH)
        if self._version >= NAMES_ITSELF_SINCE:
            self.who.member_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.heartbeat_s = HEARTBEAT_S
        self._owned: list[TopicPartition] = []
        self._is_told_all = False
        self._changed = False

    async def join(self) -> list[TopicPartition] | None:
        """Send one heartbeat, unless the last one brought an assignment. Return None while nothing is
        assigned.
        """
        if not self._changed:
            await self._heartbeat()
        if not self._changed:
            return None
        self._changed = False
        return list(self._owned)

    async def beat(self) -> bool:
        await self._heartbeat()
        return not self._changed and self.who.generation > JOINING_EPOCH

    async def _heartbeat(self) -> None:
        joining = self.who.generation == JOINING_EPOCH
        request = self._request(whole=joining or not self._is_told_all)
        try:
            answer = await self._link.call(
                "consumer_group_heartbeat", self._version, request, to=self._offsets.coordinator
            )
        except Disconnected:
            self._is_told_all = False
            raise
        error = answer.error_code
        if error is ErrorCode.none:
            self._take(answer)
        elif error in GONE:
            self.who.generation = JOINING_EPOCH
            self._owned = []
            self._changed = False
        elif error in self._surroundings.faults:
            self._is_told_all = False
            await self._offsets.find_coordinator()
        else:
            self._surroundings.unexpected(self.who.label, f"ConsumerGroupHeartbeat: {error.name}")

    def _request(self, *, whole: bool) -> Plain:
        topics: dict[str, list[int]] = {}
        for place in self._owned:
            topics.setdefault(self._surroundings.topics[place.topic].topic_id, []).append(place.partition)
        owned = [{"topic_id": topic, "partitions": found} for topic, found in topics.items()]
        return {
            "group_id": self._offsets.group,
            "member_id": self.who.member_id,
            "member_epoch": self.who.generation,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS if whole else -1,
            "subscribed_topic_names": list(self._surroundings.topics) if whole else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": owned,
        }

    def _take(self, answer: Any) -> None:
        self._is_told_all = True
        if answer.member_id:
            self.who.member_id = answer.member_id
        epoch_before, self.who.generation = self.who.generation, answer.member_epoch
        if answer.assignment is None:
            if epoch_before != answer.member_epoch and epoch_before == JOINING_EPOCH:
                self._changed = True
            return
        names = {topic.topic_id: topic.name for topic in self._surroundings.topics.values()}
        assigned = [
            TopicPartition(names[str(topic.topic_id)], partition)
            for topic in answer.assignment.topic_partitions
            for partition in topic.partitions
        ]
        if assigned != self._owned or epoch_before == JOINING_EPOCH:
            self._owned = assigned
            self._changed = True

    async def leave(self) -> None:
        request = self._request(whole=False) | {"member_epoch": LEAVING_EPOCH, "topic_partitions": None}
        await self._link.call(
            "consumer_group_heartbeat", self._version, request, to=self._offsets.coordinator
        )
