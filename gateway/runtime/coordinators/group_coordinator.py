"""The group coordinator of this node: the shard that a group lives in, timers of groups, and the operations
on them.

Offset commits are judged by their APIs, and folded in by replaying their records. A member's request changes
the group while it is judged, because later steps of a heartbeat need earlier ones (see
docs/contributing/decisions/groups.md). Source: Kafka's `GroupCoordinatorService`, `CoordinatorRuntime`.

`log_events` logs the events of groups and their members. Each kind of line has its own place in the code, so
that the limit of log lines holds for each kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change, TransactionEnd
from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits, Join
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import (
    Effects,
    Emptied,
    EpochRaised,
    Event,
    JoinReply,
    MemberJoined,
    MemberLeft,
    MemberRemoved,
    MemberReplaced,
    RebalanceBegan,
    Reply,
    Stabilized,
    SyncReply,
    Who,
)
from seqgate.gateway.coordinator.group.offsets import NAME_GROUP_PREFIX, Committer
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from seqgate.gateway.quota.backlog import GroupReader, Limit, OffsetMove
from seqgate.gateway.runtime.coordinators.group_configs import GroupConfigs
from seqgate.gateway.runtime.coordinators.shards import (
    CoordinatorShards,
    LoadedShard,
    ShardOperation,
    StateParts,
    Unavailable,
    error_code_of,
    settle,
)
from seqgate.gateway.runtime.loop.clock import Deadlines
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.runtime.topics.topic_lifecycle import RegisteredTopics

logger = logging.getLogger(__name__)


T = TypeVar("T")


class GroupCoordinator:
    def __init__(self, parts: StateParts, metadata_log: MetadataLog, group_configs: GroupConfigs) -> None:
        self._config = config = parts.config
        self._clock = parts.clock
        self._partitions = parts.partitions
        self._metadata_log = metadata_log
        self._group_configs = group_configs
        self.when_sharer_gone: list[Callable[[str, str], None]] = []
        """Called with the group and member id of each share group member that was removed."""
        self._deadlines = Deadlines(parts.clock, self._expire)
        self._cleaning: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._limits = GroupLimits(
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            max_size=config.int("group.max.size"),
            min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        )
        self.largest_offset_bytes = 3 * config.int("offset.metadata.max.bytes") + (1 << 15) + (1 << 10)
        """The size of the largest record of an offset: group id and topic name have the greatest length, with
        three bytes per character.
        """
        self._topics = RegisteredTopics(parts.partitions)
        self.shards = CoordinatorShards(
            OFFSETS_TOPIC,
            "offsets.topic",
            group_records,
            self._fresh_shard,
            parts,
            on_load=self._begin,
            on_lost=self._refuse_waiters,
        )

    def _take_limits(self) -> None:
        for loaded in self.shards:
            self._limit(loaded.shard)

    def _limit(self, shard: GroupShard) -> None:
        shard.max_groups = self._config.int("seqgate.group.max")
        shard.max_offsets = self._config.int("seqgate.group.offsets.max")
        shard.member_bytes.limit_bytes = self._config.int("seqgate.group.members.max.bytes")

    def _fresh_shard(self) -> GroupShard:
        of = self._group_configs.of
        shard = GroupShard(
            self._limits,
            0,
            lambda group_id: of(group_id).consumer,
            self._topics,
            lambda group_id: of(group_id).share_group,
            lambda group_id: of(group_id).streams,
        )
        self._limit(shard)
        return shard

    # --- beginning and end

    def start(self) -> None:
        """Load the stored groups and offsets. Raises IncompatibleFormat."""
        self._loop = asyncio.get_running_loop()
        self._config.follow(self._take_limits)
        self.shards.load_at_start()
        self._metadata_log.add_listener(self.metadata_changed)
        self._clean_later()

    def stop(self) -> None:
        """Refuse all waiting requests, so that their clients look the coordinator up again."""
        if self._cleaning is not None:
            self._cleaning.cancel()
        self._deadlines.stop()
        self.shards.stop()

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` when a client first looks for a group. Raises Unavailable."""
        await self.shards.ensure_topic()

    def _begin(self, loaded: LoadedShard[GroupShard]) -> None:
        effects = Effects(self._clock.now_ms())  # No request waits yet, so none must be answered.
        loaded.shard.loaded(effects)
        log_events(effects.events)
        for group_id in loaded.shard.group_ids():
            self._set_deadline(loaded, group_id)
        # Topics may be gone since the shard was loaded last: deleted amid a stop, or while nobody had it.
        self._forget_deleted_topics(loaded)

    def _forget_deleted_topics(self, loaded: LoadedShard[GroupShard]) -> None:
        """Forget them in the shard's next round: commits that wait for it were judged before the deletion."""
        if not loaded.is_current:
            return  # the next clean-up looks again, once the log is back

        def judge(shard: GroupShard, effects: Effects) -> None:
            shard.forget_gone_topics(effects)

        self.shards.ask(loaded, self._with_effects(loaded, None, judge), _noted)

    def _refuse_waiters(self, loaded: LoadedShard[GroupShard]) -> None:
        """Answer all waiting requests with NOT_COORDINATOR."""
        for waiter in loaded.shard.waiters():
            settle(waiter, None, Unavailable(ErrorCode.not_coordinator))

    # --- groups

    def loaded(self, group_id: str) -> LoadedShard[GroupShard]:
        """Return the shard that holds a group. Raises Unavailable, also for an id of a producer name."""
        if group_id.startswith(NAME_GROUP_PREFIX):
            raise Unavailable(ErrorCode.invalid_group_id)
        return self.shards.of(group_id)

    def loaded_shards(self) -> list[GroupShard]:
        """Return all shards that hold records, to list groups; one that can't be loaded (`shards.is_loading`)
        is left out.
        """
        self.shards.load_stored()
        return [loaded.shard for loaded in self.shards if loaded.is_current]

    def find(self, group_id: str) -> ClassicGroup | None:
        """Return a group as it is now. Raises Unavailable."""
        return self.loaded(group_id).shard.groups.get(group_id)

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the shard that holds a group, as it is now. Raises Unavailable."""
        return self.loaded(group_id).shard

    # --- operations

    async def join(self, group_id: str, request: Join) -> JoinReply:
        """Carry out JoinGroup. Raises Unavailable."""
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        await self.run(
            group_id, lambda shard, effects: shard.classic.join(group_id, request, waiter, effects)
        )
        reply = await waiter
        assert isinstance(reply, JoinReply)
        return reply

    async def sync(
        self, member: Committer, protocol: tuple[str | None, str | None], assignments: dict[str, bytes]
    ) -> SyncReply:
        """Carry out SyncGroup. Raises Unavailable."""
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        await self.run(
            member.group_id,
            lambda shard, effects: shard.classic.sync(member, protocol, assignments, waiter, effects),
        )
        reply = await waiter
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, member: Committer) -> ErrorCode:
        """Carry out Heartbeat at once: a heartbeat changes nothing that is stored. Raises Unavailable."""
        loaded = self.loaded(member.group_id)
        error = loaded.shard.classic.heartbeat(member, self._clock.now_ms())
        if error is ErrorCode.rebalance_in_progress:
            self._set_deadline(loaded, member.group_id)
        return error

    async def leave(
        self, group_id: str, leaving: Sequence[tuple[str, str | None]], reason: str | None = None
    ) -> ErrorCode | list[ErrorCode]:
        """Carry out LeaveGroup. Raises Unavailable."""
        return await self.run(
            group_id, lambda shard, effects: shard.classic.leave(group_id, leaving, effects, reason)
        )

    def transaction_ended(self, partition: Partition, producer: tuple[int, int], is_commit: bool) -> None:
        """Replay an appended marker: the pending offsets of its producer count from now on, or vanish."""
        if partition.topic == OFFSETS_TOPIC:
            self.shards.follow(partition.index, TransactionEnd(producer[0], is_commit))

    async def read_durable(self, group_id: str, look: Callable[[GroupShard], T]) -> T:
        """Return the result of `look` in the shard of a group, once all state that it may have read is
        durable. Raises Unavailable.
        """
        return await self.shards.run(self.loaded(group_id), lambda shard, _: Change(look(shard)))

    async def durable_shard(self, group_id: str) -> GroupShard:
        """Return the shard of a group, durable until the caller's next await. Raises Unavailable."""
        return await self.read_durable(group_id, lambda shard: shard)

    async def run(self, group_id: str, operation: Callable[[GroupShard, Effects], T]) -> T:
        """Carry out an operation; return its durable answer. Raises Unavailable, errors of `operation`."""
        loaded = self.loaded(group_id)
        return await self.shards.run(loaded, self._with_effects(loaded, group_id, operation))

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Make groups check their topics again, and forget the offsets of deleted topics."""
        if any(map(_changes_topics, records)):
            for loaded in self.shards:
                loaded.shard.topics_changed()
        if not any(isinstance(record, RemoveTopicRecord) for record in records):
            return
        for loaded in self.shards:
            if loaded.is_current:
                self._tidy(loaded, lambda shard, effects: shard.forget_gone_topics(effects))
            await asyncio.sleep(0)  # the shards together may have a million offsets; let requests run

    def _with_effects(
        self,
        loaded: LoadedShard[GroupShard],
        group_id: str | None,
        operation: Callable[[GroupShard, Effects], T],
    ) -> ShardOperation[GroupShard, T]:
        """Return an operation on a group that folds in its changes, sets the group's timer, and logs its
        events once durable.
        """

        def judge(shard: GroupShard, now_ms: int) -> Change[T]:
            effects = Effects(now_ms, loaded.max_batch_bytes)
            answer = operation(shard, effects)
            for sharer in effects.gone_sharers:
                for release in self.when_sharer_gone:
                    release(*sharer)
            if group_id is not None:
                self._set_deadline(loaded, group_id)
            return Change(
                answer,
                effects.records,
                is_folded_in=True,
                replies=effects.replies,
                when_durable=partial(log_events, effects.events) if effects.events else None,
            )

        return judge

    def _apply(
        self,
        loaded: LoadedShard[GroupShard],
        group_id: str | None,
        operation: Callable[[GroupShard, Effects], None],
    ) -> None:
        """Carry out an operation that no request waits for. Raises Unavailable."""
        self.shards.apply(loaded, self._with_effects(loaded, group_id, operation))

    # --- time

    def clock_was_set(self, by_ms: int) -> None:
        """Move all deadlines with the clock, so that no timeout becomes shorter or longer."""
        for loaded in self.shards:
            loaded.shard.clock_was_set(by_ms)
        self._deadlines.clock_was_set(by_ms)

    def _set_deadline(self, loaded: LoadedShard[GroupShard], group_id: str) -> None:
        """Set the time of the next visit to the group: its next deadline, if it has one."""
        deadline_ms = loaded.shard.next_deadline_ms(group_id)
        key = loaded.partition.index, group_id
        if deadline_ms is None or deadline_ms == NEVER:
            self._deadlines.drop(key)
        else:
            self._deadlines.set(key, deadline_ms)

    def _expire(self, key: tuple[int, str], _: int) -> int:
        """Do what is due in a group; each change of a group sets its next deadline."""
        index, group_id = key
        loaded = self.shards.loaded(index)
        if loaded is not None and not loaded.failed:
            with contextlib.suppress(Unavailable):  # the next request loads the shard again
                self._apply(loaded, group_id, lambda shard, effects: shard.expire(group_id, effects))
        return NEVER

    def _clean_later(self) -> None:
        interval_s = self._config.int("offsets.retention.check.interval.ms") / 1000
        self._cleaning = self._loop.call_later(interval_s, self._clean_up)

    def _clean_up(self, shards: Sequence[LoadedShard[GroupShard]] | None = None) -> None:
        """Clean up the first of the shards, of all if None, and the others in later turns of the loop."""
        left = list(self.shards) if shards is None else shards
        if not left:
            self._clean_later()
            return
        self._cleaning = self._loop.call_soon(self._clean_up, left[1:])
        loaded = left[0]
        retention_ms = self._config.int("offsets.retention.minutes") * 60_000

        # two operations: one that raises must have changed nothing
        self._tidy(loaded, lambda shard, effects: shard.forget_gone_topics(effects))
        self._tidy(loaded, lambda shard, effects: shard.clean_up(retention_ms, effects))

    def _tidy(
        self, loaded: LoadedShard[GroupShard], operation: Callable[[GroupShard, Effects], None]
    ) -> None:
        """Delete state that nobody needs, at once; a later clean-up looks again where that fails."""
        try:
            self._apply(loaded, None, operation)
        except Unavailable:
            pass
        except Exception:
            logger.exception("%s-%d can't be cleaned up now", OFFSETS_TOPIC, loaded.partition.index)


def _changes_topics(record: MetadataRecord) -> bool:
    """Return whether a topic was created, deleted or enlarged. Each later record of a partition, such as one
    that moves its leader, has a greater partition epoch than the first; groups do not go by leaders.
    """
    if isinstance(record, PartitionRecord):
        return record.partition_epoch == 0
    return isinstance(record, TopicRecord | RemoveTopicRecord)


_FENCED: Final = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.fenced_instance_id})


def _noted(_: None, error: Exception | None) -> None:
    if error is not None and not isinstance(error, Unavailable):
        error_code_of(error)  # a bug, which it logs; a lost shard is loaded again, and looks then


def log_events(events: Sequence[Event]) -> None:
    if logger.isEnabledFor(logging.INFO):
        for event in events:
            _log(event)


def _log(event: Event) -> None:
    match event:
        case RebalanceBegan(group_id, state, generation_id, reason):
            logger.info(
                "group %s rebalances: was %s in generation %d; %s", group_id, state, generation_id, reason
            )
        case Stabilized(group_id, generation_id, size):
            logger.info("group %s is stable: generation %d, members: %d", group_id, generation_id, size)
        case Emptied(group_id, generation_id):
            logger.info("group %s is empty: generation %d", group_id, generation_id)
        case MemberJoined(group_id, who):
            logger.info("group %s: %s joined", group_id, _named(who))
        case MemberReplaced(group_id, old_member_id, who):
            logger.info(
                "group %s: %s replaced member %s, which is fenced", group_id, _named(who), old_member_id
            )
        case MemberLeft(group_id, who):
            logger.info("group %s: %s left", group_id, _named(who))
        case MemberRemoved(group_id, who, reason):
            logger.info("group %s: %s was removed: %s", group_id, _named(who), reason)
        case EpochRaised(group_id, kind, group_epoch, reason):
            logger.info("%s group %s has group epoch %d: %s", kind, group_id, group_epoch, reason)


def _named(who: Who) -> str:
    static = "" if who.group_instance_id is None else f"instance id {who.group_instance_id}, "
    return f"member {who.member_id} ({static}client {who.client_id!r} at {who.client_host.lstrip('/')})"


def log_refused(group_id: str, member_id: str, error: HeartbeatRefused) -> None:
    """Log a heartbeat that was refused because its member is fenced; other refusals are no news."""
    if error.error_code in _FENCED:
        logger.info("group %s: member %s is fenced: %s", group_id, member_id, error)


# Counts the unread records that each group has skipped since the gateway started.


class Skipped(msgspec.Struct):
    """Skipped records by the limit that skipped them; `up_to` is the highest offset of a move."""

    records: dict[Limit, int] = msgspec.field(default_factory=dict)
    up_to: int = 0

    @property
    def total(self) -> int:
        """The number of skipped records, for all limits together."""
        return sum(self.records.values())


NOTHING = Skipped()


class SkippedRecords:
    """The skipped records by group and partition, while the group reads it. A record that a group skips
    twice, because a member committed an offset behind the move, counts once.
    """

    def __init__(self) -> None:
        self._skipped: dict[tuple[str, TopicPartition], Skipped] = {}

    def note(self, place: TopicPartition, move: OffsetMove, records: int) -> int:
        """Add a move over `records` records; return how many of them were not counted before."""
        skipped = self._skipped.setdefault((move.reader.group, place), Skipped())
        counted = max(0, min(records, move.to_offset - skipped.up_to))
        skipped.records[move.limit] = skipped.records.get(move.limit, 0) + counted
        skipped.up_to = max(skipped.up_to, move.to_offset)
        return counted

    def of(self, group: str, place: TopicPartition) -> Skipped:
        """Return the records that a group skipped in a partition."""
        return self._skipped.get((group, place), NOTHING)

    def keep_only(self, readers: Mapping[TopicPartition, Iterable[GroupReader]]) -> None:
        """Drop the groups that no longer read a partition."""
        if self._skipped:
            known = {(reader.group, place) for place, entries in readers.items() for reader in entries}
            self._skipped = {key: value for key, value in self._skipped.items() if key in known}
