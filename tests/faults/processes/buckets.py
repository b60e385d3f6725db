"""A gateway whose records are durable in a bucket: its disk is lost, and another gateway takes over while it stands still."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.demo.proxy import LossyProxy
from tests.faults.kill.load import KillableGateway
from tests.faults.processes.scene import Outcome, Scene, Setting, play
from tests.support.gateway_process import free_port

FENCED = 1
"""The exit code of a gateway whose session somebody else has ended."""
MOST_RECORDS_BETWEEN = 400


class SwitchedProxy(LossyProxy):
    """A proxy that loses nothing and leads to one gateway at a time."""

    def lead_to(self, port: int) -> None:
        """Drop all connections; later ones lead to this port."""
        self._upstream = ("127.0.0.1", port)
        self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for task in self._tasks:
            task.cancel()


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Lose the disk after kill -9, then let another gateway take over, several times."""
    (directory / "bucket").mkdir(parents=True)
    proxies: list[SwitchedProxy] = []

    @contextmanager
    def through_proxy(gateway: KillableGateway) -> Iterator[SwitchedProxy]:
        with SwitchedProxy(("127.0.0.1", gateway.port), fault_rate=0.0, seed=seed) as proxy:
            proxies.append(proxy)
            yield proxy

    def act(scene: Scene) -> None:
        for _ in range(rounds):
            _lose_disk(scene)
            _take_over(scene, proxies[0])

    settings = {
        "seqgate.cluster": f"file://{directory / 'bucket'}",
        "seqgate.cluster.puts.per.second": "200",
        "seqgate.cluster.upload.interval.ms": "300",
    }
    outcome = play(directory, seed, act, Setting(settings=settings, way=through_proxy))
    outcome.counts["manifests"] = len(list((directory / "bucket" / "parts").rglob("manifest")))
    outcome.counts["boundaries moved"] = len(list((directory / "bucket" / "wal").rglob("boundary")))
    return outcome


def _lose_disk(scene: Scene) -> None:
    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
    scene.gateway.kill()
    shutil.rmtree(scene.gateway.data_dir)
    scene.gateway.start()
    scene.counts["disks lost"] += 1


def _take_over(scene: Scene, proxy: SwitchedProxy) -> None:
    """Let a second gateway serve while the first one stands still; then the first one finds out, and comes back."""
    first = scene.gateway
    second = KillableGateway(scene.directory / "other", settings=first.settings, port=free_port())
    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
    os.kill(first.pid, signal.SIGSTOP)
    second.start()
    try:
        proxy.lead_to(second.port)
        scene.producers.await_further(MOST_RECORDS_BETWEEN)
        os.kill(first.pid, signal.SIGCONT)
        code = first.await_end()
        if code != FENCED:
            scene.outcome.breaches.append(f"the gateway that was taken over ended with {code}")
        scene.counts["gateways taken over"] += 1
    finally:
        second.kill()
    first.start()
    proxy.lead_to(first.port)
