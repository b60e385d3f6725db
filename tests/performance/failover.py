"""How long nobody serves what a gateway led, after it was killed, stopped, or one of its workers was killed.

    python -m tests.performance.failover                                   # 100 kills, 20 clean stops, 20 kills of a worker
    python -m tests.performance.failover --kills 10 --stops 0 --workers 0 --seed 7

Three gateways with default settings share a bucket (versitygw). One of them, drawn from the seed, ends; from
then on one record after the other is sent for each partition that it led, and an offset is committed for a
group that it coordinated. Then it starts again, and the next one ends when all lead as many partitions.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from seqgate.gateway.workers.supervisor import SETTLED_S
from tests.performance.outage import TOPIC, Client, Outage, Times, Unserved, table
from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw
from tests.system.workers.scene import consecutive_ports, present_pid

GATEWAYS = 3
PARTITIONS = 12
WORKERS = 2
BALANCED_S = 60.0
"""How long the next end waits until all gateways lead as many partitions."""
LOOK_AGAIN_S = 0.2


class Measured:
    """The times of all ends so far."""

    def __init__(self) -> None:
        self.killed = Times()
        self.stopped = Times()
        self.workers = Times()

    def table(self) -> str:
        return table(
            {
                "gateway killed: until a partition takes a record again": self.killed.partitions,
                "gateway killed: until a group commits again": self.killed.groups,
                "gateway stopped: a partition without an answer": self.stopped.partitions,
                "gateway stopped: a group without an answer": self.stopped.groups,
                "worker killed: until a partition takes a record again": self.workers.partitions,
                "worker killed: until a group commits again": self.workers.groups,
            }
        )


def create_topic(client: Client, at: str) -> None:
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
    client.call(at, "create_topics", 7, topics=[topic], timeout=30_000)
    client.group_of(at, at)  # creates the topic of groups


def until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Wait until something holds; return False when it does not in time."""
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            if holds():
                return True
        except Unserved:
            pass
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(LOOK_AGAIN_S)


class Gateways:
    """Three gateways over a bucket."""

    def __init__(self, root: Path, settings: dict[str, str], environment: dict[str, str]) -> None:
        self.client = Client()
        self._all = [
            GatewayProcess(root / f"cache-{number}", settings=settings, environment=environment)
            for number in range(GATEWAYS)
        ]

    def start(self) -> None:
        for gateway in self._all:
            gateway.start()
        first = self._all[0].bootstrap
        until(lambda: len(self.client.topics(first)[0]) == GATEWAYS, BALANCED_S)
        create_topic(self.client, first)

    def end(self) -> None:
        self.client.close()
        for gateway in self._all:
            gateway.kill()

    def is_balanced(self) -> bool:
        led = self.client.led(self._all[0].bootstrap)
        return len(led) == GATEWAYS and "" not in led and max(led.values()) - min(led.values()) <= 1

    def measure(self, chance: random.Random, *, is_clean: bool) -> Times:
        """End one gateway; start it again when everything is served."""
        if not until(self.is_balanced, BALANCED_S):
            print("the gateways do not lead as many partitions", file=sys.stderr)
        victim = chance.choice(self._all)
        outage = Outage(
            self.client, victim.bootstrap, [each.bootstrap for each in self._all if each is not victim]
        )
        if outage.is_empty:
            raise Unserved("the gateway that was drawn leads nothing")
        stopping = threading.Thread(target=victim.stop)
        times = outage.measure(stopping.start if is_clean else victim.kill, is_clean=is_clean)
        if is_clean:
            stopping.join()
        self.client.forget(victim.bootstrap)
        victim.start()
        return times


@contextmanager
def gateways(root: Path) -> Iterator[Gateways]:
    with ExitStack() as opened:
        store = opened.enter_context(Versitygw())
        settings = {
            "seqgate.cluster": f"s3://{BUCKET}/failover",
            "seqgate.cluster.endpoint": store.endpoint,
            "seqgate.cluster.region": REGION,
        }
        made = Gateways(
            root, settings, {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        )
        opened.callback(made.end)
        made.start()
        yield made


def measure_workers(root: Path, kills: int, chance: random.Random, into: Times) -> None:
    """Kill one worker of two so often; the process that supervises them starts it again."""
    port = consecutive_ports(WORKERS)
    gateway = GatewayProcess(root / "data", settings={"seqgate.workers": str(WORKERS)}, port=port)
    client = Client()
    addresses = [f"127.0.0.1:{port + each}" for each in range(WORKERS)]
    with gateway:
        create_topic(client, gateway.bootstrap)
        started_s = [time.monotonic()] * WORKERS
        for number in range(kills):
            worker = chance.randrange(WORKERS)
            # A worker that dies soon after its start is started later each time, and given up at last.
            time.sleep(max(0.0, started_s[worker] + SETTLED_S + 1 - time.monotonic()))
            outage = Outage(client, addresses[worker], [addresses[1 - worker]])
            pid = present_pid(gateway, worker + 1)
            times = outage.measure(partial(os.kill, pid, signal.SIGKILL), is_clean=False)
            started_s[worker] = time.monotonic()
            note("worker", number, times, into)
        client.close()


def note(what: str, number: int, times: Times, into: Times) -> None:
    into.partitions += times.partitions
    into.groups += times.groups
    print(f"{what} {number + 1}: longest {times.longest:.2f} s", file=sys.stderr, flush=True)


def run(arguments: argparse.Namespace, measured: Measured) -> None:
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="seqgate-failover-") as name:
        root = Path(name)
        if arguments.workers:
            measure_workers(root, arguments.workers, chance, measured.workers)
        if not arguments.kills + arguments.stops:
            return
        with gateways(root) as running:
            for number in range(arguments.stops):
                note("stop", number, running.measure(chance, is_clean=True), measured.stopped)
            for number in range(arguments.kills):
                note("kill", number, running.measure(chance, is_clean=False), measured.killed)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills of a gateway (100)")
    parser.add_argument("--stops", type=int, default=20, help="clean stops of a gateway (20)")
    parser.add_argument("--workers", type=int, default=20, help="kills of one worker of two (20)")
    parser.add_argument("--seed", type=int, default=1, help="draws the gateway that ends (1)")
    arguments = parser.parse_args(given)
    measured = Measured()
    try:
        run(arguments, measured)
    finally:
        print(measured.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
