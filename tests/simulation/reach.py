"""How the processes of one gateway reach the bucket."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.support.simulated_objects import CALM, Faults, SimulatedBucket, SimulatedObjects

TIMEOUT_S: Final = 30.0
"""The time after which a client of the store gives a call up."""


class Reach:
    """The bucket, and the store as the newest process reaches it. `name` tells the processes of several
    gateways apart.
    """

    def __init__(
        self,
        bucket: SimulatedBucket,
        faults: Faults | None,
        chance: Random,
        name: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.bucket = bucket
        self.lives = 0
        self._plan = faults
        self._chance = chance
        self._name = name
        self._timeout_s = timeout_s
        self._is_cut_off = False
        self._store: SimulatedObjects | None = None

    @property
    def life(self) -> str:
        """The name of the newest process in the calls of the bucket."""
        return f"{self._name} life {self.lives}".strip()

    def for_new_process(self) -> SimulatedObjects | None:
        """Return the bucket as a new process reaches it; None where there is no bucket."""
        if self._plan is None:
            return None
        self.lives += 1
        seed = self._chance.randrange(1 << 30)
        self._store = SimulatedObjects(
            self.bucket, seed=seed, faults=self._plan, timeout_s=self._timeout_s, name=self.life
        )
        self._store.is_cut_off = self._is_cut_off
        return self._store

    def become(self, faults: Faults) -> None:
        """Let the calls of the newest process have these faults."""
        if self._store is not None:
            self._store.faults = faults

    def reset(self) -> None:
        """Let the calls of the newest process have the faults of the plan again."""
        if self._plan is not None:
            self.become(self._plan)

    def change(self, faults: Faults, *, is_cut_off: bool = False) -> None:
        """Let this and all later processes reach the store with these faults, or not at all."""
        self._plan, self._is_cut_off = faults, is_cut_off
        self.become(faults)
        if self._store is not None:
            self._store.is_cut_off = is_cut_off

    def calm(self) -> None:
        """Let no further call of the newest process fail."""
        self.become(CALM)

    def has_read_a_manifest(self, calls: int) -> bool:
        """Return whether one of the last `calls` to the bucket was the newest process's, for a manifest."""
        return any(
            call.operation == "get" and call.client == self.life and call.key.endswith("/manifest")
            for call in self.bucket.calls[-calls:]
        )
