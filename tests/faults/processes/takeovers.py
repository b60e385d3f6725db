"""Takeovers: a gateway stands still, another one with the same bucket serves its clients, and then the first
one continues.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.demo.proxy import LossyProxy
from tests.faults.kill.load import KillableGateway
from tests.faults.processes import witness
from tests.faults.processes.scene import WAIT_S, Scene, until
from tests.faults.processes.witness import Witness
from tests.support.gateway_process import free_port

FENCED = 1
"""The exit code of a gateway whose session somebody else has ended."""
MOST_RECORDS_BEFORE = 400
RECORDS_AFTER = 40
"""Records that are acknowledged after each takeover."""
PAUSE_S = 3.0
"""Seconds for which a gateway that is taken over stands still; a soak may ask for minutes."""

SAME_NODE = {"node.id": "1", "seqgate.cluster.lease.ms": "6000"}
"""Settings by which a gateway replaces the one before it, on its own disk or another, as soon as the lease of
that one is over.
"""


class SwitchedProxy(LossyProxy):
    """A proxy that loses nothing and leads new connections to one gateway at a time."""

    def lead_to(self, port: int) -> None:
        """Lead later connections to this port; the present ones stay as they are."""
        self._upstream = ("127.0.0.1", port)

    def drop(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def stop_at_once(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


class Takeovers:
    """The takeovers of one scene. `stop` lets the process of a gateway stand still."""

    def __init__(self, pause_s: float, stop: Callable[[int], None] = stop_at_once) -> None:
        self._pause_s = pause_s
        self._stop = stop
        self._proxies: list[SwitchedProxy] = []

    @contextmanager
    def way(self, gateway: KillableGateway) -> Iterator[SwitchedProxy]:
        """Return the proxy between clients and gateways, as the way of a scene."""
        with SwitchedProxy(("127.0.0.1", gateway.port), fault_rate=0.0, seed=0) as proxy:
            self._proxies.append(proxy)
            yield proxy

    def take_over(self, scene: Scene, *, with_clients: bool) -> None:
        """Let a second gateway serve while the first one stands still; then the first one finds out, and
        comes back.

        The clients come to the second gateway at once, or their connections stay with the first one, whose
        answers would reach them when it continues, until they time out.
        """
        (proxy,) = self._proxies
        first = scene.gateway
        second = KillableGateway(
            scene.directory / "other",
            settings=first.settings,
            port=free_port(),
            environment=first.environment,
        )
        scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BEFORE))
        try:
            with Witness(first.bootstrap) as stayed:
                self._stop(first.pid)
                continues_s = time.monotonic() + self._pause_s
                stayed.ask()
                second.start()
                proxy.lead_to(second.port)
                if with_clients:
                    proxy.drop()
                    scene.producers.await_further(RECORDS_AFTER)
                until(lambda: time.monotonic() >= continues_s, "the pause ends", self._pause_s + WAIT_S)
                os.kill(first.pid, signal.SIGCONT)
                _expect_fenced(scene, first.await_end())
                scene.outcome.breaches += stayed.breaches()
            scene.producers.await_further(RECORDS_AFTER)
        finally:
            second.kill()
        _expect_no_exception(scene, second)
        scene.counts["gateways taken over"] += 1
        scene.counts["seconds of standing still"] += round(self._pause_s)
        first.start()
        proxy.lead_to(first.port)
        proxy.drop()


def prepare(scene: Scene) -> None:
    """Prepare the takeovers of a scene."""
    witness.prepare(scene.gateway.bootstrap)


def finish(scene: Scene) -> None:
    """Check that no gateway has stored what was sent to it while it stood still."""
    scene.outcome.breaches += witness.found_of(scene.gateway.bootstrap)


def has_stopped(pid: int) -> bool:
    """Return whether all threads of the process stand still."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def _expect_fenced(scene: Scene, code: int) -> None:
    if code != FENCED:
        scene.outcome.breaches.append(f"the gateway that was taken over ended with {code}")


def _expect_no_exception(scene: Scene, second: KillableGateway) -> None:
    if "Traceback" in second.stderr_text():
        scene.outcome.breaches.append("the gateway that took over logged an unexpected exception")
