"""Runs an application through scripts, several at a time, each against its own broker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.certify.run import Application, Judgement, NotStarted, RunOutcome, Setup, play
from seqgate.gateway.certify.scripts import CALM, Script
from seqgate.gateway.testing import Broker

SETTINGS: Final = {"log.flush.interval.messages": "1", "auto.create.topics.enable": "false"}
"""A power cut loses nothing acknowledged, and a topic exists when a script says so."""


class NotReady(Exception):
    """There is nothing to certify; the message says why, such as a failure without a fault."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The outcomes of all runs. `calm` is the run without a fault."""

    setup: Setup
    calm: RunOutcome
    outcomes: Sequence[RunOutcome]

    @property
    def counts(self) -> dict[Judgement, int]:
        found = Counter(outcome.verdict for outcome in self.outcomes)
        return {judgement: found[judgement] for judgement in Judgement}

    def is_good(self, *, may_give_up: bool = False) -> bool:
        return all(outcome.is_good(may_give_up=may_give_up) for outcome in self.outcomes)


def certify(
    setup: Setup, scripts: Sequence[Script], *, jobs: int, report: Callable[[RunOutcome], None]
) -> Certificate:
    """Run the application without a fault, then through scripts, `jobs` at a time; `report` gets outcomes.
    Raises NotReady, ValueError for a command or a topic name that is none.
    """
    stage = _Stage(setup)
    try:
        calm = stage.play(CALM)
        _expect_ready(calm)
        report(calm)
        lock = threading.Lock()

        def run(script: Script) -> RunOutcome:
            outcome = stage.play(script, reads_along=calm.reads_along)
            with lock:
                if not stage.is_over:
                    report(outcome)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            try:
                outcomes = list(pool.map(run, scripts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                stage.kill_all()
                raise
        return Certificate(setup, calm, outcomes)
    except NotStarted as error:
        raise NotReady(str(error)) from None
    except (OSError, StartFailed) as error:
        raise NotReady(f"a broker can't be started: {error}") from None
    finally:
        stage.close()


def _expect_ready(calm: RunOutcome) -> None:
    """Raise NotReady unless the application stored each value once without a fault."""
    complaints = list(calm.findings.complaints())
    if not calm.ending.claims_all:
        complaints.insert(0, f"it {calm.ending}")
    if complaints:
        tail = f"\n{calm.ending.errors}" if calm.ending.errors else ""
        raise NotReady(
            f"the application fails without a fault: {'; '.join(complaints)}; "
            f"{calm.stored} of {calm.sent} records are stored{tail}"
        )


class _Stage:
    """The brokers, of which each run takes one that is free, and the applications that run."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._free: list[Broker] = []
        self._brokers: list[Broker] = []
        self._running: list[Application] = []
        self.is_over = False
        """Whether the applications were killed, so that what they show means nothing."""

    def play(self, script: Script, *, reads_along: bool = True) -> RunOutcome:
        """Run the application through a script, against a free broker; `reads_along` as for `play`."""
        broker = self._taken()
        outcome = play(script, broker, self._setup, self._register, reads_along=reads_along)
        with self._lock:
            self._free.append(broker)
        return outcome

    def kill_all(self) -> None:
        """Kill all applications, and those that start from now on."""
        with self._lock:
            self.is_over = True
            for application in self._running:
                application.kill()

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()

    def _taken(self) -> Broker:
        with self._lock:
            if self._free:
                return self._free.pop()
            broker = Broker(settings=SETTINGS)
            self._brokers.append(broker)
            return broker

    def _register(self, application: Application) -> None:
        with self._lock:
            self._running.append(application)
            if self.is_over:
                application.kill()
