"""Counts of failed logins, and which of them get a line in the log."""

from __future__ import annotations

from typing import Final

LINE_INTERVAL_S: Final = 10.0
"""Failed logins of one address within this time (s) share a line of the log."""
ADDRESSES: Final = 1_000
"""Addresses that are remembered; a further address replaces the one that was logged first."""


class FailedLogins:
    """The failed logins of all listeners."""

    def __init__(self) -> None:
        self.total = 0
        self._lines: dict[str, tuple[float, int]] = {}
        """The time (s) of the last line of each address, and the failures since."""

    def note(self, host: str, now_s: float) -> int | None:
        """Count a failure; return the number of failures of the address that got no log line before; None
        when this failure gets no line either.
        """
        self.total += 1
        logged_s, unlogged = self._lines.get(host, (None, 0))
        if logged_s is not None and now_s - logged_s < LINE_INTERVAL_S:
            self._lines[host] = logged_s, unlogged + 1
            return None
        self._lines.pop(host, None)
        if len(self._lines) >= ADDRESSES:
            del self._lines[next(iter(self._lines))]
        self._lines[host] = now_s, 0
        return unlogged
