"""Runs what a simulation does in virtual time, and collects what went wrong."""

from __future__ import annotations

import gc
import hashlib
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

from seqgate.gateway.runtime.loop import slices
from tests.simulation.chance import seeded
from tests.simulation.checkers import breaches
from tests.simulation.events_of_names import LineAcknowledged, NameFenced, NameTold
from tests.simulation.events_of_shares import Delivered, FoundNothing, LetterRead, SaidDurably
from tests.simulation.history import Acknowledged, Fetched, History, Refused, TransactionEnded
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.turns import TurnsOfProcesses

PATIENCE_S = 3_600.0
"""Virtual time within which a run must end."""


@dataclass
class Outcome:
    """The result of a run. `fingerprint` covers every event: the same seed must give the same fingerprint."""

    seed: int
    plan: Any
    """The plan of the run, for people."""
    history: History
    option: str = ""
    """The option of the command that replays the run, beside the seed."""
    breaches: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""

    def told(self) -> str:
        """Return a report for people: the seed, the command to replay it, and the breaches."""
        command = " ".join(("python -m tests.simulation", *self.option.split(), f"--seed {self.seed}"))
        lines = [f"seed {self.seed}: {len(self.breaches)} breaches; {command}", f"  {self.plan}"]
        return "\n".join([*lines, *(f"  {breach}" for breach in self.breaches[:20])])


class _Complaints(logging.Handler):
    """Collects errors that production code only logs. One with a traceback is a bug, unless the disk fails."""

    def __init__(self, disk_has_failed: Callable[[], bool]) -> None:
        super().__init__(logging.WARNING)
        self.breaches: list[str] = []
        self.is_over = False
        """Whether the run has ended: what dead processes say while their tasks are closed does not count."""
        self._disk_has_failed = disk_has_failed

    def emit(self, record: logging.LogRecord) -> None:
        if self.is_over:
            return
        if record.exc_info and record.exc_info[1] is not None:
            if isinstance(record.exc_info[1], OSError) and self._disk_has_failed():
                return
            formatted = logging.Formatter().format(record)
            self.breaches.append(f"logged: {formatted}")


def run_in_virtual_time(
    outcome: Outcome,
    loop: SimulatedLoop,
    live: Callable[[], Coroutine[Any, Any, None]],
    bury: Callable[[], None],
    disk_has_failed: Callable[[], bool],
) -> None:
    """Run `live` to its end, `bury` what it left, and judge the history of the outcome."""
    complaints = _Complaints(disk_has_failed)
    root = logging.getLogger()
    before = (root.handlers, root.level)
    root.handlers = [complaints]
    root.setLevel(logging.WARNING)
    try:
        with seeded(Random(f"run {outcome.seed}")), mock.patch.object(slices, "_turns", TurnsOfProcesses()):
            _run_to_the_end(outcome, loop, live, lambda: _bury(complaints, bury))
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
    outcome.breaches += complaints.breaches + loop.unhandled


def _bury(complaints: _Complaints, bury: Callable[[], None]) -> None:
    complaints.is_over = True
    bury()


def _run_to_the_end(
    outcome: Outcome,
    loop: SimulatedLoop,
    live: Callable[[], Coroutine[Any, Any, None]],
    bury: Callable[[], None],
) -> None:
    gc.disable()  # a garbage collection would take longer or shorter, depending on earlier runs in this process
    try:
        loop.run_until_complete(live())
    except Exception:
        outcome.breaches.append(f"the run came to no end: {traceback.format_exc()}")
    finally:
        bury()
        gc.enable()
    outcome.breaches += breaches(outcome.history)


def count_events(outcome: Outcome, network: Network, loop: SimulatedLoop) -> None:
    """Add what the history has to the counts of the outcome, and set its fingerprint."""
    counts, events = outcome.counts, outcome.history.events
    counts.update(network.faults)
    counts["records checked"] = sum(isinstance(event, Acknowledged) for event in events)
    counts["batches held back"] = sum(isinstance(event, Refused) and event.explained for event in events)
    counts["lines acknowledged"] = sum(isinstance(event, LineAcknowledged) for event in events)
    counts["lives fenced by name"] = sum(isinstance(event, NameFenced) for event in events)
    counts["names told"] = sum(isinstance(event, NameTold) for event in events)
    counts["transactions ended"] = sum(isinstance(event, TransactionEnded) for event in events)
    counts["records read"] = sum(len(event.records) for event in events if isinstance(event, Fetched))
    counts["records read elsewhere"] = sum(
        len(event.records) for event in events if isinstance(event, Fetched) and event.elsewhere
    )
    deliveries = [event for event in events if isinstance(event, Delivered)]
    counts["records delivered"] = sum(len(event.records) for event in deliveries)
    counts["records delivered again"] = sum(number > 1 for event in deliveries for _, number in event.records)
    counts["records said durably"] = sum(
        len(event.records) for event in events if isinstance(event, SaidDurably)
    )
    counts["fetches without a record"] = sum(isinstance(event, FoundNothing) for event in events)
    counts["letters read"] = sum(isinstance(event, LetterRead) for event in events)
    counts["events"] = len(events)
    for what in ("lost", "doubled"):
        counts[what] = sum(breach.startswith(f"{what}: ") for breach in outcome.breaches)
    counts["virtual seconds"] = round(loop.time())
    digest = hashlib.sha256(repr(events).encode())
    digest.update(str((network.bytes_delivered, loop.time())).encode())
    outcome.fingerprint = digest.hexdigest()[:16]
