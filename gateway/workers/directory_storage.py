"""Workers that share a data directory: this process has its lock, writes its metadata, and says who serves.

`Commits` carries out the changes of the metadata that workers ask for, and tells all workers each durable
change. A change that creates a topic waits while a worker still uses the directories of a removed topic of
that name. Whoever waits has folded in the whole log: any other change refuses what waits, because the worker
must decide again. So no worker waits for one that waits.

`Moves` carries out the moves of partitions between workers that somebody has ordered, by Kafka's tools for
one. A partition changes its leader only while neither the old leader nor the new one runs: the life of a
process is the lock of its partitions. So both stop cleanly, the facts about the partition go from the files
of one to those of the other, the metadata names the new leader, and both start again.
"""

from __future__ import annotations

import logging
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.gateway.config import Config
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import NO_MOVE, PartitionMove, move_all, wanted
from seqgate.gateway.metadata.records import RegisterBrokerRecord, TopicRecord, decode_record
from seqgate.gateway.runtime.topics.brokers import advertised_endpoint
from seqgate.gateway.workers.leaving_topics import LeavingTopics, LeftDirectory
from seqgate.gateway.workers.link import (
    Commit,
    CommitRefused,
    CommittedChange,
    FromWorker,
    Left,
    Ready,
    RoundReport,
    RoundWanted,
)
from seqgate.gateway.workers.metadata_writer import MetadataWriter
from seqgate.gateway.workers.shared_directory import SharedDirectory, share_of
from seqgate.gateway.workers.staging_rounds import StagingRounds
from seqgate.gateway.workers.worker_brokers import WorkerStart, died, registration, serves
from seqgate.gateway.workers.worker_process import Ending, WorkerProcess, WorkerStorage
from seqgate.log import IncompatibleFormat, LogError

logger = logging.getLogger(__name__)

RunWorker = Callable[[Config, int, socket.socket, WorkerStart], int]
"""Runs a worker in its own process, with its number, stream and start; returns the exit code."""


