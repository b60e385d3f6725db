"""The delivery state of partitions that this gateway leads, and whose share coordinator is another gateway.

The state is read from the coordinator when the group first fetches from the partition. Members acquire and acknowledge here. Every
change goes to the coordinator before its answer leaves; the changes of one partition go one request after another, and those that
come during a request go together with the next one. When the coordinator refuses a change, or can't be reached, the state is
dropped, because it is ahead of what is stored: the next fetch reads it again, and what members had acquired is delivered again.
Source: Kafka's `SharePartitionManager`, `SharePartition.writeShareGroupState`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from gateway.coordinator.share.records import NOT_BEGUN, SharePartitionKey, ShareState, Write
from gateway.coordinator.share.share_partition import SharePartition, StateBatch
from gateway.runtime.coordinators.share_persister import SharePersister
from gateway.runtime.operations.operations import Unavailable, settle
from gateway.runtime.partitions.partition import Partition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Led:
    """One state: the partition and the leader epoch for which it was read, and the changes that are not stored yet."""

    key: SharePartitionKey
    partition: Partition
    leader_epoch: int
    found: SharePartition
    state_epoch: int
    changes: list[StateBatch] = field(default_factory=list)
    is_changed: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    writing: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        return not self.partition.closed and self.partition.leader_epoch == self.leader_epoch


class RemoteShares:
    """The states by key, at most one for each partition that a share session of this gateway has read."""

    def __init__(
        self,
        persister: SharePersister,
        wake: Callable[[SharePartitionKey], None],
        is_read: Callable[[str], bool],
        end_sessions: Callable[[str], None],
    ) -> None:
        """`wake` is called with the key of each state that changed. `is_read` returns whether a group has a share session here, and
        `end_sessions` ends the sessions of a deleted group.
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

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        """Return the state of a partition, if it is here."""
        led = self._led.get(key)
        return led.found if led is not None and led.is_current else None

    async def open(
        self, key: SharePartitionKey, partition: Partition, first_offset: Callable[[], int]
    ) -> SharePartition:
        """Return the state of a partition. One that was never read begins at `first_offset`. Raises Unavailable, LogError."""
        led = self._led.get(key)
        if led is not None and led.is_current:
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

    async def _read(
        self, key: SharePartitionKey, partition: Partition, first_offset: Callable[[], int]
    ) -> _Led:
        leader_epoch = partition.leader_epoch
        state = await self._persister.read(key, leader_epoch)
        if state is None or state.start_offset == NOT_BEGUN:
            begun = ShareState(first_offset(), (), 0 if state is None else state.state_epoch)
            await self._persister.initialize(key, begun.state_epoch, begun.start_offset)
            state = await self._persister.read(key, leader_epoch)
        if state is None or partition.closed:
            raise Unavailable(ErrorCode.not_leader_or_follower)
        found = SharePartition(state.start_offset)
        found.restore(state.start_offset, state.batches)
        led = _Led(key, partition, leader_epoch, found, state.state_epoch)
        self._led[key] = led
        return led

    async def change(
        self, key: SharePartitionKey, act: Callable[[SharePartition], Sequence[StateBatch]]
    ) -> None:
        """Change a state that is here, and wait until the change is stored. Raises Unavailable, and the errors of `act`."""
        led = self._led.get(key)
        if led is None or not led.is_current:
            raise Unavailable(ErrorCode.invalid_record_state)
        if self._change(led, act):
            stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            led.waiters.append(stored)
            await stored

    def change_in_background(
        self, key: SharePartitionKey, act: Callable[[SharePartition], Sequence[StateBatch]]
    ) -> None:
        """Change a state, if it is here, without waiting. A change that is lost was never acknowledged."""
        led = self._led.get(key)
        if led is not None and led.is_current:
            self._change(led, act)

    def _change(self, led: _Led, act: Callable[[SharePartition], Sequence[StateBatch]]) -> bool:
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
                await self._persister.write(led.key, wanted)
                for waiter in waiters:
                    settle(waiter, None)
        except Unavailable as error:
            self._log_loss(led.key, error)
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

    @staticmethod
    def _log_loss(key: SharePartitionKey, error: Unavailable) -> None:
        logger.warning(
            "the progress of share group %s in partition %d of topic %s is read again, because a change could not be stored: %s",
            key.group_id,
            key.partition,
            key.topic_id,
            error,
        )

    def drop_unread(self, group_id: str) -> None:
        """Forget the stored states of a group that has no share session here any more."""
        if self._is_read(group_id):
            return
        for key, led in list(self._led.items()):
            if key.group_id == group_id and not led.is_changed and led.writing is None:
                del self._led[key]

    def drop(self, key: SharePartitionKey) -> None:
        """Forget the state of a partition; this gateway stores it now, or it began anew."""
        led = self._led.get(key)
        if led is not None:
            self._give_up(led, Unavailable(ErrorCode.not_leader_or_follower))

    def drop_gone(self, topics: Container[uuid.UUID]) -> None:
        """Forget the states of partitions that this gateway no longer leads, and of topics that are not in `topics`."""
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
