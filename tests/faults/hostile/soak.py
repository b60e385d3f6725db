"""Random attacks on one gateway, one after the other: `python -m tests.faults.hostile.soak --seconds 60
--seed 7`.

A witness produces and fetches all the while. The last line on stdout is JSON; the exit code is 1 after any
breach.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from seqgate.gateway.handlers import APIS
from tests.faults.hostile.scene import Scene, eventually, frame, running, versions_frame
from tests.faults.hostile.test_storms import STRANGERS
from tests.support.wire import encode, encode_header

MOST_MEMORY_BYTES: Final = 256 << 20
LOG_BYTES_PER_SECOND: Final = 200_000
LIMITS: Final = (
    "at most 4000000 are allowed",
    "which is not served",
    "it reads its answers too slowly",
    "its request stopped half-way",
    "is not whole after more than",
    "idle for more than",
    "its client is gone",
    "items; at most 200000 are allowed",
    "can't be read: ",
)
"""Parts of the log lines that report a reached limit."""


class Attacker:
    """Draws attacks, runs them and counts."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self.scene = scene
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.topic = scene.create(count=200)
        self._kept: list[socket.socket] = []
        self._attacks: tuple[Callable[[], None], ...] = (
            self._storm,
            self._strangers,
            self._lying_frames,
            self._slow,
            self._deaf,
            self._pipeline,
            self._reset,
            self._wide,
            self._names,
        )

    def attack(self) -> None:
        """Run one attack, and perhaps close connections that earlier attacks kept."""
        self.chance.choice(self._attacks)()
        while len(self._kept) > 400 or (self._kept and self.chance.random() < 0.2):
            self._kept.pop(self.chance.randrange(len(self._kept))).close()

    def close(self) -> None:
        for client in self._kept:
            client.close()

    def _connect(self, *, receive_bytes: int = 0) -> socket.socket:
        self.counts["connections opened"] += 1
        client = self.scene.connect(receive_bytes=receive_bytes)
        client.setblocking(False)
        return client

    def _send(self, client: socket.socket, data: bytes) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self.counts["bytes sent"] += client.send(data)

    def _storm(self) -> None:
        for _ in range(self.chance.randrange(1, 300)):
            self._connect().close()

    def _strangers(self) -> None:
        for stranger in self.chance.choices(STRANGERS, k=20):
            with self._connect() as client:
                self._send(client, stranger)
                self.counts["hostile frames"] += 1

    def _lying_frames(self) -> None:
        for _ in range(self.chance.randrange(1, 100)):
            api = self.chance.choice(APIS)
            version = self.chance.randrange(-1, api.versions[1] + 2)
            header = encode_header(api.key, version, 1, flexible=self.chance.random() < 0.5, client_id="x")
            body = self.chance.choice(
                (self.chance.randbytes(self.chance.randrange(300)), b"\x7f\xff\xff\xff" * 9, b"\xff" * 9, b"")
            )
            size = self.chance.choice((0, 0, 0, -1, 2**31 - 1, 4_000_001))
            data = struct.pack(">i", size) + header + body if size else frame(header + body)
            with self._connect() as client:
                self._send(client, data)
                self.counts["hostile frames"] += 1

    def _slow(self) -> None:
        data = self.chance.choice((struct.pack(">i", 3_900_000), versions_frame()[:-1], b"\0"))
        for _ in range(self.chance.randrange(1, 50)):
            client = self._connect()
            self._send(client, data + bytes(self.chance.randrange(1, 100_000) if len(data) == 4 else 0))
            self._kept.append(client)
            self.counts["hostile frames"] += 1
        for client in self._kept:
            self._send(client, b"\0")

    def _deaf(self) -> None:
        everything = frame(encode("metadata", 9, {"topics": None}))
        for _ in range(self.chance.randrange(1, 20)):
            client = self._connect(receive_bytes=1 << 14)
            self._send(client, self.chance.choice((everything * 50, versions_frame() * 5_000)))
            self._kept.append(client)

    def _pipeline(self) -> None:
        count = self.chance.randrange(1, 20_000)
        with self._connect() as client:
            self._send(client, versions_frame() * count)
            self.counts["requests pipelined"] += count

    def _reset(self) -> None:
        for _ in range(self.chance.randrange(1, 100)):
            client = self._connect()
            self._send(client, self._poll() + versions_frame() * self.chance.randrange(50))
            if self.chance.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    def _poll(self) -> bytes:
        rows = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 9} for index in range(200)]
        request: dict[str, Any] = {"replica_id": -1, "max_wait": 2**31 - 1, "min_bytes": 2**31 - 1}
        topics = [{"topic": self.topic, "partitions": rows}]
        return frame(encode("fetch", 11, {**request, "max_bytes": 2**31 - 1, "topics": topics}))

    def _wide(self) -> None:
        rows = [{"partition_index": self.chance.randrange(200), "timestamp": -1} for _ in range(5_000)]
        topics = [{"name": self.topic, "partitions": rows}]
        resources = [{"resource_type": 4, "resource_name": "1"}] * 5_000
        for api, version, request in (
            ("list_offsets", 7, {"replica_id": -1, "topics": topics}),
            ("describe_configs", 4, {"resources": resources, "include_documentation": True}),
            ("find_coordinator", 4, {"coordinator_keys": ["g"] * self.chance.choice((10_000, 200_001))}),
        ):
            with self._connect() as client:
                self._send(client, frame(encode(api, version, request)))
                self.counts["hostile frames"] += 1

    def _names(self) -> None:
        with self.scene.wire() as wire, contextlib.suppress(Exception):
            for number in range(50):
                wire.call(
                    "join_group",
                    3,
                    group_id=f"flood-{self.chance.randrange(1_000)}",
                    session_timeout=6_000,
                    rebalance_timeout=100,
                    member_id="",
                    protocol_type="consumer",
                    protocols=[{"name": "range", "metadata": bytes(self.chance.randrange(100_000))}],
                )
                wire.call(
                    "init_producer_id",
                    4,
                    transactional_id=f"flood-{self.chance.randrange(1_000)}" if number % 2 else None,
                    transaction_timeout=1_000,
                    producer_id=-1,
                    producer_epoch=-1,
                )
                self.counts["names flooded"] += 2


