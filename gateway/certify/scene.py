"""The stage of one script: a broker with an empty topic, the faults of the script, and how often they struck."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from seqgate.gateway.testing import Broker, Fault

PRODUCE: Final = "Produce"
_SLICE_S: Final = 0.05
"""A wait looks this often whether the application has ended."""


@dataclass(frozen=True, slots=True)
class Struck:
    """How often one fault of a script struck. `what` names the fault for people."""

    what: str
    times: int


@dataclass
class Scene:
    """One broker while one script plays. `request_timeout_s` is the time after which the application's client
    retries.
    """

    broker: Broker
    topic: str
    partitions: int
    seed: int
    request_timeout_s: float
    has_ended: threading.Event = field(default_factory=threading.Event)
    """Set when the application has ended: nobody waits for its requests then."""

    def __post_init__(self) -> None:
        self._faults: list[tuple[str, Fault]] = []
        self._acts: list[tuple[str, int]] = []
        self._produced = self.broker.faults.watch(api=PRODUCE, topic=self.topic)

    @property
    def requests(self) -> int:
        """The Produce requests so far, those that faults strike included."""
        return self._produced.struck

    def add(self, fault: Fault, what: str | None = None) -> None:
        """Count what a fault strikes as the script's; `what` names the fault for people."""
        if what is None:
            text, api = str(fault).partition(" (")[0], fault.choice.api
            what = text if api == PRODUCE else f"{text} of {api}"
        self._faults.append((what, fault))

    def acted(self, what: str, *, in_vain: bool = False) -> None:
        """Note that the script broke a part of the broker. It strikes if Produce requests came before and
        come after it.

        It never strikes if it was `in_vain`, because there was nothing to break.
        """
        self._acts.append((what, 0 if in_vain else self.requests))

    def struck(self) -> list[Struck]:
        """Return how often each fault of the script struck."""
        acts = [
            Struck(what, int(0 < requests_before < self.requests)) for what, requests_before in self._acts
        ]
        return [*(Struck(what, fault.struck) for what, fault in self._faults), *acts]

    def wait_for_requests(self, count: int, timeout_s: float) -> bool:
        """Wait until so many Produce requests came in all; return False after the time, or when the
        application ends.
        """
        return self.wait_until_struck(self._produced, count, timeout_s)

    def wait_until_struck(self, fault: Fault, times: int, timeout_s: float) -> bool:
        """Wait until a fault has struck so often; return False after the time, or when the application ends."""
        deadline_s = time.monotonic() + timeout_s
        while fault.struck < times:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or self.has_ended.is_set():
                return False
            try:
                fault.wait_until_struck(times, min(left_s, _SLICE_S))
            except TimeoutError:
                continue
        return True

    @contextmanager
    def answers_held(self) -> Iterator[Fault]:
        """Hold back the answers to Produce requests, which are carried out, until their connection breaks."""
        with self.broker.faults.drop_answer(
            api=PRODUCE, topic=self.topic, times=1_000, closes=False
        ) as fault:
            self.add(fault)
            yield fault

    @contextmanager
    def partitions_offline(self) -> Iterator[None]:
        """Take all partitions of the topic offline, and recover them at the end."""
        with ExitStack() as opened:
            for partition in range(self.partitions):
                opened.enter_context(self.broker.faults.partition_offline(self.topic, partition))
            yield
