"""A hundred thousand requests sent at once on one connection."""

from __future__ import annotations

import struct
import threading

from tests.faults.hostile.scene import Scene, frame, receive_exactly
from tests.support.wire import encode

COUNT = 100_000


def test_all_are_answered_in_order_while_others_are_served(scene: Scene) -> None:
    payload = encode("api_versions", 0, {}, correlation_id=0)
    requests = [payload[:4] + struct.pack(">i", number) + payload[8:] for number in range(COUNT)]
    stream = b"".join(map(frame, requests))
    with scene.bounded(growth_bytes=48 << 20), scene.witness() as witness, scene.connect() as client:
        sending = threading.Thread(target=client.sendall, args=(stream,))
        sending.start()
        (size,) = struct.unpack(">i", receive_exactly(client, 4))
        first = receive_exactly(client, size)
        before = witness.answers
        rest = receive_exactly(client, (COUNT - 1) * (size + 4))
        sending.join()
        assert witness.answers > before, "the gateway must serve the witness meanwhile"
        ids = [struct.unpack_from(">i", first)[0]]
        ids += [struct.unpack_from(">i", rest, 4 + at)[0] for at in range(0, len(rest), size + 4)]
        assert ids == list(range(COUNT))


def test_a_pipeline_behind_long_polls_is_held_in_little_memory(scene: Scene) -> None:
    topic = scene.create()
    position = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    poll = encode(
        "fetch",
        11,
        {
            "replica_id": -1,
            "max_wait": 2**31 - 1,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [position]}],
        },
    )
    behind = frame(encode("api_versions", 0, {}, correlation_id=0)) * 3_000
    with scene.bounded(growth_bytes=48 << 20), scene.witness() as witness, scene.connections(300) as waiting:
        for client in waiting:
            client.sendall(frame(poll) + behind)
        witness.wait_for(10)


def test_the_same_correlation_id_again_and_again(scene: Scene) -> None:
    payload = frame(encode("api_versions", 0, {}, correlation_id=7))
    with scene.connect() as client:
        client.sendall(payload * 1000)
        for _ in range(1000):
            (size,) = struct.unpack(">i", receive_exactly(client, 4))
            assert receive_exactly(client, size)[:4] == struct.pack(">i", 7)
