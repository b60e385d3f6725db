"""A gateway whose records are durable in a bucket: its disk is lost, and another gateway takes over while it
stands still.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from seqgate.gateway.cluster.objects.directory_objects import LOCK
from tests.faults.processes import takeovers
from tests.faults.processes.scene import IDEMPOTENT, Load, Outcome, Scene, Setting, play, until
from tests.faults.processes.takeovers import PAUSE_S, Takeovers, has_stopped

MOST_RECORDS_BETWEEN = 400


def run(
    directory: Path, seed: int, rounds: int, pause_s: float = PAUSE_S, load: Load = IDEMPOTENT
) -> Outcome:
    """Let another gateway take over twice, then lose the disk after kill -9, several times."""
    bucket = directory / "bucket"
    bucket.mkdir(parents=True)
    takeover = Takeovers(pause_s, lambda pid: stop_without(bucket / LOCK, pid))

    def act(scene: Scene) -> None:
        takeovers.prepare(scene)
        for _ in range(rounds):
            takeover.take_over(scene, with_clients=True)
            takeover.take_over(scene, with_clients=False)
            lose_disk(scene)
        takeovers.finish(scene)

    settings = {
        "seqgate.cluster": f"file://{bucket}",
        **takeovers.SAME_NODE,
        "seqgate.cluster.puts.per.second": "200",
        "seqgate.cluster.upload.interval.ms": "300",
    }
    outcome = play(directory, seed, act, Setting(settings=settings, way=takeover.way, load=load))
    outcome.counts["manifests"] = len(list((bucket / "parts").rglob("manifest")))
    outcome.counts["boundaries moved"] = len(list((bucket / "wal").rglob("boundary")))
    return outcome


def lose_disk(scene: Scene) -> None:
    """Kill the gateway with SIGKILL, remove its disk, and start it again."""
    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
    scene.gateway.kill()
    shutil.rmtree(scene.gateway.data_dir)
    scene.gateway.start()
    scene.counts["disks lost"] += 1


def stop_without(lock: Path, pid: int) -> None:
    """Stop the process while it does not hold the lock of the directory, because nobody else could replace an
    object before it continues.
    """
    while True:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: has_stopped(pid), "all threads of the gateway stand still")
        with lock.open() as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        os.kill(pid, signal.SIGCONT)
