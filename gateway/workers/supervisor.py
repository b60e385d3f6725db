"""The process that supervises several workers: starts them, starts a dead one again, and stops them all.

It serves no client. Workers are forked from it, so a new one needs no imports. A `WorkerStorage` cares for
what the workers share. If that is a data directory, this process holds its lock, which the workers inherit,
and is the only writer of the metadata log. A worker leads its partitions until its process is dead, and then
the next process of that worker leads them: no partition has two leaders, whatever is stopped, slow or cut
off.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Self

from seqgate.gateway.stop_signals import STOPPING, signals_taken
from seqgate.gateway.workers.link import Failed, FromWorker, Ready, RestartOrdered
from seqgate.gateway.workers.worker_process import WorkerProcess, WorkerStorage

logger = logging.getLogger(__name__)

SETTLED_S: Final = 5.0
"""How long a worker must have served so that its death counts as the first one again."""
MOST_DEATHS: Final = 3
"""Deaths of one worker in a row, each soon after its start. The next one ends the supervisor."""
PAUSE_S: Final = 0.2
"""The pause before a worker that died soon after its start is restarted; doubled before each next try."""
RETRY_S: Final = 1.0
"""The pause before the next try where the system has no room for a process."""
STOP_LIMIT_S: Final = 180.0
"""How long a stop waits for the workers; then it kills the rest, and the next start recovers them."""
TICK_S: Final = 0.5


class WorkersFailed(Exception):
    """The workers can't go on; the message is a sentence for the person who started them."""


