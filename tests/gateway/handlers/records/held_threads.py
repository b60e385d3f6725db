"""Threads of a machine that work only when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from seqgate.gateway.runtime.loop.machine import Machine, Workers


class HeldWorkers:
    """Holds the items that were put. `work_on` processes one of them."""

    def __init__(self, work: Callable[[Any], None]) -> None:
        self._work = work
        self.items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self.items.append(item)

    def stop(self) -> None:
        while self.items:
            self.work_on()

    def work_on(self) -> None:
        self._work(self.items.popleft())


class HeldMachine(Machine):
    """A machine with one kind of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: HeldWorkers | None = None
        self.thread_count = 0

    def workers(self, name: str, count: int, work: Callable[[Any], None]) -> Workers[Any]:
        self.threads = HeldWorkers(work)
        self.thread_count = count
        return self.threads

    @property
    def held(self) -> int:
        """The number of items that wait for a thread."""
        return 0 if self.threads is None else len(self.threads.items)

    def work_on(self) -> None:
        """Do the work of the first item."""
        assert self.threads is not None
        self.threads.work_on()
