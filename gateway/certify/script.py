"""Fault scripts. A script has the requests that fail, and the parts of the broker that break while the application sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.certify.scene import PRODUCE, Scene
from gateway.testing.effects import Effect, Kind
from gateway.testing.fault import Choice, Fault

Act = Callable[[Scene], Iterator[None]]
"""Breaks and repairs parts of the broker. It runs between two bursts of values; at each `yield` the application gets the next burst."""
RETRIES: Final = "sends the batch again; the broker recognises a batch that it has"
ACT_AT: Final = 5
"""The burst of values before which an act begins."""
LATE_FACTOR: Final = 1.5
"""An answer that is too late comes after so many request timeouts of the client."""


@dataclass(frozen=True, slots=True)
class RequestFault:
    """Requests that fail. It spares the first `after` that no earlier fault of the script strikes, and strikes `times` of the rest.

    An `effect` of kind DELAY without a time delays beyond the client's request timeout.
    """

    effect: Effect
    api: str = PRODUCE
    times: int = 1
    after: int = 0

    def order(self, scene: Scene) -> Fault:
        """Order the fault from the broker."""
        effect = self.effect
        if effect.kind is Kind.DELAY and not effect.delay_ms:
            effect = Effect(Kind.DELAY, round(LATE_FACTOR * scene.request_timeout_s * 1000))
        topic = scene.topic if self.api == PRODUCE else None
        return scene.broker.faults.order(effect, Choice(self.api, topic), times=self.times, after=self.after)


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """The share `rate` of all Produce requests fails, at most `times`, each in a way that the seed chooses."""

    seed_offset: int
    rate: float = 0.4
    times: int = 12

    def order(self, scene: Scene) -> Fault:
        """Order the faults from the broker."""
        seed = scene.seed + self.seed_offset
        return scene.broker.faults.script(
            seed, api=PRODUCE, topic=scene.topic, rate=self.rate, times=self.times
        )


@dataclass(frozen=True, slots=True)
class Script:
    """One fault script.

    `happens` says what fails, `correct` what a correct producer does then. With `may_give_up` a correct producer may also
    report a failure to the application. Without `has_topic` the topic is missing until the act creates it.
    """

    name: str
    happens: str
    correct: str = RETRIES
    faults: tuple[RequestFault | RandomFaults, ...] = ()
    act: Act | None = None
    act_at: int = ACT_AT
    may_give_up: bool = False
    has_topic: bool = True

    def begin(self, scene: Scene) -> None:
        """Order the faults, before the application starts."""
        for fault in self.faults:
            scene.add(fault.order(scene))
