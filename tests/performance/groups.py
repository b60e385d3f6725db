"""Consumer groups on Seqgate and on Apache Kafka, one after the other: `python -m tests.performance.groups`.

A thousand members (JoinGroup v9, SyncGroup v5, Heartbeat v4, OffsetCommit v9 over a connection each) in a
hundred groups: the time until every member has its assignment, the broker's CPU per heartbeat, and commits
per second while every member commits as fast as it is answered. The members are tasks of one Python process,
which takes about one core. Where this process is the limit, both brokers wait for it, and the CPU columns say
more than the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.performance.brokers import Broker, KafkaBroker, SeqgateBroker
from tests.performance.loads import EVERY_MESSAGE, PAGE_CACHE, choose_durability, create_topic
from tests.support.setup_peers import CACHE
from tests.support.wire import Plain, decode, encode

TOPIC = "group-bench"
OFFSETS_TOPIC = "__consumer_offsets"
ANSWER_TIMEOUT_S = 60.0
SESSION_TIMEOUT_MS = 45_000


@dataclass(frozen=True)
class Sample:
    """The measurements of one broker."""

    stable_s: float
    heartbeats: int
    heartbeat_cpu_us: float
    commits_per_s: float
    commit_cpu_us: float


class Member:
    """One group member with its own connection."""

    def __init__(self, host: str, port: int, group_id: str) -> None:
        self._address = host, port
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = -1
        self._correlation_id = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def leave(self) -> None:
        """Leave the group and hang up."""
        if self.member_id:
            leaving = [{"member_id": self.member_id, "group_instance_id": None, "reason": None}]
            await self.call("leave_group", 5, {"group_id": self.group_id, "members": leaving})
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, api: str, version: int, request: Plain) -> dict[str, Any]:
        self._correlation_id += 1
        frame = encode(api, version, request, correlation_id=self._correlation_id)
        answer = await self.exchange(frame)
        return decode(api, version, answer, correlation_id=self._correlation_id).fields

    async def exchange(self, frame: bytes) -> bytes:
        """Send one request and return its answer, both as bytes."""
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    async def join(self) -> None:
        """Join until the group is stable and this member has its assignment."""
        while True:
            joined = await self.call("join_group", 9, self._join_request())
            self.member_id = joined["member_id"]
            if joined["error_code"]:
                continue
            self.generation_id = joined["generation_id"]
            assignments = [
                {"member_id": other["member_id"], "assignment": b"\0\0\0\0\0\0"}
                for other in joined["members"]
            ]
            synced = await self.call("sync_group", 5, self._sync_request(assignments))
            if not synced["error_code"]:
                return

    def _join_request(self) -> Plain:
        return {
            "group_id": self.group_id,
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": SESSION_TIMEOUT_MS,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
            "reason": None,
        }

    def _sync_request(self, assignments: list[dict[str, Any]]) -> Plain:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
        }

    def heartbeat_frame(self) -> bytes:
        request = {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": None,
        }
        return encode("heartbeat", 4, request)

    def commit_frame(self) -> bytes:
        row = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        request = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [row]}],
        }
        return encode("offset_commit", 9, request)


async def _look_up(host: str, port: int, group_ids: Sequence[str]) -> None:
    """Find the coordinator of every group, as clients do. The first look-up creates the offsets topic."""
    finder = Member(host, port, "")
    await finder.connect()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    for group_id in group_ids:
        while True:
            request = {"key_type": 0, "coordinator_keys": [group_id]}
            found = await finder.call("find_coordinator", 6, request)
            if not found["coordinators"][0]["error_code"]:
                break
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)
    await finder.leave()


async def _repeat(
    members: Sequence[Member], frames: Callable[[Member], bytes], error_at: int, seconds: float
) -> tuple[int, float]:
    """Let every member send its frame over and over; return the number of answers and the time."""
    begun_s = time.monotonic()
    deadline = begun_s + seconds

    async def go(member: Member) -> int:
        frame = frames(member)
        count = 0
        while time.monotonic() < deadline:
            answer = await member.exchange(frame)
            assert answer[error_at : error_at + 2] == b"\0\0", answer
            count += 1
        return count

    counts = await asyncio.gather(*(go(member) for member in members))
    return sum(counts), time.monotonic() - begun_s


async def measure(broker: Broker, *, groups: int, members: int, seconds: float) -> Sample:
    """Run all phases on one broker."""
    host, _, port = broker.bootstrap.rpartition(":")
    names = [f"bench-{number}" for number in range(groups)]
    everyone = [Member(host, int(port), names[number % groups]) for number in range(members)]
    await _look_up(host, int(port), names)
    await _all(member.connect for member in everyone)
    begun_s = time.monotonic()
    await _all(member.join for member in everyone)
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
        stable_s,
        heartbeats,
        heartbeat_cpu_s / heartbeats * 1e6,
        commits / took_s,
        commit_cpu_s / commits * 1e6,
    )


async def _all(steps: Any) -> None:
    work: list[Awaitable[None]] = [step() for step in steps]
    await asyncio.wait_for(asyncio.gather(*work), ANSWER_TIMEOUT_S)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of heartbeats, and of commits")
    parser.add_argument("--only-seqgate", action="store_true")
    arguments = parser.parse_args(given)
    directory = CACHE / "bench" / f"groups-{time.time_ns()}"
    # the same values as in the properties of the compared Kafka
    settings = {"group.initial.rebalance.delay.ms": "0"}
    brokers: list[Broker] = [SeqgateBroker(directory / "seqgate", settings)]
    if not arguments.only_seqgate:
        brokers.append(KafkaBroker(directory / "kafka"))
    print(
        "| broker | offsets topic | stable after s | broker CPU per heartbeat µs | commits/s | broker CPU per commit µs |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    try:
        for broker in brokers:
            with broker:
                _load(broker.name, broker, arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _load(name: str, broker: Broker, arguments: argparse.Namespace) -> None:
    create_topic(broker, TOPIC, partitions=1, flush_messages=PAGE_CACHE)
    sizes = {"groups": arguments.groups, "members": arguments.members}
    # the first run warms the JVM up
    asyncio.run(measure(broker, **sizes, seconds=arguments.seconds / 2))
    for title, flush_messages in (("page cache", PAGE_CACHE), ("flush", EVERY_MESSAGE)):
        choose_durability(broker, OFFSETS_TOPIC, flush_messages)
        found = asyncio.run(measure(broker, **sizes, seconds=arguments.seconds))
        print(
            f"| {name} | {title} | {found.stable_s:.2f} | {found.heartbeat_cpu_us:.0f} "
            f"| {found.commits_per_s:,.0f} | {found.commit_cpu_us:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
