"""Clients that never read: large answers, many of them, and endless small ones."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from tests.faults.hostile.scene import GROWTH_BYTES, Scene, eventually, frame, running, versions_frame
from tests.support.batches import Batch, records
from tests.support.wire import Wire, encode


def fill(scene: Scene, topic: str, batches: int, batch_bytes: int) -> None:
    with scene.wire() as wire:
        for sequence in range(batches):
            batch = Batch(records(1, batch_bytes, prefix=f"{sequence}-")).of(9, 0, sequence)
            entry = {"index": 0, "records": batch.encode()}
            topics = [{"name": topic, "partition_data": [entry]}]
            answer = wire.call("produce", 9, acks=-1, timeout=30_000, topic_data=topics).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def send_without_reading(client: socket.socket, data: bytes) -> int:
    """Send as much of `data` as the gateway takes; return the number of bytes."""
    client.settimeout(0.3)
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < len(data):
            sent += client.send(data[sent : sent + (1 << 20)])
    return sent


def test_large_answers_stay_in_their_files(scene: Scene) -> None:
    topic = scene.create()
    fill(scene, topic, 20, 900_000)
    position = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 26}
    fetch = frame(
        encode(
            "fetch",
            11,
            {
                "replica_id": -1,
                "min_bytes": 1,
                "max_bytes": 1 << 26,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": [position]}],
            },
        )
    )
    with (
        scene.bounded(growth_bytes=48 << 20),
        scene.witness() as witness,
        scene.connections(40, receive_bytes=1 << 14) as deaf,
    ):
        for client in deaf:
            client.sendall(fetch * 20)
        witness.wait_for(10)


def test_small_answers_without_end(scene: Scene) -> None:
    flood = versions_frame() * 500_000
    with (
        scene.bounded(growth_bytes=48 << 20),
        scene.witness() as witness,
        scene.connections(8, receive_bytes=1 << 14) as deaf,
    ):
        sent = [send_without_reading(client, flood) for client in deaf]
        assert max(sent) < len(flood), "the gateway must stop reading from a client that does not read"
        witness.wait_for(10)


def test_answers_in_memory_are_dropped_with_their_readers_when_they_are_too_many(tmp_path: Path) -> None:
    with running(tmp_path / "data", **{"socket.send.buffer.bytes": "16384"}) as scene:
        scene.create(count=10_000)
        everything = frame(encode("metadata", 9, {"topics": None}))
        with scene.witness() as witness, contextlib.ExitStack() as stack:
            memory = scene.resident_bytes()
            while not scene.log_has("it reads its answers too slowly"):
                client = stack.enter_context(scene.connect(receive_bytes=1 << 14))
                with contextlib.suppress(ConnectionError, TimeoutError):
                    client.sendall(everything * 4)
                witness.wait_for(1)
            witness.wait_for(6)
            grown = scene.resident_bytes() - memory
            assert grown < GROWTH_BYTES, f"the gateway grew by {grown} bytes"
        with Wire(scene.gateway.bootstrap) as wire:
            assert wire.call("metadata", 9, topics=None).fields["topics"]
        eventually(lambda: scene.open_files() < 120, "all sockets closed")
