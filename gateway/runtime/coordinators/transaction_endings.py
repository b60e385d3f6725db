"""Completes decided ends of transactions, and lets requests wait for them.

Kafka answers such requests with CONCURRENT_TRANSACTIONS, and its clients retry after a while. Here the requests wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.rules import TransactionRefused

T = TypeVar("T")

END_WAIT_S: Final = 5.0
"""Time that a request waits for the markers of a transaction; then it is answered without them."""


class TransactionEndings:
    """The tasks that finish ending transactions, by transactional id, each with its owner (a loaded shard)."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[object, asyncio.Task[None]]] = {}
        self.timed_out = 0
        """Transactions that were aborted since the start because they were open too long."""

    def begin(
        self, transactional_id: str, owner: object, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Start the task that finishes an end."""
        ending = asyncio.get_running_loop().create_task(work)
        self._running[transactional_id] = owner, ending
        ending.add_done_callback(lambda _: self._forget(transactional_id, ending))
        return ending

    def _forget(self, transactional_id: str, ending: asyncio.Task[None]) -> None:
        if self.of(transactional_id) is ending:
            del self._running[transactional_id]

    def of(self, transactional_id: str) -> asyncio.Task[None] | None:
        """Return the task that finishes the end of a transactional id; None when there is none."""
        return self._running.get(transactional_id, (None, None))[1]

    def give_up(self, owner: object) -> None:
        """Cancel the tasks of an owner."""
        for transactional_id, (of, ending) in list(self._running.items()):
            if of is owner:
                ending.cancel()
                del self._running[transactional_id]

    async def retry(self, transactional_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Make an attempt. While another transaction of the id is ending, wait for that end and repeat the
        attempt. Raises the errors of the attempt.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + END_WAIT_S
        while True:
            try:
                return await attempt()
            except TransactionRefused as error:
                running = self.of(transactional_id)
                left_s = deadline_s - loop.time()
                is_busy = error.error_code is ErrorCode.concurrent_transactions
                if not is_busy or running is None or left_s <= 0:
                    raise
                await wait_for_end(running, left_s)

    async def finish(self) -> None:
        """Wait until all ends are complete."""
        while self._running:
            await asyncio.wait({ending for _, ending in self._running.values()})


async def wait_for_end(ending: asyncio.Task[None], timeout_s: float | None = None) -> None:
    """Wait for an end, but only for a limited time. The task continues in any case."""
    await asyncio.wait({ending}, timeout=END_WAIT_S if timeout_s is None else timeout_s)
