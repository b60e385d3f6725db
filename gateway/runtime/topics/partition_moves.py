"""Hands partitions that this gateway leads over to other gateways: ordered ones at once, others to spread
leaders after a join.

A partition moves in these steps, and nobody leads it between the first and the last:

    1. withhold: appends and reads get NOT_LEADER_OR_FOLLOWER
    2. flush: all records are in the session's log in the bucket, and acknowledged
    3. upload: the bucket has the whole history of the partition, so the new leader needs no log of this
       session
    4. commit: the metadata names the new leader, in the next leader epoch

If one of the first three steps fails, or the order is taken back or replaced meanwhile, this gateway serves
the partition again. If the last step fails, this gateway waits until the metadata shows who leads the
partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from seqgate.gateway.config import Config
from seqgate.gateway.metadata.leadership import (
    NO_MOVE,
    PartitionMove,
    move_all,
    planned_moves,
    stay_all,
    wanted,
)
from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.brokers import Brokers
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.tasks import end_tasks, happens
from seqgate.log import StorageFailed

logger = logging.getLogger(__name__)

RETRIED_AFTER_S: Final = 2.0
"""How long a gateway waits after moves that failed, before it plans again."""


class HandOvers(Protocol):
    """Makes partitions ready for another leader."""

    async def hand_over(self, topic_id: UUID, index: int) -> None:
        """Serve a partition no more, and upload its rest. Raises errors of the log and the store."""

    def keep(self, topic_id: UUID, index: int) -> None:
        """Serve a partition again that was handed over, and that no other gateway leads."""


class PartitionMoves:
    def __init__(
        self,
        config: Config,
        metadata_log: MetadataLog,
        brokers: Brokers,
        partitions: Partitions,
        flusher: LogFlusher,
        hand_overs: HandOvers,
        seconds: Callable[[], float],
    ) -> None:
        self._config = config
        self._metadata_log = metadata_log
        self._brokers = brokers
        self._partitions = partitions
        self._flusher = flusher
        self._hand_overs = hand_overs
        self._seconds = seconds
        self._wake = asyncio.Event()
        self._balance_at_s: float | None = None
        """When leaders are spread next; None while no gateway has joined or ended."""
        self._task: asyncio.Task[None] | None = None
        self.moved = 0

    def start(self) -> None:
        """Follow the metadata, and carry out moves from now on."""
        self._balance_later()
        self._metadata_log.add_listener(self._changed)
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="moves of partitions")

    async def stop(self) -> None:
        """Stop planning; moves in progress end or are given up."""
        await end_tasks(self._task)

    async def _changed(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord):
                self._balance_later()
                self._wake.set()
            elif isinstance(record, PartitionRecord) and record.next_leader != NO_MOVE:
                self._wake.set()

    def _balance_later(self) -> None:
        if self._config.bool("seqgate.cluster.balance.enable"):
            self._balance_at_s = self._seconds() + self._config.int("seqgate.cluster.balance.delay.ms") / 1000

    async def _run(self) -> None:
        while True:
            try:
                await self._move_or_rest()
            except Exception:
                logger.exception("no partition can be moved now")
                await asyncio.sleep(RETRIED_AFTER_S)

    async def _move_or_rest(self) -> None:
        self._wake.clear()
        is_balanced = self._balance_at_s is not None and self._seconds() >= self._balance_at_s
        moves = planned_moves(self._metadata_log.image, self._brokers.node_id, is_balanced=is_balanced)
        if is_balanced and not moves:
            self._balance_at_s = None
        present = [move for move in moves if not self._is_awaited(move)]
        if present:
            await self._carry_out(present)
        elif moves:
            # Their records have not come yet. A partition is handed over when this gateway has served it.
            await self._rest_until(self._seconds() + RETRIED_AFTER_S)
        else:
            await self._rest_until(self._balance_at_s)

    async def _rest_until(self, at_s: float | None) -> None:
        """Wait until there may be something to move: the metadata changes, or a time has come."""
        await happens(self._wake, None if at_s is None else max(0.0, at_s - self._seconds()))

    async def _carry_out(self, moves: Sequence[PartitionMove]) -> None:
        """Hand partitions over in groups, until all are, or gateways came or went so that the plan is old.
        Rest only if all moves failed: the next plan begins with those that failed, and the others follow.
        """
        at_once = self._config.int("seqgate.cluster.moves.at.once")
        tried = moved = 0
        for first in range(0, len(moves), at_once):
            image = self._metadata_log.image
            group = [move for move in moves[first : first + at_once] if wanted(image, move)]
            tried += len(group)
            try:
                moved += await self.hand_over(group)
            except Exception:
                logger.exception("partitions can't be handed over")
            self._serve_again(group)
            if self._wake.is_set():
                break
        if tried and not moved:
            await asyncio.sleep(RETRIED_AFTER_S)

    def _serve_again(self, moves: Iterable[PartitionMove]) -> None:
        """Open what has not moved, for retention, and for coordinators that have forgotten their state."""
        by_id = self._metadata_log.image.topics_by_id
        for move in moves:
            topic = by_id.get(move.topic_id)
            if topic is not None and self._partitions.get(topic.name, move.partition) is not None:
                self._partitions.became_ready(topic.name, move.partition)

    def _is_awaited(self, move: PartitionMove) -> bool:
        topic = self._metadata_log.image.topics_by_id.get(move.topic_id)
        return topic is not None and self._partitions.is_awaited(topic.name, move.partition)

    async def hand_over(self, moves: Sequence[PartitionMove]) -> int:
        """Hand partitions over that this gateway leads; return how many have moved."""
        by_id = self._metadata_log.image.topics_by_id
        places = {move: (by_id[move.topic_id].name, move.partition) for move in moves}
        try:
            withheld = [self._withhold(place) for place in places.values()]
            results = await asyncio.gather(*map(self._finish, withheld), return_exceptions=True)
        except BaseException:
            self._keep(places.items())
            raise
        ready = dict(places)
        for (move, place), result in zip(places.items(), results, strict=True):
            if isinstance(result, BaseException):
                logger.error("%s-%d can't be handed over: %s", *place, result)
                self._keep([(move, ready.pop(move))])
        moved = await self._commit(list(ready))
        stayed = [move for move, has_moved in zip(ready, moved, strict=True) if not has_moved]
        self._keep((move, ready.pop(move)) for move in stayed)
        self._brokers.withheld.difference_update(ready.values())
        self.moved += sum(moved)
        return sum(moved)

    def _keep(self, moves: Iterable[tuple[PartitionMove, tuple[str, int]]]) -> None:
        """Withhold partitions no more that have not moved."""
        for move, place in moves:
            self._hand_overs.keep(move.topic_id, move.partition)
            self._brokers.withheld.discard(place)

    def _withhold(self, place: tuple[str, int]) -> Partition | None:
        """Stop serving a partition, and appending to it; return it, None if it can't be opened."""
        partition = self._partitions.get(*place)
        if partition is not None:
            partition.is_handed_over = True
        self._brokers.withheld.add(place)
        self._partitions.release(*place)
        return partition

    async def _commit(self, moves: Sequence[PartitionMove]) -> list[bool]:
        """Name the new leaders in the metadata; return which of the partitions have moved. Waits until the
        metadata can be changed.

        A change that failed may be in the metadata all the same, now or later, and the new leaders then
        serve. So nobody here does before another change has shown what became of the first one.
        """
        if not moves:
            return []
        decide = move_all
        while True:
            try:
                return await self._metadata_log.commit(partial(decide, moves=moves))
            except StorageFailed as error:
                logger.error(  # noqa: TRY400 - an expected failure of the store
                    "whether %d partitions have moved is not known now, and they wait: %s", len(moves), error
                )
            except Exception:
                logger.exception(
                    "whether %d partitions have moved is not known now, and they wait", len(moves)
                )
            decide = stay_all
            await asyncio.sleep(RETRIED_AFTER_S)

    async def _finish(self, partition: Partition | None) -> None:
        """Let the bucket have all of a withheld partition. Raises LogError, and errors of the store."""
        if partition is None:
            raise StorageFailed("its log can't be opened")
        log = partition.log
        if log.offline:
            raise StorageFailed("its log is offline")
        if log.recovery_point < log.log_end_offset:
            await self._flusher.flushed(log)
        await self._hand_overs.hand_over(log.topic_id, partition.index)
