"""A simulated share group, from one seed: members, failing requests, and a growing log.

Requests and answers take time, answers get lost, members die, connections break, the clock jumps and the
coordinator restarts from its stored state. Every step is checked against a plain record of which member has
which offset.
"""

from __future__ import annotations

import heapq
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.coordinator.group import share_heartbeat
from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import JOINING, LEAVING, HeartbeatRefused
from seqgate.gateway.coordinator.group.share_group import ROWS, ShareGroup
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareHeartbeat
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.share.records import (
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
    ShareStates,
    ShareUpdate,
    decode,
    encode,
)
from seqgate.gateway.coordinator.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    InvalidRecordState,
    NeverAcquired,
    ShareLimits,
    SharePartition,
    StateBatch,
)

GROUP: Final = "readers"
LIMITS: Final = ShareLimits(lock_duration_ms=3_000, delivery_count_limit=4, max_record_locks=40)
GROUP_LIMITS: Final = ShareGroupLimits(session_timeout_ms=5_000, max_size=6)
HEARTBEAT_MS: Final = 500
SETTLED_AFTER_MS: Final = 60_000
SETTLED_FOR_MS: Final = 2_000
Offset = tuple[Place, int]


@dataclass(eq=False)
class Client:
    """The state of a member as the member itself knows it."""

    name: str
    names: tuple[str, ...]
    member_epoch: int = 0
    assigned: frozenset[Place] = frozenset()
    connection: int = 0
    is_alive: bool = True
    held: list[tuple[Place, int, int]] = field(default_factory=list)


