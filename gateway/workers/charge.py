"""The port through which a supervisor cares for what its workers share, beside running them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from gateway.workers.messages import FromWorker
from gateway.workers.worker_process import WorkerProcess


class Ending(NamedTuple):
    """The judgement of a charge about a process that has ended."""

    is_wanted: bool
    """Whether the worker ended because the charge had it stopped, and is started again later."""
    start: Collection[int]
    """The workers that are started again now."""


class Charge(Protocol):
    """The port to a data directory, or a bucket, that all workers of one supervisor share."""

    def begin(self, workers: Mapping[int, WorkerProcess]) -> Sequence[Collection[int]]:
        """Prepare the first start; return the workers that start together, each group once the groups before it serve.

        `workers` are those whose processes live, by number, from now on. Raises LogError, OSError.
        """

    def node_id(self, number: int) -> int:
        """Return the node id of a worker."""

    def seat(self, number: int, connection: socket.socket, *, is_again: bool) -> Callable[[], int]:
        """Return what the process of a worker runs; it has this end of the stream to the supervisor. `is_again`: all have served before."""

    def take(self, worker: WorkerProcess, message: FromWorker, now_s: float) -> None:
        """Take a message that is not about the process itself."""

    def register(self, worker: WorkerProcess) -> bool:
        """Send clients to a worker that serves; return whether that is done. It is tried again otherwise."""

    def to_stop(self, now_s: float) -> Collection[int]:
        """Return the workers that must stop, and are started again later. Call this only while all workers serve."""

    def late(self, now_s: float) -> Collection[int]:
        """Return the workers of `to_stop` that should have ended, and are killed."""

    def ended(self, worker: WorkerProcess, now_s: float, *, is_clean: bool) -> Ending:
        """Note the end of a process while the supervisor does not stop."""

    def died(self, worker: WorkerProcess) -> None:
        """Note that a worker is dead, and will be started again."""

    def look(self, now_s: float) -> None:
        """Do what is due, after anything has happened."""
