"""Reads and commits a group's offsets over one link to its coordinator: OffsetCommit, OffsetFetch,
FindCoordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Coordinator, Link
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import OffsetsCommitted, OffsetsCommitting, OffsetsFetched, TopicPartition
from tests.support.wire import Plain

Offsets = tuple[tuple[TopicPartition, int], ...]
MEMBERS_SINCE, TOPIC_IDS_SINCE = 9, 10
OUTDATED = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_member_epoch,
    }
)
"""Errors that tell a member that the group has continued without it."""


@dataclass
class Identity:
    """The sender of a commit. `label` names one life of a member in the history; `generation` may be a member
    epoch.
    """

    label: str
    member_id: str = ""
    generation: int = -1


class GroupOffsets:
    def __init__(
        self, surroundings: Surroundings, link: Link, random: Random, group: str, *, by_epoch: bool
    ) -> None:
        self._surroundings = surroundings
        self._link = link
        self._by_epoch = by_epoch
        self._require_stable = True
        self.group = group
        self.coordinator = Coordinator(0, group)
        self._commit_version = random.randint(9, 10) if by_epoch else random.randint(6, 10)
        self._fetch_version = random.randint(9, 10) if by_epoch else random.randint(8, 10)

    async def find_coordinator(self) -> None:
        """Find the group's coordinator. Raises `Disconnected`."""
        request = {"key_type": 0, "coordinator_keys": [self.group]}
        await self._link.call("find_coordinator", 4, request)

    def _topics(self, rows: dict[TopicPartition, Any], version: int, field: str) -> list[Plain]:
        topics: dict[str, list[Any]] = {}
        for place, row in rows.items():
            topics.setdefault(place.topic, []).append(row)
        by_id = version >= TOPIC_IDS_SINCE
        return [
            ({"topic_id": self._surroundings.topics[topic].topic_id} if by_id else {"name": topic})
            | {field: of_topic}
            for topic, of_topic in topics.items()
        ]

    async def commit(self, who: Identity, offsets: Offsets) -> ErrorCode:
        """Commit offsets; return the worst error of all partitions. Raises `Disconnected`."""
        history = self._surroundings.history
        rows = {
            place: {
                "partition_index": place.partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for place, offset in offsets
        }
        request = {
            "group_id": self.group,
            "generation_id_or_member_epoch": who.generation,
            "member_id": who.member_id,
            "group_instance_id": None,
            "topics": self._topics(rows, self._commit_version, "partitions"),
        }
        await self._link.connect(self.coordinator)
        asked_at_ms = self._surroundings.at_ms()
        generation, member_epoch = (-1, who.generation) if self._by_epoch else (who.generation, -1)
        history.add(OffsetsCommitting(asked_at_ms, self.group, who.label, offsets, generation, member_epoch))
        answer = await self._link.call("offset_commit", self._commit_version, request, to=self.coordinator)
        errors: list[ErrorCode] = [row.error_code for topic in answer.topics for row in topic.partitions]
        if len(errors) != len(offsets):
            self._surroundings.unexpected(who.label, f"{len(errors)} rows for a commit of {len(offsets)}")
        failed = [error for error in errors if error is not ErrorCode.none]
        if not failed:
            history.add(
                OffsetsCommitted(self._surroundings.at_ms(), self.group, who.label, offsets, asked_at_ms)
            )
            return ErrorCode.none
        for error in failed:
            if error not in self._surroundings.faults and error not in OUTDATED:
                self._surroundings.unexpected(who.label, f"OffsetCommit: {error.name}")
        if failed[0] in self._surroundings.faults:
            await self.find_coordinator()
        return failed[0]

    async def fetch(
        self, who: Identity | None, places: list[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """Return the committed offsets, -1 where there is none; None when the answer has an error.

        Raises `Disconnected`.
        """
        rows = {place: place.partition for place in places}
        topics = self._topics(rows, self._fetch_version, "partition_indexes")
        asks_as_member = who is not None and self._by_epoch and self._fetch_version >= MEMBERS_SINCE
        group = {
            "group_id": self.group,
            "member_id": who.member_id if who is not None and asks_as_member else None,
            "member_epoch": who.generation if who is not None and asks_as_member else -1,
            "topics": topics,
        }
        await self._link.connect(self.coordinator)
        asked_at_ms = self._surroundings.at_ms()
        answer = await self._link.call(
            "offset_fetch",
            self._fetch_version,
            {"groups": [group], "require_stable": self._require_stable},
            to=self.coordinator,
        )
        found = answer.groups[0]
        errors = [found.error_code, *(row.error_code for topic in found.topics for row in topic.partitions)]
        failed = [error for error in errors if error is not ErrorCode.none]
        if failed:
            await self._note(who, failed[0])
            return None
        names = {topic.topic_id: topic.name for topic in self._surroundings.topics.values()}
        offsets = {}
        for topic in found.topics:
            by_id = self._fetch_version >= TOPIC_IDS_SINCE
            name = names[str(topic.topic_id)] if by_id else topic.name
            for row in topic.partitions:
                offsets[TopicPartition(name, row.partition_index)] = row.committed_offset
        self._note_fetched(offsets, asked_at_ms)
        return offsets

    def _note_fetched(self, offsets: dict[TopicPartition, int], asked_at_ms: int) -> None:
        event = OffsetsFetched(self._surroundings.at_ms(), self.group, tuple(offsets.items()), asked_at_ms)
        self._surroundings.history.add(event)

    async def _note(self, who: Identity | None, error: ErrorCode) -> None:
        name = self.group if who is None else who.label
        if error in self._surroundings.faults:
            await self.find_coordinator()
        elif error is not ErrorCode.unstable_offset_commit and (who is None or error not in OUTDATED):
            self._surroundings.unexpected(name, f"OffsetFetch: {error.name}")
