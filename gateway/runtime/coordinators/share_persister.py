"""Reads and writes the delivery state of share groups, whichever gateway stores it.

The gateway that leads `__share_group_state`'s partition for a key is the share coordinator of that key. This
gateway answers for the keys that it stores itself, and asks the others by Kafka's requests for share
coordinators. Source: Kafka's `DefaultStatePersister`, `PersisterStateManager`.

`RemoteShares` has the delivery state of partitions that this gateway leads, and whose share coordinator is
another gateway. It reads the state from the coordinator when the group first fetches from the partition.
Members acquire and acknowledge here. Every change goes to the coordinator before its answer leaves; the
changes of one partition go one request after another, and those that come during a request go together with
the next one. When the coordinator refuses a change, or can't be reached, the state is dropped, because it is
ahead of what is stored: the next fetch reads it again, and what members had acquired is delivered again.
Source: Kafka's `SharePartitionManager`, `SharePartition.writeShareGroupState`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.share.records import (
    NOT_BEGUN,
    READ_TOO_EARLY,
    Refusal,
    SharePartitionKey,
    ShareState,
    ShareStates,
    Summary,
    Write,
    summary_of,
)
from seqgate.gateway.coordinator.share.share_partition import SharePartition, StateBatch
from seqgate.gateway.peer.peers import AsksPeers
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.coordinators.shards import Unavailable, ask_coordinator, settle
from seqgate.gateway.runtime.coordinators.stored_shares import Act, StoredShares
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.brokers import NO_LEADER

logger = logging.getLogger(__name__)


RETRY_FOR_S: Final = 10.0
"""Time after which a request gives up when its share coordinator is silent or changes; clients retry."""
RETRY_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Delays between attempts; the last one is repeated."""
KEYS_PER_REQUEST: Final = 1_000
"""Partitions in one request to a share coordinator; the rest go with the next one."""
_INITIALIZE, _READ, _WRITE, _DELETE, _SUMMARY = 83, 84, 85, 86, 87
_NO_ERROR: Final = 0
_RETRIED: Final = frozenset(
    (
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    )
)
_FENCED: Final = frozenset((ErrorCode.fenced_leader_epoch, ErrorCode.fenced_state_epoch))

_DROPPED: Final = Refusal(ErrorCode.not_leader_or_follower)
_NO_TOPIC: Final = uuid.UUID(int=0)
_WAITS: Final = 6
"""The delivery state of a row with the time (ms), as its last offset, until which the batch before waits."""

T = TypeVar("T")
Local = Callable[[ShareStates, SharePartitionKey, int], Change[Any]]


class _Remote(msgspec.Struct, frozen=True):
    """How other gateways are asked: the API, its version, a partition's fields, and the value of a row."""

    api_key: int
    version: int
    row: Callable[[SharePartitionKey], dict[str, Any]]
    value: Callable[[Any], Any] = lambda _: None


