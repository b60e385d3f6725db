"""The supervisor watches, registers and buries workers. No process runs: the tests hold the other ends of the
streams.
"""

from __future__ import annotations

import os
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.config.workers import worker_config
from seqgate.gateway.metadata.records import PartitionRecord, TopicRecord, decode_record, encode_record
from seqgate.gateway.stop_signals import STOPPING
from seqgate.gateway.workers.directory_storage import DirectoryStorage
from seqgate.gateway.workers.link import (
    Alive,
    Commit,
    CommitRefused,
    CommittedChange,
    Frames,
    FromSupervisor,
    Ready,
    RestartOrdered,
    encode,
    from_supervisor,
)
from seqgate.gateway.workers.shared_directory import SharedDirectory
from seqgate.gateway.workers.supervisor import Signals, Supervisor
from seqgate.gateway.workers.worker_process import WorkerProcess
from seqgate.log import Storage
from tests.gateway.workers.test_metadata_writer import FailingDisk, topic

READY = Ready({"PLAINTEXT": ("h", 1)}, ["h:1"])


class Scene:
    """A supervisor of one worker, whose end of the stream the test holds."""

    def __init__(self, root: Path) -> None:
        self.disk = FailingDisk()
        self.shared = SharedDirectory(Storage(disk=self.disk), root, 1, lambda: 1_000)
        config = load_config(None, {}, [f"log.dirs={root}"])
        configs = {number: worker_config(config, number) for number in (1, 2)}
        self.storage = DirectoryStorage(configs, self.shared, lambda *_: 0)
        self.supervisor = Supervisor(self.storage, configs, 15.0)
        self.storage.begin(self.supervisor._workers)
        ours, self.other = socket.socketpair()
        self.worker = WorkerProcess(1, 1, os.getpid(), ours, 0.0)
        self.supervisor._workers[1] = self.worker
        self._frames = Frames(from_supervisor)

    def commit(self, number: int, end_offset: int, *records: TopicRecord) -> list[FromSupervisor]:
        """Send a commit; return what the worker is told."""
        self.other.sendall(encode(Commit(number, end_offset, [encode_record(record) for record in records])))
        self.supervisor._read(self.worker)
        self.other.setblocking(False)
        return list(self._frames.feed(self.other.recv(1 << 16)))

    def close(self) -> None:
        self.worker.close()
        self.other.close()
        self.shared.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_a_change_is_decided_again_on_what_a_failed_flush_has_left(scene: Scene) -> None:
    end_offset = scene.shared.metadata.end_offset
    scene.disk.fails = True
    (failed,) = scene.commit(1, end_offset, topic(1))
    assert isinstance(failed, CommitRefused)
    assert failed.error is not None
    again = TopicRecord("t1", uuid.UUID(int=77))
    *found, refused = scene.commit(2, end_offset, again)
    assert refused == CommitRefused(2)
    assert [
        (change.number, [decode_record(record) for record in change.records])
        for change in found
        if isinstance(change, CommittedChange)
    ] == [(-1, [topic(1)])]
    assert scene.shared.metadata.image.topics_by_name["t1"].topic_id == topic(1).topic_id
    (done,) = scene.commit(3, scene.shared.metadata.end_offset, topic(2))
    assert isinstance(done, CommittedChange)
    assert done.number == 3


def test_a_registration_that_the_disk_refuses_is_tried_again(scene: Scene) -> None:
    def told() -> str:
        return scene.shared.metadata.image.brokers.by_id[1].end_points[0].host

    before = told()
    scene.disk.fails = True
    scene.other.sendall(encode(READY))
    scene.supervisor._read(scene.worker)
    assert told() == before
    scene.supervisor._watch(scene.worker, 10.0)
    assert told() == "h" != before
    end_offset = scene.shared.metadata.end_offset
    scene.supervisor._watch(scene.worker, 20.0)
    assert scene.shared.metadata.end_offset == end_offset


def test_a_worker_that_answered_while_the_supervisor_waited_is_not_killed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
    scene.other.sendall(encode(READY))
    scene.supervisor._read(scene.worker)
    scene.supervisor._watch(scene.worker, 10.0)
    scene.other.sendall(encode(Alive()))
    scene.supervisor._watch(scene.worker, 1_000.0)
    assert not killed
    scene.supervisor._watch(scene.worker, 1_001.0)
    scene.supervisor._watch(scene.worker, 2_000.0)
    assert killed


def test_a_worker_that_finds_no_room_is_started_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    scene.supervisor._due_s[2] = 5.0
    scene.supervisor._start_again(2, 6.0)
    assert scene.supervisor._due_s == {2: 7.0}
    assert list(scene.supervisor._workers) == [1]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & STOPPING


@pytest.mark.parametrize("code", [0, -9], ids=["clean", "killed"])
def test_workers_stop_and_start_again_so_that_a_partition_moves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    supervisor, metadata = scene.supervisor, scene.shared.metadata
    ours, theirs = socket.socketpair()
    second = WorkerProcess(2, 2, 2, ours, 0.0)
    scene.worker.ready = second.ready = READY
    supervisor._workers[2] = second
    supervisor._is_announced = True
    topic_id = topic(1).topic_id
    order = PartitionRecord(0, topic_id, (2, 1), (1,), 1, 0, 1, (2,), (1,), 2)
    metadata.change([topic(1), order])
    supervisor._stop_some(10.0)
    assert signals == [(os.getpid(), signal.SIGTERM), (2, signal.SIGTERM)]
    supervisor._bury(scene.worker, 0, 11.0)
    assert supervisor._due_s == {}
    supervisor._bury(second, code, 11.0)
    assert supervisor._due_s == {1: 11.0, 2: 11.0}
    assert supervisor._deaths == {1: 0, 2: 0 if code == 0 else 1}
    partition = metadata.image.topics_by_id[topic_id].partitions[0]
    assert partition.leader == (2 if code == 0 else 1)
    supervisor._stop_some(11.5)
    assert len(signals) == 2
    theirs.close()


def test_a_worker_that_does_not_end_for_a_move_is_killed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: signals.append(number))
    supervisor = scene.supervisor
    moves = scene.storage._moves
    moves._awaited, moves._until_s = {1}, 40.0
    supervisor._stop_some(40.0)
    assert not signals
    supervisor._stop_some(40.1)
    assert signals == [signal.SIGKILL]


def test_a_restart_keeps_the_sockets_until_a_signal_makes_it_a_stop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    closed: list[bool] = []
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    monkeypatch.setattr(WorkerProcess, "ended", lambda _: None)
    monkeypatch.setattr(scene.supervisor, "_close_sockets", lambda: closed.append(True))
    with Signals() as signals:
        scene.other.sendall(encode(RestartOrdered("r", 1.0)))
        scene.supervisor._read(scene.worker)
        scene.supervisor._turn(signals)
        assert sent == [signal.SIGTERM]
        assert not closed
        signals.is_stopping = True
        scene.supervisor._turn(signals)
        assert closed == [True]
        assert scene.supervisor._restart is None
