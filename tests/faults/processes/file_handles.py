"""Too few file descriptors: more connections than the process may open, and more partitions than it may keep
open.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

from tests.faults.kill.load import create_topic
from tests.faults.processes.scene import Outcome, Scene, Setting, play, until
from tests.support.batches import Batch, records
from tests.support.wire import Wire

LIMIT = 160
OTHER_TOPIC, OTHER_PARTITIONS = "many", 150
CONNECTIONS = 3 * LIMIT
MOST_RECORDS_BETWEEN = 400
MOST_LOG_LINES = 500
"""The most log lines for hundreds of refused connections; more would slowly fill a disk."""
MEASURED_S = 1.0
MOST_PROCESSOR_SHARE = 0.5
UNDER = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Use up all file descriptors, let producers continue meanwhile, and then close them."""

    def act(scene: Scene) -> None:
        create_topic(scene.gateway.bootstrap, OTHER_TOPIC, OTHER_PARTITIONS)
        for _ in range(rounds):
            _write_to_all(scene)
            held = _crowd(scene)
            try:
                scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
                _check_idle(scene)
            finally:
                for one in held:
                    one.close()
            until(lambda: _answers(scene), "a new connection is served")
            _write_to_all(scene)
            scene.counts["file handles exhausted"] += 1
        _check_lines(scene)

    return play(directory, seed, act, Setting(under=UNDER))


def _crowd(scene: Scene) -> list[socket.socket]:
    """Open many connections and keep them; count those that the gateway closes."""
    held = []
    for _ in range(CONNECTIONS):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", scene.gateway.port), timeout=10))
    refused = 0
    for one in held:
        one.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            try:
                refused += not one.recv(1)
            except ConnectionError:
                refused += 1
    scene.counts["connections refused"] += refused
    assert refused, "every connection was taken"
    return held


def _answers(scene: Scene) -> bool:
    try:
        with Wire(scene.gateway.bootstrap) as wire:
            wire.call("api_versions", 3, client_software_name="test", client_software_version="1")
    except Exception:
        return False
    return True


def _write_to_all(scene: Scene) -> None:
    """Write one batch to each of more partitions than there may be open files, in one request. None may be
    refused.
    """
    batch = Batch(records(1, 10)).encode()
    rows = [{"index": index, "records": batch} for index in range(OTHER_PARTITIONS)]
    with Wire(scene.gateway.bootstrap) as wire:
        answer = wire.call(
            "produce", 9, acks=-1, timeout=30_000, topic_data=[{"name": OTHER_TOPIC, "partition_data": rows}]
        ).fields
    refused = [row for row in answer["responses"][0]["partition_responses"] if row["error_code"]]
    scene.outcome.breaches += [f"{OTHER_TOPIC}-{row['index']}: error {row['error_code']}" for row in refused]


def _check_idle(scene: Scene) -> None:
    """Check that the gateway is idle once all clients have stopped, however many connections wait to be
    accepted.
    """
    pids = [producer.pid for producer in scene.producers.all]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        begun_s, begun_ticks = time.monotonic(), scene.gateway.processor_ticks()
        until(lambda: time.monotonic() - begun_s > MEASURED_S, "the time is over")
        used_s = (scene.gateway.processor_ticks() - begun_ticks) / os.sysconf("SC_CLK_TCK")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    if used_s > MOST_PROCESSOR_SHARE * MEASURED_S:
        scene.outcome.breaches.append(
            f"{used_s} s of processor time in {MEASURED_S} s without anything to do"
        )


def _check_lines(scene: Scene) -> None:
    lines = len(scene.gateway.stderr_text().splitlines())
    if lines > MOST_LOG_LINES:
        scene.outcome.breaches.append(f"the gateway told {lines} lines")
