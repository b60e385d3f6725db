"""How late the records of a share group come again after their delay: `python -m
tests.performance.retry_delays`.

A producer sends single records at random times, at a mean rate. A member of a share group releases each
record, and gets it again after the delay of `seqgate.share.retry.backoff.ms`. The lateness is the time from
the end of the delay to the member's answer. The delay is counted from before the member sent the release, so
that the lateness contains the way of both requests, and that a record which comes before the end is early
beyond doubt. Records are flushed as by default.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.compat.differential.peer import Peer
from tests.compat.differential.share_member import ACCEPT, RELEASE, ShareMember, member_of_its_own, said
from tests.performance.outage import percentile
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import set_group_configs
from tests.support.wire import Plain, Wire

DELAYS_MS: Final = (500, 1_000, 2_000)
WAIT_MS: Final = 1_000
"""The longest wait of a fetch."""
BEAT_S: Final = 5.0
NS_PER_MS: Final = 1_000_000


def produce(bootstrap: str, topic: str, count: int, rate: float, chance: random.Random) -> None:
    """Send records one by one, with pauses of a mean of 1/rate seconds between them."""
    partition = {"index": 0, "records": Batch(records(1)).encode()}
    request = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": [partition]}]}
    with Wire(bootstrap) as wire:
        for _ in range(count):
            answer = wire.call("produce", 9, request).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer
            time.sleep(chance.expovariate(rate))


class Retries:
    """Releases each record until it has had all its delays, then accepts it."""

    def __init__(self, member: ShareMember) -> None:
        self.late_ms: dict[int, list[float]] = defaultdict(list)
        """The latenesses by the number of the delay."""
        self._member = member
        self._released_ns: dict[int, int] = {}
        self._answers: list[Plain] = []
        """The acknowledgements of the next fetch."""
        self._accepted = 0
        self._beat_s = time.monotonic()

    def run(self, count: int) -> None:
        """Fetch until this number of records is accepted."""
        self._member.session_epoch = 0
        while self._accepted < count or self._answers:
            if time.monotonic() - self._beat_s > BEAT_S:
                self._member.hear()
                self._beat_s = time.monotonic()
            self._fetch()

    def _fetch(self) -> None:
        answers, self._answers = self._answers, []
        request = self._member.fetch_request(partitions={0: answers}, max_wait=WAIT_MS)
        sent_ns = time.time_ns()
        for answer in answers:
            for offset in range(answer["first_offset"], answer["last_offset"] + 1):
                self._released_ns[offset] = sent_ns
        answer = self._member.peer.wire.call("share_fetch", 2, request).fields
        at_ns = time.time_ns()
        self._member.session_epoch += 1
        assert answer["error_code"] == 0, answer
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                assert row["error_code"] == row["acknowledge_error_code"] == 0, row
                for acquired in row["acquired_records"]:
                    self._take(acquired, at_ns)

    def _take(self, acquired: Any, at_ns: int) -> None:
        first, last, deliveries = (
            acquired[name] for name in ("first_offset", "last_offset", "delivery_count")
        )
        is_last = deliveries > len(DELAYS_MS)
        if deliveries > 1:
            delay_ms = DELAYS_MS[deliveries - 2]
            for offset in range(first, last + 1):
                # The gateway counts whole milliseconds.
                due_ms = self._released_ns[offset] // NS_PER_MS + delay_ms
                self.late_ms[deliveries - 1].append(at_ns / NS_PER_MS - due_ms)
        self._answers.append(said(first, last, ACCEPT if is_last else RELEASE))
        self._accepted += is_last * (last - first + 1)


def measure(directory: Path, *, count: int, rate: float, seed: int) -> dict[int, list[float]]:
    """Return the latenesses in ms, by the number of the delay."""
    with GatewayProcess(directory / "data") as gateway:
        peer = Peer(gateway.bootstrap, "retries-")
        member = member_of_its_own(peer)
        set_group_configs(
            gateway.bootstrap,
            member.group_id,
            {"seqgate.share.retry.backoff.ms": ",".join(map(str, DELAYS_MS))},
        )
        retries = Retries(member)
        producer = threading.Thread(
            target=produce, args=(gateway.bootstrap, member.topics[0].name, count, rate, random.Random(seed))
        )
        producer.start()
        retries.run(count)
        producer.join()
        peer.close()
        return dict(retries.late_ms)


def table(late_ms: dict[int, list[float]]) -> str:
    """Return p50, p99 and maximum of the latenesses of each delay, and how many came early, in Markdown."""
    return "\n".join(_lines(late_ms))


def _lines(late_ms: dict[int, list[float]]) -> Iterator[str]:
    yield "| delay | measured | p50 | p99 | max | early |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    rows = {f"{delay_ms:,} ms": late_ms[number] for number, delay_ms in enumerate(DELAYS_MS, 1)}
    for what, found in {**rows, "all": [late for each in rows.values() for late in each]}.items():
        ordered = sorted(found)
        shares = " | ".join(f"{percentile(ordered, share):.1f} ms" for share in (0.5, 0.99, 1.0))
        yield f"| {what} | {len(found):,} | {shares} | {early(found)} |"


def early(late_ms: Sequence[float]) -> int:
    """Return how many records came before their time."""
    return sum(late < 0 for late in late_ms)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print the table; return 1 if a record came early."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance.retry_delays", description=__doc__)
    parser.add_argument("--records", type=int, default=300, help="records, each retried three times (300)")
    parser.add_argument("--rate", type=float, default=10.0, help="records sent in a second (10)")
    parser.add_argument("--seed", type=int, default=1, help="draws the times of the records (1)")
    arguments = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="seqgate-retries-") as name:
        found = measure(Path(name), count=arguments.records, rate=arguments.rate, seed=arguments.seed)
    print(table(found))
    load, *_ = os.getloadavg()
    print(f"load of the machine: {load:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    return 1 if any(early(late) for late in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
