"""The rule of ordered faults in its fewest words: of the faults that name a request, the first that is due
strikes.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ModelRequest:
    """What a request is chosen by."""

    api: str
    client: str
    topics: frozenset[str]


@dataclass
class ModelFault:
    """One order. `struck` has the numbers of the requests that it struck."""

    api: str | None
    topic: str | None
    client: str | None
    after: int
    times: int
    is_over: bool = False
    seen: int = 0
    struck: list[int] = field(default_factory=list)

    def is_due(self, request: ModelRequest) -> bool:
        """Return whether the fault strikes this request; count the request if the fault names it."""
        named = (
            self.api in (None, request.api)
            and self.client in (None, request.client)
            and (self.topic is None or self.topic in request.topics)
        )
        if self.is_over or not named or len(self.struck) == self.times:
            return False
        self.seen += 1
        return self.seen > self.after


def struck_by(faults: list[ModelFault], request: ModelRequest, number: int) -> int | None:
    """Return the index of the fault that strikes a request, and let it count; None if the request is spared."""
    for index, fault in enumerate(faults):
        if fault.is_due(request):
            fault.struck.append(number)
            return index
    return None