class Supervisor:
    def __init__(
        self,
        storage: WorkerStorage,
        numbers: Collection[int],
        timeout_s: float,
        close_sockets: Callable[[], None] = lambda: None,
    ) -> None:
        """Supervise the workers of these numbers; one without a sign of life for `timeout_s` is killed.
        `close_sockets` closes the listening sockets that this process has bound for them: then clients are
        refused.
        """
        self._close_sockets = close_sockets
        self._restart: RestartOrdered | None = None
        """The restart for which the workers stop."""
        self._storage = storage
        self._numbers = numbers
        self._timeout_s = timeout_s
        self._workers: dict[int, WorkerProcess] = {}
        self._deaths = dict.fromkeys(numbers, 0)
        self._due_s: dict[int, float] = {}
        self._unstarted: deque[Collection[int]] = deque()
        """The workers that have never been started, in groups that start together."""
        self._selector = selectors.PollSelector()
        self._failure: str | None = None
        self._stop_by_s: float | None = None
        self._is_announced = False

    def run(self, announce: Callable[[Sequence[WorkerProcess]], None]) -> RestartOrdered | None:
        """Run the workers until SIGTERM or SIGINT; call `announce` once all serve. Return the restart if one
        is ordered: then the caller executes the process again. Raises WorkersFailed, LogError, OSError.
        """
        self._unstarted.extend(self._storage.begin(self._workers))
        with Signals() as signals:
            try:
                self._selector.register(signals.wakes, selectors.EVENT_READ)
                for number in self._unstarted.popleft():
                    self._start(number)
                while self._workers or (self._due_s and self._stop_by_s is None):
                    self._turn(signals)
                    if not self._is_announced and self._all_ready():
                        self._is_announced = True
                        announce(list(self._workers.values()))
            finally:
                self._end_all()
                signals.is_replaced = self._restart is not None
        if self._restart is not None and not signals.is_stopping:
            if self._failure is not None:
                logger.error("%s; the next start recovers its partitions", self._failure)
            return self._restart
        if self._failure is not None:
            raise WorkersFailed(self._failure)
        return None

    def _end_all(self) -> None:
        """Kill workers that an error has left: nobody may make the directory whole while a worker runs."""
        for worker in self._workers.values():
            worker.kill()
            worker.await_end()
            worker.close()
        self._selector.close()

    # --- one turn

    def _turn(self, signals: Signals) -> None:
        for key, events in self._selector.select(TICK_S):
            worker: WorkerProcess | None = key.data
            if worker is None:
                signals.take()
            elif events & selectors.EVENT_READ:
                self._read(worker)
            elif events & selectors.EVENT_WRITE:
                worker.write()
        now_s = time.monotonic()
        if signals.is_stopping and (self._stop_by_s is None or self._restart is not None):
            logger.info("stopping")
            self._restart = None
            self._stop(now_s)
        for worker in list(self._workers.values()):
            code = worker.ended()
            if code is not None:
                self._bury(worker, code, now_s)
            else:
                self._watch(worker, now_s)
        self._storage.run_due(now_s)
        if self._stop_by_s is None:
            self._stop_some(now_s)
        for number, due_s in list(self._due_s.items()):
            if now_s >= due_s and self._stop_by_s is None:
                self._start_again(number, now_s)

    def _stop_some(self, now_s: float) -> None:
        """Stop the workers that the storage wants to stop, if all serve; kill those that do not end."""
        for number in self._storage.late(now_s):
            if number in self._workers:
                self._workers[number].kill()
        if self._is_announced and self._all_ready() and not self._due_s:
            for number in self._storage.to_stop(now_s):
                self._workers[number].signal(signal.SIGTERM)

    def _watch(self, worker: WorkerProcess, now_s: float) -> None:
        """Ask a worker for a sign of life, and kill it if it gives none."""
        if self._stop_by_s is not None:
            if now_s > self._stop_by_s:
                logger.error(
                    "worker %d did not stop within %.0f s and is killed", worker.number, STOP_LIMIT_S
                )
                worker.kill()
        elif self._is_silent(worker, now_s):
            logger.error(
                "worker %d (pid %d) gave no sign of life for %.1f s (seqgate.workers.timeout.ms) and is "
                "killed",
                worker.number,
                worker.pid,
                self._timeout_s,
            )
            worker.kill()
        elif worker.asks(now_s) and not worker.is_registered:
            self._register(worker)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.wants_to_write else 0)
        if self._selector.get_map().get(worker.connection.fileno()) is not None:
            self._selector.modify(worker.connection, wanted, worker)

    def _is_silent(self, worker: WorkerProcess, now_s: float) -> bool:
        if not worker.is_silent(now_s, self._timeout_s):
            return False
        # This process may itself have waited, for the disk: then the answer is there.
        self._read(worker)
        return worker.is_silent(now_s, self._timeout_s)

    def _read(self, worker: WorkerProcess) -> None:
        try:
            for message in worker.read(time.monotonic()):
                self._take(worker, message)
        except EOFError:
            # The process is dead, or about to end. `ended` tells when it is.
            self._forget(worker)

    def _take(self, worker: WorkerProcess, message: FromWorker) -> None:
        if isinstance(message, Ready):
            worker.ready, worker.ready_at_s = message, time.monotonic()
            self._register(worker)
            if not self._is_announced:
                self._start_next()
            else:
                logger.info("worker %d serves again, pid %d", worker.number, worker.pid)
        elif isinstance(message, Failed):
            worker.last_words = message.sentence
        elif isinstance(message, RestartOrdered):
            if self._stop_by_s is None:
                logger.info("restarting")
                self._restart = message
                self._stop(time.monotonic())
        else:
            self._storage.take(worker, message, time.monotonic())

    def _register(self, worker: WorkerProcess) -> None:
        """Send clients to a worker that serves. `_turn` tries again what fails."""
        worker.is_registered = self._storage.register(worker)

    # --- starts and ends

    def _start_next(self) -> None:
        """Let the next group start at the end of this turn, if all workers that were started serve."""
        if self._unstarted and all(worker.ready is not None for worker in self._workers.values()):
            self._due_s.update(dict.fromkeys(self._unstarted.popleft(), 0.0))

    def _start(self, number: int) -> None:
        own, other = socket.socketpair()
        inherited = [own, *(worker.connection for worker in self._workers.values())]
        with other:
            try:
                pid = fork_worker(
                    self._storage.entry_point(number, other, is_again=self._is_announced), inherited
                )
            except OSError:
                own.close()
                raise
        worker = WorkerProcess(number, self._storage.node_id(number), pid, own, time.monotonic())
        self._workers[number] = worker
        self._selector.register(own, selectors.EVENT_READ, worker)

    def _start_again(self, number: int, now_s: float) -> None:
        try:
            self._start(number)
        except OSError as error:
            # The other workers must not end because memory or processes are short now.
            logger.error("worker %d can't be started now, and is later: %s", number, error)  # noqa: TRY400
            self._due_s[number] = now_s + RETRY_S
        else:
            del self._due_s[number]

    def _bury(self, worker: WorkerProcess, code: int, now_s: float) -> None:
        """Do what follows from the end of a worker: start it again, unless all workers stop."""
        if worker.connection.fileno() >= 0:
            self._read(worker)  # its last words
        self._forget(worker)
        worker.close()
        del self._workers[worker.number]
        if self._stop_by_s is not None:
            if code and self._failure is None:
                self._failure = f"worker {worker.number} did not stop cleanly: {_how(worker, code)}"
            return
        if not self._is_announced:
            self._fail(f"worker {worker.number}: {_how(worker, code)}", now_s)
            return
        ending = self._storage.ended(worker, now_s, is_clean=code == 0)
        self._due_s.update(dict.fromkeys(ending.start, now_s))
        if ending.is_wanted:
            return
        settled = worker.ready_at_s is not None and now_s - worker.ready_at_s >= SETTLED_S
        deaths = self._deaths[worker.number] = 1 if settled else self._deaths[worker.number] + 1
        logger.error("worker %d (pid %d) is dead: %s", worker.number, worker.pid, _how(worker, code))
        if deaths > MOST_DEATHS:
            self._fail(
                f"worker {worker.number} has died {deaths} times soon after its start, at last so: "
                f"{_how(worker, code)}",
                now_s,
            )
            return
        self._storage.died(worker)
        self._due_s[worker.number] = now_s + (0.0 if deaths == 1 else PAUSE_S * 2 ** (deaths - 2))

    def _forget(self, worker: WorkerProcess) -> None:
        """Read no more from a worker's stream."""
        if worker.connection.fileno() in self._selector.get_map():
            self._selector.unregister(worker.connection)

    def _fail(self, sentence: str, now_s: float) -> None:
        self._failure = sentence
        if self._stop_by_s is None:
            self._stop(now_s)

    def _stop(self, now_s: float) -> None:
        self._stop_by_s = now_s + STOP_LIMIT_S
        if self._restart is None:
            self._close_sockets()
        for worker in self._workers.values():
            worker.signal(signal.SIGTERM)

    def _all_ready(self) -> bool:
        return len(self._workers) == len(self._numbers) and all(
            worker.ready is not None for worker in self._workers.values()
        )


