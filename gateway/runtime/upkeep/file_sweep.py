"""The sweep of a running gateway: orphaned files, and state about topics that no longer exist.

`FileSweep` finds orphaned files, and deletes them, while the gateway serves requests. Directories are listed
and compared in a thread, a few at a time. Between listing and comparing, the sweep asks the log for the files
it knows, so that a file created meanwhile is known. Each finding is checked a second time. Other work of the
event loop runs between two steps.

`StateSweep` finds state of groups and transactions about topics that no longer exist. The coordinators delete
such state when a topic is deleted. When a log fails or the gateway is killed in between, the state stays for
as long as its group, until a sweep deletes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.loop.clock import Clock, Task
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.log import LogDirectory, parse_partition_directory
from seqgate.log.stopped import (
    FileLeak,
    LeakKind,
    OpenPartition,
    leaks_of_directory,
    leaks_of_partition,
    rename_for_deletion,
)

logger = logging.getLogger(__name__)

MAX_FOUND: Final = 20_000
"""Leaks that one sweep reports; the next sweep finds further ones."""
NAMES_PER_STEP: Final = 500

T = TypeVar("T")


class FileSweep:
    def __init__(
        self,
        log_directory: LogDirectory,
        metadata_log: MetadataLog,
        *,
        other_names: Collection[str],
        now_ms: Callable[[], int],
        min_age_ms: int,
    ) -> None:
        """Prepare a sweep that ignores files changed within `min_age_ms`, and other parts' `other_names`."""
        self._directory = log_directory
        self._storage = log_directory.environment.storage
        self._deletions = log_directory.environment.deletions
        self._metadata_log = metadata_log
        self._other_names = frozenset(other_names)
        self._now_ms = now_ms
        self._before_ms = now_ms() - min_age_ms

    async def find(self, task: Task) -> list[FileLeak]:
        """Return the orphaned files; `task` counts directories. Raises OSError."""
        root = str(self._directory.path)
        entries = await asyncio.to_thread(self._storage.entries, root)
        found = await self._twice(self._leaks_of_root)
        names = [entry.name for entry in entries if entry.is_directory]
        task.total = len(names)
        for name in names:
            task.done += 1
            parsed = parse_partition_directory(name)
            if parsed is None or not self._is_partition(*parsed):
                continue
            found += await self._twice(lambda name=name: self._leaks_of_partition(name))  # type: ignore[misc]
            if len(found) >= MAX_FOUND:
                break
        return found[:MAX_FOUND]

    async def _twice(self, find: Callable[[], Awaitable[list[FileLeak]]]) -> list[FileLeak]:
        """Return the leaks that two searches both find: a short-lived file is gone at the second search."""
        first = await find()
        if not first:
            return []
        again = set(await find())
        return [leak for leak in first if leak in again]

    async def _leaks_of_root(self) -> list[FileLeak]:
        entries = await asyncio.to_thread(self._storage.entries, str(self._directory.path))
        found: list[FileLeak] = []
        for some in _pieces(entries, NAMES_PER_STEP):
            found += leaks_of_directory(
                some,
                other_names=self._other_names,
                is_partition=self._is_partition,
                waits=self._waits,
                before_ms=self._before_ms,
            )
            await asyncio.sleep(0)
        if self._metadata_log.is_changing:
            # the directories of a topic that is being deleted still have their final names
            found = [leak for leak in found if leak.kind is not LeakKind.PARTITION]
        return [self._judged(leak) for leak in found]

    def _judged(self, leak: FileLeak) -> FileLeak:
        """Return a leak; a partition's directory stays that another process may have created meanwhile."""
        is_kept = leak.kind is LeakKind.PARTITION and not self._directory.share.is_whole
        return leak._replace(removable=False) if is_kept else leak

    def _is_partition(self, topic: str, index: int) -> bool:
        return is_partition(self._metadata_log.image, topic, index)

    async def _leaks_of_partition(self, name: str) -> list[FileLeak]:
        path = f"{self._directory.path}/{name}"
        try:
            entries = await asyncio.to_thread(self._storage.entries, path)
        except FileNotFoundError:
            return []
        opened = self._opened(name)
        compared = await asyncio.to_thread(
            lambda: list(
                leaks_of_partition(
                    name, entries, opened=opened, waits=lambda _: False, before_ms=self._before_ms
                )
            )
        )
        found: list[FileLeak] = []
        for some in _pieces(compared, NAMES_PER_STEP):
            found += (leak for leak in some if not self._waits(leak.path))
            await asyncio.sleep(0)
        return found

    def _opened(self, name: str) -> OpenPartition | None:
        parsed = parse_partition_directory(name)
        log = None if parsed is None else self._directory.opened(*parsed)
        if log is None or log.offline:
            return None
        return OpenPartition(frozenset(list(log.segments.bases)), log.log_end_offset, log.recovery_point)

    def _waits(self, path: str) -> bool:
        return f"{self._directory.path}/{path}" in self._deletions

    async def remove(self, leaks: Iterable[FileLeak], task: Task, *, unknown: bool) -> list[FileLeak]:
        """Delete the leaks in the background, as all files are deleted; return the leaks that were queued.
        Files of unknown names are deleted only with `unknown`. Each file is renamed first, in one step of the
        event loop, so that a new file of the same name is not deleted later.
        """
        removed = []
        chosen = [leak for leak in leaks if is_chosen(leak, unknown=unknown)]
        task.done, task.total = 0, len(chosen)
        for leak in chosen:
            task.done += 1
            try:
                self._remove(leak)
            except OSError as error:
                logger.warning("%s stays: %s", leak.path, error)
            else:
                removed.append(leak)
            await asyncio.sleep(0)
        return removed

    def _remove(self, leak: FileLeak) -> None:
        path = f"{self._directory.path}/{leak.path}"
        if leak.is_directory:
            if leak.kind is LeakKind.DELETED:
                self._deletions.add(path, self._now_ms(), is_directory=True)
                return
            parsed = parse_partition_directory(leak.path)
            if parsed is not None and not self._is_partition(*parsed):
                self._directory.delete_stray(*parsed)
            return
        with contextlib.suppress(FileNotFoundError):
            if leak.kind is not LeakKind.DELETED:
                path = rename_for_deletion(self._storage, path)
            self._deletions.add(path, self._now_ms())


