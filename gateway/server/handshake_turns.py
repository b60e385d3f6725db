"""Limits the time that handshakes and logins of new connections take in each turn of the event loop. A
handshake costs a signature, and a thousand handshakes may arrive in one turn: they would hold up every other
client for a second. So the work of a turn ends after a slice. The remaining work waits for the next turns.
The addresses that wait take turns, so that a crowd at one address does not delay other addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from time import perf_counter

logger = logging.getLogger(__name__)


class HandshakeTurns:
    """The slices of one event loop, and the work that waits for one."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, slice_s: float, seconds: Callable[[], float] = perf_counter
    ) -> None:
        """Begin without waiting work. `seconds` measures the time that work takes."""
        self._loop = loop
        self._slice_s = slice_s
        self._seconds = seconds
        self._spent_s = 0.0
        """The time spent in this turn."""
        self._has_begun = False
        """Whether the end of this turn is scheduled."""
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        """The work that waits, by the address of the client; the address whose turn is next comes first."""

    def __len__(self) -> int:
        """Return the number of handshakes and login steps that wait."""
        return sum(map(len, self._waiting.values()))

    def has_time(self) -> bool:
        """Return whether work may run now: this turn has time left, and no other work waits for it."""
        return self._spent_s < self._slice_s and not self._waiting

    def wait(self, host: str, resume: Callable[[], None]) -> None:
        """Call `resume` for the client at `host` in a turn with time left; it must work inside `measured`."""
        self._waiting.setdefault(host, deque()).append(resume)
        self._end_soon()

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Count the time of the `with` block against this turn."""
        began_s = self._seconds()
        try:
            yield
        finally:
            self._spent_s += self._seconds() - began_s
            self._end_soon()

    def _end_soon(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._has_begun = False
        self._spent_s = 0.0
        waiting = self._waiting
        while waiting and self._spent_s < self._slice_s:
            host, of_host = waiting.popitem(last=False)
            resume = of_host.popleft()
            if of_host:
                waiting[host] = of_host
            try:
                resume()
            except Exception:
                # An error of one handshake must not stop the others.
                logger.exception("a handshake failed in the gateway")