class SharePersister:
    """Asks the share coordinators. `node_id` is this gateway's, whose own states are in `stored`."""

    def __init__(self, stored: StoredShares, peers: AsksPeers, node_id: int) -> None:
        self._stored = stored
        self._peers = peers
        self._node_id = node_id

    def is_elsewhere(self, key: SharePartitionKey) -> bool:
        """Return whether another gateway stores the state of this key."""
        return self._stored.shards.is_elsewhere(key.spread_text())

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin a state at an offset, in place of an earlier one. Raises Unavailable."""
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        remote = _Remote(_INITIALIZE, 0, lambda _: fields)
        await self._one(
            key, lambda states, one, now_ms: states.initialize(one, state_epoch, start_offset, now_ms), remote
        )

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        """Return the state for the leader in this epoch; None before it began. Raises Unavailable."""
        remote = _Remote(_READ, 0, lambda _: {"leader_epoch": leader_epoch}, _state)
        outcomes = await self._all([key], lambda states, one, _: states.read(one, leader_epoch), remote)
        outcome = outcomes[key]
        if isinstance(outcome, Refusal) and outcome == (ErrorCode.invalid_request, READ_TOO_EARLY):
            return None
        found: ShareState = _checked(outcome)
        return found

    async def write(self, key: SharePartitionKey, wanted: Write, is_current: Callable[[], bool]) -> None:
        """Store the changes of the partition's leader. Raises Unavailable: NOT_LEADER_OR_FOLLOWER when the
        state has another leader, or began anew, or when it is to be stored here and `is_current` is false by
        then.
        """
        fields = {
            "state_epoch": wanted.state_epoch,
            "leader_epoch": wanted.leader_epoch,
            "start_offset": wanted.start_offset,
            "delivery_complete_count": -1,
            "state_batches": state_batches(wanted.batches),
        }
        await self._one(
            key,
            lambda states, one, _: states.write(one, wanted) if is_current() else Change(_DROPPED),
            _Remote(_WRITE, 1, lambda _: fields),
        )

    async def delete(self, keys: Iterable[SharePartitionKey]) -> None:
        """Delete states. Raises Unavailable; then some may be deleted."""
        remote = _Remote(_DELETE, 0, lambda _: {})
        outcomes = await self._all(list(keys), lambda states, one, _: states.delete(one), remote)
        for outcome in outcomes.values():
            if not _is_unknown(outcome):
                _checked(outcome)

    async def summaries(self, keys: Iterable[SharePartitionKey]) -> Mapping[SharePartitionKey, Summary]:
        """Return the start offsets of partitions. Raises Unavailable."""
        remote = _Remote(_SUMMARY, 1, lambda _: {"leader_epoch": -1}, _summary)
        outcomes = await self._all(list(keys), lambda states, one, _: states.summarize(one), remote)
        return {
            key: Summary() if _is_unknown(outcome) else _checked(outcome) for key, outcome in outcomes.items()
        }

    async def summaries_here_and_elsewhere(
        self, keys: Iterable[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, Summary]:
        """Return partitions' start offsets, those of this gateway's states as of now. Raises Unavailable."""
        wanted = list(keys)
        elsewhere = [key for key in wanted if self.is_elsewhere(key)]
        found = dict(await self.summaries(elsewhere))
        for group_id in {key.group_id for key in wanted}:
            known = self._stored.known(group_id)
            found |= {key: summary_of(known[key]) for key in wanted if key in known and key not in found}
        return found

    # --- asking

    async def _one(self, key: SharePartitionKey, local: Local, remote: _Remote) -> None:
        outcomes = await self._all([key], local, remote)
        _checked(outcomes[key])

    async def _all(
        self, keys: Sequence[SharePartitionKey], local: Local, remote: _Remote
    ) -> dict[SharePartitionKey, Any]:
        """Return the outcome for each key: a Refusal, or the value. Raises Unavailable for a late answer."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + RETRY_FOR_S
        outcomes: dict[SharePartitionKey, Any] = {}
        left = list(dict.fromkeys(keys))
        attempt = 0
        while left:
            outcomes |= await self._attempt(left, local, remote)
            left = [key for key in left if _is_retried(outcomes[key])]
            delay_s = RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S) - 1)]
            if left and loop.time() + delay_s >= deadline_s:
                raise Unavailable
            if left:
                await asyncio.sleep(delay_s)
            attempt += 1
        return outcomes

    async def _attempt(
        self, keys: Sequence[SharePartitionKey], local: Local, remote: _Remote
    ) -> dict[SharePartitionKey, Any]:
        by_leader: dict[int, list[SharePartitionKey]] = {}
        for key in keys:
            by_leader.setdefault(self._stored.leader_of(key), []).append(key)
        outcomes: dict[SharePartitionKey, Any] = {}
        asked: list[Awaitable[dict[SharePartitionKey, Any]]] = []
        for leader, of_leader in by_leader.items():
            if leader == self._node_id:
                asked += [self._here(key, local) for key in of_leader]
            elif leader == NO_LEADER:
                outcomes |= dict.fromkeys(of_leader, Refusal(ErrorCode.coordinator_not_available))
            else:
                asked += [
                    self._there(leader, group_id, some, remote) for group_id, some in _by_group(of_leader)
                ]
        for found in await asyncio.gather(*asked):
            outcomes |= found
        return outcomes

    async def _here(self, key: SharePartitionKey, local: Local) -> dict[SharePartitionKey, Any]:
        try:
            return {key: await self._stored.run(key, lambda states, now_ms: local(states, key, now_ms))}
        except Unavailable as error:
            return {key: Refusal(error.error_code)}

    async def _there(
        self, leader: int, group_id: str, keys: Sequence[SharePartitionKey], remote: _Remote
    ) -> dict[SharePartitionKey, Any]:
        try:
            answer = await ask_coordinator(self._peers, leader, _request(group_id, keys, remote))
        except Unavailable:
            return dict.fromkeys(keys, Refusal(ErrorCode.coordinator_not_available))
        outcomes: dict[SharePartitionKey, Any] = dict.fromkeys(keys, Refusal(ErrorCode.unknown_server_error))
        for topic in answer.results:
            for row in topic.partitions:
                key = SharePartitionKey(group_id, topic.topic_id or _NO_TOPIC, row.partition)
                if key in outcomes:
                    code = int(row.error_code)
                    outcomes[key] = (
                        remote.value(row)
                        if code == _NO_ERROR
                        else Refusal(ErrorCode(code), row.error_message)
                    )
        return outcomes


