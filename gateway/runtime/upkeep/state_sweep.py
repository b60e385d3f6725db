"""Finds state of groups and transactions about topics that no longer exist.

The coordinators delete such state when a topic is deleted. When a log fails or the gateway is killed in between, the
state stays for as long as its group, until a sweep deletes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from gateway.coordinator.share.records import SharePartitionKey
from gateway.coordinator.transaction import rules
from gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from gateway.runtime.loop.clock import Clock, Task
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.topics.metadata_log import MetadataLog
from gateway.runtime.upkeep.file_sweep import is_partition

OWNERS_PER_STEP: Final = 100
ALL: Final = -1
"""The partition number that means all partitions of a topic."""
GRACE_MS: Final = 60_000
"""Time (ms) beyond its timeout for which a transaction may be open; its coordinator aborts it within that time."""

logger = logging.getLogger(__name__)


class StateKind(StrEnum):
    """The kinds of state about a topic that no longer exists."""

    OFFSET = "committed offset without a topic"
    SHARE_STATE = "share group state without a topic"
    TRANSACTION = "transaction without a topic"


class StateLeak(NamedTuple):
    """One piece of state about a topic that no longer exists.

    `owner` is a group or a transactional id; `topic` a name, or an id without a known name.
    """

    kind: StateKind
    owner: str
    topic: str
    partition: int
    share_key: SharePartitionKey | None = None


class StateSweep:
    """One search of the coordinators for state about topics that no longer exist. It leaves out shards that can't be loaded."""

    def __init__(
        self,
        clock: Clock,
        metadata_log: MetadataLog,
        groups: GroupCoordinator,
        shares: ShareCoordinator,
        transactions: TransactionCoordinator,
    ) -> None:
        self._clock = clock
        self._metadata_log = metadata_log
        self._image = metadata_log.image
        self._groups = groups
        self._shares = shares
        self._transactions = transactions

    async def find(self, task: Task, most: int) -> list[StateLeak]:
        """Return at most `most` leaks; `task` counts groups and transactional ids."""
        if self._metadata_log.is_changing:
            # a topic may just be deleted, and coordinators do not know that yet
            return []
        task.done, task.total = 0, None
        found: list[StateLeak] = []
        for leaks in (self._offsets(), self._share_groups(), self._share_states(), self._overdue()):
            for some in leaks:
                found += some
                task.done += 1
                if len(found) >= most:
                    return found[:most]
                if task.done % OWNERS_PER_STEP == 0:
                    await asyncio.sleep(0)
        return found

    def _offsets(self) -> Iterator[list[StateLeak]]:
        for shard in self._groups.loaded_shards():
            for group_id in shard.offsets.groups():
                yield [
                    StateLeak(StateKind.OFFSET, group_id, *place)
                    for place in shard.offsets.of(group_id)
                    if not self._exists(*place)
                ]

    def _share_groups(self) -> Iterator[list[StateLeak]]:
        """Yield the begun partitions of share groups."""
        for shard in self._groups.loaded_shards():
            for group_id, group in list(shard.shares.groups.items()):
                yield [
                    StateLeak(
                        StateKind.SHARE_STATE, group_id, name, ALL, SharePartitionKey(group_id, topic_id, ALL)
                    )
                    for topic_id, name in group.topic_names.items()
                    if topic_id not in self._image.topics_by_id
                ]

    def _share_states(self) -> Iterator[list[StateLeak]]:
        """Yield the delivery states of share groups."""
        shards = self._shares.shards
        shards.load_stored()
        for loaded in shards:
            for key in list(loaded.shard.partitions) if loaded.is_current else ():
                topic = self._image.topics_by_id.get(key.topic_id)
                name = str(key.topic_id) if topic is None else topic.name
                leak = StateLeak(StateKind.SHARE_STATE, key.group_id, name, key.partition, key)
                yield [] if self._share_exists(key) else [leak]

    def _overdue(self) -> Iterator[list[StateLeak]]:
        """Yield open transactions that are long overdue and that nobody has ended."""
        now_ms = self._clock.now_ms()
        for name, transaction in self._transactions.all():
            is_late = rules.is_overdue(transaction, now_ms, GRACE_MS)
            gone = [place for place in transaction.partitions if is_late and not self._exists(*place)]
            yield [StateLeak(StateKind.TRANSACTION, name, *place) for place in sorted(gone)]

    def _exists(self, topic: str, partition: int) -> bool:
        return is_partition(self._image, topic, partition)

    async def remove(self, leaks: Iterable[StateLeak], task: Task) -> list[StateLeak]:
        """Delete the leaks durably, and abort overdue transactions; return the leaks that were removed."""
        removed: list[StateLeak] = []
        by_owner: dict[tuple[StateKind, str], list[StateLeak]] = {}
        for leak in leaks:
            by_owner.setdefault((leak.kind, leak.owner), []).append(leak)
        task.done, task.total = 0, len(by_owner)
        for (kind, owner), of_owner in by_owner.items():
            task.done += 1
            try:
                if kind is StateKind.OFFSET:
                    await self._forget_offsets(owner, of_owner)
                elif kind is StateKind.SHARE_STATE:
                    await self._forget_share_state(owner, of_owner)
                else:
                    self._transactions.abort_overdue()
            except Unavailable as error:
                logger.warning("%s of %s could not be removed: %s", kind, owner, error)
                continue
            removed += of_owner
        return removed

    async def _forget_share_state(self, group_id: str, leaks: list[StateLeak]) -> None:
        keys = [leak.share_key for leak in leaks if leak.share_key is not None]
        await self._shares.forget(
            [key for key in keys if key.partition != ALL and not self._share_exists(key)]
        )
        for key in keys:
            if key.partition == ALL and key.topic_id not in self._image.topics_by_id:
                await self._shares.forget_topic(group_id, key.topic_id)

    def _share_exists(self, key: SharePartitionKey) -> bool:
        topic = self._image.topics_by_id.get(key.topic_id)
        return topic is not None and key.partition in topic.partitions

    async def _forget_offsets(self, group_id: str, leaks: list[StateLeak]) -> None:
        places = [(leak.topic, leak.partition) for leak in leaks]
        gone = [place for place in places if not self._exists(*place)]
        await self._groups.run(group_id, lambda shard, effects: shard.commits.forget(group_id, gone, effects))
