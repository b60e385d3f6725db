"""Share groups of this node: the delivery state of their partitions, and their share sessions.

The members are stored in `__consumer_offsets`, like those of all groups, and belong to the group coordinator.
The delivery state is stored in `__share_group_state`: every change is appended there, and answered once it is
durable. Three gateways may take part: the leader of the partition, which members ask; the share coordinator,
which stores the state; and the group coordinator.

    stored here          `StoredShares`: members acquire from the stored state itself
    stored elsewhere     `RemoteShares`: the coordinator has the state, and every change is sent to it

Source: Kafka's `SharePartitionManager`, `ShareCoordinatorService`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import JOINING
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.group.share_heartbeat import ShareHeartbeat, share_heartbeat
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.share.records import SharePartitionKey, ShareStates, next_state_epoch
from seqgate.gateway.coordinator.share.share_partition import (
    Acknowledgement,
    Letter,
    ShareLimits,
    SharePartition,
    StateBatch,
)
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord
from seqgate.gateway.peer.peers import AsksPeers
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.coordinators.group_configs import GroupConfigs
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.shards import (
    CoordinatorShards,
    StateParts,
    Unavailable,
    ask_coordinator,
)
from seqgate.gateway.runtime.coordinators.share_persister import RemoteShares, SharePersister
from seqgate.gateway.runtime.coordinators.stored_shares import StoredShares
from seqgate.gateway.runtime.loop.clock import Deadlines
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.brokers import NO_LEADER

_SHARE_GROUP_DESCRIBE: Final = 77
_EXISTS: Final = frozenset((ErrorCode.none, ErrorCode.topic_authorization_failed))
_VISIT_AGAIN_MS: Final = 1_000
"""Time after which the timer visits a partition again whose state could not be changed."""


class ShareCoordinator:
    def __init__(
        self,
        parts: StateParts,
        group_configs: GroupConfigs,
        groups: GroupCoordinator,
        peers: AsksPeers,
        node_id: int,
        cold_reads: ColdReads,
    ) -> None:
        self._config, self._clock, self._partitions, *_ = parts
        self._group_configs = group_configs
        self._groups = groups
        self._peers = peers
        self._cold_reads = cold_reads
        self.sessions: dict[tuple[str, str], ShareSession] = {}
        self._leaving: Counter[str] = Counter()
        """The deletions of a group, or of topics in it, that are under way, by group."""
        self._skipping: Counter[str] = Counter()
        """The moves forward that are under way, by group."""
        self.waiters = ShareWaiters()
        self.when_changed: list[Callable[[SharePartitionKey], None]] = []
        """Called with the key of each state that has dead letters to be written."""
        self._deadlines = Deadlines(parts.clock, self._expire)
        self.stored = StoredShares(parts, self._changed)
        self.persister = SharePersister(self.stored, peers, node_id)
        self.remote = RemoteShares(self.persister, self._changed, self._is_read, self._end_sessions)
        parts.partitions.when_closed.append(self.remote.partition_closed)
        groups.when_sharer_gone.append(self.release_member)

    @property
    def shards(self) -> CoordinatorShards[ShareStates]:
        """Return the shards of the states that this gateway stores."""
        return self.stored.shards

    def _changed(self, key: SharePartitionKey) -> None:
        self.waiters.wake(key)
        with contextlib.suppress(Unavailable):  # its next owner loads the state, and follows it
            found = self.find(key)
            if found is not None:
                self._follow(key, found)

    def _follow(self, key: SharePartitionKey, found: SharePartition) -> None:
        """Do later what a state asks for: write dead letters, and deliver again what waits."""
        if found.waits:
            self._deadlines.set(key, found.next_deadline_ms())
        if found.is_sending:
            for callback in self.when_changed:
                callback(key)

    def _is_read(self, group_id: str) -> bool:
        return group_id in self._skipping or any(key[0] == group_id for key in self.sessions)

    def limits(self, group_id: str) -> ShareLimits:
        """Return the limits on the records that a group acquires."""
        return self._group_configs.of(group_id).share

    # --- beginning and end

    async def ensure_topic(self) -> None:
        """Create `__share_group_state` when the first share group appears. Raises Unavailable."""
        await self.shards.ensure_topic()

    def start(self) -> None:
        """Load the stored state. Raises IncompatibleFormat."""
        self.shards.load_at_start()

    def stop(self) -> None:
        """Wake every waiting fetch, because the gateway stops."""
        self._deadlines.stop()
        self.remote.stop()
        self.waiters.wake_all()

    # --- state

    def known(self, group_id: str) -> dict[SharePartitionKey, SharePartition]:
        """Return a group's partitions: those whose state this gateway stores, and those that it leads."""
        led = {key: found for key, found in self.remote if key.group_id == group_id}
        return self.stored.known(group_id) | led

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        """Return the delivery state of a partition, if it is here. Raises Unavailable."""
        return self._keeper(key).find(key)

    def _keeper(self, key: SharePartitionKey) -> StoredShares | RemoteShares:
        """Return the states among which is that of a partition."""
        return self.remote if self.persister.is_elsewhere(key) else self.stored

    async def open(self, key: SharePartitionKey, partition: Partition) -> SharePartition:
        """Return the delivery state of a partition that this gateway leads; a new partition begins at the
        offset that the group's configs set. Raises Unavailable, LogError.
        """
        reading = self._group_configs.of(key.group_id).share_reading

        async def first_offset() -> int:
            now_ms = self._clock.now_ms()
            return await self._cold_reads.run(lambda: reading.first_offset(partition.log, now_ms))

        keeper = self._keeper(key)
        if keeper is self.stored:
            self.remote.drop(key)
        found = await keeper.open(key, partition, first_offset)
        self._follow(key, found)
        log_start_offset = partition.log.log_start_offset
        if found.start_offset < log_start_offset:
            keeper.change_in_background(key, lambda state: state.move_to(log_start_offset))
        return found

    async def begin_at(self, key: SharePartitionKey, start_offset: int) -> None:
        """Move a partition's start offset to this offset durably, even if it was read. Raises Unavailable."""
        if self.persister.is_elsewhere(key):
            before = (await self.persister.summaries([key]))[key]
            state_epoch = next_state_epoch(before.state_epoch, self._clock.now_ms())
            await self.persister.initialize(key, state_epoch, start_offset)
            self.remote.drop(key)
        else:
            await self.stored.begin(key, start_offset, anew=True)

    async def forget(self, keys: Iterable[SharePartitionKey]) -> None:
        """Delete partitions' delivery state durably, whichever gateways store it. Raises Unavailable."""
        wanted = list(keys)
        elsewhere = [key for key in wanted if self.persister.is_elsewhere(key)]
        await self.stored.forget(set(wanted).difference(elsewhere) if elsewhere else wanted)
        if elsewhere:
            await self.persister.delete(elsewhere)
            for key in elsewhere:
                self.remote.drop(key)

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Delete the state of deleted topics, and forget that of partitions that other gateways lead now."""
        is_deleted = any(isinstance(record, RemoveTopicRecord) for record in records)
        if is_deleted or any(isinstance(record, PartitionRecord) for record in records):
            self.remote.drop_gone(self._partitions.by_id)
        if is_deleted:
            await self.stored.forget_deleted_topics()

    # --- acknowledging

    async def acknowledge(
        self, key: SharePartitionKey, member_id: str, said: Sequence[Acknowledgement]
    ) -> None:
        """Store acknowledgements durably. Raises Unavailable, InvalidRecordState.

        The delay of a retry begins now, although the change may have to wait for the flush of others.
        """
        limits, asked_ms = self.limits(key.group_id), self._clock.now_ms()
        await self._keeper(key).change(
            key, lambda found: found.acknowledge(member_id, said, limits, asked_ms)
        )

    async def skip_to(self, key: SharePartitionKey, partition: Partition, offset: int) -> int:
        """Move a group forward to `offset` in a partition that it reads, durably; return how many records it
        skips.

        Skipped records count as done, also those that a member has acquired. Raises Unavailable, LogError.
        """
        skipped = 0

        def act(found: SharePartition) -> Sequence[StateBatch]:
            nonlocal skipped
            skipped = found.undone_before(offset)
            return found.move_to(offset)

        self._skipping[key.group_id] += 1
        try:
            if self.persister.is_elsewhere(key):
                await self.open(key, partition)
            elif self.stored.find(key) is None:
                return 0
            await self._keeper(key).change(key, act)
        finally:
            self._skipping -= Counter((key.group_id,))  # drops a group without moves
            self.remote.drop_unread(key.group_id)
        return skipped

    def acquired(self, key: SharePartitionKey, found: SharePartition) -> None:
        """Set the timer for the locks of records that were just acquired."""
        self._deadlines.set(key, found.next_deadline_ms())

    def release_member(self, group_id: str, member_id: str) -> None:
        """Release the records that a member has acquired, because the member is gone."""
        session = self.sessions.pop((group_id, member_id), None)
        if session is not None:
            session.peer.forget_gone(session)
        limits = self.limits(group_id)
        for key in self.known(group_id):
            self._keeper(key).change_in_background(
                key, lambda found: found.release(member_id, limits, self._clock.now_ms())
            )
        self.remote.drop_unread(group_id)

    def begin_session(self, group_id: str, member_id: str, peer: MemberConnection) -> ShareSession:
        """Return a session in place of the old; it ends with the connection (Kafka's ShareSessionCache)."""
        key = group_id, member_id
        session = ShareSession(peer)
        before = self.sessions.pop(key, None)
        if before is not None:
            before.peer.forget_gone(before)
        self.sessions[key] = session
        peer.when_gone(session, lambda: self.release_member(group_id, member_id))
        return session

    def _end_sessions(self, group_id: str) -> None:
        for key in [key for key in self.sessions if key[0] == group_id]:
            self.release_member(*key)

    def release_strangers(self) -> None:
        """End the share sessions of clients that are in no group of this gateway. Without heartbeats the
        gateway could not notice that they are gone. Raises Unavailable.
        """
        for group_id, member_id in list(self.sessions):
            if self._groups.shards.is_elsewhere(group_id):
                continue
            group = self.group(group_id)
            if group is None or member_id not in group.members:
                self.release_member(group_id, member_id)

    # --- dead letters

    async def letter_round(self, key: SharePartitionKey) -> LetterRound | None:
        """Return the dead letters that are to be written now, once the state with them is durable; None when
        there are none, or another gateway has the state. Raises Unavailable.
        """
        return await self._keeper(key).look(key, _round_of)

    async def change_letters(
        self, key: SharePartitionKey, act: Callable[[SharePartition, int], Sequence[StateBatch]]
    ) -> None:
        """Change what a state says about dead letters, durably, if it is here. Raises Unavailable."""
        if self.find(key) is not None:
            await self._keeper(key).change(key, lambda found: act(found, self._clock.now_ms()))

    # --- groups

    async def heartbeat(self, request: ShareHeartbeat) -> HeartbeatReply:
        """Carry out a validated ShareGroupHeartbeat; the records that a leaving member has acquired are
        released with its share session. Raises HeartbeatRefused, Unavailable.
        """
        if request.member_epoch == JOINING:
            self.check_stays(request.group_id)
        return await self._groups.run(
            request.group_id, lambda shard, effects: share_heartbeat(shard, request, effects, self.has_room)
        )

    def has_room(self) -> bool:
        """Return whether this gateway may hold one more share group."""
        count = sum(len(loaded.shard.shares.groups) for loaded in self._groups.shards)
        return count < self._config.int("group.share.max.groups")

    def group(self, group_id: str) -> ShareGroup | None:
        """Return a group as it is now, with members or without. Raises Unavailable."""
        return self._groups.shard_of(group_id).shares.groups.get(group_id)

    async def has_group(self, group_id: str) -> bool:
        """Return whether the share group exists, whichever gateway coordinates it. Raises Unavailable."""
        if not self._groups.shards.is_elsewhere(group_id):
            return self.group(group_id) is not None
        leader = self._groups.shards.leader_of(group_id)
        if leader == NO_LEADER:
            raise Unavailable
        asked = build_request(
            _SHARE_GROUP_DESCRIBE, 1, group_ids=(group_id,), include_authorized_operations=False
        )
        answer = await ask_coordinator(self._peers, leader, asked)
        code = ErrorCode(int(answer.groups[0].error_code))
        if code not in {*_EXISTS, ErrorCode.group_id_not_found}:
            raise Unavailable(code)
        return code in _EXISTS

    def begun(self, group_id: str) -> set[Place]:
        """Return all partitions that a group of this gateway was assigned or has read. Raises Unavailable."""
        group = self.group(group_id)
        given = set() if group is None else set(group.begun)
        return given | {(key.topic_id, key.partition) for key in self.known(group_id)}

    def _all_keys(self, group_id: str) -> list[SharePartitionKey]:
        return [SharePartitionKey(group_id, *place) for place in self.begun(group_id)]

    async def forget_topic(self, group_id: str, topic_id: uuid.UUID) -> ErrorCode:
        """Delete the state of a topic in a group without members, durably; return an error code. Meanwhile no
        member may join. Raises Unavailable.
        """
        with self._closed_to_members(group_id):
            error = await self._offsets_error(group_id)
            if error is ErrorCode.none:
                await self.forget([key for key in self._all_keys(group_id) if key.topic_id == topic_id])
                await self._groups.run(
                    group_id, lambda shard, effects: shard.forget_topics(group_id, {topic_id}, effects)
                )
        return error

    async def _offsets_error(self, group_id: str) -> ErrorCode:
        """Return why the offsets of a group can't be changed, after the joins that wait for a round."""
        return await self._groups.read_durable(group_id, lambda shard: shard.share_offsets_error(group_id)[0])

    async def delete_without_members(self, group_id: str) -> ErrorCode | None:
        """Delete a group without members durably; None if there is none. Raises Unavailable. Until the group
        is deleted, no member may join, because it would find the group without offsets.
        """
        if self.group(group_id) is None:
            return None
        self.check_stays(group_id)
        with self._closed_to_members(group_id):
            error = await self._offsets_error(group_id)
            if error is not ErrorCode.none:
                return error
            await self.forget(self._all_keys(group_id))
            error = await self._groups.run(
                group_id, lambda shard, effects: shard.delete_share_group(group_id, effects)
            )
            if error is ErrorCode.none:
                # During the deletion, clients that are no members may have acquired records. So their
                # sessions and the state are dropped again.
                self._end_sessions(group_id)
                await self.forget(list(self.known(group_id)))
        return error

    @contextlib.contextmanager
    def _closed_to_members(self, group_id: str) -> Iterator[None]:
        """Refuse members that join a group, and start offsets, while state of the group is being deleted."""
        self._leaving[group_id] += 1
        try:
            yield
        finally:
            self._leaving -= Counter((group_id,))  # drops a group without deletions

    def check_stays(self, group_id: str) -> None:
        """Refuse a group that is being deleted, or a topic of it. Raises Unavailable: clients ask again."""
        if group_id in self._leaving:
            raise Unavailable(ErrorCode.coordinator_load_in_progress)

    # --- time

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Move the deadlines of all locks with the clock, so that no lock becomes shorter or longer."""
        for loaded in self.shards:
            for found in loaded.shard.partitions.values():
                found.clock_was_set(by_ms)
        for _, found in self.remote:
            found.clock_was_set(by_ms)
        self._deadlines.clock_was_set(by_ms)

    def _expire(self, key: SharePartitionKey, now_ms: int) -> int:
        """Release the locks of one partition that have timed out, and the retries whose delay is over; return
        the partition's next deadline, or NEVER. A state that can't be changed now is visited again later.
        """
        try:
            found = self.find(key)
        except Unavailable:
            return now_ms + _VISIT_AGAIN_MS
        if found is None:
            return NEVER
        if found.next_deadline_ms() <= now_ms:
            limits = self.limits(key.group_id)
            self._keeper(key).change_in_background(
                key, lambda state: state.expire(limits, self._clock.now_ms())
            )
            self.waiters.wake(key)
        next_ms = found.next_deadline_ms()
        return next_ms if next_ms > now_ms else now_ms + _VISIT_AGAIN_MS


class LetterRound(NamedTuple):
    """A round of dead letters: its number, when the first round began (ms), and the records."""

    number: int
    since_ms: int
    letters: list[Letter]


def _round_of(found: SharePartition) -> LetterRound | None:
    return (
        LetterRound(found.letter_round, found.letters_since_ms, found.letters()) if found.is_sending else None
    )


class MemberConnection(Protocol):
    """The connection of a member."""

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the connection has closed, at once if it has already."""

    def forget_gone(self, key: Hashable) -> None:
        """Cancel the callback of this key."""


class ShareSession(msgspec.Struct, eq=False):
    """A member's share session: the partitions that it fetches. Every fetch raises the session epoch."""

    peer: MemberConnection
    """The connection on which the session began; the session ends with it."""
    epoch: int = 1
    places: OrderedDict[tuple[uuid.UUID, int], None] = msgspec.field(default_factory=OrderedDict)


class ShareWaiters:
    """Calls back the fetches that wait for a partition of a share group."""

    def __init__(self) -> None:
        self._waiters: dict[SharePartitionKey, dict[Callable[[], None], None]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, key: SharePartitionKey, wake: Callable[[], None]) -> None:
        """Call `wake` when members may acquire further offsets of the partition."""
        self._waiters.setdefault(key, {})[wake] = None

    def remove(self, key: SharePartitionKey, wake: Callable[[], None]) -> None:
        """Cancel this callback for the partition."""
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.pop(wake, None)
            if not waiters:
                del self._waiters[key]

    def wake(self, key: SharePartitionKey) -> None:
        """Call back every fetch that waits for a partition, the one that waits longest first."""
        for wake in list(self._waiters.get(key, ())):
            wake()

    def wake_all(self) -> None:
        """Call back every waiting fetch, because the gateway stops."""
        for key in list(self._waiters):
            self.wake(key)