def is_partition(image: MetadataImage, topic: str, index: int) -> bool:
    return index == 0 if topic == METADATA_TOPIC else image.partition_named(topic, index) is not None


def is_chosen(leak: FileLeak, *, unknown: bool) -> bool:
    """Return whether a leak is deleted when the operator asks for deletion."""
    return leak.removable and (unknown or leak.kind is not LeakKind.UNKNOWN)


def _pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while piece := list(islice(iterator, size)):
        yield piece


OWNERS_PER_STEP: Final = 100
ALL: Final = -1
"""The partition number that means all partitions of a topic."""
GRACE_MS: Final = 60_000
"""How long (ms) a transaction may stay open after its timeout; its coordinator aborts it before."""


class StateKind(StrEnum):
    OFFSET = "committed offset without a topic"
    SHARE_STATE = "share group state without a topic"
    TRANSACTION = "transaction without a topic"


class StateLeak(NamedTuple):
    """A piece of state about a deleted topic. `owner`: a group or transactional id; `topic`: a name or id."""

    kind: StateKind
    owner: str
    topic: str
    partition: int
    share_key: SharePartitionKey | None = None


class StateSweep:
    """One search of the coordinators for state about deleted topics, but for shards that can't be loaded."""

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
        return self._image.partition(key.topic_id, key.partition) is not None

    async def _forget_offsets(self, group_id: str, leaks: list[StateLeak]) -> None:
        places = [(leak.topic, leak.partition) for leak in leaks]
        gone = [place for place in places if not self._exists(*place)]
        await self._groups.run(group_id, lambda shard, effects: shard.commits.forget(group_id, gone, effects))