class DirectoryStorage(WorkerStorage):
    """The data directory of the workers, and their registrations in its metadata."""

    def __init__(self, configs: Mapping[int, Config], shared: SharedDirectory, run_worker: RunWorker) -> None:
        """Take the settings of each worker by its number, and the directory, which nobody has open."""
        self._configs = configs
        self._shared = shared
        self._metadata = shared.metadata
        self._run_worker = run_worker
        self._root = Path(configs[1].str("log.dirs"))
        self._first_id = configs[1].int("node.id")
        self._commits: Commits
        self._rounds: StagingRounds
        self._moves = Moves(self._metadata, [self.node_id(number) for number in configs], shared.hand_on)
        self._moved: list[int] = []
        """The workers that have stopped so that partitions can move."""
        self._checkpoint_every_s = configs[1].int("log.flush.offset.checkpoint.interval.ms") / 1000
        self._checkpoint_at_s = 0.0

    def begin(self, workers: Mapping[int, WorkerProcess]) -> Sequence[Collection[int]]:
        self._commits = Commits(self._metadata, workers, self._shared.take_away)
        timeout_s = self._configs[1].int("seqgate.workers.timeout.ms") / 1000
        self._rounds = StagingRounds(self._shared, workers, self._configs, timeout_s)
        self._shared.share_out([self._registration(number) for number in self._configs])
        # Nobody may create a topic whose name a stray directory has before worker 1 has put that away.
        rest = [number for number in self._configs if number > 1]
        return [[1], rest] if self._shared.strays else [[1, *rest]]

    def node_id(self, number: int) -> int:
        return self._first_id + number - 1

    def entry_point(self, number: int, connection: socket.socket, *, is_again: bool) -> Callable[[], int]:
        share = share_of(
            self._root,
            self.node_id(number),
            self._metadata.image,
            self._shared.strays if number == 1 and not is_again else None,
            is_again=is_again,
            tells_of_metadata=number == 1,
        )
        metadata = self._metadata
        start = WorkerStart(self._first_id, share, metadata.image, metadata.end_offset, connection)
        return partial(self._run_worker, self._configs[number], number, connection, start)

    def take(self, worker: WorkerProcess, message: FromWorker, now_s: float) -> None:
        if isinstance(message, Commit):
            self._commits.take(worker, message, now_s)
        elif isinstance(message, Left):
            self._commits.left(worker, message.topic_id)
        elif isinstance(message, RoundWanted):
            self._rounds.begin(worker, now_s)
        elif isinstance(message, RoundReport):
            self._rounds.take(worker, message, now_s)

    def register(self, worker: WorkerProcess) -> bool:
        broker = self._registration(worker.number, worker.ready)
        return self._change_safely(lambda: list(serves(self._metadata.image, broker)))

    def to_stop(self, now_s: float) -> Collection[int]:
        return () if self._rounds.is_under_way else self._numbers(self._moves.begin(now_s))

    def late(self, now_s: float) -> Collection[int]:
        return self._numbers(self._moves.late(now_s))

    def ended(self, worker: WorkerProcess, now_s: float, *, is_clean: bool) -> Ending:
        if not self._moves.is_awaited(worker.node_id):
            return Ending(is_wanted=False, start=())
        if is_clean:
            self._moved.append(worker.number)
        start: list[int] = []
        if self._moves.ended(worker.node_id, now_s, is_clean=is_clean):
            start, self._moved = self._moved, []
        return Ending(is_clean, start)

    def _numbers(self, node_ids: Collection[int]) -> Collection[int]:
        return [node_id - self._first_id + 1 for node_id in node_ids]

    def died(self, worker: WorkerProcess) -> None:
        self._change_safely(lambda: list(died(self._metadata.image, worker.node_id)))

    def run_due(self, now_s: float) -> None:
        self._commits.run_due(now_s)
        self._rounds.run_due(now_s)
        if now_s >= self._checkpoint_at_s:
            self._checkpoint(now_s)

    def _checkpoint(self, now_s: float) -> None:
        self._checkpoint_at_s = now_s + self._checkpoint_every_s
        try:
            self._metadata.checkpoint()
        except OSError as error:
            logger.error("the recovery point of the metadata can't be written: %s", error)  # noqa: TRY400

    def _change_safely(self, decide: Callable[[], list[object]]) -> bool:
        try:
            self._metadata.catch_up()
            self._metadata.change(decide())  # type: ignore[arg-type]
        except (LogError, OSError) as error:
            logger.error("the metadata can't be written: %s", error)  # noqa: TRY400 - needs no traceback
            return False
        return True

    def _registration(self, number: int, ready: Ready | None = None) -> RegisterBrokerRecord:
        """Return a worker's registration: with the addresses in its settings, until it reports its own."""
        config = self._configs[number]
        if ready is None:
            places = (
                (listener.name, advertised_endpoint(config, listener, listener.port))
                for listener in config.listeners
            )
            endpoints = {name: (place.host, place.port) for name, place in places}
        else:
            endpoints = ready.endpoints
        return registration(
            config.int("node.id"),
            # The log ends higher at each registration.
            self._metadata.end_offset + number,
            uuid.uuid4(),
            endpoints,
            config.optional_str("broker.rack"),
        )


WAIT_LIMIT_S: Final = 10.0
"""How long a creation, and its worker's next changes, wait for a name; then the client tries again."""


class _Waiting(NamedTuple):
    worker: WorkerProcess
    commit: Commit
    since_s: float
    why: str


