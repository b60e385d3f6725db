"""One fault: it strikes the requests that it names, some of them, and counts how often it did."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Self

from gateway.testing.effects import Effect

EVER: Final = 1 << 62
"""The `times` of a fault that strikes until its end."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What faults choose requests by. `topics` are the names of all topics in the request."""

    api: str
    client_id: str
    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The requests that a fault names. None stands for every API, topic or client."""

    api: str | None = None
    topic: str | None = None
    client: str | None = None

    def may_take(self, api: str, client_id: str) -> bool:
        """Return whether the fault names such a request, whatever its topics are."""
        return self.api in {None, api} and self.client in {None, client_id}

    def takes(self, request: RequestFacts) -> bool:
        """Return whether the fault names this request."""
        return self.may_take(request.api, request.client_id) and (
            self.topic is None or self.topic in request.topics
        )

    def __str__(self) -> str:
        named = {"api": self.api, "topic": self.topic, "client": self.client}
        return (
            ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
            or "every request"
        )


Pick = Callable[[RequestFacts], Effect | None]
"""Returns what happens to a request that a fault may strike; None spares the request."""


class Fault:
    """One order. It strikes the requests of its choice after the first `after`, at most `times` of them, until `end`."""

    def __init__(self, text: str, choice: Choice, pick: Pick, *, after: int = 0, times: int = EVER) -> None:
        """`text` says for people what the fault does. Raises ValueError for numbers that are too low."""
        if times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        if after < 0:
            raise ValueError(f"after must be at least 0, not {after}")
        self.choice = choice
        self.after = after
        self.times = times
        self.seen = 0
        """The requests of the choice so far."""
        self.effects: Counter[str] = Counter()
        """How often each effect has struck so far, by its text."""
        self.has_ended = False
        self._text = text
        self._pick = pick
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def struck(self) -> int:
        """The requests that the fault has struck so far."""
        with self._changed:
            return self.effects.total()

    def end(self) -> None:
        """Strike no more requests."""
        self.has_ended = True

    def wait_until_struck(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the fault has struck so often. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.effects.total() >= times, timeout_s):
                raise TimeoutError(
                    f"{self} has struck {self.effects.total()} times in {timeout_s:g} s, not {times}"
                )

    def strike(self, request: RequestFacts) -> Effect | None:
        """Count a request, and return what happens to it; None if the fault spares it."""
        with self._changed:
            if self.has_ended or self.effects.total() >= self.times or not self.choice.takes(request):
                return None
            self.seen += 1
            if self.seen <= self.after:
                return None
            effect = self._pick(request)
            if effect is not None:
                self.effects[str(effect)] += 1
                self._changed.notify_all()
            return effect

    def take_back(self, effect: Effect) -> None:
        """Count a strike no longer: the request had nothing that `effect` could spoil."""
        with self._changed:
            self.effects[str(effect)] -= 1

    def __str__(self) -> str:
        return f"{self._text} ({self.choice})"
