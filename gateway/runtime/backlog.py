"""Keeps backlog quotas and message TTL: measures every so often, opens and closes partitions, moves slow groups.

Only topics that have one of these settings are looked at. All others have no gate (`Partition.gate` is None).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from typing import cast

from gateway.config import Config
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.group.skipping import Target, move_forward
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.share.records import SharePartitionKey
from gateway.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from gateway.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from gateway.metadata.topic_names import INTERNAL_TOPICS
from gateway.quota.backlog import (
    BacklogRules,
    Move,
    PartitionView,
    Policy,
    Reader,
    Usage,
    eviction_moves,
    expired_moves,
    measure,
)
from gateway.quota.produce_gate import ProduceGate
from gateway.runtime.clock import Clock
from gateway.runtime.coordinator_shards import Unavailable
from gateway.runtime.group_coordinator import GroupCoordinator
from gateway.runtime.held_requests import HeldRequests
from gateway.runtime.metadata_log import MetadataLog
from gateway.runtime.partition import Partition
from gateway.runtime.partitions import Partitions, TopicPartitions
from gateway.runtime.share_coordinator import ShareCoordinator
from gateway.runtime.skipped_records import SkippedRecords
from log import LogDirectory, LogError, UnifiedLog

logger = logging.getLogger(__name__)

SLICE_S = 0.005
"""Measuring lets requests go first after so long."""
UNKNOWN_END = 2**63 - 1
_OFFSETS_AT_ONCE = 16
"""Offsets committed by one batch; the largest of them fit."""
_SETTINGS = ("backlog.quota.bytes", "backlog.quota.ms", "backlog.quota.policy", "message.ttl.ms")

Readers = dict[TopicPartition, list[Reader]]
Decide = Callable[[PartitionView, Sequence[Reader], BacklogRules, int], list[Move]]


def backlog_rules(config: Config, overrides: dict[str, str] | None = None) -> BacklogRules:
    """The rules of a topic with the given configurations of its own."""
    values = [config.topic_value(name, overrides or {}) for name in _SETTINGS]
    quota_bytes, quota_ms, policy, ttl_ms = values
    return BacklogRules(
        cast("int", quota_bytes), cast("int", quota_ms), Policy(cast("str", policy)), cast("int", ttl_ms)
    )


class _LogView:
    """A log as the rules look at it."""

    def __init__(self, log: UnifiedLog) -> None:
        self._log = log
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = log.log_end_offset
        self.skippable_end_offset = min(log.high_watermark, log.last_stable_offset, log.held_from)
        self.bytes_from = log.bytes_from
        self.newest_timestamp_at = log.newest_timestamp_at
        self.offset_with_bytes_left = log.offset_with_bytes_left

    def expired_until(self, offset: int, before_ms: int) -> int:
        return self._log.expired_until(offset, before_ms, self.skippable_end_offset)


class Backlog:
    """The backlog quotas and TTLs of all topics of this node."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        partitions: Partitions,
        log_directory: LogDirectory,
        metadata_log: MetadataLog,
        groups: GroupCoordinator,
        shares: ShareCoordinator,
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._log_directory = log_directory
        self._metadata_log = metadata_log
        self._groups = groups
        self._shares = shares
        self._rules: dict[str, BacklogRules] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Lock()
        self.skipped = SkippedRecords()
        self.holds = False
        """Whether any topic has producers wait."""
        self.held = HeldRequests(
            max_requests=config.int("seqgate.backlog.hold.max.requests"),
            max_bytes=config.int("seqgate.backlog.hold.max.bytes"),
            max_wait_ms=config.int("seqgate.backlog.hold.max.ms"),
        )

    # Beginning and end.

    def start(self) -> None:
        """Take up the settings of all topics, and measure from now on."""
        self._apply_all()
        self._metadata_log.add_listener(self.metadata_changed)
        self._tasks.add(asyncio.create_task(self._repeat(), name="backlog"))

    async def stop(self) -> None:
        """Measure no more; whoever waits is refused."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.held.end_all()

    async def _repeat(self) -> None:
        interval_s = self._config.int("seqgate.backlog.check.interval.ms") / 1000
        while True:
            await self._look_over_safely()
            await asyncio.sleep(interval_s)

    async def _look_over_safely(self) -> None:
        try:
            await self.look_over()
        except Exception:
            logger.exception("backlogs could not be measured; tried again at the next turn")

    # Settings.

    def rules_of(self, topic: str) -> BacklogRules:
        """The rules of a topic."""
        return self._rules.get(topic) or BacklogRules()

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Take up new settings and new partitions at once."""
        if not any(
            isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord)
            or (
                isinstance(record, ConfigRecord) and record.resource_type in {BROKER_RESOURCE, TOPIC_RESOURCE}
            )
            for record in records
        ):
            return
        before = self._rules
        self._apply_all()
        if before or self._rules:
            # not awaited: it may wait for the disk, and the change need not wait for it
            task = asyncio.create_task(self._look_over_safely())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _apply_all(self) -> None:
        rules = self._all_rules()
        for name in {*self._rules, *rules}:
            topic = self._partitions.by_name.get(name)
            for partition in topic.opened() if topic is not None else ():
                self._apply(partition, rules.get(name))
        self._rules = rules
        self.holds = any(entry.limits_producers and entry.policy is Policy.HOLD for entry in rules.values())

    def _all_rules(self) -> dict[str, BacklogRules]:
        """The topics that have any."""
        image = self._metadata_log.image
        default = backlog_rules(self._config)
        names = self._partitions.by_name if not default.is_empty else image.configured(TOPIC_RESOURCE)
        found = {}
        for name in names:
            own = {key: value for key, value in image.topic_configs(name).items() if key in _SETTINGS}
            rules = backlog_rules(self._config, own) if own else default
            if not rules.is_empty and name not in INTERNAL_TOPICS and name in self._partitions.by_name:
                found[name] = rules
        return found

    def _apply(self, partition: Partition, rules: BacklogRules | None) -> None:
        if rules is None or not rules.limits_producers:
            partition.gate = None
            return
        if partition.gate is None:
            partition.gate = ProduceGate(self._config.int("seqgate.backlog.refused.producers.max"))

    # Measuring.

    async def look_over(self) -> None:
        """Measure every partition that has rules, move whom they say, and let producers go on or not."""
        async with self._passes:
            if self._rules:
                readers = await self.readers(self._rules)
                self.skipped.keep_only(readers)
                for topic, rules in list(self._rules.items()):
                    served = self._partitions.by_name.get(topic)
                    if served is not None:
                        await self._keep(self._worth_a_look(served, readers), rules, readers)
        self.held.look_again()

    def _worth_a_look(self, topic: TopicPartitions, readers: Readers) -> list[Partition]:
        """The partitions that are open; opens those in which a reader is behind."""
        stored = self._log_directory.stored()
        found = []
        for index in range(topic.count):
            partition = topic.peek(index)
            if partition is None:
                log = stored.get((topic.name, index))
                end_offset = UNKNOWN_END if log is None or log.stop is None else log.stop.log_end_offset
                if any(reader.offset < end_offset for reader in readers.get((topic.name, index), ())):
                    partition = topic.get(index)
            if partition is not None:
                found.append(partition)
        return found

    async def _keep(self, partitions: Sequence[Partition], rules: BacklogRules, readers: Readers) -> None:
        if rules.ttl_ms >= 0:
            await self._move(partitions, rules, readers, expired_moves)
        if rules.has_quota and rules.policy is Policy.EVICT:
            await self._move(partitions, rules, readers, eviction_moves)
        await self._each(partitions, lambda partition: self._measure(partition, readers))

    async def _each(self, partitions: Sequence[Partition], work: Callable[[Partition], None]) -> None:
        """Do something for every partition that is served, in slices."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        for partition in partitions:
            if partition.log.offline or partition.closed:
                continue
            try:
                work(partition)
            except LogError as error:
                logger.warning("%s-%d can't be measured: %s", partition.topic, partition.index, error)
            if loop.time() - started_s > SLICE_S:
                await asyncio.sleep(0)
                started_s = loop.time()

    def usage_of(self, partition: Partition, readers: Sequence[Reader]) -> Usage:
        """The backlog of a partition now. Raises LogError."""
        rules = self.rules_of(partition.topic)
        return measure(_LogView(partition.log), readers, rules, self._clock.now_ms())

    def _measure(self, partition: Partition, readers: Readers) -> None:
        rules = self.rules_of(partition.topic)
        usage = self.usage_of(partition, readers.get((partition.topic, partition.index), []))
        self._apply(partition, rules)
        if partition.gate is not None:
            partition.gate.measured(usage, rules)

    async def readers(self, names: Container[str]) -> Readers:
        """Who reads some topics: groups by their committed offsets, share groups by their start."""
        found: Readers = {}
        for shard in self._groups.loaded_shards():
            for group_id in shard.offsets.groups():
                for place, offset, in_transaction in shard.offsets.within(group_id, names):
                    found.setdefault(place, []).append(Reader(group_id, False, offset, in_transaction))
            await asyncio.sleep(0)
        topics = self._partitions.by_id
        for loaded in self._shares.shards:
            for key, state in loaded.shard.partitions.items() if loaded.is_current else ():
                topic = topics.get(key.topic_id)
                if topic is not None and topic.name in names:
                    reader = Reader(key.group_id, True, state.start_offset)
                    found.setdefault((topic.name, key.partition), []).append(reader)
            await asyncio.sleep(0)
        return found

    # Moving.

    async def _move(
        self, partitions: Sequence[Partition], rules: BacklogRules, readers: Readers, decide: Decide
    ) -> None:
        """Move those whom `decide` names, durably, and have `readers` tell where they are."""
        moves: list[tuple[Partition, Move]] = []

        def look(partition: Partition) -> None:
            found = readers.get((partition.topic, partition.index))
            if found:
                now_ms = self._clock.now_ms()
                decided = decide(_LogView(partition.log), found, rules, now_ms)
                moves.extend((partition, move) for move in decided)

        await self._each(partitions, look)
        groups: dict[str, list[tuple[Partition, Move]]] = {}
        shares = []
        for partition, move in moves:
            if move.reader.is_share:
                shares.append(self._move_share_group(partition, move, readers))
            else:
                groups.setdefault(move.reader.group, []).append((partition, move))
        await asyncio.gather(
            *shares, *(self._move_group(group, entries, readers) for group, entries in groups.items())
        )

    async def _move_group(
        self, group_id: str, moves: Sequence[tuple[Partition, Move]], readers: Readers
    ) -> None:
        for start in range(0, len(moves), _OFFSETS_AT_ONCE):
            some = moves[start : start + _OFFSETS_AT_ONCE]
            targets = [
                Target(
                    (partition.topic, partition.index),
                    move.to_offset,
                    partition.log.leader_epoch_at(move.to_offset - 1),
                )
                for partition, move in some
            ]

            def operation(
                shard: GroupShard, effects: Effects, targets: list[Target] = targets
            ) -> dict[TopicPartition, int]:
                return move_forward(shard, group_id, targets, effects)

            try:
                before = await self._groups.change(group_id, operation)
            except Unavailable as error:
                logger.warning("group %s can't be moved forward now: %s", group_id, error)
                return
            for partition, move in some:
                offset = before.get((partition.topic, partition.index))
                if offset is not None:
                    first = max(offset, move.from_offset)
                    self._moved(partition, move, move.to_offset - first, readers)

    async def _move_share_group(self, partition: Partition, move: Move, readers: Readers) -> None:
        key = SharePartitionKey(move.reader.group, partition.topic_id, partition.index)
        try:
            skipped = await self._shares.skip_to(key, move.to_offset)
        except Unavailable as error:
            logger.warning("share group %s can't be moved forward now: %s", move.reader.group, error)
            return
        self._moved(partition, move, skipped, readers)

    def _moved(self, partition: Partition, move: Move, records: int, readers: Readers) -> None:
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
