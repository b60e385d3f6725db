"""SIGSTOP and SIGCONT: a gateway or a client stops for longer than any timeout, and then continues."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.processes.scene import Outcome, Scene, Setting, play, until

REQUEST_TIMEOUT_MS = 1000
MOST_RECORDS_BETWEEN = 400


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Stop the gateway, then one of the clients, several times."""

    def act(scene: Scene) -> None:
        for _ in range(rounds):
            scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
            _stop_gateway(scene)
            _stop_client(scene)

    return play(directory, seed, act, Setting(request_timeout_ms=REQUEST_TIMEOUT_MS))


def _stop_gateway(scene: Scene) -> None:
    """Stop the gateway until every client has given up a connection that gave no answer."""
    port = scene.gateway.port
    before = {producer.pid: connections(producer.pid, port) for producer in scene.producers.all}
    with stopped(scene.gateway.pid):
        for producer in scene.producers.all:
            until(
                lambda pid=producer.pid: before[pid] - connections(pid, port),  # type: ignore[misc]
                f"{producer.ledger.producer} hangs up",
            )
        scene.counts["requests timed out in clients"] += len(scene.producers.all)
    scene.counts["gateway stopped and continued"] += 1


def _stop_client(scene: Scene) -> None:
    """Stop a client while the records of the others are acknowledged."""
    chosen = scene.rng.choice(scene.producers.all)
    with stopped(chosen.pid):
        for producer in scene.producers.all:
            if producer is not chosen:
                producer.await_acknowledged(
                    producer.acknowledged + scene.rng.randint(1, MOST_RECORDS_BETWEEN)
                )
    chosen.await_acknowledged(chosen.acknowledged + 1)
    scene.counts["client stopped and continued"] += 1


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def connections(pid: int, port: int) -> set[str]:
    """Return the inodes of the process's sockets that are or were connected to a local port."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            own.add(target[len("socket:[") : -1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[2].rpartition(":")[2], 16) == port and fields[9] in own:
                found.add(fields[9])
    return found
