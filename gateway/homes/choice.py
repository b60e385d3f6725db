"""Chooses the home of a gateway's records."""

from __future__ import annotations

from gateway.config import Config
from gateway.homes.home import Home
from gateway.homes.local_home import LocalHome
from gateway.homes.worker_home import WorkerHome
from gateway.runtime.loop.machine import Machine
from gateway.workers.seat import Seat


def home_of(config: Config, machine: Machine, seat: Seat | None = None) -> Home:
    """Return the home that `seqgate.cluster` names: the local disk without it, and a worker's share of the disk with a `seat`."""
    if seat is not None:
        return WorkerHome(config, machine, seat)
    if config.optional_str("seqgate.cluster") is None:
        return LocalHome(config, machine)
    from gateway.homes.bucket_home import BucketHome  # noqa: PLC0415 - a gateway without a cluster starts without its imports

    return BucketHome(config, machine)
