"""Three gateways over an S3 store, each behind a proxy of its own to it, and what happens to them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw

GATEWAYS: Final = 3
FAULT_SHARE: Final = 0.02
"""The share of requests to the store that fail, all the time."""
FAULTS: Final = (Fault.BUSY_BEFORE, Fault.BUSY_AFTER, Fault.RESET_BEFORE, Fault.RESET_AFTER)
SETTINGS: Final = {
    "seqgate.cluster": f"s3://{BUCKET}/orders",
    "seqgate.cluster.balance.delay.ms": "1000",
    "seqgate.cluster.upload.interval.ms": "10000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}
KEYS: Final = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}


class _Way:
    """The way of one gateway to the store."""

    def __init__(self, store: Versitygw, seed: int) -> None:
        self._chance = Random(seed)
        self.is_cut = False
        self.proxy = FaultProxy(store.port, draw=self._draw)

    def _draw(self, _: str) -> Fault:
        if self.is_cut:
            return Fault.RESET_BEFORE
        return self._chance.choice(FAULTS) if self._chance.random() < FAULT_SHARE else Fault.NONE


class SufferingGateways:
    """The gateways, with default settings for leases. `counts` has what happened."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._chance = Random(seed)
        self._stack = ExitStack()
        self._directory = directory
        self._seed = seed
        self.counts: Counter[str] = Counter()
        self.gateways: list[GatewayProcess] = []
        self._ways: list[_Way] = []

    def __enter__(self) -> Self:
        store = self._stack.enter_context(Versitygw())
        for number in range(GATEWAYS):
            way = _Way(store, self._seed + number)
            self._stack.enter_context(way.proxy)
            self._ways.append(way)
            endpoint = {"seqgate.cluster.endpoint": f"http://127.0.0.1:{way.proxy.port}"}
            cache = self._directory / f"cache-{number}"
            self.gateways.append(GatewayProcess(cache, settings=SETTINGS | endpoint, environment=KEYS))
        with ThreadPoolExecutor(GATEWAYS) as pool:
            list(pool.map(GatewayProcess.start, self.gateways))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gateway in self.gateways:
            gateway.kill()
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(gateway.bootstrap for gateway in self.gateways)

    def suffer(self, every_s: float, seconds: float, told: Callable[[str], None]) -> None:
        """Let something happen to one gateway every so many seconds."""
        end_s = time.monotonic() + seconds
        acts = [self._kill, self._lose_disk, self._stand_still, self._cut_off, self._stop]
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            number, act = self._chance.randrange(GATEWAYS), self._chance.choice(acts)
            act(number, every_s / 2)
            self._start_those_that_ended()
            told(f"{act.__name__.lstrip('_')} {number}")
            time.sleep(max(0.0, every_s - (time.monotonic() - began_s)))  # the pace of the faults
        self._start_those_that_ended()

    def _kill(self, number: int, rest_s: float) -> None:
        """Kill a gateway. It is away for longer than its lease, or comes back at once."""
        self.gateways[number].kill()
        if self._chance.random() < 0.5:
            time.sleep(rest_s)
        self.gateways[number].start()
        self.counts["gateways killed"] += 1

    def _lose_disk(self, number: int, _: float) -> None:
        gateway = self.gateways[number]
        gateway.kill()
        shutil.rmtree(gateway.data_dir)
        gateway.start()
        self.counts["disks lost"] += 1

    def _stand_still(self, number: int, rest_s: float) -> None:
        pid = self.gateways[number].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rest_s)
        os.kill(pid, signal.SIGCONT)
        self.counts["gateways stood still"] += 1

    def _cut_off(self, number: int, rest_s: float) -> None:
        self._ways[number].is_cut = True
        time.sleep(rest_s)
        self._ways[number].is_cut = False
        self.counts["gateways cut off from the store"] += 1

    def _stop(self, number: int, _: float) -> None:
        """Stop a gateway. One that has just been taken over ends with an error."""
        gateway = self.gateways[number]
        os.kill(gateway.pid, signal.SIGTERM)
        self.counts["gateways stopped" if gateway.await_end() == 0 else "gateways that ended themselves"] += 1
        gateway.start()

    def _start_those_that_ended(self) -> None:
        """Start the gateways again that were taken over, and have ended themselves."""
        for gateway in self.gateways:
            if gateway.has_ended:
                gateway.await_end()
                gateway.start()
                self.counts["gateways that ended themselves"] += 1
