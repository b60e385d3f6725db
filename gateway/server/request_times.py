"""Counts requests by API and times them, for the metrics. A gateway without metrics does not use this module's objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.durations import Durations
from gateway.handlers.answering.api import (
    Answer,
    Deferred,
    NotRepeated,
    Peer,
    Repeats,
    RequestContext,
)


class RequestTimes:
    """The requests of each API since the start, and how long they took, from the whole request to its answer."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.durations: dict[int, Durations] = {}
        """The durations by API key. They include the time for which a fetch waits for records, and a Produce for its flush."""
        self._counts: dict[int, int] = {}
        self._repeats: list[TimedRepeats] = []

    def counts(self) -> dict[int, int]:
        """Return the number of requests by API key."""
        counts = self._counts.copy()
        for repeats in self._repeats:
            counts[repeats.api_key] = counts.get(repeats.api_key, 0) + repeats.begun
        return counts

    def follow(self, api_key: int, repeats: Repeats, put: Callable[[Repeats], object]) -> None:
        """Count and time repeats here; `put` takes the repeats that the next requests begin with."""
        self._repeats.append(TimedRepeats(api_key, repeats, self, put))

    def arm(self) -> None:
        """Time the next repeat of each API and version."""
        for repeats in self._repeats:
            repeats.arm()

    def count(self, api_key: int) -> None:
        """Count a request that is not repeated."""
        self._counts[api_key] = self._counts.get(api_key, 0) + 1

    def began(self, api_key: int, begun_s: float, answer: Answer | Deferred | None, weight: int = 1) -> None:
        """Time a request that began at `begun_s`, now or when it is answered. A request whose client hangs up is not timed."""
        if isinstance(answer, Deferred) and answer.answer is None:
            answer.on_answered = partial(self._end, api_key, begun_s, weight)
        else:
            self._end(api_key, begun_s, weight)

    def _end(self, api_key: int, begun_s: float, weight: int) -> None:
        durations = self.durations.get(api_key)
        if durations is None:
            durations = self.durations[api_key] = Durations()
        durations.add(self.seconds() - begun_s, weight)


class TimedRepeats:
    """Puts itself before the repeats of one API and version for one request whenever `arm` is called.

    Repeats are short, and come by the hundred thousand: between two measurements they pay nothing for being measured. A timed one counts
    as many times as there were repeats since the one before.
    """

    def __init__(
        self, api_key: int, repeats: Repeats, times: RequestTimes, put: Callable[[Repeats], object]
    ) -> None:
        """`put` takes the repeats that the next requests begin with."""
        self.api_key = api_key
        self.learn: Callable[[memoryview, RequestContext[Any], Any], None] = repeats.learn
        self._repeats = repeats
        self._times = times
        self._put = put
        self._counted = 0
        """The repeats that earlier measurements stand for."""

    @property
    def begun(self) -> int:
        """The repeated requests that have begun."""
        return self._repeats.begun

    def arm(self) -> None:
        """Time the next repeat."""
        self._put(self)

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> Answer | Deferred | NotRepeated | None:
        """Begin the request, and time it. May raise the handler's errors."""
        self._put(self._repeats)
        begun_s = self._times.seconds()
        begun = self._repeats.begin(peer, frame, correlation_id, client_id_bytes)
        if not isinstance(begun, NotRepeated):
            weight = self._repeats.begun - self._counted
            self._counted = self._repeats.begun
            self._times.began(self.api_key, begun_s, begun, weight)
        return begun