def _by_group(keys: Iterable[SharePartitionKey]) -> Iterable[tuple[str, list[SharePartitionKey]]]:
    """Yield the keys of each group, in requests of a bounded size."""
    by_group: dict[str, list[SharePartitionKey]] = {}
    for key in keys:
        by_group.setdefault(key.group_id, []).append(key)
    for group_id, of_group in by_group.items():
        for start in range(0, len(of_group), KEYS_PER_REQUEST):
            yield group_id, of_group[start : start + KEYS_PER_REQUEST]


def _request(group_id: str, keys: Iterable[SharePartitionKey], remote: _Remote) -> Any:
    by_topic: dict[uuid.UUID, list[Any]] = {}
    for key in keys:
        by_topic.setdefault(key.topic_id, []).append({"partition": key.partition, **remote.row(key)})
    topics = [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in by_topic.items()]
    return build_request(remote.api_key, remote.version, group_id=group_id, topics=topics)


def state_batches(batches: Iterable[StateBatch]) -> list[dict[str, int]]:
    """Return the batches of a delivery state as rows of a request or response. A batch whose records wait has
    a second row, which Kafka does not know.
    """
    rows = []
    for batch in batches:
        rows.append(batch[:4])
        if batch.due_ms != NEVER:
            rows.append((0, batch.due_ms, _WAITS, 0))
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return [dict(zip(names, row, strict=True)) for row in rows]


