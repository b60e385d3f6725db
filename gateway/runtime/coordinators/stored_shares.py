"""The delivery state of share groups that this gateway stores, in the partitions of `__share_group_state`
that it leads.

Each change of a state is appended there, and answered once it is durable. Source: Kafka's
`ShareCoordinatorService`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.share import records as share_records
from seqgate.gateway.coordinator.share.records import (
    NOT_BEGUN,
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareStates,
)
from seqgate.gateway.coordinator.share.share_partition import SharePartition, StateBatch
from seqgate.gateway.metadata.image import SHARE_STATE_TOPIC
from seqgate.gateway.runtime.coordinators.shards import (
    CoordinatorShards,
    LoadedShard,
    StateParts,
    Unavailable,
)
from seqgate.gateway.runtime.partitions.partition import Partition

A = TypeVar("A")
Act = Callable[[SharePartition], Sequence[StateBatch]]
"""Changes a delivery state; returns the changes that must be stored."""

_KEYS_PER_STEP: Final = 100


class StoredShares:
    """The states by key. A key whose state another gateway stores raises Unavailable with NOT_COORDINATOR."""

    def __init__(self, parts: StateParts, wake: Callable[[SharePartitionKey], None]) -> None:
        """`wake` is called with the key of each state that changed, or that was loaded with dead letters
        which are not written, or with records that wait to be delivered again.
        """
        self._partitions = parts.partitions
        self._wake = wake
        self.shards = CoordinatorShards(
            SHARE_STATE_TOPIC,
            "share.coordinator.state.topic",
            share_records,
            ShareStates,
            parts,
            on_load=self._wake_waiting,
        )

    def _wake_waiting(self, loaded: LoadedShard[ShareStates]) -> None:
        for key, found in loaded.shard.partitions.items():
            if found.is_sending or found.waits:
                self._wake(key)

    def _loaded(self, key: SharePartitionKey) -> LoadedShard[ShareStates]:
        return self.shards.of(key.spread_text())

    def leader_of(self, key: SharePartitionKey) -> int:
        """Return the node id of the gateway that stores the state; -1 while there is none."""
        return self.shards.leader_of(key.spread_text())

    def known(self, group_id: str) -> dict[SharePartitionKey, SharePartition]:
        """Return the states of a group that this gateway stores."""
        known: dict[SharePartitionKey, SharePartition] = {}
        for loaded in self.shards:
            known |= loaded.shard.groups.get(group_id, {})
        return known

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        """Return the state of a partition. Raises Unavailable."""
        return self._loaded(key).shard.partitions.get(key)

    async def open(
        self, key: SharePartitionKey, partition: Partition, first_offset: Callable[[], Awaitable[int]]
    ) -> SharePartition:
        """Return the state of a partition that this gateway leads; one that was never read begins at
        `first_offset`. Raises Unavailable, LogError.
        """
        found = self.find(key)
        if found is None or found.start_offset == NOT_BEGUN:
            await self.begin(key, await first_offset(), anew=False, leader_epoch=partition.leader_epoch)
            found = self.find(key)
            if found is None:
                raise Unavailable
        if found.leader_epoch < partition.leader_epoch:
            # Another gateway led the partition before: from now on its changes are refused.
            await self.run(key, lambda states, _: states.read(key, partition.leader_epoch))
            found = self.find(key)
        if found is None or found.leader_epoch != partition.leader_epoch:
            raise Unavailable(ErrorCode.not_leader_or_follower)
        return found

    async def begin(
        self, key: SharePartitionKey, start_offset: int, *, anew: bool, leader_epoch: int = 0
    ) -> None:
        """Begin a state at an offset; if `anew`, also in place of an earlier one. Raises Unavailable."""

        def operation(states: ShareStates, now_ms: int) -> Change[None]:
            found = states.partitions.get(key)
            if found is not None and not anew and found.start_offset != NOT_BEGUN:
                return Change(None)  # another fetch has created the state meanwhile
            epoch, led_at = (0, leader_epoch) if found is None else (found.state_epoch, found.leader_epoch)
            state_epoch = states.next_epoch(key, now_ms) if anew else epoch
            return Change(
                None, [ShareSnapshot(key, ShareState(start_offset, (), state_epoch, now_ms, led_at))]
            )

        await self.run(key, operation)

    async def run(self, key: SharePartitionKey, operation: Callable[[ShareStates, int], Change[A]]) -> A:
        """Carry out an operation on the states beside this key; return its answer once it is durable. Raises
        Unavailable.
        """
        return await self.shards.run(self._loaded(key), operation)

    async def change(self, key: SharePartitionKey, act: Act) -> None:
        """Change a state that is here, and wait until the change is stored. Raises Unavailable, and the
        errors of `act`.
        """

        def operation(states: ShareStates, _: int) -> Change[None]:
            if key not in states.partitions:
                raise Unavailable(ErrorCode.invalid_record_state)
            return states.change(key, act, self._wake)

        await self.run(key, operation)

    async def look(self, key: SharePartitionKey, look: Callable[[SharePartition], A]) -> A | None:
        """Return what `look` finds in a state, once all of that is stored; None without the state. Raises
        Unavailable.
        """

        def operation(states: ShareStates, _: int) -> Change[A | None]:
            found = states.partitions.get(key)
            return Change(None if found is None else look(found))

        return await self.run(key, operation)

    def change_in_background(self, key: SharePartitionKey, act: Act) -> None:
        """Change a state, if it is here, without waiting. A change that is lost was never acknowledged."""

        def operation(states: ShareStates, _: int) -> Change[None]:
            return states.change(key, act, self._wake) if key in states.partitions else Change(None)

        with contextlib.suppress(Unavailable):
            self.shards.apply(self._loaded(key), operation)

    async def forget(self, keys: Iterable[SharePartitionKey]) -> None:
        """Delete states durably. Raises Unavailable."""
        by_shard: dict[LoadedShard[ShareStates], list[SharePartitionKey]] = {}
        for key in keys:
            by_shard.setdefault(self._loaded(key), []).append(key)
        for loaded, of_shard in by_shard.items():
            for start in range(0, len(of_shard), _KEYS_PER_STEP):
                await self._forget(loaded, of_shard[start : start + _KEYS_PER_STEP])

    async def _forget(self, loaded: LoadedShard[ShareStates], keys: Sequence[SharePartitionKey]) -> None:
        await self.shards.run(loaded, lambda states, _: states.forget(keys))

    async def forget_deleted_topics(self) -> None:
        """Delete the states of topics that no longer exist; one with dead letters that are not written stays
        until they are. A failure is harmless: nobody reads such a state, and it is deleted with its group at
        the latest.
        """
        topics = self._partitions.by_id
        gone = []
        for loaded in self.shards:
            for key, found in loaded.shard.partitions.items():
                if key.topic_id not in topics and not found.is_sending:
                    gone.append(key)
            self._wake_waiting(loaded)
        with contextlib.suppress(Unavailable):
            await self.forget(gone)
