"""Clients that vanish without a packet, with a reset, or behind a proxy that stopped forwarding."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from tests.faults.hostile.scene import Scene, eventually, receive_exactly, running, versions_frame


def test_a_reset_in_the_middle_of_everything_leaves_nothing(scene: Scene) -> None:
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness:
        for number in range(300):
            client = scene.connect()
            client.sendall(versions_frame() * 50 + versions_frame()[: number % 20])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        witness.wait_for(10)


def test_one_who_says_nothing_any_more_is_closed(tmp_path: Path) -> None:
    """A machine that lost its power leaves a socket that never answers.

    TCP keep-alive finds such a socket, also during a long poll.
    """
    with running(tmp_path / "data", **{"connections.max.idle.ms": "500"}) as scene:
        files = scene.open_files()
        with scene.connections(50) as silent:
            for client in silent:
                client.sendall(versions_frame())
            for client in silent:
                assert receive_exactly(client, 4)
            eventually(lambda: scene.open_files() <= files, "all closed, though none of them hung up")
        assert scene.log_has("idle for more than 500 ms")
