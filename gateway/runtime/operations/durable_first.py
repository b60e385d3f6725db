"""Operations one at a time, each durable before it is folded in; `operations` compares this with the other way.

Each operation judges a state that has every earlier change, and no change can be taken back. So an operation begins when the one
before it is durable and folded in. Where several processes write one log, an operation that finds another's records in its place is
judged again on the state that has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from gateway.runtime.operations.operations import Decided

A = TypeVar("A")


class Journal(Protocol):
    """The log of a state whose changes are durable before they are folded in. Others may write the log, too."""

    async def catch_up(self) -> None:
        """Fold in all records that are in the log and not in the state. Raises LogError."""

    async def commit(self, records: Sequence[Any]) -> bool:
        """Write the records right behind those of the state, and fold them in once they are durable.

        Return False where another writer was first: its records are folded in, and these are not written. Raises LogError.
        """


class _Look:
    """The operation that changes nothing."""

    records: Final = ()
    answer: Final = None


class DurableFirst:
    """Runs operations one at a time, each durable before it is folded in.

    An operation continues when its caller is cancelled, because its records may be in the log already. `judge` is called again when
    another writer of the log was first, so it must change nothing.

    A look at the log serves all operations that waited when it began: where the log is slow, clients that ask again and again would
    otherwise queue up more looks than are ever made. A commit is a look, too.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = asyncio.Lock()
        self._begun = 0
        """The number of the newest look at the log."""
        self._seen = 0
        """The number of the newest look that has ended: the state has all that was in the log when it began."""
        self.when_committed: list[Callable[[], None]] = []
        """Called after each operation of this process whose records are durable and folded in."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._next_look: tuple[int, asyncio.Task[None]] | None = None
        """The newest look without an operation, and the number of the newest look that had begun before it."""

    @property
    def is_running(self) -> bool:
        """Whether an operation is in progress."""
        return self._lock.locked()

    def start(self, judge: Callable[[], Decided[A]]) -> asyncio.Task[A]:
        """Carry out an operation after those before it. The task raises LogError, and what `judge` raises."""
        task = asyncio.get_running_loop().create_task(self._run(judge))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, judge: Callable[[], Decided[A]]) -> A:
        """Carry out an operation as `start` does; returns its answer once it is durable and folded in."""
        task = self.start(judge)
        # The error of an operation whose caller was cancelled has nobody left to take it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def look(self) -> None:
        """Fold in everything that is in the log by now. Callers share looks, however many they are. Raises LogError."""
        known = self._next_look
        if known is None or known[0] != self._begun or known[1].done():
            task = self.start(_Look)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            known = self._next_look = self._begun, task
        await asyncio.shield(known[1])

    async def _run(self, judge: Callable[[], Decided[A]]) -> A:
        before = self._begun
        async with self._lock:
            if self._seen <= before:
                await self._look(self._journal.catch_up())
            while True:
                change = judge()
                if not change.records:
                    return change.answer
                if await self._look(self._journal.commit(change.records)):
                    for committed in self.when_committed:
                        committed()
                    return change.answer

    async def _look(self, look: Awaitable[A]) -> A:
        self._begun += 1
        found = await look
        self._seen = self._begun
        return found

    async def finish(self) -> None:
        """Wait for the operations in progress."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Since Python 3.12 a gather of ended tasks does not yield, and `_tasks` would never lose them.
            await asyncio.sleep(0)
