"""Clients that send almost nothing for ever: they take no memory that others need, and the gateway finally
closes them.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.faults.hostile.scene import Scene, eventually, is_closed, receive_exactly, running, versions_frame

HUGE = struct.pack(">i", 3_900_000)


def test_huge_frames_announced_take_no_room_from_others(scene: Scene) -> None:
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness, scene.connections(300) as slow:
        for client in slow:
            client.sendall(HUGE + b"\0\0\0\x0b")
        for _ in range(3):
            witness.wait_for(4)
            with scene.connect() as honest:
                honest.sendall(versions_frame()[:7])
                for client in slow:
                    client.sendall(b"\0")
                honest.sendall(versions_frame()[7:])
                assert receive_exactly(honest, 4), "a request that arrives in two parts needs memory, too"


def test_one_byte_now_and_then_of_each_part_of_a_request(scene: Scene) -> None:
    whole = versions_frame()
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness, scene.connections(300) as slow:
        for byte in whole[:-1]:
            for client in slow:
                client.sendall(bytes((byte,)))
        witness.wait_for(20)
        for client in slow:
            client.sendall(whole[-1:])
        for client in slow:
            assert client.recv(4), "a slow client that sends its whole request must be answered"


def test_a_request_that_never_gets_whole_is_closed_as_an_idle_connection_is(tmp_path: Path) -> None:
    with running(tmp_path / "data", **{"connections.max.idle.ms": "1000"}) as scene:
        files = scene.open_files()
        with scene.connections(20) as slow:
            for client in slow:
                client.sendall(HUGE)
            while not scene.log_has("is not whole after more than 1000 ms"):
                for client in slow:
                    try:
                        client.sendall(b"\0")
                    except ConnectionError:
                        continue
            assert all(is_closed(client) for client in slow)
        eventually(lambda: scene.open_files() <= files, "closed")


def test_those_that_stall_with_much_memory_give_way_to_others(scene: Scene) -> None:
    """The stalled clients really send these bytes: together more than the memory for all requests."""
    part = bytes(1_000_000)
    with scene.witness() as witness, scene.connections(12) as stalled:
        for client in stalled:
            client.settimeout(0.2)
            try:
                client.sendall(HUGE + part)
            except TimeoutError:
                continue  # The gateway stops reading, because the memory for requests is used up.
        witness.wait_for(6)
