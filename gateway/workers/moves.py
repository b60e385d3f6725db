"""The moves of partitions between workers that somebody has ordered, by Kafka's tools for one.

A partition changes its leader only while neither the old leader nor the new one runs: the life of a process is the lock of its partitions.
So both stop cleanly, the facts about the partition go from the files of one to those of the other, the metadata names the new leader, and
both start again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final

from gateway.metadata.image import MetadataImage
from gateway.metadata.leadership import NO_MOVE, Move, move_all
from gateway.workers.metadata_writer import MetadataWriter
from log import IncompatibleFormat, LogError

logger = logging.getLogger(__name__)

STOP_LIMIT_S: Final = 30.0
"""How long the workers concerned have to stop cleanly. Then those that are left are killed, and the moves are tried again."""
RETRY_S: Final = 5.0
"""The pause before moves are tried again that have failed."""


HandOn = Callable[[int, int, Collection[tuple[str, int]]], None]
"""Called with the node ids of the old and the new leader, and the partitions by topic and index."""


def ordered(image: MetadataImage, node_ids: Collection[int]) -> list[Move]:
    """Return the moves from one of these workers to another that are ordered and not carried out."""
    return [
        Move(topic.topic_id, index, partition.leader, partition.leader_epoch, partition.next_leader)
        for topic in image.topics_by_id.values()
        for index, partition in topic.partitions.items()
        if partition.next_leader not in {NO_MOVE, partition.leader}
        and partition.next_leader in node_ids
        and partition.leader in node_ids
    ]


class Moves:
    """At most one round of moves at a time. The supervisor stops and starts the workers."""

    def __init__(self, metadata: MetadataWriter, node_ids: Collection[int], hand_on: HandOn) -> None:
        """Take the metadata; `hand_on` copies the facts about partitions from the files of one worker to those of another."""
        self._metadata = metadata
        self._node_ids = node_ids
        self._hand_on = hand_on
        self._moves: list[Move] = []
        self._awaited: set[int] = set()
        """The node ids of the workers that must still end."""
        self._is_clean = True
        self._until_s = 0.0
        self._again_at_s = 0.0

    def begin(self, now_s: float) -> set[int]:
        """Begin a round if moves are ordered; return the node ids of the workers that must stop."""
        if self._awaited or not self._metadata.has_orders or now_s < self._again_at_s:
            return set()
        self._metadata.has_orders = False
        self._moves = ordered(self._metadata.image, self._node_ids)
        self._awaited = {node_id for move in self._moves for node_id in (move.leader, move.to)}
        self._is_clean = True
        self._until_s = now_s + STOP_LIMIT_S
        if self._moves:
            logger.info(
                "moving partitions: %d; the workers on nodes %s stop, and start again",
                len(self._moves),
                ", ".join(map(str, sorted(self._awaited))),
            )
        return set(self._awaited)

    def late(self, now_s: float) -> Collection[int]:
        """Return the node ids of the workers that should have ended."""
        return self._awaited if now_s > self._until_s else ()

    def ended(self, node_id: int, now_s: float, *, is_clean: bool) -> bool:
        """Note that a worker has ended, and carry the moves out once all have; return whether the round is over."""
        self._awaited.discard(node_id)
        self._is_clean = self._is_clean and is_clean
        if self._awaited:
            return False
        try:
            if not self._is_clean:
                raise InterruptedError("a worker did not stop cleanly")
            self._carry_out()
        except (LogError, IncompatibleFormat, OSError) as error:
            logger.error("partitions are not moved, this is tried again: %s", error)  # noqa: TRY400
            self._metadata.has_orders = True
            self._again_at_s = now_s + RETRY_S
        return True

    def is_awaited(self, node_id: int) -> bool:
        """Return whether a worker stops for the round."""
        return node_id in self._awaited

    def _carry_out(self) -> None:
        self._metadata.catch_up()
        by_id = self._metadata.image.topics_by_id
        keys: dict[tuple[int, int], set[tuple[str, int]]] = defaultdict(set)
        for move in self._moves:
            if move.topic_id in by_id:
                keys[move.leader, move.to].add((by_id[move.topic_id].name, move.partition))
        for (leader, to), some in keys.items():
            self._hand_on(leader, to, some)
        decision = move_all(self._metadata.image, self._moves)
        self._metadata.change(decision.records)
        logger.info("moved partitions: %d", sum(decision.answer))
