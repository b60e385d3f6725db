"""A worker as its supervisor sees it: the process, the stream to it, and when it last gave a sign of life."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.gateway.cluster.cache.local_caches import begin_caches
from seqgate.gateway.config import Config
from seqgate.gateway.workers.link import (
    BadFrame,
    Frames,
    FromSupervisor,
    FromWorker,
    Ping,
    Ready,
    encode,
    from_worker,
)

READ_BYTES: Final = 1 << 20
PING_EVERY_S: Final = 0.4
MOST_UNSENT_BYTES: Final = 256 << 20
"""Bytes that wait for a worker which does not read. With more, the worker is killed and started again."""


class WorkerProcess:
    """A worker that was started. All methods return at once."""

    def __init__(self, number: int, node_id: int, pid: int, connection: socket.socket, now_s: float) -> None:
        self.number = number
        self.node_id = node_id
        self.pid = pid
        self.connection = connection
        connection.setblocking(False)
        self.ready: Ready | None = None
        self.ready_at_s: float | None = None
        self.is_registered = False
        """Whether the metadata says that the worker serves."""
        self.last_words: str | None = None
        """The sentence with which the worker ended."""
        self.alive_at_s = now_s
        self._asked_at_s: float | None = None
        """When the oldest ping was sent that has no answer yet."""
        self._pinged_at_s = 0.0
        self._frames = Frames(from_worker)
        self._unsent = bytearray()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._unsent)

    def send(self, message: FromSupervisor) -> None:
        """Send a message; keep what the stream does not take yet. A worker that reads nothing is killed."""
        self._unsent += encode(message)
        self.write()
        if len(self._unsent) > MOST_UNSENT_BYTES:
            self.kill()

    def write(self) -> None:
        """Write what waits, as far as the stream takes it. A worker that is gone takes everything."""
        while self._unsent:
            try:
                sent = self.connection.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def read(self, now_s: float) -> Iterator[FromWorker]:
        """Yield the messages that came. Raises EOFError after the stream's end, or for nonsense."""
        try:
            data = self.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        self.alive_at_s, self._asked_at_s = now_s, None
        try:
            yield from self._frames.feed(data)
        except BadFrame as error:
            raise EOFError from error

    def asks(self, now_s: float) -> bool:
        """Ping a worker that serves, if the last ping was PING_EVERY_S ago; return whether it was."""
        if self.ready is None or now_s - self._pinged_at_s < PING_EVERY_S:
            return False
        self._pinged_at_s = now_s
        if self._asked_at_s is None:
            self._asked_at_s = now_s
        self.send(Ping())
        return True

    def is_silent(self, now_s: float, timeout_s: float) -> bool:
        """Return whether the worker has left a ping unanswered for so long."""
        return self._asked_at_s is not None and now_s - self._asked_at_s > timeout_s

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, also a stopped one."""
        self.signal(signal.SIGKILL)

    def ended(self) -> int | None:
        """Return the exit code of a process that has ended, negative for a signal; None while it lives."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)

    def await_end(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def close(self) -> None:
        self.connection.close()


class Ending(NamedTuple):
    is_wanted: bool
    """Whether the worker ended because the storage stopped it, and is started again later."""
    start: Collection[int]
    """The workers that are started again now."""


class WorkerStorage(ABC):
    """A data directory, or a bucket, that all workers of one supervisor share."""

    @abstractmethod
    def begin(self, workers: Mapping[int, WorkerProcess]) -> Sequence[Collection[int]]:
        """Prepare the first start; return the workers that start together, each group once the groups before
        it serve. `workers` are those whose processes live, by number, from now on. Raises LogError, OSError.
        """

    def node_id(self, number: int) -> int:
        """Return the node id of a worker; its number where nobody here needs the id."""
        return number

    @abstractmethod
    def entry_point(self, number: int, connection: socket.socket, *, is_again: bool) -> Callable[[], int]:
        """Return what a worker's process runs, with its stream. `is_again`: all have served before."""

    def take(self, worker: WorkerProcess, message: FromWorker, now_s: float) -> None:  # noqa: B027 - a choice
        """Take a message that is not about the process itself."""

    def register(self, worker: WorkerProcess) -> bool:  # noqa: ARG002 - it registers itself
        """Send clients to a worker that serves; return whether that is done. It is tried again otherwise."""
        return True

    def to_stop(self, now_s: float) -> Collection[int]:  # noqa: ARG002 - none by default, as below
        """Return the workers that must stop, and start again later. Call only while all workers serve."""
        return ()

    def late(self, now_s: float) -> Collection[int]:  # noqa: ARG002
        """Return the workers of `to_stop` that should have ended, and are killed."""
        return ()

    def ended(self, worker: WorkerProcess, now_s: float, *, is_clean: bool) -> Ending:  # noqa: ARG002
        """Note the end of a process while the supervisor does not stop."""
        return Ending(is_wanted=False, start=())

    def died(self, worker: WorkerProcess) -> None:  # noqa: B027 - a choice
        """Note that a worker is dead, and will be started again."""

    def run_due(self, now_s: float) -> None:  # noqa: B027 - a choice
        """Do what is due, after anything has happened."""


RunWorker = Callable[[Config, int, socket.socket], int]
"""Runs a worker in its own process, with its number and stream; returns the exit code."""


class BucketStorage(WorkerStorage):
    """Nothing but the directories of the caches: each worker is a gateway with a cache of its own, and these
    register, watch and replace each other in the bucket.
    """

    def __init__(self, root: Path, configs: Mapping[int, Config], run_worker: RunWorker) -> None:
        self._root = root
        self._configs = configs
        self._run_worker = run_worker

    def begin(self, workers: Mapping[int, WorkerProcess]) -> Sequence[Collection[int]]:  # noqa: ARG002
        begin_caches(self._root, len(self._configs))
        # One after the other: so their node ids have the order of their numbers in a new bucket.
        return [[number] for number in self._configs]

    def entry_point(
        self,
        number: int,
        connection: socket.socket,
        *,
        is_again: bool,  # noqa: ARG002 - each start is alike
    ) -> Callable[[], int]:
        return partial(self._run_worker, self._configs[number], number, connection)
