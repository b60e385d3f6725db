"""Enforces backlog quotas and message TTL: measures at intervals, opens and closes gates, holds requests back
and moves slow groups forward.

It measures only partitions that a group reads, in topics with one of these settings. All other partitions
have no gate (`Partition.gate` is None), and are not opened for a measurement. A partition keeps its gate and
its groups their offsets while a measurement needs blocks that only a bucket has: these are fetched in the
background, and a later measurement finds them.

Groups that other gateways coordinate count, too: the leader of a partition asks every other gateway for its
groups (ListGroups), for their offsets (OffsetFetch), and for the start offsets of its share groups
(DescribeShareGroupOffsets), at each measurement. The last answer of a gateway that does not answer counts for
KEPT_MS: its offsets can only be too low, so producers wait rather too long than too short. After that its
groups are unknown, and nobody waits for them: writing must not stop because a coordinator is silent.

Held requests (`HeldRequests`) continue in order of arrival, and are limited in number, bytes and time. A
connection has at most one, because its later requests begin only after that one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from seqgate.gateway.config import Config
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.metadata.image import BROKER_RESOURCE, INTERNAL_TOPICS, TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.messages import build, build_request, request_module
from seqgate.gateway.quota.backlog import (
    BacklogRules,
    GroupReader,
    OffsetMove,
    PartitionView,
    Policy,
    ProduceGate,
    Usage,
    eviction_moves,
    expired_moves,
    measure,
)
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator, SkippedRecords
from seqgate.gateway.runtime.coordinators.group_moves import GroupMoves, Readers
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from seqgate.gateway.runtime.loop.clock import Clock, Interval
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions, for_each_partition
from seqgate.gateway.runtime.topics.brokers import Brokers
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.tasks import end_tasks, start_task
from seqgate.log import LogDirectory, LogError, NotCached, PartitionLog
from seqgate.log.sparse import without_fetching

logger = logging.getLogger(__name__)

UNKNOWN_END = 2**63 - 1
PURPOSE = "measuring the backlog"

Decide = Callable[[PartitionView, Sequence[GroupReader], BacklogRules, int], list[OffsetMove]]


class _LogView:
    """A log as the backlog rules see it."""

    def __init__(self, log: PartitionLog) -> None:
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
        memory: RequestMemory,
        cold_reads: ColdReads,
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
        self._cold_reads = cold_reads
        self._fetching: set[Partition] = set()
        """The partitions for whose next measurement blocks are fetched."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Lock()
        self._is_due = asyncio.Event()
        """Set when partitions must be measured before the interval is over."""
        partitions.when_ready.append(lambda _topic, _index: self.measure_soon())
        self.holds = False
        """Whether producers wait while the gate of some partition is closed."""
        self.held = HeldRequests(memory)
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
        self._rules.load()
        self._metadata_log.add_listener(self.metadata_changed)

    def run(self) -> None:
        start_task(self._tasks, self._repeat(), "backlog")
        start_task(self._tasks, self._measure_when_due(), "backlog of partitions that came")

    async def stop(self) -> None:
        """Stop measuring, and refuse the requests that wait."""
        await end_tasks(*self._tasks)
        self._tasks.clear()
        self.held.end_all()

    async def _repeat(self) -> None:
        interval = Interval(self._config, "seqgate.backlog.check.interval.ms")
        while True:
            await interval.passed()
            await self.measure_all_safely()

    def measure_soon(self) -> None:
        """Measure at once, in the background: this gateway begins to lead partitions, or to know groups."""
        self._is_due.set()

    async def _measure_when_due(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
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
        return self._rules.of(topic)

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Apply new settings at once: a partition without a limit is open before the change is answered."""
        if not self._rules.changed(records):
            return
        for partition in list(self._gated):
            self._fit_gate(partition)
        self._note_gates()
        # Do not await the measurement: it may wait for the disk, and the change of settings need not wait.
        start_task(self._tasks, self.measure_all_safely(), "backlog of new settings")

    def _fit_gate(self, partition: Partition) -> ProduceGate | None:
        """Add or remove the gate of a partition by its topic's rules; return the gate, if there is one."""
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
        """Measure all partitions with rules, move the readers that rules move, and open or close gates."""
        async with self._passes:
            if self._rules or self._gated:
                await self._measure_all()
        self.held.check_again()

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
        await self._each(found, readers, self._measure)
        self._note_gates()

    async def _each(
        self,
        partitions: Iterable[Partition],
        readers: Readers,
        work: Callable[[Partition, Sequence[GroupReader]], None],
    ) -> None:
        """Call `work` for each partition and its readers. `work` must change nothing before its last read:
        where it lacks blocks that only a bucket has, it is given up until they were fetched.
        """

        def without_bucket(partition: Partition) -> None:
            found = readers.get((partition.topic, partition.index), ())
            try:
                with without_fetching(self._cold_reads.storage):
                    work(partition, found)
            except NotCached:
                if partition not in self._fetching:
                    self._fetching.add(partition)
                    start_task(self._tasks, self._fetch(partition, found), f"blocks for {PURPOSE}")

        await for_each_partition(partitions, without_bucket, PURPOSE)

    async def _fetch(self, partition: Partition, readers: Sequence[GroupReader]) -> None:
        """Fetch all blocks that a measurement of the partition reads now."""

        def read() -> None:
            rules, now_ms = self._rules.of(partition.topic), self._clock.now_ms()
            for decide in (expired_moves, eviction_moves, measure):
                if not partition.closed:
                    decide(_LogView(partition.log), readers, rules, now_ms)

        try:
            await self._cold_reads.fetched(read)
        except LogError as error:
            logger.warning("%s of %s-%d: %s", PURPOSE, partition.topic, partition.index, error)
        finally:
            self._fetching.discard(partition)

    def _partition_to_measure(
        self, place: TopicPartition, readers: Iterable[GroupReader]
    ) -> Partition | None:
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

    def usage_of(self, partition: Partition, readers: Sequence[GroupReader]) -> Usage:
        """Measure the backlog of a partition now. Raises LogError, NotCached (`without_fetching`)."""
        rules = self._rules.of(partition.topic)
        return measure(_LogView(partition.log), readers, rules, self._clock.now_ms())

    def _measure(self, partition: Partition, readers: Sequence[GroupReader]) -> None:
        gate = self._fit_gate(partition)
        if gate is not None:
            gate.update(self.usage_of(partition, readers), self._rules.of(partition.topic))

    async def _move(self, partitions: Sequence[Partition], readers: Readers, decide: Decide) -> None:
        """Move the readers that `decide` moves, durably, and note their new offsets in `readers`."""
        moves: list[tuple[Partition, OffsetMove]] = []

        def decide_one(partition: Partition, found: Sequence[GroupReader]) -> None:
            if found:
                rules = self._rules.of(partition.topic)
                decided = decide(_LogView(partition.log), found, rules, self._clock.now_ms())
                moves.extend((partition, move) for move in decided)

        await self._each(partitions, readers, decide_one)
        if moves:
            await self._moves.carry_out(moves, readers)

    async def readers(self, names: Container[str]) -> Readers:
        """Return the readers of these topics: groups at their committed offset, share groups at their start
        offset. Readers whose coordinator is another gateway count where this gateway leads the partition.
        """
        found: Readers = {}
        for shard in self._groups.loaded_shards():
            async for group_id in in_slices(shard.offsets.groups()):
                for place, offset, in_transaction in shard.offsets.within(group_id, names):
                    found.setdefault(place, []).append(GroupReader(group_id, False, offset, in_transaction))
        topics = self._partitions.by_id
        for loaded in self._shares.shards:
            states = list(loaded.shard.partitions.items()) if loaded.is_current else []
            async for key, state in in_slices(states):
                topic = topics.get(key.topic_id)
                if topic is not None and topic.name in names:
                    reader = GroupReader(key.group_id, True, state.start_offset)
                    found.setdefault((topic.name, key.partition), []).append(reader)
        await self._remote.add_to(found, names)
        return found


SETTINGS: Final = ("backlog.quota.bytes", "backlog.quota.ms", "backlog.quota.policy", "message.ttl.ms")
NO_RULES: Final = BacklogRules()


def backlog_rules(config: Config, overrides: Mapping[str, str]) -> BacklogRules:
    quota_bytes, quota_ms, policy, ttl_ms = (config.topic_value(name, overrides) for name in SETTINGS)
    return BacklogRules(
        cast("int", quota_bytes), cast("int", quota_ms), Policy(cast("str", policy)), cast("int", ttl_ms)
    )


class TopicRules:
    """The rules by topic: a topic is `in` here if its rules are not empty. Internal topics have none."""

    def __init__(self, config: Config, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._default = NO_RULES
        self._own: dict[str, BacklogRules] = {}
        """The rules of topics with settings of their own."""

    def load(self) -> None:
        self._default = backlog_rules(self._config, {})
        self._own.clear()
        for name in self._image.configured(TOPIC_RESOURCE):
            self._load_topic(name)

    def changed(self, records: Sequence[MetadataRecord]) -> bool:
        """Apply the records of one change; return whether any rules may have changed."""
        if any(isinstance(record, RemoveTopicRecord) for record in records):
            topics = self._image.topics_by_name
            self._own = {name: rules for name, rules in self._own.items() if name in topics}
        configs = [record for record in records if isinstance(record, ConfigRecord)]
        if any(record.resource_type == BROKER_RESOURCE for record in configs):
            before = self._default, dict(self._own)
            self.load()
            return before != (self._default, self._own)
        altered = [
            record.resource_name
            for record in configs
            if record.resource_type == TOPIC_RESOURCE and record.name in SETTINGS
        ]
        for name in dict.fromkeys(altered):
            self._load_topic(name)
        return bool(altered)

    def _load_topic(self, name: str) -> None:
        overrides = self._image.topic_configs(name)
        if any(setting in overrides for setting in SETTINGS):
            self._own[name] = backlog_rules(self._config, overrides)
        else:
            self._own.pop(name, None)

    def of(self, name: str) -> BacklogRules:
        return NO_RULES if name in INTERNAL_TOPICS else self._own.get(name, self._default)

    def names(self) -> Container[str]:
        """Return the topics that have rules: a set if possible, because each offset is looked up in it."""
        if not self._default.is_empty:
            return self
        return {name for name, rules in self._own.items() if not rules.is_empty} - INTERNAL_TOPICS

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and not self.of(name).is_empty

    def __bool__(self) -> bool:
        """Return whether any topic can have rules."""
        return bool(self._own) or not self._default.is_empty


FoundReaders = dict[TopicPartition, list[GroupReader]]

KEPT_MS: Final = 60_000
"""Time (ms) for which the last answer of a silent gateway counts."""
ASK_FOR_S: Final = 3.0
"""Time that one gateway has for all its answers in one measurement; after it the gateway counts as silent."""
GROUPS_PER_REQUEST: Final = 100
"""Groups in one request for offsets; the rest go with the next one."""
ITEMS_PER_REQUEST: Final = 20_000
"""Topics and partitions that one request for offsets names, if it has several groups. The other gateway
refuses a request with more than MAX_ITEMS, and the answer has as many rows, which are decoded in one turn.
"""
MOST_PARTITIONS: Final = 10_000
"""Partitions about which other gateways are asked; further ones are measured without their groups."""
_LIST_GROUPS, _OFFSET_FETCH, _SHARE_OFFSETS = 16, 9, 90
_LIST_VERSION, _FETCH_VERSION, _SHARE_VERSION = 5, 9, 1


class _Answer(NamedTuple):
    """The readers that a gateway told, and when (ms)."""

    at_ms: int
    found: FoundReaders


class RemoteReaders:
    """Asks the other gateways. Where this gateway is alone, it asks nobody."""

    def __init__(self, clock: Clock, partitions: Partitions, brokers: Brokers, peers: AsksPeers) -> None:
        self._clock = clock
        self._partitions = partitions
        self._brokers = brokers
        self._peers = peers
        self._answers: dict[int, _Answer] = {}

    async def add_to(self, found: FoundReaders, names: Container[str]) -> None:
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
            if node_id in others
            and abs(now_ms - answer.at_ms) <= KEPT_MS  # negative after the clock was set back
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

    async def _ask(self, node_id: int, places: Mapping[str, list[int]]) -> FoundReaders:
        """Return the readers that a gateway knows. Raises PeerUnavailable."""
        listed = await self._peers.ask(
            node_id,
            build_request(_LIST_GROUPS, _LIST_VERSION, states_filter=(), types_filter=()),
            timeout_s=ASK_FOR_S,
        )
        if int(listed.error_code):
            raise PeerUnavailable(f"its groups can't be listed: error {int(listed.error_code)}")
        found: FoundReaders = {}
        of_each = sum(1 + len(indexes) for indexes in places.values())
        at_once = max(1, min(GROUPS_PER_REQUEST, ITEMS_PER_REQUEST // of_each))
        for is_share, request in ((False, _offsets_request), (True, _share_request)):
            groups = [
                row.group_id for row in listed.groups if (row.group_type.lower() == "share") is is_share
            ]
            for start in range(0, len(groups), at_once):
                some = groups[start : start + at_once]
                answer = await self._peers.ask(node_id, request(some, places), timeout_s=ASK_FOR_S)
                _add_offsets(found, answer, is_share=is_share)
        return found


def _each_once(readers: Sequence[GroupReader]) -> list[GroupReader]:
    """Return the readers without those that two gateways know, such as the coordinator of a share group and
    the gateway that stores its state. The lower offset counts.
    """
    by_group: dict[tuple[str, bool], GroupReader] = {}
    for reader in readers:
        known = by_group.get((reader.group, reader.is_share), reader)
        by_group[reader.group, reader.is_share] = min(reader, known)
    return list(by_group.values())


def _offsets_request(groups: Iterable[str], places: Mapping[str, list[int]]) -> Any:
    topic_type = request_module(_OFFSET_FETCH, _FETCH_VERSION).OffsetFetchRequestTopics
    # built once for all groups
    topics = tuple(
        build(topic_type, name=name, partition_indexes=tuple(indexes)) for name, indexes in places.items()
    )
    asked = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics} for group in groups]
    return build_request(_OFFSET_FETCH, _FETCH_VERSION, groups=asked, require_stable=False)


def _share_request(groups: Iterable[str], places: Mapping[str, list[int]]) -> Any:
    topic_type = request_module(_SHARE_OFFSETS, _SHARE_VERSION).DescribeShareGroupOffsetsRequestTopic
    topics = tuple(
        build(topic_type, topic_name=name, partitions=tuple(indexes)) for name, indexes in places.items()
    )
    asked = [{"group_id": group, "topics": topics} for group in groups]
    return build_request(_SHARE_OFFSETS, _SHARE_VERSION, groups=asked)


def _add_offsets(found: FoundReaders, answer: Any, *, is_share: bool) -> None:
    """Add the readers of an answer to OffsetFetch, or of share groups, to DescribeShareGroupOffsets."""
    for group in answer.groups:
        for topic in () if int(group.error_code) else group.topics:
            name = topic.topic_name if is_share else topic.name
            for row in topic.partitions:
                offset = row.start_offset if is_share else row.committed_offset
                if not int(row.error_code) and offset >= 0:
                    reader = GroupReader(group.group_id, is_share, offset)
                    found.setdefault((name, row.partition_index), []).append(reader)


SHARE_OF_TIMEOUT: Final = 0.9
"""The share of a client's timeout for which its request is held; the client hangs up at its timeout."""
IMPATIENT_S: Final = 0.05
"""Time (s) after a held request was refused, for which its connection's next requests are not held."""


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A held request: `may_go` returns whether it can be carried out; `go` does so, also after its time."""

    sender: object
    size_bytes: int
    may_go: Callable[[], bool]
    go: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


class HeldRequests:
    """The held requests. They share the memory in `room` with the requests of all connections. The limits may
    be set at any time. Before that, no request is held.
    """

    def __init__(self, room: RequestMemory) -> None:
        self.room = room
        self.max_requests = 0
        self.max_bytes = 0
        self.max_wait_ms = 0
        self._held: dict[HeldRequest, None] = {}
        self._impatient: dict[object, float] = {}
        self.held_bytes = 0
        self.timed_out = 0
        """The number of requests whose time ran out, since the start."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self,
        sender: object,
        size_bytes: int,
        timeout_ms: int,
        may_go: Callable[[], bool],
        go: Callable[[], None],
    ) -> HeldRequest | None:
        """Hold a request. Return None if it can't be held and must be carried out now."""
        loop = asyncio.get_running_loop()
        wait_s = min(timeout_ms * SHARE_OF_TIMEOUT, self.max_wait_ms) / 1000
        if wait_s <= 0 or self._impatient.get(sender, 0.0) > loop.time():
            return None
        if len(self._held) >= self.max_requests or self.held_bytes + size_bytes > self.max_bytes:
            return None
        if not self.room.try_acquire(size_bytes):
            return None
        held = HeldRequest(sender, size_bytes, may_go, go)
        held.timer = loop.call_later(wait_s, self._time_is_over, held)
        self._held[held] = None
        self.held_bytes += size_bytes
        return held

    def check_again(self) -> None:
        """Carry out the requests that no longer need to wait."""
        if self._impatient:
            now_s = asyncio.get_running_loop().time()
            self._impatient = {sender: until for sender, until in self._impatient.items() if until > now_s}
        for held in list(self._held):
            if held in self._held and held.may_go():
                self._carry_out(held)

    def end_all(self) -> None:
        """Carry out all requests as if their time had run out."""
        for held in list(self._held):
            self._time_is_over(held)

    def drop(self, held: HeldRequest) -> None:
        """Drop a request whose client is gone; it is never carried out."""
        if held in self._held:
            del self._held[held]
            self._give_back(held)

    def _time_is_over(self, held: HeldRequest) -> None:
        if held in self._held:
            self.timed_out += 1
            self._impatient[held.sender] = asyncio.get_running_loop().time() + IMPATIENT_S
            self._carry_out(held)

    def _carry_out(self, held: HeldRequest) -> None:
        del self._held[held]
        try:
            held.go()
        finally:
            self._give_back(held)

    def _give_back(self, held: HeldRequest) -> None:
        if held.timer is not None:
            held.timer.cancel()
        self.held_bytes -= held.size_bytes
        self.room.release(held.size_bytes)
