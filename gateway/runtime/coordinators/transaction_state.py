"""The state of all transactional ids: each id's shard, and the newest records that are not durable yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Change
from gateway.coordinator.transaction.records import Transaction, TransactionRecord
from gateway.coordinator.transaction.shard import TransactionShard
from gateway.runtime.coordinators.operations import Unavailable
from gateway.runtime.coordinators.shard import LoadedShard
from gateway.runtime.coordinators.shards import CoordinatorShards
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.topics.internal_topics import InternalTopics


class Written(NamedTuple):
    """A state of a transactional id, and the partition and offset of its record."""

    loaded: LoadedShard[TransactionShard]
    value: Transaction
    last_offset: int


class TransactionState:
    """Finds transactional ids and changes them, each change by one record."""

    def __init__(self, shards: CoordinatorShards[TransactionShard], internal_topics: InternalTopics) -> None:
        self._shards = shards
        self._internal_topics = internal_topics
        self._unpersisted: dict[str, tuple[Partition, int]] = {}
        """The partition and offset of an id's newest record, for the ids whose newest record is not known to be
        durable.
        """

    def of(self, transactional_id: str) -> LoadedShard[TransactionShard]:
        """Return the shard of a transactional id. Raises Unavailable."""
        if self._internal_topics.index_for(self._shards.topic.name, transactional_id) is None:
            # clients then look for the coordinator, which creates the topic
            raise Unavailable(ErrorCode.not_coordinator)
        return self._shards.of(transactional_id)

    def all(self) -> list[tuple[str, Transaction]]:
        """Return every transactional id; those of a shard that can't be loaded are left out."""
        self._shards.load_stored()
        return [
            item for loaded in self._shards if loaded.is_current for item in loaded.shard.transactions.items()
        ]

    @property
    def count(self) -> int:
        """Return the number of known transactional ids."""
        return sum(len(loaded.shard.transactions) for loaded in self._shards)

    def apply(
        self,
        loaded: LoadedShard[TransactionShard],
        transactional_id: str,
        judge: Callable[[Transaction | None, int], Transaction | None],
    ) -> Written | None:
        """Replace the state of a transactional id with the one that `judge` decides on at a time (ms).

        Returns None where `judge` changes nothing. Raises Unavailable, and the errors of `judge`.
        """

        def operation(shard: TransactionShard, now_ms: int) -> Change[Transaction | None]:
            after = judge(shard.transactions.get(transactional_id), now_ms)
            return Change(after, () if after is None else (TransactionRecord(transactional_id, after),))

        value, last_offset = self._shards.apply(loaded, operation)
        if value is None:
            return None
        self._unpersisted[transactional_id] = loaded.partition, last_offset
        return Written(loaded, value, last_offset)

    def forget(self, loaded: LoadedShard[TransactionShard], transactional_ids: Sequence[str]) -> None:
        """Forget transactional ids. Raises Unavailable."""
        records = [TransactionRecord(name, None) for name in transactional_ids]
        self._shards.apply(loaded, lambda _, __: Change(None, records))
        self.lost(transactional_ids)

    def lost(self, transactional_ids: Sequence[str]) -> None:
        """Forget the undurable records of these transactional ids."""
        for transactional_id in transactional_ids:
            self._unpersisted.pop(transactional_id, None)

    def unpersisted(self, transactional_id: str) -> tuple[Partition, int] | None:
        """Return the partition and offset of an id's newest record, while that record is not durable."""
        found = self._unpersisted.get(transactional_id)
        if found is not None and found[0].is_persisted(found[1]):
            del self._unpersisted[transactional_id]
            return None
        return found
