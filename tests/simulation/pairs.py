"""What is wrong between pairs of processes: bytes that wait, and bytes that take longer."""

from __future__ import annotations


class Pairs:
    """The pairs of processes that are apart or slow, by their names."""

    def __init__(self) -> None:
        self._apart: dict[tuple[str, str], None] = {}
        """Pairs whose bytes, from the first to the second, wait."""
        self._slow: dict[frozenset[str], float] = {}
        """The longest additional latency between two processes."""

    def holds_up(self, one: str, other: str) -> bool:
        """Return whether bytes from one process to the other wait."""
        return (one, other) in self._apart

    def part(self, one: str, other: str, *, one_way: bool) -> None:
        self._apart[one, other] = None
        if not one_way:
            self._apart[other, one] = None

    def rejoin(self, one: str, other: str) -> None:
        self._apart.pop((one, other), None)
        self._apart.pop((other, one), None)

    def rejoin_all(self) -> None:
        self._apart.clear()

    def slow_down(self, one: str, other: str, most_s: float) -> None:
        """Let bytes between two processes take up to `most_s` longer; 0 ends it."""
        self._slow[frozenset((one, other))] = most_s
        if not most_s:
            del self._slow[frozenset((one, other))]

    def most_latency_s(self, one: str, other: str) -> float:
        """Return the longest additional latency between two processes."""
        return self._slow.get(frozenset((one, other)), 0.0) if self._slow else 0.0