class Simulation:
    """One run; `errs` is True while failures still happen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.time_ms = 0
        """The network's time, which does not jump with the clock."""
        self.errs = True
        self.is_settled = False
        """Whether everyone has behaved long enough that nothing changes any more."""
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.events = 0
        self.topics: dict[str, tuple[uuid.UUID, int]] = {"t": (uuid.UUID(int=1), 2)}
        self.group = ShareGroup(GROUP)
        self.group_records: list[RowRecord] = []
        self.states = ShareStates()
        self.records: list[ShareRecord] = []
        self.batches: dict[Place, list[tuple[int, int]]] = {}
        self.clients: list[Client] = []
        self.named = 0
        self.holders: dict[Offset, str] = {}
        """The member that holds each offset, according to the coordinator's answers."""
        self.done: set[Offset] = set()
        """The offsets that are durably accepted or rejected."""
        self.deliveries: Counter[Offset] = Counter()
        self.restarts = 0

    # --- the network

    def later(self, delay_ms: int, what: Callable[[], None]) -> None:
        self.events += 1
        heapq.heappush(self.queue, (self.time_ms + delay_ms, self.events, what))

    def run(self, duration_ms: int) -> None:
        end_ms = self.time_ms + duration_ms
        while self.queue and self.queue[0][0] <= end_ms:
            at_ms, _, what = heapq.heappop(self.queue)
            self._pass(at_ms - self.time_ms)
            what()
            self.check()
        self._pass(end_ms - self.time_ms)

    def _pass(self, duration_ms: int) -> None:
        self.time_ms += duration_ms
        self.now_ms += duration_ms
        self.expire()

    def delay_ms(self) -> int:
        slow = self.errs and self.random.random() < 0.05
        return self.random.randint(1, 4_000 if slow else 40)

    def is_lost(self) -> bool:
        return self.errs and self.random.random() < 0.08

    # --- the coordinator

    def partition(self, place: Place) -> SharePartition:
        key = SharePartitionKey(GROUP, *place)
        found = self.states.partitions.get(key)
        if found is None:
            found = SharePartition(0)
            self.states.put(key, found)
            self.records.append(ShareSnapshot(key, ShareState(0, ())))
        return found

    def store(self, place: Place, changed: Iterable[StateBatch], start_before: int) -> None:
        found = self.partition(place)
        batches = tuple(changed)
        assert found.start_offset >= start_before
        if batches or found.start_offset != start_before:
            key = SharePartitionKey(GROUP, *place)
            self.records.append(ShareUpdate(key, found.start_offset, batches))

    # the partitions that members can be assigned

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        return self.topics.get(name)

    def names(self) -> list[str]:
        return list(self.topics)

    def heartbeat(self, request: ShareHeartbeat) -> HeartbeatReply:
        reply, records = share_heartbeat.heartbeat(self.group, request, self, GROUP_LIMITS, self.now_ms)
        self.group_records += records
        if request.member_epoch != JOINING and self.is_settled:
            assert not records, "a heartbeat that changes nothing writes nothing"
        return reply

    def acquire(self, client: Client, connection: int, place: Place) -> list[tuple[Place, int, int]]:
        if connection != client.connection or not client.is_alive:
            return []  # the session ended with its connection
        found = self.partition(place)
        offset = found.next_offset()
        batches = [batch for batch in self.batches.get(place, ()) if batch[1] >= offset][:3]
        acquired = found.acquire(
            client.name,
            batches,
            self.random.randint(1, 12),
            LIMITS,
            self.now_ms,
            is_strict=self.random.random() < 0.5,
            batch_size=self.random.choice((1, 5, 500)),
        )
        for first, last, delivery_count in acquired:
            for each in range(first, last + 1):
                self.deliveries[place, each] += 1
                assert (place, each) not in self.done, "a finished record was given out again"
                assert (place, each) not in self.holders, "a record was given out to two members at a time"
                assert delivery_count <= LIMITS.delivery_count_limit
                self.holders[place, each] = client.name
        return [(place, first, last) for first, last, _ in acquired]

    def acknowledge(
        self, name: str, place: Place, first: int, last: int, kinds: Sequence[AcknowledgeType]
    ) -> bool:
        found = self.partition(place)
        offsets = [(place, each) for each in range(max(first, found.start_offset), last + 1)]
        is_held = all(self.holders.get(offset) == name for offset in offsets)
        before = found.start_offset
        try:
            changed = found.acknowledge(
                name, [Acknowledgement(first, last, tuple(kinds))], LIMITS, self.now_ms
            )
        except (InvalidRecordState, NeverAcquired):
            assert not is_held
            return False
        assert is_held
        self.store(place, changed, before)
        for offset in offsets:
            kind = kinds[0] if len(kinds) == 1 else kinds[offset[1] - first]
            if kind is not AcknowledgeType.RENEW:
                self.forget_holders([offset])
            if kind in {AcknowledgeType.ACCEPT, AcknowledgeType.REJECT}:
                self.done.add(offset)
        return True

    def forget_holders(self, offsets: Iterable[Offset]) -> None:
        for offset in offsets:
            self.holders.pop(offset, None)

    def release(self, name: str) -> None:
        for key, found in self.states.groups.get(GROUP, {}).items():
            before = found.start_offset
            self.store((key.topic_id, key.partition), found.release(name, LIMITS, self.now_ms), before)
        self.forget_holders([offset for offset, holder in self.holders.items() if holder == name])

    def expire(self) -> None:
        members = list(self.group.members)
        self.group_records += self.group.remove_overdue(self.now_ms)
        for name in members:
            if name not in self.group.members:
                self.release(name)
        for key, found in self.states.groups.get(GROUP, {}).items():
            before = found.start_offset
            self.store((key.topic_id, key.partition), found.expire(LIMITS, self.now_ms), before)
        held = {
            ((key.topic_id, key.partition), each)
            for key, found in self.states.partitions.items()
            for run in found.runs
            if run.member_id
            for each in range(run.first_offset, run.last_offset + 1)
        }
        self.holders = {offset: holder for offset, holder in self.holders.items() if offset in held}
        assert held == self.holders.keys()

    def restart(self) -> None:
        """Drop all state that is not stored: acquired records and connections."""
        self.restarts += 1
        before = self.stored_group()
        self.group, self.states, self.holders = ShareGroup(GROUP), ShareStates(), {}
        for written in self.group_records:
            read = group_records.decode(*group_records.encode(written))
            assert isinstance(read, RowRecord)
            self.group.replay(read, self.now_ms, GROUP_LIMITS.session_timeout_ms)
        assert self.stored_group() == before
        if self.random.random() < 0.3:  # rewrite the coordinator's log
            self.group_records = [record for _, record in before if record is not None]
        for record in self.records:
            again = decode(*encode(record))
            assert again is not None
            self.states.replay(again, self.now_ms)
        for client in self.clients:
            client.connection += 1

    def stored_group(self) -> list[tuple[tuple[int, str], RowRecord | None]]:
        return [(key, self.group.record_of(*key)) for key in sorted(ROWS.stored_keys(self.group))]

    def check(self) -> None:
        assert len(self.group.members) <= GROUP_LIMITS.max_size
        assert self.group.targets.keys() == self.group.members.keys()
        assert self.group.assignment_epoch <= self.group.group_epoch
        for member in self.group.members.values():
            assert member.member_epoch <= self.group.assignment_epoch

    # --- members

    def join(self) -> Client:
        self.named += 1
        client = Client(f"m{self.named}", self.random.choice((("t",), ("t", "u"), ("u",))))
        self.clients.append(client)
        self.later(self.delay_ms(), lambda: self.beat(client))
        self.later(self.delay_ms(), lambda: self.read(client))
        return client

    def beat(self, client: Client) -> None:
        if not client.is_alive:
            return
        asked = ShareHeartbeat(
            GROUP,
            client.name,
            client.member_epoch,
            None,
            "client",
            "/127.0.0.1",
            client.names if not client.member_epoch else None,
        )
        self.later(self.delay_ms(), lambda: self._hear(client, asked))

    def _hear(self, client: Client, asked: ShareHeartbeat) -> None:
        try:
            reply = self.heartbeat(asked)
            member_epoch, assigned = reply.member_epoch, reply.assignment
        except HeartbeatRefused:
            member_epoch, assigned = 0, frozenset()
        if self.is_lost():
            # a member that lost the answer joins again
            member_epoch, assigned = 0, frozenset()
        self.later(self.delay_ms(), lambda: self._told(client, member_epoch, assigned))

    def _told(self, client: Client, member_epoch: int, assigned: frozenset[Place] | None) -> None:
        client.member_epoch = member_epoch
        if assigned is not None:
            client.assigned = assigned
        self.later(HEARTBEAT_MS if member_epoch else 20, lambda: self.beat(client))

    def read(self, client: Client) -> None:
        """Fetch records of a partition, and acknowledge them later."""
        if not client.is_alive:
            return
        connection = client.connection
        places = sorted(client.assigned)
        if places:
            place = self.random.choice(places)
            self.later(self.delay_ms(), lambda: self._answer_fetch(client, connection, place))
        else:
            self.later(50, lambda: self.read(client))

    def _answer_fetch(self, client: Client, connection: int, place: Place) -> None:
        got = self.acquire(client, connection, place)
        if self.is_lost():
            self.hang_up(client)
            got = []
        for one in got:
            takes_long = self.errs and self.random.random() < 0.2
            delay_ms = self.random.randint(1, 2 * LIMITS.lock_duration_ms) if takes_long else self.delay_ms()
            self.later(delay_ms, lambda one=one: self.finish(client, connection, *one))  # type: ignore[misc]
        self.later(self.delay_ms() + 30, lambda: self.read(client))

    def finish(self, client: Client, connection: int, place: Place, first: int, last: int) -> None:
        if not client.is_alive or connection != client.connection:
            return
        kinds = [AcknowledgeType.ACCEPT]
        if self.errs:
            kinds = [*kinds * 4, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW]
        each = self.random.random() < 0.4
        chosen = self.random.choices(kinds, k=last - first + 1 if each else 1)
        taken = self.acknowledge(client.name, place, first, last, chosen)
        if taken and chosen == [AcknowledgeType.RENEW]:
            self.later(self.delay_ms(), lambda: self.finish(client, connection, place, first, last))

    def hang_up(self, client: Client) -> None:
        client.connection += 1
        self.release(client.name)

    # --- failures

    def something(self) -> None:
        """Cause one failure after another, or only let time pass."""
        if not self.errs:
            return
        alive = [client for client in self.clients if client.is_alive]
        happening = self.random.choice(
            (
                self._produce,
                self._produce,
                self._produce,
                self._more,
                self._one_goes,
                self._one_goes,
                self._time,
            )
        )
        happening(alive)
        self.later(self.random.randint(1, 600), self.something)

    def _produce(self, _: list[Client]) -> None:
        self.produce()

    def produce(self) -> None:
        topic_id, count = self.topics[self.random.choice(sorted(self.topics))]
        log = self.batches.setdefault((topic_id, self.random.randrange(count)), [])
        base_offset = log[-1][1] + 1 if log else 0
        log.append((base_offset, base_offset + self.random.randint(0, 6)))

    def _more(self, alive: list[Client]) -> None:
        if len(alive) <= GROUP_LIMITS.max_size:
            self.join()
        if self.random.random() < 0.3:
            topic_id, count = self.topics.get("u", (uuid.UUID(int=2), 0))
            self.topics["u"] = topic_id, min(4, count + 1)

    def _one_goes(self, alive: list[Client]) -> None:
        if not alive:
            return
        client = self.random.choice(alive)
        fate = self.random.random()
        if fate < 0.4:
            self.hang_up(client)
            return
        client.is_alive = False
        if fate < 0.7 and client.name in self.group.members:
            leaving = ShareHeartbeat(GROUP, client.name, LEAVING, None, "", "", None)
            self.group_records += share_heartbeat.leave(self.group, leaving)[1]
        if fate < 0.9:
            self.release(
                client.name
            )  # Otherwise the member's machine is down, and the request is never sent.

    def _time(self, _: list[Client]) -> None:
        if self.random.random() < 0.4:
            self.restart()
        else:
            self.now_ms += self.random.choice((-5_000, -500, 2_000, 10_000))

    def settle(self) -> None:
        """Cause no more faults: from now on every member answers and every request arrives."""
        self.errs = False
        self.join().names = tuple(self.topics)
        self.run(SETTLED_AFTER_MS)
        self.is_settled = True
        self.run(SETTLED_FOR_MS)
