"""A gateway whose records are durable in a bucket: its disk is lost, and another gateway takes over while it stands still."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.cluster.objects.directory_objects import LOCK
from gateway.demo.proxy import LossyProxy
from tests.faults.kill.load import KillableGateway
from tests.faults.processes import witness
from tests.faults.processes.scene import IDEMPOTENT, WAIT_S, Load, Outcome, Scene, Setting, play, until
from tests.faults.processes.witness import Witness
from tests.support.gateway_process import free_port

FENCED = 1
"""The exit code of a gateway whose session somebody else has ended."""
MOST_RECORDS_BETWEEN = 400
RECORDS_AFTER = 40
"""Records that are acknowledged after each takeover."""
PAUSE_S = 3.0
"""Seconds for which a gateway that is taken over stands still; a soak may ask for minutes."""


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


def run(
    directory: Path, seed: int, rounds: int, pause_s: float = PAUSE_S, load: Load = IDEMPOTENT
) -> Outcome:
    """Let another gateway take over twice, then lose the disk after kill -9, several times."""
    (directory / "bucket").mkdir(parents=True)
    proxies: list[SwitchedProxy] = []

    @contextmanager
    def through_proxy(gateway: KillableGateway) -> Iterator[SwitchedProxy]:
        with SwitchedProxy(("127.0.0.1", gateway.port), fault_rate=0.0, seed=seed) as proxy:
            proxies.append(proxy)
            yield proxy

    def act(scene: Scene) -> None:
        (proxy,) = proxies
        witness.prepare(scene.gateway.bootstrap)
        for _ in range(rounds):
            _take_over(scene, proxy, pause_s, with_clients=True)
            _take_over(scene, proxy, pause_s, with_clients=False)
            _lose_disk(scene)
        scene.outcome.breaches += witness.found_of(scene.gateway.bootstrap)

    settings = {
        "seqgate.cluster": f"file://{directory / 'bucket'}",
        "seqgate.cluster.puts.per.second": "200",
        "seqgate.cluster.upload.interval.ms": "300",
    }
    outcome = play(directory, seed, act, Setting(settings=settings, way=through_proxy, load=load))
    outcome.counts["manifests"] = len(list((directory / "bucket" / "parts").rglob("manifest")))
    outcome.counts["boundaries moved"] = len(list((directory / "bucket" / "wal").rglob("boundary")))
    return outcome


def _lose_disk(scene: Scene) -> None:
    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
    scene.gateway.kill()
    shutil.rmtree(scene.gateway.data_dir)
    scene.gateway.start()
    scene.counts["disks lost"] += 1


def _stand_still(pid: int, lock: Path) -> None:
    """Stop the process while it does not hold the lock of the directory, because nobody else could replace an object before it
    continues.
    """
    while True:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: _has_stopped(pid), "all threads of the gateway stand still")
        with lock.open() as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        os.kill(pid, signal.SIGCONT)


def _has_stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def _take_over(scene: Scene, proxy: SwitchedProxy, pause_s: float, *, with_clients: bool) -> None:
    """Let a second gateway serve while the first one stands still; then the first one finds out, and comes back.

    The clients come to the second gateway at once, or their connections stay with the first one, whose answers would reach them when
    it continues, until they time out.
    """
    first = scene.gateway
    second = KillableGateway(scene.directory / "other", settings=first.settings, port=free_port())
    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
    try:
        with Witness(first.bootstrap) as stayed:
            _stand_still(first.pid, scene.directory / "bucket" / LOCK)
            continues_s = time.monotonic() + pause_s
            stayed.ask()
            second.start()
            proxy.lead_to(second.port)
            if with_clients:
                proxy.drop()
                scene.producers.await_further(RECORDS_AFTER)
            until(lambda: time.monotonic() >= continues_s, "the pause ends", pause_s + WAIT_S)
            os.kill(first.pid, signal.SIGCONT)
            code = first.await_end()
            if code != FENCED:
                scene.outcome.breaches.append(f"the gateway that was taken over ended with {code}")
            scene.outcome.breaches += stayed.breaches()
        scene.producers.await_further(RECORDS_AFTER)
        scene.counts["gateways taken over"] += 1
        scene.counts["seconds of standing still"] += round(pause_s)
    finally:
        second.kill()
    if "Traceback" in second.stderr_text():
        scene.outcome.breaches.append("the gateway that took over logged an unexpected exception")
    first.start()
    proxy.lead_to(first.port)
    proxy.drop()
