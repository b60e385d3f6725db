"""Figures that are sampled only while somebody looks, such as the lag of one group."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.console.metrics.history import History

KEPT_S: Final = 15 * 60.0
"""Time after the last look in which a figure is still sampled, so that a reload of the page has its history."""
MOST_WATCHES: Final = 30
"""Figures that are watched at a time; the one that nobody has looked at for longest ends when another begins."""

Read = Callable[[], Mapping[str, float | None]]


@dataclass(slots=True)
class _Watch:
    """A function that reads figures, and their history."""

    read: Read
    history: History = field(default_factory=History)
    seen: float = field(default_factory=time.monotonic)


class Watches:
    """The figures that pages watch, by a key of the page and the person. Thread-safe."""

    def __init__(self) -> None:
        """Begin without watches."""
        self._lock = threading.Lock()
        self._watches: OrderedDict[str, _Watch] = OrderedDict()

    def history(self, key: str, read: Read, *, keeps_reader: bool = False) -> History:
        """Return the history of the figures that `read` returns; begin to sample them.

        `keeps_reader`: the function of the first look goes on, because it remembers what it has read.
        """
        with self._lock:
            watch = self._watches.setdefault(key, _Watch(read))
            if not keeps_reader:
                watch.read = read
            watch.seen = time.monotonic()
            self._watches.move_to_end(key)
            while len(self._watches) > MOST_WATCHES:
                self._watches.popitem(last=False)
            return watch.history

    def due(self) -> list[tuple[Read, History]]:
        """Return what to sample; forget what nobody has looked at for long."""
        before = time.monotonic() - KEPT_S
        with self._lock:
            for key in [key for key, watch in self._watches.items() if watch.seen < before]:
                del self._watches[key]
            return [(watch.read, watch.history) for watch in self._watches.values()]
