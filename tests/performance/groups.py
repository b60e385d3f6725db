"""Consumer groups on Seqgate and on Apache Kafka, alternately: `python -m tests.performance.groups`.

A thousand members (JoinGroup v9, SyncGroup v5, Heartbeat v4, OffsetCommit v9 over a connection each) in a
hundred groups: the time until every member has its assignment, the broker's CPU per heartbeat, and commits
per second while every member commits as fast as it is answered. Both brokers run all the time, each with as
many partitions of `__consumer_offsets`, and only one is under load. All commits to one partition share a
batch and a flush, so the table has a row for one partition and one for both brokers' default of fifty. A row
has the medians of all rounds. The members are tasks of one Python process, which takes about one core. Where
this process is the limit, both brokers wait for it, and the CPU columns say more than the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.performance.brokers import Broker, KafkaBroker, SeqgateBroker
from tests.performance.compare import workspace
from tests.performance.group_members import Group, Member
from tests.performance.loads import EVERY_MESSAGE, PAGE_CACHE, choose_durability, create_topic

TOPIC = "group-bench"
OFFSETS_TOPIC = "__consumer_offsets"
ANSWER_TIMEOUT_S = 60.0
DURABILITIES = {"page cache": PAGE_CACHE, "flush": EVERY_MESSAGE}
HEAD = """\
| offsets topic | durability | broker | stable after s | broker CPU per heartbeat µs | commits/s | broker CPU per commit µs |
| --- | --- | --- | ---: | ---: | ---: | ---: |"""


@dataclass(frozen=True)
class Sample:
    """The measurements of one round on one broker."""

    stable_s: float
    heartbeat_cpu_us: float
    commits_per_s: float
    commit_cpu_us: float


async def look_up(host: str, port: int, groups: Sequence[Group]) -> None:
    """Find the coordinator of every group, as clients do. The first look-up creates the offsets topic."""
    finder = Member(host, port, Group("", 0), TOPIC)
    await finder.connect()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    for group in groups:
        while True:
            request = {"key_type": 0, "coordinator_keys": [group.name]}
            found = await finder.call("find_coordinator", 6, request)
            if not found["coordinators"][0]["error_code"]:
                break
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)
    await finder.leave()


async def _repeat(
    members: Sequence[Member], frames: Callable[[Member], bytes], error_at: int, seconds: float
) -> tuple[int, float]:
    """Let every member send its frame over and over, at least once; return the number of answers and the
    time.
    """
    # Encode before the measurement, because the first frame of each kind takes long.
    encoded = [frames(member) for member in members]
    begun_s = time.monotonic()
    deadline = begun_s + seconds

    async def go(member: Member, frame: bytes) -> int:
        count = 0
        while not count or time.monotonic() < deadline:
            answer = await member.exchange(frame)
            assert answer[error_at : error_at + 2] == b"\0\0", answer
            count += 1
        return count

    counts = await asyncio.gather(*map(go, members, encoded))
    return sum(counts), time.monotonic() - begun_s


async def measure(broker: Broker, *, groups: int, members: int, seconds: float) -> Sample:
    """Run all phases on one broker."""
    host, _, port = broker.bootstrap.rpartition(":")
    named = [Group(f"bench-{number}", len(range(number, members, groups))) for number in range(groups)]
    everyone = [Member(host, int(port), named[number % groups], TOPIC) for number in range(members)]
    await look_up(host, int(port), named)
    await _all(member.connect for member in everyone)
    begun_s = time.monotonic()
    await _all(member.settle for member in everyone)
    stable_s = time.monotonic() - begun_s
    cpu_s = broker.cpu_s()
    heartbeats, _ = await _repeat(everyone, Member.heartbeat_frame, 9, seconds)
    heartbeat_cpu_s = broker.cpu_s() - cpu_s
    cpu_s = broker.cpu_s()
    after_name = 9 + 1 + 1 + len(TOPIC) + 1 + 4
    commits, took_s = await _repeat(everyone, Member.commit_frame, after_name, seconds)
    commit_cpu_s = broker.cpu_s() - cpu_s
    await _all(member.leave for member in everyone)
    return Sample(
        stable_s, heartbeat_cpu_s / heartbeats * 1e6, commits / took_s, commit_cpu_s / commits * 1e6
    )


async def _all(steps: Any) -> None:
    work: list[Awaitable[None]] = [step() for step in steps]
    await asyncio.wait_for(asyncio.gather(*work), ANSWER_TIMEOUT_S)


def _medians(samples: Sequence[Sample]) -> Sample:
    return Sample(*(median(column) for column in zip(*map(astuple, samples), strict=True)))


def _compare(directory: Path, offsets_partitions: int, arguments: argparse.Namespace) -> None:
    """Measure both brokers with a number of partitions of the offsets topic, and print their rows."""
    # the members that arrive together join at once, as the properties of the compared Kafka have it
    settings = {
        "offsets.topic.num.partitions": str(offsets_partitions),
        "group.initial.rebalance.delay.ms": "0",
    }
    sizes = {"groups": arguments.groups, "members": arguments.members}
    with ExitStack() as running:
        brokers: list[Broker] = [running.enter_context(SeqgateBroker(directory / "seqgate", settings))]
        if not arguments.only_seqgate:
            brokers.append(running.enter_context(KafkaBroker(directory / "kafka", settings)))
        for broker in brokers:
            create_topic(broker, TOPIC, partitions=1, flush_messages=PAGE_CACHE)
            # The first run warms the JVM up, and is not counted.
            asyncio.run(measure(broker, **sizes, seconds=2 * arguments.seconds))
        for durability, flush_messages in DURABILITIES.items():
            samples: dict[str, list[Sample]] = {broker.name: [] for broker in brokers}
            for broker in brokers:
                choose_durability(broker, OFFSETS_TOPIC, flush_messages)
            for number in range(arguments.rounds):
                for broker in brokers if number % 2 == 0 else reversed(brokers):
                    samples[broker.name].append(
                        asyncio.run(measure(broker, **sizes, seconds=arguments.seconds))
                    )
            for name, measured in samples.items():
                found = _medians(measured)
                print(
                    f"| {offsets_partitions} partition{'s' * (offsets_partitions > 1)} | {durability} | "
                    f"{name} | {found.stable_s:.2f} | {found.heartbeat_cpu_us:.0f} | "
                    f"{found.commits_per_s:,.0f} | {found.commit_cpu_us:.0f} |",
                    flush=True,
                )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of heartbeats, and of commits")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per row and broker")
    parser.add_argument(
        "--offsets-partitions", type=int, nargs="+", default=[1, 50], help="partitions of the offsets topic"
    )
    parser.add_argument("--only-seqgate", action="store_true")
    arguments = parser.parse_args(given)
    # a thousand connections are more files than most systems let a process have unasked
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    print(HEAD)
    for offsets_partitions in arguments.offsets_partitions:
        with workspace() as directory:
            _compare(directory, offsets_partitions, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
