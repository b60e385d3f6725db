from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from seqgate.gateway.stop_signals import STOPPING
from seqgate.gateway.workers import worker_process
from seqgate.gateway.workers.link import Alive, Commit, CommittedChange, Ping, Ready, encode
from seqgate.gateway.workers.supervisor import fork_worker
from seqgate.gateway.workers.worker_process import WorkerProcess

READY = Ready({"PLAINTEXT": ("h", 1)}, ["h:1"])


@pytest.fixture
def ends() -> Iterator[tuple[WorkerProcess, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield WorkerProcess(1, 1, os.getpid(), ours, 0.0), theirs


def test_messages_are_read_until_the_end(ends: tuple[WorkerProcess, socket.socket]) -> None:
    worker, other = ends
    assert list(worker.read(1.0)) == []
    other.sendall(encode(Alive()) + encode(Commit(1, 2, [])))
    assert list(worker.read(1.0)) == [Alive(), Commit(1, 2, [])]
    other.close()
    with pytest.raises(EOFError):
        list(worker.read(1.0))
    worker.send(Ping())  # to nobody
    assert not worker.wants_to_write


def test_nonsense_is_the_end(ends: tuple[WorkerProcess, socket.socket]) -> None:
    worker, other = ends
    other.sendall(b"\xff" * 4)
    with pytest.raises(EOFError):
        list(worker.read(1.0))


def test_only_a_worker_that_serves_is_asked_and_may_be_silent(
    ends: tuple[WorkerProcess, socket.socket],
) -> None:
    worker, other = ends
    worker.asks(0.0)
    assert not worker.is_silent(100.0, 1.0)
    worker.ready = READY
    worker.asks(100.0)
    worker.asks(100.9)
    assert not worker.is_silent(101.0, 1.0)
    assert worker.is_silent(101.1, 1.0)
    other.sendall(encode(Alive()))
    assert list(worker.read(101.2)) == [Alive()]
    assert not worker.is_silent(200.0, 1.0)


def test_what_a_worker_does_not_read_is_kept_and_then_kills_it(
    ends: tuple[WorkerProcess, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, other = ends
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
    monkeypatch.setattr(worker_process, "MOST_UNSENT_BYTES", 1 << 20)
    change = CommittedChange(1, [bytes(1 << 19)])
    worker.send(change)
    worker.send(change)
    assert worker.wants_to_write
    assert not killed
    worker.send(change)
    worker.send(change)
    assert set(killed) == {signal.SIGKILL}
    other.setblocking(False)
    while worker.wants_to_write:
        other.recv(1 << 20)
        worker.write()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_worker_is_a_copy_that_exits_with_its_code() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def run() -> int:
            theirs.sendall(str(ours.fileno()).encode())
            return 7

        pid = fork_worker(run, [ours])
        worker = WorkerProcess(1, 1, pid, ours, 0.0)
        assert theirs.fileno() >= 0
        ours.setblocking(True)
        assert ours.recv(10) == b"-1"
        code = None
        while code is None:
            code = worker.ended()
        assert code == 7
        worker.kill()  # nobody is left


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_worker_that_raises_ends_alone(capfd: pytest.CaptureFixture[str]) -> None:
    pid = fork_worker(lambda: 1 // 0, [])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_signal_waits_until_a_new_worker_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = os.fork

    def fork_and_stop() -> int:
        pid = fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    def run() -> int:
        taken: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: taken.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        return 7 if taken else 0

    monkeypatch.setattr(os, "fork", fork_and_stop)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        pid = fork_worker(run, [])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
