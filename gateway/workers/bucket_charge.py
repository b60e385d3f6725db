"""Workers that share a bucket: each is a gateway with a cache of its own, and the gateways do the rest among themselves."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from gateway.cluster.cache.worker_caches import begin_caches
from gateway.config import Config
from gateway.workers.charge import Ending
from gateway.workers.messages import FromWorker
from gateway.workers.worker_process import WorkerProcess

RunGateway = Callable[[Config, int, socket.socket], int]
"""Runs the gateway of a worker in its own process, with its number and its stream to the supervisor; returns the exit code."""


class BucketCharge:
    """Nothing but the directories of the caches: gateways register, watch and replace each other in the bucket."""

    def __init__(self, root: Path, configs: Mapping[int, Config], run_gateway: RunGateway) -> None:
        """Take the data directory, and the settings of each worker by its number."""
        self._root = root
        self._configs = configs
        self._run_gateway = run_gateway

    def begin(self, workers: Mapping[int, WorkerProcess]) -> Sequence[Collection[int]]:  # noqa: ARG002 - they need nobody
        begin_caches(self._root, len(self._configs))
        # One after the other: so their node ids have the order of their numbers in a new bucket.
        return [[number] for number in self._configs]

    def node_id(self, number: int) -> int:
        """Return the number: the node id may be chosen by the gateway, and nobody here needs it."""
        return number

    def seat(self, number: int, connection: socket.socket, *, is_again: bool) -> Callable[[], int]:  # noqa: ARG002 - each start is alike
        return lambda: self._run_gateway(self._configs[number], number, connection)

    def take(self, worker: WorkerProcess, message: FromWorker, now_s: float) -> None:
        pass

    def register(self, worker: WorkerProcess) -> bool:  # noqa: ARG002 - the gateway has done that
        return True

    def to_stop(self, now_s: float) -> Collection[int]:  # noqa: ARG002 - partitions move while gateways run
        return ()

    def late(self, now_s: float) -> Collection[int]:  # noqa: ARG002 - none was to stop
        return ()

    def ended(self, worker: WorkerProcess, now_s: float, *, is_clean: bool) -> Ending:  # noqa: ARG002 - none was to stop
        return Ending(is_wanted=False, start=())

    def died(self, worker: WorkerProcess) -> None:
        pass

    def look(self, now_s: float) -> None:
        pass
