"""Random lives of a data directory that several workers have, which is backed up by their shares.

The supervisor and all files are Seqgate's; a worker is a few lines, which take what they are told late, stand
still for too long, and die. A backup that succeeds must have exactly what all workers had acknowledged at the
moment at which all stood still. So it has no offset without its record, and no half transaction.
"""

from __future__ import annotations

import random
import socket
import uuid
from collections import deque
from pathlib import Path
from typing import Final

import pytest

from seqgate.gateway.admin.backup.command import copy_staged, restore_files
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import Repository
from seqgate.gateway.metadata.records import PartitionRecord
from seqgate.gateway.workers.link import FromSupervisor, Ready, RoundEnded, RoundReport, RoundStep
from seqgate.gateway.workers.metadata_writer import MetadataWriter
from seqgate.gateway.workers.shared_directory import SharedDirectory, make_staged_whole, share_of
from seqgate.gateway.workers.staging_rounds import HOLD_LIMIT_S, MOST_HOLDS, StagingRounds
from seqgate.gateway.workers.worker_brokers import registration
from seqgate.gateway.workers.worker_process import WorkerProcess
from seqgate.log import LogConfig, LogDirectory, PartitionLog, Storage
from seqgate.log.staging import LogCut, capture, join_shares, read_staged, remove_staging, stage_share
from tests.faults.scenario import encode
from tests.faults.written import COORDINATOR_EPOCH, Transactions, Written, committed_values, read_all
from tests.gateway.workers.test_metadata_writer import topic
from tests.log.support import NOW_MS, append_end_marker, flush
from tests.properties.backup_life import InterruptedStorage
from tests.support.seeds import chosen_seed

WORKERS: Final = (1, 2, 3)
PARTITIONS: Final = 2 * len(WORKERS)
PRODUCERS: Final = (1, 10, 12)
"""The first writes without transactions."""
CONFIG: Final = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
TOPIC: Final = topic(1)
EVENTS: Final = {"go on": 200, "serve": 60, "wait": 10, "late": 1, "stalled": 4, "die": 2}
"""What happens in a life, and how often beside the rest."""
LIVES: Final = 8
LENGTH: Final = 400


class Worker(WorkerProcess):
    """A worker as its supervisor knows it, with its logs, and what it has not read yet."""

    def __init__(self, number: int, root: Path, shared: SharedDirectory, *, is_again: bool = False) -> None:
        super().__init__(number, number, 0, socket.socket(), 0.0)
        self.ready = Ready({}, [])
        self.unread: deque[FromSupervisor] = deque()
        self.does = "serve"
        """`serve`, `prepare`, `wait` for the hold, `stand` still, `link`, or wait for the `end`."""
        self.round = 0
        self.cuts: list[LogCut] = []
        self.storage = Storage()
        share = share_of(root, number, shared.metadata.image, is_again=is_again)
        self.directory = LogDirectory.open(
            root, self.storage, node_id=1, now_ms=lambda: NOW_MS, config=CONFIG, share=share
        )

    def send(self, message: FromSupervisor) -> None:
        self.unread.append(message)

    def log(self, partition: int) -> PartitionLog:
        found = self.directory.get(TOPIC.name, partition)
        assert found is not None
        return found

    def end(self) -> None:
        self.directory.close(clean=False)
        self.close()


class Moments(SharedDirectory):
    """The directory, which says what its life has acknowledged when the supervisor takes the moment."""

    life: Life

    def capture_metadata(self) -> tuple[int, LogCut]:
        self.life.moment = [len(written) for written in self.life.written]
        self.life.topics_then = set(self.metadata.image.topics_by_name)
        return super().capture_metadata()