def soak(data_dir: Path, seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Attack for `seconds`; return the counts and the breaches."""
    breaches: list[str] = []
    counts: Counter[str] = Counter()
    chance = random.Random(seed)
    try:
        with running(data_dir, **{"connections.max.idle.ms": "15000"}) as scene:
            attacker = Attacker(scene, chance)
            counts = attacker.counts
            sockets, begun = scene.open_sockets(), time.monotonic()
            with scene.witness() as witness:
                while time.monotonic() - begun < seconds:
                    attacker.attack()
                    counts["attacks"] += 1
                    witness.wait_for(1)
                    if scene.resident_bytes() > MOST_MEMORY_BYTES:
                        breaches.append(f"{scene.resident_bytes()} bytes of memory")
                        break
                attacker.close()
                counts["witness requests answered"] = witness.answers
            log = scene.gateway.stderr_text()
            counts["limits reached"] = sum(log.count(line) for line in LIMITS)
            if len(log) > LOG_BYTES_PER_SECOND * (time.monotonic() - begun):
                breaches.append(f"{len(log)} characters of log")
            if "Traceback" in log:
                breaches.append("a traceback: " + log[log.index("Traceback") :][:2_000])
            eventually(lambda: scene.open_sockets() <= sockets, "its sockets closed")
    except (AssertionError, OSError) as failure:
        breaches.append(f"seed {seed}: {failure}")
    return counts, breaches


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.hostile.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        counts, breaches = soak(Path(directory) / "data", options.seconds, options.seed)
    print(json.dumps({"part": "hostile connections", "counts": dict(counts), "breaches": breaches}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
