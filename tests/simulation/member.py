"""The place of a gateway in a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.process import DriftingClock
from tests.support.simulated_objects import SimulatedBucket


@dataclass(frozen=True)
class Member:
    """What a gateway has of its own, and the bucket that it shares. `name` is its host, too."""

    name: str
    settings: tuple[str, ...]
    bucket: SimulatedBucket
    drifting: DriftingClock
    store_timeout_s: float
    """The time after which the gateway's client of the store gives a call up."""
