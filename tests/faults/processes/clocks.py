"""The wall clock of the gateway jumps forward and back under load, by minutes, hours and days."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.processes.scene import PARTITIONS, TOPIC, Outcome, Scene, Setting, play
from tests.faults.processes.small_disk import INJECTED
from tests.support.wire import Wire

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SHIFTS_MS = (MINUTE_MS, HOUR_MS, 2 * HOUR_MS, 2 * DAY_MS, 400 * DAY_MS)
MOST_RECORDS_BETWEEN = 400
ANY_TIME_MS = 2**62
SETTINGS = {
    "log.retention.check.interval.ms": "20",
    "producer.id.expiration.check.interval.ms": "20",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
}
CONFIGS = {"retention_ms": -1, "message_timestamp_after_max_ms": ANY_TIME_MS, "segment_ms": HOUR_MS}


class ShiftedClock:
    """The offset of the wall clock, in the file that `injected/sitecustomize.py` reads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(8))
        self.environment = {"PYTHONPATH": str(INJECTED), "SEQGATE_TEST_CLOCK": str(path)}
        with path.open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), 8)

    def set_wrong_by(self, shift_ms: int) -> None:
        struct.pack_into("=q", self._shift, 0, shift_ms * 1_000_000)


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Set the clock forward and back. Sometimes kill the gateway, so that it starts with another clock than
    it stopped with.
    """
    clock = ShiftedClock(directory / "clock")

    def act(scene: Scene) -> None:
        for _ in range(rounds):
            for sign in scene.rng.sample((1, -1, 0), 3):
                clock.set_wrong_by(sign * scene.rng.choice(SHIFTS_MS))
                scene.counts["clock set"] += 1
                with _ends_not_going_back(scene):
                    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
                    if scene.rng.random() < 0.3:
                        scene.gateway.kill()
                        scene.gateway.start()
                        scene.counts["kills"] += 1
                    scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))

    setting = Setting(settings=SETTINGS, configs=CONFIGS, environment=clock.environment)
    return play(directory, seed, act, setting)


@contextmanager
def _ends_not_going_back(scene: Scene) -> Iterator[None]:
    before = _high_watermarks(scene)
    yield
    after = _high_watermarks(scene)
    scene.outcome.breaches += [
        f"the high watermark of {partition} went from {before[partition]} back to {after[partition]}"
        for partition in before
        if after[partition] < before[partition]
    ]


def _high_watermarks(scene: Scene) -> dict[int, int]:
    wanted = [{"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)]
    request = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": wanted}]}
    with Wire(scene.gateway.bootstrap) as wire:
        rows = wire.call("list_offsets", 5, request).fields["topics"][0]["partitions"]
    return {row["partition_index"]: row["offset"] for row in rows}
