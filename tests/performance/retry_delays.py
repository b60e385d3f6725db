"""How late the records of a share group come again after their delay: `python -m
tests.performance.retry_delays`.

A producer sends single records at random times, at a mean rate. A member of a share group releases each
record, and gets it again after the delay of `seqgate.share.retry.backoff.ms`. The lateness is the time from
the end of the delay to the member's answer. The delay is counted from before the member sent the release, so
that the lateness contains the way of both requests, and that a record which comes before the end is early
beyond doubt. Records are flushed as by default.

The member acknowledges with requests of their own, so that the lateness falls into parts:

    state flush   the time after the end of the delay in which the member waits for its acknowledgements
    answer        the time from the fetch to the answer, where the record was due before the fetch
    timer         the time from the end of the delay, where the fetch was there before. Delays end at multiples
                  of RETRY_STEP_MS, from which it is counted. It contains the answer
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from seqgate.gateway.coordinator.share.share_partition import RETRY_STEP_MS
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
FLUSH, TIMER, ANSWER = PARTS = ("state flush", "timer", "answer")


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
        self.parts_ms: dict[str, list[float]] = {name: [] for name in PARTS}
        self._member = member
        self._released_ns: dict[int, int] = {}
        self._answers: list[Plain] = []
        """The acknowledgements of the next request."""
        self._flushing_ms = 0.0, 0.0
        """The beginning and the end of the last request with acknowledgements."""
        self._accepted = 0
        self._beat_s = time.monotonic()

    def run(self, count: int) -> None:
        """Fetch until this number of records is accepted."""
        self._member.session_epoch = 0
        while self._accepted < count or self._answers:
            if time.monotonic() - self._beat_s > BEAT_S:
                self._member.hear()
                self._beat_s = time.monotonic()
            if self._answers:
                self._acknowledge()
            else:
                self._fetch()

    def _call(self, api: str, request: Plain) -> tuple[Plain, float, float]:
        """Return the answer of a request, and the times (ms) at which it was sent and answered."""
        sent_ns = time.time_ns()
        answer = self._member.peer.wire.call(api, 2, request).fields
        at_ns = time.time_ns()
        self._member.session_epoch += 1
        assert answer["error_code"] == 0, answer
        return answer, sent_ns / NS_PER_MS, at_ns / NS_PER_MS

    def _acknowledge(self) -> None:
        answers, self._answers = self._answers, []
        request = {
            "group_id": self._member.group_id,
            "member_id": self._member.member_id,
            "share_session_epoch": self._member.session_epoch,
            "is_renew_ack": False,
            "topics": self._member.acknowledged({0: answers}),
        }
        before_ns = time.time_ns()
        for answer in answers:
            for offset in range(answer["first_offset"], answer["last_offset"] + 1):
                self._released_ns[offset] = before_ns
        answer, sent_ms, at_ms = self._call("share_acknowledge", request)
        self._flushing_ms = sent_ms, at_ms
        for topic in answer["responses"]:
            assert all(row["error_code"] == 0 for row in topic["partitions"]), answer

    def _fetch(self) -> None:
        request = self._member.fetch_request(partitions={0: []}, max_wait=WAIT_MS)
        answer, sent_ms, at_ms = self._call("share_fetch", request)
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                assert row["error_code"] == 0, row
                for acquired in row["acquired_records"]:
                    self._take(acquired, sent_ms, at_ms)

    def _take(self, acquired: Any, sent_ms: float, at_ms: float) -> None:
        first, last, deliveries = (
            acquired[name] for name in ("first_offset", "last_offset", "delivery_count")
        )
        is_last = deliveries > len(DELAYS_MS)
        if deliveries > 1:
            delay_ms = DELAYS_MS[deliveries - 2]
            for offset in range(first, last + 1):
                # The gateway counts whole milliseconds.
                due_ms = self._released_ns[offset] // NS_PER_MS + delay_ms
                self.late_ms[deliveries - 1].append(at_ms - due_ms)
                self._divide(due_ms, sent_ms, at_ms)
        self._answers.append(said(first, last, ACCEPT if is_last else RELEASE))
        self._accepted += is_last * (last - first + 1)

    def _divide(self, due_ms: int, sent_ms: float, at_ms: float) -> None:
        """Divide the lateness of a record that was due at a time, and came with a fetch."""
        began_ms, ended_ms = self._flushing_ms
        self.parts_ms[FLUSH].append(max(0.0, ended_ms - max(due_ms, began_ms)))
        step_ms = -(-due_ms // RETRY_STEP_MS) * RETRY_STEP_MS
        if step_ms <= sent_ms:
            self.parts_ms[ANSWER].append(at_ms - sent_ms)
        else:
            self.parts_ms[TIMER].append(max(0.0, at_ms - step_ms))


def measure(directory: Path, *, count: int, rate: float, seed: int) -> Retries:
    """Return the retries of records, with their latenesses."""
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
        return retries


def table(retries: Retries) -> str:
    """Return p50, p99 and maximum of the latenesses of each delay, and how many came early, in Markdown; and
    those of the parts.
    """
    late_ms = retries.late_ms
    rows = {f"{delay_ms:,} ms": late_ms[number] for number, delay_ms in enumerate(DELAYS_MS, 1)}
    lines = ["| delay | measured | p50 | p99 | max | early |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for what, found in {**rows, "all": [late for each in rows.values() for late in each]}.items():
        lines.append(f"{_row(what, found)} {early(found)} |")
    lines += ["", "| part | measured | p50 | p99 | max |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [_row(what, found) for what, found in retries.parts_ms.items() if found]
    return "\n".join(lines)


def _row(what: str, found: Sequence[float]) -> str:
    ordered = sorted(found)
    shares = " | ".join(f"{percentile(ordered, share):.1f} ms" for share in (0.5, 0.99, 1.0))
    return f"| {what} | {len(found):,} | {shares} |"


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
    return 1 if any(early(late) for late in found.late_ms.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
