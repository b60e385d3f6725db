"""Calls to the store for threads that wait, made in a thread and an event loop of their own.

A read of absent bytes may come from any thread, also from the one of the gateway's event loop, where no coroutine of that loop could
answer it. So these calls have another loop, and connections of their own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from gateway.cluster.objects.objects import ObjectStore

T = TypeVar("T")
TIMEOUT_S: Final = 30.0
"""The time (s) after which a call that got no answer fails."""


class BucketCalls(Protocol):
    """Calls to the store that the calling thread waits for."""

    def run(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine returns. Raises its errors, and OSError if it takes too long."""

    def close(self) -> None:
        """Release the connections."""


class BucketThread:
    """The thread, which the first call starts. Any thread may use it, and several at once."""

    def __init__(self, open_objects: Callable[[], ObjectStore], timeout_s: float = TIMEOUT_S) -> None:
        """Take what opens the store, in the thread."""
        self._open_objects = open_objects
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.new_event_loop()
        self._objects: ObjectStore | None = None

    def run(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine returns. Raises its errors, and OSError if it takes longer than the timeout."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bucket-reads", daemon=True)
                self._thread.start()
        future = asyncio.run_coroutine_threadsafe(self._call(call), self._loop)
        try:
            return future.result(self._timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise OSError(errno.ETIMEDOUT, f"the bucket did not answer for {self._timeout_s:.0f} s") from None

    async def _call(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        if self._objects is None:
            self._objects = self._open_objects()
        return await call(self._objects)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            if self._objects is not None:
                self._loop.run_until_complete(self._objects.close())
        finally:
            self._loop.close()

    def close(self) -> None:
        """End the thread; calls under way get no answer."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
        elif not self._loop.is_closed():
            self._loop.close()
