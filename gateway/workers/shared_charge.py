"""Workers that share a data directory: this process has its lock, writes its metadata, and says who serves."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from gateway.config import Config
from gateway.metadata.records import RegisterBrokerRecord
from gateway.runtime.topics.brokers import advertised_endpoint
from gateway.workers.charge import Ending
from gateway.workers.commits import Commits
from gateway.workers.messages import Commit, FromWorker, Left, Ready
from gateway.workers.moves import Moves
from gateway.workers.seat import Seat
from gateway.workers.seating import died, registration, serves
from gateway.workers.shared_directory import SharedDirectory, share_of
from gateway.workers.worker_process import WorkerProcess
from log import LogError

logger = logging.getLogger(__name__)

RunWorker = Callable[[Config, Seat], int]
"""Runs a worker in its own process; returns the exit code."""


class SharedCharge:
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
        self._moves = Moves(self._metadata, [self.node_id(number) for number in configs], shared.hand_on)
        self._moved: list[int] = []
        """The workers that have stopped so that partitions can move."""
        self._checkpoint_every_s = configs[1].int("log.flush.offset.checkpoint.interval.ms") / 1000
        self._checkpoint_at_s = 0.0

    def begin(self, workers: Mapping[int, WorkerProcess]) -> Sequence[Collection[int]]:
        self._commits = Commits(self._metadata, workers, self._shared.take_away)
        self._shared.share_out([self._registration(number) for number in self._configs])
        # Nobody may create a topic whose name a stray directory has before worker 1 has put that away.
        rest = [number for number in self._configs if number > 1]
        return [[1], rest] if self._shared.strays else [[1, *rest]]

    def node_id(self, number: int) -> int:
        return self._first_id + number - 1

    def seat(self, number: int, connection: socket.socket, *, is_again: bool) -> Callable[[], int]:
        share = share_of(
            self._root,
            self.node_id(number),
            self._metadata.image,
            self._shared.strays if number == 1 and not is_again else None,
            is_again=is_again,
            tells_of_metadata=number == 1,
        )
        seat = Seat(
            number, self._first_id, share, self._metadata.image, self._metadata.end_offset, connection
        )
        return lambda: self._run_worker(self._configs[number], seat)

    def take(self, worker: WorkerProcess, message: FromWorker, now_s: float) -> None:
        if isinstance(message, Commit):
            self._commits.take(worker, message, now_s)
        elif isinstance(message, Left):
            self._commits.left(worker, message.topic_id)

    def register(self, worker: WorkerProcess) -> bool:
        broker = self._registration(worker.number, worker.ready)
        return self._change_safely(lambda: list(serves(self._metadata.image, broker)))

    def to_stop(self, now_s: float) -> Collection[int]:
        return self._numbers(self._moves.begin(now_s))

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

    def look(self, now_s: float) -> None:
        self._commits.look(now_s)
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
        """Return the registration of a worker: with the addresses of its settings, until it has told its own."""
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