class Life:
    """Three workers and their supervisor. `written` is what each partition has acknowledged, in order."""

    rounds_of: type[StagingRounds] = StagingRounds

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.folder, self.root = folder, folder / "data"
        self.now_s = 0.0
        self.asker: Worker | None = None
        self.held: set[int] = set()
        """The rounds of the last command in which workers were held."""
        self.written: list[list[Written]] = [[] for _ in range(PARTITIONS)]
        self.restored = 0
        """The backups that were restored and compared."""
        self.moment: list[int] = []
        self.topics_then: set[str] = set()
        self.shared = Moments(Storage(), self.root, 1, lambda: NOW_MS)
        self.shared.life = self
        self.shared.share_out([registration(n, n, uuid.UUID(int=n), {}, None) for n in WORKERS])
        leaders = [WORKERS[partition % len(WORKERS)] for partition in range(PARTITIONS)]
        rows = [PartitionRecord(p, TOPIC.topic_id, (n,), (n,), n, 0) for p, n in enumerate(leaders)]
        self.shared.metadata.change([TOPIC, *rows])
        self.workers: dict[int, WorkerProcess] = {}
        self.rounds = self.rounds_of(self.shared, self.workers, WORKERS, 2 * HOLD_LIMIT_S)
        for number in WORKERS:
            worker = self.workers[number] = Worker(number, self.root, self.shared)
            for partition in range(number - 1, PARTITIONS, len(WORKERS)):
                worker.directory.create(TOPIC.name, TOPIC.topic_id, partition, CONFIG)

    def worker(self, number: int) -> Worker | None:
        found = self.workers.get(number)
        assert found is None or isinstance(found, Worker)
        return found

    # --- what clients do

    def is_running(self, worker: Worker) -> bool:
        return worker.does != "stand"

    def serve(self, number: int) -> None:
        worker = self.worker(number)
        if worker is not None and self.is_running(worker):
            self.act(worker)

    def act(self, worker: Worker) -> None:
        partition = self.rng.randrange(worker.number - 1, PARTITIONS, len(WORKERS))
        log, written = worker.log(partition), self.written[partition]
        act = self.rng.choices(["append", "end", "flush", "checkpoint", "topic"], [60, 20, 10, 5, 5])[0]
        producer_id = self.rng.choice(PRODUCERS)
        if act == "append":
            self.append(log, written, producer_id)
        elif act == "end":
            if (
                producer_id > 1
                and Transactions(_of_transactions(written)).states[producer_id].first_offset is not None
            ):
                commit = self.rng.random() < 0.7
                append_end_marker(
                    log, producer_id, 0, commit=commit, coordinator_epoch=COORDINATOR_EPOCH, now_ms=NOW_MS
                )
                written.append(read_all(log)[-1])
        elif act == "flush":
            flush(log)
        elif act == "checkpoint":
            worker.directory.checkpoint()
        else:
            self.shared.metadata.change([topic(len(self.shared.metadata.image.topics_by_id) + 1)])

    def append(self, log: PartitionLog, written: list[Written], producer_id: int) -> None:
        own = [batch for batch in written if batch.producer_id == producer_id and batch.marker is None]
        sequence = own[-1].base_sequence + len(own[-1].values) if own else 0
        values = [f"{producer_id}-{sequence + index}".encode() for index in range(self.rng.randint(1, 4))]
        is_transactional = producer_id > 1
        data = encode(producer_id, sequence, values, is_transactional=is_transactional)
        found = log.append(data, now_ms=NOW_MS)
        written.append(
            Written(found.base_offset, producer_id, sequence, values, is_transactional=is_transactional)
        )

    # --- what happens to workers and in a round

    def do(self, kind: str, number: int) -> None:
        worker = self.worker(number)
        if kind == "wait":
            self.wait(0.5)
        elif kind == "late":
            self.wait(HOLD_LIMIT_S + 0.5)
        elif worker is None:
            self.workers[number] = Worker(number, self.root, self.shared, is_again=True)
        elif kind == "serve":
            self.serve(number)
        elif kind == "die":
            self.die(worker)
        elif kind == "go on" and self.asker is None:
            self.ask(worker)
        elif kind == "go on":
            self.go_on(worker)
        elif worker.does == "stand":
            self.report(worker, "end", "it stood still for 2 s")

    def ask(self, worker: Worker) -> None:
        self.asker = worker
        remove_staging(Storage(), str(self.root))
        self.held.clear()
        self.rounds.begin(worker, self.now_s)
        self.wait(0.0)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.rounds.run_due(self.now_s)

    def die(self, worker: Worker) -> None:
        del self.workers[worker.number]
        worker.end()
        if worker is self.asker:
            self.asker = None
        self.wait(0.0)

    def go_on(self, worker: Worker) -> None:
        """Let a worker do the next step of its round, if there is one."""
        if worker.does == "prepare":
            self.report(worker, "wait")
        elif worker.does == "link":
            self.link(worker)
        elif worker.unread:
            message = worker.unread.popleft()
            if isinstance(message, RoundEnded):
                self.take_end(worker, message)
            elif isinstance(message, RoundStep):
                self.take_step(worker, message)

    def take_step(self, worker: Worker, told: RoundStep) -> None:
        if told.step == "prepare":
            worker.round, worker.does = told.number, "prepare"
            worker.storage.keeps_deleted = True
        elif told.number != worker.round:
            return
        elif told.step == "hold" and worker.does == "wait":
            self.held.add(told.number)
            assert len(self.held) <= MOST_HOLDS
            worker.cuts = capture(worker.directory)
            self.report(worker, "stand")
        elif told.step == "go" and worker.does == "stand":
            worker.does = "link"
        elif told.step == "end":
            worker.does = "serve"
            worker.storage.keeps_deleted = False

    def report(self, worker: Worker, does: str, failure: str | None = None) -> None:
        worker.does = does
        self.rounds.take(worker, RoundReport(worker.round, failure), self.now_s)

    def link(self, worker: Worker) -> None:
        failure = None
        try:
            storage = InterruptedStorage(self.serve_meanwhile)
            stage_share(storage, str(self.root), str(worker.number), worker.cuts, ())
        except OSError as error:  # the command has gone, and the next one has removed the links
            failure = str(error)
        self.report(worker, "end", failure)

    def serve_meanwhile(self) -> None:
        while self.rng.random() < 0.1:
            self.serve(self.rng.choice(WORKERS))

    def take_end(self, worker: Worker, ended: RoundEnded) -> None:
        if worker is self.asker:
            self.asker = None
            if ended.failure is None:
                self.restore(ended.taken_ms)
            remove_staging(Storage(), str(self.root))

    # --- what a backup has

    def restore(self, taken_ms: int) -> None:
        storage, restored = Storage(), self.folder / f"restored-{self.restored}"
        join_shares(storage, str(self.root), taken_ms)
        make_staged_whole(storage, self.root, lambda: NOW_MS)
        staged = read_staged(storage, str(self.root))
        repository = Repository(storage, str(self.folder / "backups"))
        repository.create_and_lock()
        made = copy_staged(storage, str(self.root), staged, repository, Pace())
        repository.unlock()
        restore_files(storage, made.path, made.manifest, str(restored), Pace(), lambda: None)
        metadata = MetadataWriter(Storage(), str(restored), str(restored), lambda: NOW_MS)
        assert set(metadata.image.topics_by_name) == self.topics_then
        metadata.close()
        directory = LogDirectory.open(restored, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=CONFIG)
        for partition, count in enumerate(self.moment):
            log = directory.get(TOPIC.name, partition)
            assert log is not None
            written = self.written[partition][:count]
            assert read_all(log) == written
            known = Transactions(_of_transactions(written))
            assert log.last_stable_offset == known.last_stable_offset(0, log.high_watermark)
            known = Transactions(written)
            assert committed_values(log, 0) == known.committed(0, log.last_stable_offset)
        directory.close(clean=False)
        self.restored += 1

    def end(self) -> None:
        """Whatever happened, each round ends, and all workers serve again."""
        for number in WORKERS:
            if number not in self.workers:
                self.do("go on", number)
        for _ in range(200):
            for number in WORKERS:
                worker = self.worker(number)
                assert worker is not None
                self.go_on(worker)
            self.wait(0.5)
        ended = [found for found in self.workers.values() if isinstance(found, Worker)]
        for found in ended:
            found.end()
        self.shared.close()
        assert not self.rounds.is_under_way
        assert [found.does for found in ended] == ["serve"] * len(WORKERS)