def _how(worker: WorkerProcess, code: int) -> str:
    if worker.last_words is not None:
        return worker.last_words
    return (
        f"it was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"it ended with the exit code {code}"
    )


def fork_worker(run: Callable[[], int], inherited: Iterable[socket.socket]) -> int:
    """Return the pid of a new process that calls `run`, and exits with what it returns. This process must
    have one thread. The new one closes what it has `inherited`: a worker learns of its supervisor's death by
    the end of a stream that nobody else has. SIGTERM and SIGINT wait in the new process until `run` unblocks
    them: it has the handlers of this process first, which would lose a signal, and then none, so that a
    signal would kill it. Raises OSError when the system has no room for a process.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for one in inherited:
            one.close()
        code = run()
    except BaseException:  # noqa: BLE001 - nothing of the supervisor's stack may run in this process
        traceback.print_exc()
    finally:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


class Signals:
    """Takes SIGTERM, SIGINT, SIGCHLD in a `with` block. The process then ends, and ignores the first two, or
    leaves them to the program that replaces it.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self.is_replaced = False
        """Whether the process executes another program at the end of the block."""
        self._taken = signals_taken(self._stop, lambda: self.is_replaced and not self.is_stopping)
        self.wakes, self._end = socket.socketpair()
        """A socket that can be read after a signal."""

    def __enter__(self) -> Self:
        for end in (self.wakes, self._end):
            end.setblocking(False)
        signal.set_wakeup_fd(self._end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._taken.__enter__()
        return self

    def _stop(self) -> None:
        self.is_stopping = True

    def take(self) -> None:
        self.wakes.recv(4096)

    def __exit__(self, *_: object) -> None:
        self._taken.__exit__(None, None, None)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.wakes.close()
        self._end.close()
