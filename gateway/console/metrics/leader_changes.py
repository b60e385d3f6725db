"""The changes of leaders that the console has seen since its start: failovers and moves."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from gateway.console.asking.connections import Leader, Place

KEPT: Final = 20_000
"""Changes that are kept; the oldest are dropped first."""
MOST_KNOWN: Final = 500_000
"""Partitions whose leaders are remembered; beyond, those that the last look did not show are forgotten."""
NAMED: Final = 3
"""Partitions that a summary names; it counts the others."""


class LeaderChange(NamedTuple):
    """A partition that got another leader, or the same one again in a new epoch."""

    time_ms: int
    place: Place
    before: Leader
    after: Leader


class Summary(NamedTuple):
    """The partitions that went from one leader to another between two looks. `examples` are some of them."""

    time_ms: int
    before: int
    after: int
    partitions: int
    examples: tuple[Place, ...]


class LeaderChanges:
    """Compares the leaders of each look with those of the look before. A look may show a part of the partitions. Thread-safe."""

    def __init__(self) -> None:
        """Begin without a look."""
        self.since_ms = time.time_ns() // 1_000_000
        self._lock = threading.Lock()
        self._known: dict[Place, Leader] = {}
        self._changes: deque[LeaderChange] = deque(maxlen=KEPT)

    def see(self, time_ms: int, leaders: Mapping[Place, Leader]) -> None:
        """Note what has changed. A lower epoch is a topic of the same name that was created again, and no change of leader."""
        with self._lock:
            for place, after in leaders.items():
                before = self._known.get(place)
                if before is not None and before != after and after.epoch >= before.epoch:
                    self._changes.append(LeaderChange(time_ms, place, before, after))
                self._known[place] = after
            if len(self._known) > MOST_KNOWN:
                self._known = dict(leaders)

    def summaries(self, visible: Container[Place], most: int) -> list[Summary]:
        """Return the newest changes of the partitions that somebody may see, the newest first."""
        with self._lock:
            changes = [change for change in reversed(self._changes) if change.place in visible]
        found: dict[tuple[int, int, int], list[Place]] = {}
        for change in changes:
            key = (change.time_ms, change.before.node_id, change.after.node_id)
            if key not in found and len(found) == most:
                break
            found.setdefault(key, []).append(change.place)
        return [Summary(*key, len(places), tuple(sorted(places)[:NAMED])) for key, places in found.items()]
