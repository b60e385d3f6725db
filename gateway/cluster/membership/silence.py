"""The rules of conviction: how long a session has been silent, and who watches whom.

Only time between two looks that the store answered counts. So a store that is away convicts nobody, and neither does a watcher that
was stopped: of a long pause between two looks only one step counts. What counts is never more than the time that really passed.

Pure: knows no asyncio, no clock and no store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WATCHED: Final = 2
"""The gateways that each gateway watches, so that one which dies together with its watcher is still found."""


class Silence:
    """The silence of one session, in looks at the first empty place of its log."""

    def __init__(self, longest_step_s: float) -> None:
        self._longest_step_s = longest_step_s
        self._last_s: float | None = None
        self.silent_s = 0.0

    def begin(self, now_s: float) -> None:
        """Begin anew: the end of the log was found just now, or has moved."""
        self.silent_s = 0.0
        self._last_s = now_s

    def still_empty(self, now_s: float) -> None:
        """Note a look that began at `now_s` and found the place empty."""
        if self._last_s is not None:
            self.silent_s += min(max(0.0, now_s - self._last_s), self._longest_step_s)
        self._last_s = now_s

    def failed(self) -> None:
        """Note a look that the store did not answer: the time around it does not count."""
        self._last_s = None


def watched_by(node_id: int, live: Iterable[int]) -> list[int]:
    """Return the live gateways that this one watches: the next in the ring of node ids."""
    others = sorted(other for other in live if other != node_id)
    after = [other for other in others if other > node_id]
    ring = after + [other for other in others if other < node_id]
    return ring[:WATCHED]
