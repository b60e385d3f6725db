"""Runs the functions of pages in a few threads, and remembers the ones that take long until the browser asks again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from gateway.admin.request import ControlError
from gateway.console.page import Answer

THREADS: Final = 16
MOST_WAITING: Final = 64
"""Functions that run or wait for a thread; a further request is refused."""
PATIENCE_S: Final = 0.6
"""Time that a browser waits for a page before it is told what the page waits for."""
KEPT_S: Final = 60.0
"""Time for which a finished answer waits for the browser that asked."""


@dataclass(slots=True)
class Running:
    """A function that has begun."""

    future: Future[Answer]
    began: float = field(default_factory=time.monotonic)


class Work:
    """The functions that run. Thread-safe."""

    def __init__(self) -> None:
        """Prepare the threads."""
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console-page")
        self._unfinished = 0
        self._kept: OrderedDict[str, Running] = OrderedDict()

    def begin(self, function: Callable[[], Answer]) -> Running:
        """Run a function in a thread. Raises ControlError when too many wait."""
        with self._lock:
            if self._unfinished >= MOST_WAITING:
                raise ControlError("the console has too much to do; try again in a few seconds")
            self._unfinished += 1
        future = self._threads.submit(function)
        future.add_done_callback(self._finished)
        return Running(future)

    def _finished(self, _: Future[Answer]) -> None:
        with self._lock:
            self._unfinished -= 1

    def resume(self, key: str) -> Running | None:
        """Return, and forget, what an earlier request of the same browser for the same page has begun."""
        with self._lock:
            return self._kept.pop(key, None)

    def keep(self, key: str, running: Running) -> None:
        """Remember a function that still runs, for the next request."""
        before = time.monotonic() - KEPT_S
        with self._lock:
            for old in [name for name, known in self._kept.items() if known.began < before]:
                if self._kept[old].future.done():
                    del self._kept[old]
            self._kept[key] = running
            while len(self._kept) > MOST_WAITING:
                self._kept.popitem(last=False)

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