def batches_of(rows: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Return the batches of a delivery state from rows as `state_batches` returns them."""
    batches: list[StateBatch] = []
    for row in rows:
        if row.delivery_state == _WAITS and batches:
            batches[-1] = batches[-1]._replace(due_ms=row.last_offset)
        else:
            batches.append(
                StateBatch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count)
            )
    return tuple(batches)


def _state(row: Any) -> ShareState:
    return ShareState(row.start_offset, batches_of(row.state_batches), row.state_epoch)


def _summary(row: Any) -> Summary:
    return Summary(row.start_offset, row.state_epoch, row.leader_epoch, row.delivery_complete_count)


def _is_retried(outcome: Any) -> bool:
    return isinstance(outcome, Refusal) and outcome.error_code in _RETRIED


def _is_unknown(outcome: Any) -> bool:
    """Return whether the partition does not exist, or its share coordinator has not learned of it yet."""
    return isinstance(outcome, Refusal) and outcome.error_code is ErrorCode.unknown_topic_or_partition


def _checked(outcome: Any) -> Any:
    """Return an outcome's value. Raises Unavailable for a refusal: the error that a group member gets."""
    if not isinstance(outcome, Refusal):
        return outcome
    if outcome.error_code in _FENCED:
        raise Unavailable(ErrorCode.not_leader_or_follower)
    raise Unavailable(outcome.error_code)


class _Led(msgspec.Struct, eq=False):
    """One state: the partition and leader epoch for which it was read, and the changes not stored yet."""

    key: SharePartitionKey
    partition: Partition
    leader_epoch: int
    found: SharePartition
    state_epoch: int
    changes: list[StateBatch] = msgspec.field(default_factory=list)
    is_changed: bool = False
    waiters: list[asyncio.Future[None]] = msgspec.field(default_factory=list)
    writing: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        return not self.partition.closed and self.partition.leader_epoch == self.leader_epoch

    def stored(self) -> asyncio.Future[None]:
        """Return what is done when the changes are stored, or raises Unavailable."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter


class RemoteShares:
    """The states by key, at most one for each partition that a share session of this gateway has read.

    No state of a group without a session is kept: a reset at the coordinator would not be noticed here.
    """

    def __init__(
        self,
        persister: SharePersister,
        wake: Callable[[SharePartitionKey], None],
        is_read: Callable[[str], bool],
        end_sessions: Callable[[str], None],
    ) -> None:
        """`wake` is called with the key of each changed state. `is_read` returns whether a group has a share
        session here or is being moved forward, and `end_sessions` ends the sessions of a deleted group.
        """
        self._persister = persister
        self._wake = wake
        self._is_read = is_read
        self._end_sessions = end_sessions
        self._led: dict[SharePartitionKey, _Led] = {}
        self._reading: dict[SharePartitionKey, asyncio.Task[_Led]] = {}

    def __iter__(self) -> Iterator[tuple[SharePartitionKey, SharePartition]]:
        """Iterate over the states; they may change meanwhile."""
        return iter([(key, led.found) for key, led in self._led.items()])

    def _current(self, key: SharePartitionKey) -> _Led | None:
        led = self._led.get(key)
        return led if led is not None and led.is_current else None

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        led = self._current(key)
        return None if led is None else led.found

    async def open(
        self, key: SharePartitionKey, partition: Partition, first_offset: Callable[[], Awaitable[int]]
    ) -> SharePartition:
        """Return a state. One that was never read begins at `first_offset`. Raises Unavailable, LogError."""
        led = self._current(key)
        if led is not None:
            return led.found
        self.drop(key)
        reading = self._reading.get(key)
        if reading is None:
            task = asyncio.get_running_loop().create_task(self._read(key, partition, first_offset))
            reading = self._reading[key] = task
            task.add_done_callback(lambda done: self._has_read(key, done))
        return (await asyncio.shield(reading)).found

    def _has_read(self, key: SharePartitionKey, done: asyncio.Task[_Led]) -> None:
        self._reading.pop(key, None)
        if not done.cancelled():
            done.exception()  # the requests that wait raise it; all of them may be gone
        self.drop_unread(key.group_id)  # the last session may have ended during the read

    async def _read(
        self, key: SharePartitionKey, partition: Partition, first_offset: Callable[[], Awaitable[int]]
    ) -> _Led:
        leader_epoch = partition.leader_epoch
        state = await self._persister.read(key, leader_epoch)
        if state is None or state.start_offset == NOT_BEGUN:
            begun = ShareState(await first_offset(), (), 0 if state is None else state.state_epoch)
            await self._persister.initialize(key, begun.state_epoch, begun.start_offset)
            state = await self._persister.read(key, leader_epoch)
        if state is None or partition.closed:
            raise Unavailable(ErrorCode.not_leader_or_follower)
        found = SharePartition(state.start_offset)
        found.restore(state.start_offset, state.batches)
        led = _Led(key, partition, leader_epoch, found, state.state_epoch)
        self._led[key] = led
        return led

    async def change(self, key: SharePartitionKey, act: Act) -> None:
        """Change a state that is here, and wait until the change is stored. Raises Unavailable, and the
        errors of `act`.
        """
        led = self._current(key)
        if led is None:
            raise Unavailable(ErrorCode.invalid_record_state)
        if self._change(led, act):
            await led.stored()

    async def look(self, key: SharePartitionKey, look: Callable[[SharePartition], T]) -> T | None:
        """Return what `look` finds in a state, once all of that is stored; None without the state. Raises
        Unavailable.
        """
        led = self._current(key)
        if led is None:
            return None
        seen = look(led.found)
        if led.writing is not None:
            led.is_changed = True  # a request that is under way does not have the newest changes
            await led.stored()
        return seen

    def change_in_background(self, key: SharePartitionKey, act: Act) -> None:
        """Change a state, if it is here, without waiting. A change that is lost was never acknowledged."""
        led = self._current(key)
        if led is not None:
            self._change(led, act)

    def _change(self, led: _Led, act: Act) -> bool:
        """Change a state and begin to store the change; return whether there is anything to store."""
        before = led.found.start_offset
        batches = act(led.found)
        if not batches and led.found.start_offset == before:
            return False
        led.changes += batches
        led.is_changed = True
        self._wake(led.key)
        if led.writing is None:
            led.writing = asyncio.get_running_loop().create_task(self._write(led))
        return True

    async def _write(self, led: _Led) -> None:
        """Store all changes of a state, one request after another."""
        waiters: list[asyncio.Future[None]] = []
        try:
            while led.is_changed:
                waiters, led.waiters = led.waiters, []
                changes, led.changes = led.changes, []
                led.is_changed = False
                wanted = Write(led.state_epoch, led.leader_epoch, led.found.start_offset, changes)
                await self._persister.write(led.key, wanted, lambda: self._led.get(led.key) is led)
                for waiter in waiters:
                    settle(waiter, None)
        except Unavailable as error:
            logger.warning(
                "the progress of share group %s in partition %d of topic %s is read again, because a change "
                "could not be stored: %s",
                led.key.group_id,
                led.key.partition,
                led.key.topic_id,
                error,
            )
            self._give_up(led, error, waiters)
            if error.error_code is ErrorCode.invalid_request:
                # The state was deleted with its group; whoever is still there must ask for the group again.
                self._end_sessions(led.key.group_id)
        except BaseException:
            self._give_up(led, Unavailable(ErrorCode.not_coordinator), waiters)
            raise
        finally:
            led.writing = None
        self.drop_unread(led.key.group_id)

    def drop_unread(self, group_id: str) -> None:
        """Forget the stored states of a group that nobody reads here any more; those with dead letters are
        kept until the letters are written.
        """
        if self._is_read(group_id):
            return
        for key, led in list(self._led.items()):
            is_settled = not led.is_changed and led.writing is None and not led.found.is_sending
            if key.group_id == group_id and is_settled:
                del self._led[key]

    def drop(self, key: SharePartitionKey) -> None:
        """Forget the state of a partition; this gateway stores it now, or it began anew. A change that is
        under way is not tried again: it would replace what is stored since.
        """
        led = self._led.get(key)
        if led is not None:
            self._give_up(led, Unavailable(ErrorCode.not_leader_or_follower))
            if led.writing is not None:
                led.writing.cancel()

    def drop_gone(self, topics: Container[uuid.UUID]) -> None:
        """Forget the states of partitions that other gateways lead, and of topics not in `topics`."""
        for key, led in list(self._led.items()):
            if not led.is_current or key.topic_id not in topics:
                self.drop(key)

    def partition_closed(self, partition: Partition) -> None:
        """Forget the states of a partition that another gateway leads now, or whose topic was deleted."""
        for key, led in list(self._led.items()):
            if led.partition is partition:
                self.drop(key)

    def stop(self) -> None:
        """End the requests to share coordinators; whoever waits for them is refused."""
        for led in list(self._led.values()):
            if led.writing is not None:
                led.writing.cancel()
        for reading in self._reading.values():
            reading.cancel()

    def _give_up(self, led: _Led, error: Unavailable, waiters: Sequence[asyncio.Future[None]] = ()) -> None:
        """Drop a state and refuse the requests that wait for its changes."""
        if self._led.get(led.key) is led:
            del self._led[led.key]
        waiting, led.waiters = [*waiters, *led.waiters], []
        led.is_changed = False
        for waiter in waiting:
            settle(waiter, None, error)
        self._wake(led.key)
