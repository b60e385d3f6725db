"""Membership in a classic group: JoinGroup, SyncGroup with the leader's range assignment, Heartbeat,
LeaveGroup.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Link
from tests.simulation.clients.group_offsets import GroupOffsets, Identity
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import TopicPartition

PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 2_000, 3_000
JOIN_TIMEOUT_S = 30.0
LEAVE_SINCE_MANY = 3
HEARTBEAT_S = 0.4


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def subscription(topics: list[str]) -> bytes:
    """Encode ConsumerProtocolSubscription v0."""
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)


def encode_assignment(places: list[TopicPartition]) -> bytes:
    """Encode ConsumerProtocolAssignment v0."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    rows = [
        _text(topic) + struct.pack(f">i{len(found)}i", len(found), *found) for topic, found in topics.items()
    ]
    return struct.pack(">hi", 0, len(rows)) + b"".join(rows) + struct.pack(">i", -1)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    _, count = struct.unpack_from(">hi", data)
    position = 6
    places = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (partitions,) = struct.unpack_from(">i", data, position)
        numbers = struct.unpack_from(f">{partitions}i", data, position + 4)
        places += [TopicPartition(topic, number) for number in numbers]
        position += 4 + 4 * partitions
    return places


def ranges(members: list[str], places: list[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Assign each member one contiguous range of each topic (Kafka's RangeAssignor)."""
    parts: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    topics: dict[str, list[TopicPartition]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place)
    for of_topic in topics.values():
        size, more = divmod(len(of_topic), len(parts))
        begin = 0
        for index, member in enumerate(parts):
            end = begin + size + (index < more)
            parts[member] += of_topic[begin:end]
            begin = end
    return parts


class ClassicMembership:
    """A member of a classic group.

    `beat` returns whether the assignment is still valid; every call raises `Disconnected`.
    """

    by_epoch = False

    def __init__(
        self, surroundings: Surroundings, link: Link, random: Random, offsets: GroupOffsets, label: str
    ) -> None:
        self._surroundings = surroundings
        self._link = link
        self._offsets = offsets
        self.who = Identity(label)
        self.heartbeat_s = HEARTBEAT_S
        self._join_version = random.randint(2, 9)
        self._sync_version = random.randint(0, 5)
        self._beat_version = random.randint(0, 4)
        self._leave_version = random.randint(0, 5)

    async def join(self) -> list[TopicPartition] | None:
        """Try to join once; return the assignment, or None when another attempt is needed."""
        topics = list(self._surroundings.topics)
        answer = await self._link.call(
            "join_group",
            self._join_version,
            {
                "group_id": self._offsets.group,
                "session_timeout": SESSION_TIMEOUT_MS,
                "rebalance_timeout": REBALANCE_TIMEOUT_MS,
                "member_id": self.who.member_id,
                "group_instance_id": None,
                "protocol_type": PROTOCOL_TYPE,
                "protocols": [{"name": PROTOCOL, "metadata": subscription(topics)}],
                "reason": None,
            },
            JOIN_TIMEOUT_S,
            to=self._offsets.coordinator,
        )
        if answer.error_code is ErrorCode.member_id_required:
            self.who.member_id = answer.member_id
            return None
        if answer.error_code is not ErrorCode.none:
            await self._note("JoinGroup", answer.error_code)
            return None
        self.who.member_id, self.who.generation = answer.member_id, answer.generation_id
        return await self._sync(answer)

    async def _sync(self, joined: Any) -> list[TopicPartition] | None:
        assignments = []
        if joined.leader == joined.member_id and not getattr(joined, "skip_assignment", False):
            members = [member.member_id for member in joined.members]
            parts = ranges(members, self._surroundings.partitions())
            assignments = [
                {"member_id": member, "assignment": encode_assignment(places)}
                for member, places in parts.items()
            ]
        answer = await self._link.call(
            "sync_group",
            self._sync_version,
            {
                "group_id": self._offsets.group,
                "generation_id": self.who.generation,
                "member_id": self.who.member_id,
                "group_instance_id": None,
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": PROTOCOL,
                "assignments": assignments,
            },
            JOIN_TIMEOUT_S,
            to=self._offsets.coordinator,
        )
        if answer.error_code is not ErrorCode.none:
            await self._note("SyncGroup", answer.error_code)
            return None
        return decode_assignment(bytes(answer.assignment))

    async def beat(self) -> bool:
        answer = await self._link.call(
            "heartbeat",
            self._beat_version,
            {
                "group_id": self._offsets.group,
                "generation_id": self.who.generation,
                "member_id": self.who.member_id,
                "group_instance_id": None,
            },
            to=self._offsets.coordinator,
        )
        if answer.error_code is ErrorCode.none:
            return True
        await self._note("Heartbeat", answer.error_code)
        return answer.error_code in self._surroundings.faults

    async def _note(self, what: str, error: ErrorCode) -> None:
        if error in self._surroundings.faults:
            await self._offsets.find_coordinator()
        elif error is ErrorCode.unknown_member_id:
            self.who.member_id = ""
        elif error not in {ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation}:
            self._surroundings.unexpected(self.who.label, f"{what}: {error.name}")

    async def leave(self) -> None:
        member = {"member_id": self.who.member_id, "group_instance_id": None}
        many = self._leave_version >= LEAVE_SINCE_MANY
        request = {"group_id": self._offsets.group} | ({"members": [member]} if many else member)
        if not many:
            del request["group_instance_id"]
        await self._link.call("leave_group", self._leave_version, request, to=self._offsets.coordinator)
