"""Bad connections: lost answers, cuts, frames in single bytes or in halves, and late answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.demo.proxy import Fault
from tests.faults.kill.load import KillableGateway
from tests.faults.processes.rough_proxy import RoughProxy
from tests.faults.processes.scene import Outcome, Scene, Setting, play

REQUEST_TIMEOUT_MS = 3000
RECORDS = 400


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Send records through a proxy that damages the connection all the time."""
    proxies = []

    @contextmanager
    def through_proxy(gateway: KillableGateway) -> Iterator[RoughProxy]:
        late_s = 2 * REQUEST_TIMEOUT_MS / 1000
        with RoughProxy(("127.0.0.1", gateway.port), seed=seed, late_s=late_s) as proxy:
            proxies.append(proxy)
            yield proxy

    def act(scene: Scene) -> None:
        for _ in range(rounds):
            scene.producers.await_further(RECORDS)

    outcome = play(directory, seed, act, Setting(request_timeout_ms=REQUEST_TIMEOUT_MS, way=through_proxy))
    (proxy,) = proxies
    outcome.counts.update(proxy.counts)
    outcome.counts["answers lost"] += proxy.report.faults[Fault.LOSE_ACKNOWLEDGEMENT]
    outcome.counts["connections cut"] += proxy.report.faults[Fault.DROP_CONNECTION]
    outcome.counts["retries recognized"] += proxy.report.duplicate_answers
    return outcome
