"""The ends of transactions that are decided and not complete yet, and the requests that wait for them.

Kafka answers such requests with CONCURRENT_TRANSACTIONS, and its clients come again after a while; here they wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.rules import TransactionRefused

T = TypeVar("T")

END_WAIT_S: Final = 5.0
"""How long a request waits for the markers of a transaction before it answers without."""


class TransactionEndings:
    """By transactional id the task that finishes its end, and on whose behalf (a loaded shard) it does."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[object, asyncio.Task[None]]] = {}

    def begin(
        self, transactional_id: str, owner: object, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Go on with what was decided, whoever waits for it."""
        ending = asyncio.get_running_loop().create_task(work)
        self._running[transactional_id] = owner, ending
        ending.add_done_callback(lambda _: self._forget(transactional_id, ending))
        return ending

    def _forget(self, transactional_id: str, ending: asyncio.Task[None]) -> None:
        if self._running.get(transactional_id, (None, None))[1] is ending:
            del self._running[transactional_id]

    def give_up(self, owner: object) -> None:
        """Stop what goes on for an owner."""
        for transactional_id, (of, ending) in list(self._running.items()):
            if of is owner:
                ending.cancel()
                del self._running[transactional_id]

    async def retry(self, transactional_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try, and once more whenever the end that was in the way is complete. Raises what the attempt does."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + END_WAIT_S
        while True:
            try:
                return await attempt()
            except TransactionRefused as error:
                running = self._running.get(transactional_id)
                left_s = deadline_s - loop.time()
                is_busy = error.error_code is ErrorCode.concurrent_transactions
                if not is_busy or running is None or left_s <= 0:
                    raise
                await wait_for_end(running[1], left_s)

    async def finish(self) -> None:
        """Wait until all are complete."""
        while self._running:
            await asyncio.wait({ending for _, ending in self._running.values()})


async def wait_for_end(ending: asyncio.Task[None], timeout_s: float | None = None) -> None:
    """Wait a while; the end goes on whether or not it is reached."""
    await asyncio.wait({ending}, timeout=END_WAIT_S if timeout_s is None else timeout_s)
