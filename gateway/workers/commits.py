"""Carries out the changes of the metadata that workers ask for, and tells all workers each durable change.

A change that creates a topic waits while a worker still uses the directories of a removed topic of that name. Whoever waits has folded in
the whole log: any other change refuses what waits, because the worker must decide again. So no worker waits for one that waits.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from gateway.metadata.records import TopicRecord, decode_record
from gateway.workers.leaving_topics import LeavingTopics, LeftDirectory
from gateway.workers.messages import Change, Commit, Refused
from gateway.workers.metadata_writer import MetadataWriter
from gateway.workers.worker_process import WorkerProcess
from log import LogError

logger = logging.getLogger(__name__)

WAIT_LIMIT_S: Final = 10.0
"""How long the creation of a topic waits for its name; then it fails, and the client tries again. Other changes of the worker wait behind it."""


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
                worker.send(Refused(commit.number))
                return
            why = self._why_it_waits(commit)
            if why is not None:
                self._waiting.append(_Waiting(worker, commit, now_s, why))
                return
            self._asker = worker, commit.number
            self._metadata.append(commit.records)
        except (LogError, OSError) as error:
            logger.error("the metadata can't be written: %s", error)  # noqa: TRY400 - needs no traceback
            worker.send(Refused(commit.number, f"the metadata can't be written: {error}"))
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
                worker.send(Change(end_offset, records, self._asker[1]))
            else:
                worker.send(Change(end_offset, records))
        for waiting in self._waiting:
            waiting.worker.send(Refused(waiting.commit.number))
        self._waiting.clear()

    def left(self, worker: WorkerProcess, topic_id: uuid.UUID) -> None:
        """Note that a worker uses no directory of a removed topic any more."""
        self._leaving.left(worker.node_id, topic_id)

    def look(self, now_s: float) -> None:
        """Take away what dead workers have left, and look again at the commits that wait. Call this after anything has happened."""
        if self._leaving:
            alive = [worker.node_id for worker in self._workers.values()]
            for directory in self._leaving.left_by_the_dead(alive):
                self._take_away(directory)
        waiting, self._waiting = self._waiting, []
        for worker, commit, since_s, why in waiting:
            if self._workers.get(worker.number) is not worker:
                continue
            if now_s - since_s > WAIT_LIMIT_S and self._why_it_waits(commit) is not None:
                worker.send(Refused(commit.number, why))
            else:
                self.take(worker, commit, since_s)