class Commits:
    """The commits of all workers. `workers` are those whose processes live."""

    def __init__(
        self,
        metadata: MetadataWriter,
        workers: Mapping[int, WorkerProcess],
        take_away: Callable[[LeftDirectory], None],
    ) -> None:
        """Take the metadata; `take_away` removes a directory that a dead worker has left."""
        self._metadata = metadata
        self._workers = workers
        self._take_away = take_away
        self._leaving = LeavingTopics()
        self._waiting: list[_Waiting] = []
        """The commits that wait for a name: at most one of each worker."""
        self._asker: tuple[WorkerProcess, int] | None = None
        """The worker whose commit is being carried out, and the number of the commit."""
        metadata.when_removed.append(self._leaving.removed)
        metadata.when_changed.append(self._tell)

    def take(self, worker: WorkerProcess, commit: Commit, now_s: float) -> None:
        """Carry a commit out, refuse it, or let it wait for the names of its topics."""
        try:
            self._metadata.catch_up()
            if commit.end_offset != self._metadata.end_offset:
                worker.send(CommitRefused(commit.number))
                return
            why = self._why_it_waits(commit)
            if why is not None:
                self._waiting.append(_Waiting(worker, commit, now_s, why))
                return
            self._asker = worker, commit.number
            self._metadata.append(commit.records)
        except (LogError, OSError) as error:
            logger.error("the metadata can't be written: %s", error)  # noqa: TRY400 - needs no traceback
            worker.send(CommitRefused(commit.number, f"the metadata can't be written: {error}"))
        finally:
            self._asker = None

    def _why_it_waits(self, commit: Commit) -> str | None:
        if not self._leaving:
            return None
        records = map(decode_record, commit.records)
        used = self._leaving.users(record.name for record in records if isinstance(record, TopicRecord))
        for name, node_ids in used.items():
            workers = ", ".join(f"worker {number}" for number in self._numbers(node_ids))
            return f"{workers} has not let go of the deleted topic {name} yet; retry later"
        return None

    def _numbers(self, node_ids: Iterable[int]) -> list[int]:
        return [number for number, worker in self._workers.items() if worker.node_id in node_ids]

    def _tell(self, end_offset: int, records: list[bytes]) -> None:
        """Tell all workers a durable change; the worker that asked learns that the change is its own."""
        for worker in self._workers.values():
            if self._asker is not None and self._asker[0] is worker:
                worker.send(CommittedChange(end_offset, records, self._asker[1]))
            else:
                worker.send(CommittedChange(end_offset, records))
        for waiting in self._waiting:
            waiting.worker.send(CommitRefused(waiting.commit.number))
        self._waiting.clear()

    def left(self, worker: WorkerProcess, topic_id: uuid.UUID) -> None:
        self._leaving.left(worker.node_id, topic_id)

    def run_due(self, now_s: float) -> None:
        """Take away what dead workers left, and retry waiting commits. Call after anything has happened."""
        if self._leaving:
            alive = [worker.node_id for worker in self._workers.values()]
            for directory in self._leaving.left_by_the_dead(alive):
                self._take_away(directory)
        waiting, self._waiting = self._waiting, []
        for worker, commit, since_s, why in waiting:
            if self._workers.get(worker.number) is not worker:
                continue
            if now_s - since_s > WAIT_LIMIT_S and self._why_it_waits(commit) is not None:
                worker.send(CommitRefused(commit.number, why))
            else:
                self.take(worker, commit, since_s)


STOP_LIMIT_S: Final = 30.0
"""How long the workers have to stop cleanly. Then the rest is killed, and the moves are tried again."""
RETRY_S: Final = 5.0
"""The pause before moves are tried again that have failed."""


HandOn = Callable[[int, int, Collection[tuple[str, int]]], None]
"""Called with the node ids of the old and the new leader, and the partitions by topic and index."""


def ordered(image: MetadataImage, node_ids: Collection[int]) -> list[PartitionMove]:
    """Return the moves from one of these workers to another that are ordered and not carried out."""
    return [
        PartitionMove(
            topic.topic_id,
            index,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.next_leader,
        )
        for topic in image.topics_by_id.values()
        for index, partition in topic.partitions.items()
        if partition.next_leader not in {NO_MOVE, partition.leader}
        and partition.next_leader in node_ids
        and partition.leader in node_ids
    ]


class Moves:
    """At most one round of moves at a time. The supervisor stops and starts the workers."""

    def __init__(self, metadata: MetadataWriter, node_ids: Collection[int], hand_on: HandOn) -> None:
        """Take the metadata; `hand_on` copies facts about partitions from one worker's files to another's."""
        self._metadata = metadata
        self._node_ids = node_ids
        self._hand_on = hand_on
        self._moves: list[PartitionMove] = []
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
        """Note that a worker has ended; after the last, carry the moves out. Return whether that is so."""
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
        return node_id in self._awaited

    def _carry_out(self) -> None:
        self._metadata.catch_up()
        image = self._metadata.image
        # The workers that still ran may have deleted topics, or replaced orders.
        moves = [move for move in self._moves if wanted(image, move)]
        keys: dict[tuple[int, int], set[tuple[str, int]]] = defaultdict(set)
        for move in moves:
            keys[move.leader, move.to].add((image.topics_by_id[move.topic_id].name, move.partition))
        for (leader, to), some in keys.items():
            self._hand_on(leader, to, some)
        decision = move_all(image, moves)
        self._metadata.change(decision.records)
        logger.info("moved partitions: %d", sum(decision.answer))
