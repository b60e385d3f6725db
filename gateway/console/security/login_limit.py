"""The limit of failed logins, against guessing passwords."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import Final

FAILURES: Final = 5
"""Failed logins of one name, or from one address, in a window; a further login waits until the oldest leaves the window."""
FAILURES_OF_ALL: Final = 60
"""Failed logins of everybody in a window."""
WINDOW_S: Final = 60.0
MOST_KEYS: Final = 5_000
"""Names and addresses that are remembered; the one that failed longest ago is forgotten first."""
_ALL: Final = "all"


class LoginLimit:
    """Counts failed logins by name and by address. Thread-safe."""

    def __init__(self) -> None:
        """Begin without failures."""
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, username: str, address: str) -> float:
        """Return the seconds until this login may be tried; 0: now."""
        now = time.monotonic()
        with self._lock:
            return max(self._wait_of(key, limit, now) for key, limit in _limits(username, address))

    def _wait_of(self, key: str, limit: int, now: float) -> float:
        times = self._failures.get(key)
        if times is None or len(times) < limit:
            return 0.0
        return max(0.0, times[-limit] + WINDOW_S - now)

    def count_failure(self, username: str, address: str) -> None:
        """Remember a failed login."""
        now = time.monotonic()
        with self._lock:
            for key, limit in _limits(username, address):
                self._failures.setdefault(key, deque(maxlen=limit)).append(now)
                self._failures.move_to_end(key)
            while len(self._failures) > MOST_KEYS:
                self._failures.popitem(last=False)


def _limits(username: str, address: str) -> tuple[tuple[str, int], ...]:
    return (f"name {username}", FAILURES), (f"address {address}", FAILURES), (_ALL, FAILURES_OF_ALL)
