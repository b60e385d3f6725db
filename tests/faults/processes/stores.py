"""A gateway with an S3 store behind a proxy that injects random faults: the store answers with errors or is
killed, another gateway takes over, or the gateway's disk is lost.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.faults.processes import takeovers
from tests.faults.processes.buckets import MOST_RECORDS_BETWEEN, lose_disk
from tests.faults.processes.scene import IDEMPOTENT, Load, Outcome, Scene, Setting, play, until
from tests.faults.processes.takeovers import PAUSE_S, Takeovers
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw

FAULT_SHARE = 0.2
FAULTS = (
    Fault.BUSY_BEFORE,
    Fault.BUSY_AFTER,
    Fault.CONFLICT_BEFORE,
    Fault.CONFLICT_AFTER,
    Fault.RESET_BEFORE,
    Fault.RESET_AFTER,
    Fault.LATE,
    Fault.CUT_ANSWER,
)
AWAY = "The store of the cluster has carried out no call"
REGION_AND_KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}


class Weather:
    """Draws what happens to the next request of a gateway; `counts` has the faults of puts by name."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._chance = Random(seed)

    def draw(self, method: str) -> Fault:
        if method not in {"PUT", "GET"} or self._chance.random() >= FAULT_SHARE:
            return Fault.NONE
        fault = self._chance.choice(FAULTS)
        if method == "GET" and fault is Fault.LATE:
            return Fault.BUSY_BEFORE
        self.counts["faults of the store"] += 1
        self.counts["puts applied late"] += fault is Fault.LATE
        return fault


def run(
    directory: Path, seed: int, rounds: int, pause_s: float = PAUSE_S, load: Load = IDEMPOTENT
) -> Outcome:
    """Kill the store, let another gateway take over, and lose the disk, while the store answers badly all the
    time.
    """
    weather = Weather(seed)
    takeover = Takeovers(pause_s)
    with Versitygw() as store, FaultProxy(store.port, draw=weather.draw) as proxy:

        def act(scene: Scene) -> None:
            takeovers.prepare(scene)
            for _ in range(rounds):
                scene.producers.await_further(scene.rng.randint(1, MOST_RECORDS_BETWEEN))
                _kill_store(scene, store)
                proxy.release()
                takeover.take_over(scene, with_clients=scene.rng.random() < 0.5)
                proxy.release()
                lose_disk(scene)
                proxy.release()
            takeovers.finish(scene)

        settings = {
            "seqgate.cluster": f"s3://{BUCKET}/orders",
            **takeovers.SAME_NODE,
            "seqgate.cluster.endpoint": f"http://127.0.0.1:{proxy.port}",
            "seqgate.cluster.puts.per.second": "200",
            "seqgate.cluster.upload.interval.ms": "300",
        }
        setting = Setting(settings=settings, environment=REGION_AND_KEYS, way=takeover.way, load=load)
        outcome = play(directory, seed, act, setting)
    outcome.counts.update(weather.counts)
    return outcome


def _kill_store(scene: Scene, store: Versitygw) -> None:
    """Kill the store, and start it again once the gateway has told that it is away."""
    told_before = scene.gateway.stderr_text().count(AWAY)
    store.kill()
    until(
        lambda: scene.gateway.stderr_text().count(AWAY) > told_before,
        "the gateway tells that the store is away",
    )
    store.start()
    scene.counts["stores killed"] += 1
