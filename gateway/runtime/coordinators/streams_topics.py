"""The internal topics of streams groups that are being created, and those whose creation failed.

Only one creation of a topic runs at a time. A creation that failed is tried again after a while; until then
heartbeats are answered with the reason. Source: Kafka's
`DefaultAutoTopicCreationManager.createStreamsInternalTopics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from seqgate.gateway.runtime.loop.clock import Clock

MAX_FAILURES: Final = 1_000
"""Topics whose failure is kept; at the limit the failure that ends first makes room."""


class _Failure(NamedTuple):
    """The reason why a topic could not be created, and the time for which the reason is reported."""

    message: str
    since_ms: int
    keep_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Whether the topic may be tried again, as also after the clock was set back."""
        return not 0 <= now_ms - self.since_ms < self.keep_ms


class StreamsTopics:
    """Keeps the names of internal topics while they are created, and the reasons of failed creations."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def begin(self, names: Iterable[str]) -> set[str]:
        """Return the topics that must be created now; `ended` must follow for them."""
        failed = self.failures(names := list(names))
        begun = {name for name in names if name not in failed} - self._under_way
        self._under_way |= begun
        return begun

    def ended(self, names: Iterable[str], failures: Mapping[str, str], keep_ms: int) -> None:
        """Note that the creation of these topics has ended, and why some of them failed."""
        self._under_way.difference_update(names)
        now_ms = self._clock.now_ms()
        for name, message in failures.items():
            if len(self._failures) >= MAX_FAILURES:
                del self._failures[min(self._failures, key=lambda each: self._failures[each].since_ms)]
            self._failures[name] = _Failure(message, now_ms, keep_ms)

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Return why topics could not be created, for each of these whose last creation failed."""
        now_ms = self._clock.now_ms()
        found = {}
        for name in names:
            failure = self._failures.get(name)
            if failure is not None and failure.is_over(now_ms):
                del self._failures[name]
            elif failure is not None:
                found[name] = failure.message
        return found
