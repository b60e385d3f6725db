"""Moves groups forward past records that they have not read, durably, and counts the skipped records.

Moves a group's offsets forward at the gateway that coordinates the group, on behalf of the leader of the
partitions.

The leader sends OffsetCommit with a member id that no member has. The coordinator answers it for a client
with CLUSTER_ACTION on the cluster: it moves each offset forward as `OffsetCommits.move_forward` does, never
back. A place that did not move has UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import TargetOffset
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.peer.peers import AsksPeers
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.quota.backlog import GroupReader, OffsetMove
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator, SkippedRecords
from seqgate.gateway.runtime.coordinators.shards import Unavailable, ask_coordinator
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import LogError

logger = logging.getLogger(__name__)

OFFSETS_AT_ONCE = 16
"""Offsets that one batch commits. So many fit into a batch even with the longest names."""

Readers = dict[TopicPartition, list[GroupReader]]


class GroupMoves:
    """Moves groups and share groups forward, through their coordinators."""

    def __init__(self, groups: GroupCoordinator, shares: ShareCoordinator, peers: AsksPeers) -> None:
        self._groups = groups
        self._peers = peers
        self._shares = shares
        self.skipped = SkippedRecords()

    async def carry_out(self, moves: Sequence[tuple[Partition, OffsetMove]], readers: Readers) -> None:
        """Move the groups that can be moved, and update `readers` with their new offsets."""
        by_group: dict[str, list[tuple[Partition, OffsetMove]]] = {}
        shares = []
        for partition, move in moves:
            if move.reader.is_share:
                shares.append(self._move_share_group(partition, move, readers))
            else:
                by_group.setdefault(move.reader.group, []).append((partition, move))
        groups = [self._move_group(group, entries, readers) for group, entries in by_group.items()]
        await asyncio.gather(*shares, *groups)

    async def _move_group(
        self, group_id: str, moves: Sequence[tuple[Partition, OffsetMove]], readers: Readers
    ) -> None:
        for start in range(0, len(moves), OFFSETS_AT_ONCE):
            some = moves[start : start + OFFSETS_AT_ONCE]
            targets = [_target(*entry) for entry in some]
            try:
                if self._groups.shards.is_elsewhere(group_id):
                    leader = self._groups.shards.leader_of(group_id)
                    moved = await move_there(self._peers, leader, group_id, targets)
                    before = dict.fromkeys(moved, -1)
                else:
                    before = await self._commit(group_id, targets)
            except Unavailable as error:
                logger.warning("group %s can't be moved forward now: %s", group_id, error)
                return
            for partition, move in some:
                offset = before.get((partition.topic, partition.index))
                if offset is not None:
                    records = move.to_offset - max(offset, move.from_offset)
                    self._moved(partition, move, records, readers)

    async def _commit(self, group_id: str, targets: list[TargetOffset]) -> dict[TopicPartition, int]:
        return await self._groups.run(
            group_id, lambda shard, effects: shard.commits.move_forward(group_id, targets, effects)
        )

    async def _move_share_group(self, partition: Partition, move: OffsetMove, readers: Readers) -> None:
        key = SharePartitionKey(move.reader.group, partition.topic_id, partition.index)
        try:
            skipped = await self._shares.skip_to(key, partition, move.to_offset)
        except (Unavailable, LogError) as error:
            logger.warning("share group %s can't be moved forward now: %s", move.reader.group, error)
            return
        self._moved(partition, move, skipped, readers)

    def _moved(self, partition: Partition, move: OffsetMove, records: int, readers: Readers) -> None:
        place = partition.topic, partition.index
        readers[place] = [
            entry._replace(offset=move.to_offset) if entry is move.reader else entry
            for entry in readers[place]
        ]
        counted = self.skipped.note(place, move, records)
        logger.info(
            "%s %s skips %d records of %s-%d, up to offset %d: %s",
            "share group" if move.reader.is_share else "group",
            move.reader.group,
            counted,
            partition.topic,
            partition.index,
            move.to_offset,
            move.limit,
        )


def _target(partition: Partition, move: OffsetMove) -> TargetOffset:
    leader_epoch = partition.log.epochs.at(move.to_offset - 1)
    return TargetOffset((partition.topic, partition.index), move.to_offset, leader_epoch)


MOVER: Final = "seqgate:backlog"
"""The member id of such a commit."""
NOT_MOVED: Final = ErrorCode.unstable_offset_commit
_OFFSET_COMMIT: Final = 8
_VERSION: Final = 8
_NO_GENERATION: Final = 2**31 - 1
"""A generation that no group has: a coordinator that does not know the member id refuses the commit."""


async def move_there(
    peers: AsksPeers, leader: int, group_id: str, targets: Sequence[TargetOffset]
) -> set[TopicPartition]:
    """Move the group's offsets at its coordinator; return the places that moved. Raises Unavailable."""
    by_topic: dict[str, list[Any]] = {}
    for place, offset, leader_epoch in targets:
        row = {
            "partition_index": place[1],
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": None,
        }
        by_topic.setdefault(place[0], []).append(row)
    request = build_request(
        _OFFSET_COMMIT,
        _VERSION,
        group_id=group_id,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id=MOVER,
        group_instance_id=None,
        topics=[{"name": name, "partitions": rows} for name, rows in by_topic.items()],
    )
    answer = await ask_coordinator(peers, leader, request)
    moved = set()
    for topic in answer.topics:
        for row in topic.partitions:
            code = ErrorCode(int(row.error_code))
            if code is ErrorCode.none:
                moved.add((topic.name, row.partition_index))
            elif code is not NOT_MOVED:
                raise Unavailable(code)
    return moved