def _of_transactions(written: list[Written]) -> list[Written]:
    return [batch for batch in written if batch.is_transactional]


def live(kind: type[Life], folder: Path, number: int) -> int:
    """Let a life end well, whatever happens in it; return how many of its backups were compared."""
    rng = random.Random(chosen_seed() * 1_000 + number)
    folder.mkdir()
    life = kind(folder, rng)
    for event in rng.choices(list(EVENTS), list(EVENTS.values()), k=LENGTH):
        life.do(event, rng.choice(WORKERS))
    life.end()
    return life.restored


def live_all(kind: type[Life], folder: Path) -> list[int]:
    return [live(kind, folder / str(number), number) for number in range(LIVES)]


def test_a_backup_has_the_moment_at_which_all_workers_stood_still(tmp_path: Path) -> None:
    assert sum(live_all(Life, tmp_path)) > 2 * LIVES


class Restless(Life):
    """A planted mistake: a worker serves while it should stand still."""

    def is_running(self, worker: Worker) -> bool:
        return True


class Hasty(StagingRounds):
    """A planted mistake: a supervisor that waits for one worker only."""

    def take(self, worker: WorkerProcess, report: RoundReport, now_s: float) -> None:
        if self._round is not None and self._round.step == "hold":
            self._round.awaited &= {worker}
        super().take(worker, report, now_s)


class Hurried(Life):
    rounds_of = Hasty


@pytest.mark.parametrize("mistaken", [Restless, Hurried])
def test_another_moment_of_one_worker_would_be_noticed(mistaken: type[Life], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Written"):
        live_all(mistaken, tmp_path)
