"""The state of all transactional ids: each id's shard, and the newest records that are not durable yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.transaction.records import DECIDED, Transaction, TransactionRecord
from seqgate.gateway.coordinator.transaction.rules import NeedsProducerId
from seqgate.gateway.coordinator.transaction.shard import TransactionShard
from seqgate.gateway.runtime.coordinators.shards import CoordinatorShards
from seqgate.gateway.runtime.operations.operations import LoadedShard, Operation, Unavailable, settle
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics.topic_lifecycle import InternalTopics
from seqgate.pid_allocator import NoProducerIds, ProducerIdAllocator

logger = logging.getLogger(__name__)

Judge = Callable[[Transaction | None, int], Transaction | None]
"""The function that decides the next state of a transactional id at a time (ms); None for no change. It may
raise.
"""


class Written(NamedTuple):
    """A state of a transactional id, and the shard and offset that must be durable before an answer reports
    this state.
    """

    loaded: LoadedShard[TransactionShard]
    value: Transaction | None
    last_offset: int
    is_new: bool = True
    """Whether the change has written a record; False when the state was the same before."""


class _Outcome(NamedTuple):
    after: Transaction | None
    is_new: bool


def _operation(transactional_id: str, judge: Judge) -> Operation[TransactionShard, _Outcome]:
    def operation(shard: TransactionShard, now_ms: int) -> Change[_Outcome]:
        before = shard.transactions.get(transactional_id)
        after = judge(before, now_ms)
        if after is None:
            return Change(_Outcome(before, False))
        return Change(_Outcome(after, True), (TransactionRecord(transactional_id, after),))

    return operation


class TransactionState:
    """Finds transactional ids and changes them, each change by one record."""

    def __init__(
        self,
        shards: CoordinatorShards[TransactionShard],
        internal_topics: InternalTopics,
        producer_ids: ProducerIdAllocator,
        on_decided: Callable[[str, Written], object],
    ) -> None:
        """Begin without state.

        Begin without state. `on_decided` is called with every decided end, in the turn in which the decision
        is written.
        """
        self._on_decided = on_decided
        self._producer_ids = producer_ids
        self._shards = shards
        self._internal_topics = internal_topics
        self._unpersisted: dict[str, tuple[Partition, int]] = {}
        """The partition and offset of an id's newest record, for the ids whose newest record is not known to
        be durable.
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

    async def change(
        self, loaded: LoadedShard[TransactionShard], transactional_id: str, judge: Judge
    ) -> Written:
        """Change the state of a transactional id with the shard's next round.

        Returns once the round is written; the caller waits until it is durable
        (`CoordinatorShards.persisted`). Raises Unavailable, and the errors of `judge`.
        """
        waiter: asyncio.Future[Written] = asyncio.get_running_loop().create_future()

        def noted(outcome: _Outcome, last_offset: int) -> None:
            settle(waiter, self._note(loaded, transactional_id, outcome, last_offset))

        operation = _operation(transactional_id, judge)
        self._shards.ask(loaded, operation, lambda _, error: settle(waiter, None, error), noted)
        return await waiter

    async def change_with_id(
        self,
        transactional_id: str,
        judge: Callable[[Transaction | None, int | None, int], Transaction | None],
        *,
        is_needed: bool,
    ) -> Written:
        """Change a transactional id as `change` does; `judge` gets a fresh producer id where it needs one."""
        fresh_id = await self._fresh_producer_id() if is_needed else None
        loaded = self.of(transactional_id)
        try:
            return await self.change(
                loaded, transactional_id, lambda current, now_ms: judge(current, fresh_id, now_ms)
            )
        except NeedsProducerId:
            # an operation of the same round has used up the epochs, or forgotten the id
            return await self.change_with_id(transactional_id, judge, is_needed=True)

    async def _fresh_producer_id(self) -> int:
        """Return a new producer id. Raises Unavailable."""
        try:
            return await self._producer_ids.next_producer_id()
        except NoProducerIds as error:
            logger.warning("no producer id: %s", error)
            raise Unavailable(ErrorCode.coordinator_load_in_progress) from error

    def apply(self, loaded: LoadedShard[TransactionShard], transactional_id: str, judge: Judge) -> Written:
        """Change the state of a transactional id at once. Raises Unavailable, and the errors of `judge`."""
        outcome, last_offset = self._shards.apply(loaded, _operation(transactional_id, judge))
        return self._note(loaded, transactional_id, outcome, last_offset)

    def _note(
        self,
        loaded: LoadedShard[TransactionShard],
        transactional_id: str,
        outcome: _Outcome,
        last_offset: int,
    ) -> Written:
        """Remember the newest record of an id, and begin an end that it decides."""
        written = Written(loaded, outcome.after, last_offset, outcome.is_new)
        if outcome.is_new:
            self._unpersisted[transactional_id] = loaded.partition, last_offset
            if outcome.after is not None and outcome.after.state in DECIDED:
                self._on_decided(transactional_id, written)
        return written

    def forget_expired(self, loaded: LoadedShard[TransactionShard], expiration_ms: int) -> None:
        """Forget the transactional ids that have been unused until they expired. Raises Unavailable."""

        def operation(shard: TransactionShard, now_ms: int) -> Change[list[str]]:
            expired = shard.expired(expiration_ms, now_ms)
            return Change(expired, [TransactionRecord(name, None) for name in expired])

        self.lost(self._shards.apply(loaded, operation).answer)

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
