"""Enforces backlog quotas and message TTL: measures at intervals, opens and closes gates, moves slow groups forward.

It measures only partitions that a group reads, in topics with one of these settings. All other partitions have no
gate (`Partition.gate` is None), and are not opened for a measurement.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial

from gateway.config import Config
from gateway.coordinator.places import TopicPartition
from gateway.metadata.records import MetadataRecord
from gateway.peer.asking import AsksPeers
from gateway.quota.backlog import (
    BacklogRules,
    Move,
    PartitionView,
    ProduceGate,
    Reader,
    Usage,
    eviction_moves,
    expired_moves,
    measure,
)
from gateway.runtime.backlogs.backlog_rules import TopicRules
from gateway.runtime.backlogs.remote_readers import RemoteReaders
from gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from gateway.runtime.coordinators.group_moves import GroupMoves, Readers
from gateway.runtime.coordinators.held_requests import HeldRequests
from gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from gateway.runtime.coordinators.skipped_records import SkippedRecords
from gateway.runtime.loop.clock import Clock
from gateway.runtime.loop.interval import Interval
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions, for_each_partition
from gateway.runtime.topics.brokers import Brokers
from gateway.runtime.topics.metadata_log import MetadataLog
from log import LogDirectory, PartitionLog, measures

logger = logging.getLogger(__name__)

UNKNOWN_END = 2**63 - 1
PURPOSE = "measuring the backlog"

Decide = Callable[[PartitionView, Sequence[Reader], BacklogRules, int], list[Move]]


class _LogView:
    """A log as the backlog rules see it."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = log.log_end_offset
        self.skippable_end_offset = min(log.high_watermark, log.last_stable_offset, log.held_from)
        self.bytes_from = partial(measures.bytes_from, log)
        self.newest_timestamp_at = partial(measures.newest_timestamp_at, log)
        self.offset_with_bytes_left = partial(measures.offset_with_bytes_left, log)

    def expired_until(self, offset: int, before_ms: int) -> int:
        return measures.expired_until(self._log, offset, before_ms, self.skippable_end_offset)


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
        brokers: Brokers,
        peers: AsksPeers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._log_directory = log_directory
        self._metadata_log = metadata_log
        self._groups = groups
        self._shares = shares
        self._rules = TopicRules(config, metadata_log.image)
        self._moves = GroupMoves(groups, shares, peers)
        self._remote = RemoteReaders(clock, partitions, brokers, peers)
        self._gated: dict[Partition, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Lock()
        self.holds = False
        """Whether producers wait while the gate of some partition is closed."""
        self.held = HeldRequests()
        config.follow(self._apply_limits)

    @property
    def skipped(self) -> SkippedRecords:
        """The counts of skipped records by group."""
        return self._moves.skipped

    def _apply_limits(self) -> None:
        config = self._config
        self.held.max_requests = config.int("seqgate.backlog.hold.max.requests")
        self.held.max_bytes = config.int("seqgate.backlog.hold.max.bytes")
        self.held.max_wait_ms = config.int("seqgate.backlog.hold.max.ms")

    # --- beginning and end

    def start(self) -> None:
        """Load the settings of all topics, and follow them from now on."""
        self._rules.load()
        self._metadata_log.add_listener(self.metadata_changed)

    def run(self) -> None:
        """Start measuring at intervals."""
        self._tasks.add(asyncio.create_task(self._repeat(), name="backlog"))

    async def stop(self) -> None:
        """Stop measuring, and refuse the requests that wait."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.held.end_all()

    async def _repeat(self) -> None:
        interval = Interval(self._config, "seqgate.backlog.check.interval.ms")
        while True:
            await interval.passed()
            await self.measure_all_safely()

    async def measure_all_safely(self) -> None:
        """Run `measure_all`, and log an error instead of raising it."""
        try:
            await self.measure_all()
        except Exception:
            logger.exception(
                "backlogs could not be measured; the next measurement follows after its interval"
            )

    # --- settings

    def rules_of(self, topic: str) -> BacklogRules:
        """Return the rules of a topic."""
        return self._rules.of(topic)

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Apply new settings at once: a partition without a limit is open before the change is answered."""
        if not self._rules.changed(records):
            return
        for partition in list(self._gated):
            self._fit_gate(partition)
        self._note_gates()
        # Do not await the measurement: it may wait for the disk, and the change of settings need not wait.
        task = asyncio.create_task(self.measure_all_safely())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fit_gate(self, partition: Partition) -> ProduceGate | None:
        """Add or remove the gate of a partition according to its topic's rules; return the gate, if there is one."""
        if partition.closed or not self._rules.of(partition.topic).limits_producers:
            partition.gate = None
            self._gated.pop(partition, None)
        elif partition.gate is None:
            partition.gate = ProduceGate()
            self._gated[partition] = None
        return partition.gate

    def _note_gates(self) -> None:
        self.holds = any(partition.gate is not None and partition.gate.holds for partition in self._gated)

    # --- measuring

    async def measure_all(self) -> None:
        """Measure every partition that has rules, move the readers that the rules move, and open or close the gates."""
        async with self._passes:
            if self._rules or self._gated:
                await self._measure_all()
        self.held.look_again()

    async def _measure_all(self) -> None:
        readers = await self.readers(self._rules.names())
        self.skipped.keep_only(readers)
        self._gated = {partition: None for partition in self._gated if not partition.closed}
        gated = {(partition.topic, partition.index) for partition in self._gated}
        found = []
        async for place in in_slices(sorted(gated.union(readers))):
            partition = self._partition_to_measure(place, readers.get(place, ()))
            if partition is not None:
                found.append(partition)
        await self._move(found, readers, expired_moves)
        await self._move(found, readers, eviction_moves)
        await for_each_partition(found, lambda partition: self._measure(partition, readers), PURPOSE)
        self._note_gates()

    def _partition_to_measure(self, place: TopicPartition, readers: Iterable[Reader]) -> Partition | None:
        """Return the partition if it is open; open it when a reader is behind."""
        topic = self._partitions.by_name.get(place[0])
        if topic is None:
            return None
        partition = topic.peek(place[1])
        if partition is not None:
            return partition
        stored = self._log_directory.stored().get(place)
        stop = None if stored is None else stored.stop
        end_offset = UNKNOWN_END if stop is None else stop.log_end_offset
        return topic.get(place[1]) if any(reader.offset < end_offset for reader in readers) else None

    def usage_of(self, partition: Partition, readers: Sequence[Reader]) -> Usage:
        """Measure the backlog of a partition now. Raises LogError."""
        rules = self._rules.of(partition.topic)
        return measure(_LogView(partition.log), readers, rules, self._clock.now_ms())

    def _measure(self, partition: Partition, readers: Readers) -> None:
        gate = self._fit_gate(partition)
        if gate is not None:
            usage = self.usage_of(partition, readers.get((partition.topic, partition.index), []))
            gate.update(usage, self._rules.of(partition.topic))

    async def _move(self, partitions: Sequence[Partition], readers: Readers, decide: Decide) -> None:
        """Move the readers that `decide` moves, durably, and note their new offsets in `readers`."""
        moves: list[tuple[Partition, Move]] = []

        def decide_one(partition: Partition) -> None:
            found = readers.get((partition.topic, partition.index))
            if found:
                rules = self._rules.of(partition.topic)
                decided = decide(_LogView(partition.log), found, rules, self._clock.now_ms())
                moves.extend((partition, move) for move in decided)

        await for_each_partition(partitions, decide_one, PURPOSE)
        if moves:
            await self._moves.carry_out(moves, readers)

    async def readers(self, names: Container[str]) -> Readers:
        """Return the readers of these topics: groups at their committed offset, share groups at their start offset.

        Readers whose coordinator is another gateway count where this gateway leads the partition.
        """
        found: Readers = {}
        for shard in self._groups.loaded_shards():
            async for group_id in in_slices(shard.offsets.groups()):
                for place, offset, in_transaction in shard.offsets.within(group_id, names):
                    found.setdefault(place, []).append(Reader(group_id, False, offset, in_transaction))
        topics = self._partitions.by_id
        for loaded in self._shares.shards:
            states = list(loaded.shard.partitions.items()) if loaded.is_current else []
            async for key, state in in_slices(states):
                topic = topics.get(key.topic_id)
                if topic is not None and topic.name in names:
                    reader = Reader(key.group_id, True, state.start_offset)
                    found.setdefault((topic.name, key.partition), []).append(reader)
        await self._remote.add_to(found, names)
        return found
