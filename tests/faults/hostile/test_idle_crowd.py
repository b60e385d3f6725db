"""Ten thousand idle connections: the memory of each, the effect on other clients, and how the gateway closes
them.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.hostile.scene import eventually, is_closed, running, versions_frame

CROWD = 10_000
BYTES_EACH = 16 << 10
"""Memory of a connection, as docs/limits.md states it."""


@pytest.fixture
def may_open_many() -> Iterator[None]:
    """Raise this process's file limit: each connection needs a descriptor on this side, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 2 * CROWD - 1000, (
        f"the system allows {hard} open files only"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, CROWD + 2000)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("may_open_many")
def test_ten_thousand_idle_connections_hold_up_nobody_and_no_stop(tmp_path: Path) -> None:
    with running(tmp_path / "data", **{"socket.listen.backlog.size": "1000"}) as scene:
        with scene.witness() as witness:
            witness.wait_for(4)
            sockets, memory = scene.open_sockets(), scene.resident_bytes()
            crowd: list[socket.socket] = []
            try:
                for number in range(CROWD):
                    client = scene.connect()
                    crowd.append(client)
                    if number % 10 == 0:
                        client.sendall(versions_frame())
                eventually(lambda: scene.open_sockets() >= sockets + CROWD, "all of them accepted")
                witness.wait_for(10)
                each = (scene.resident_bytes() - memory) // CROWD
                assert each < BYTES_EACH, f"{each} bytes for each"
                for client in crowd[: CROWD // 2]:
                    client.close()
                eventually(lambda: scene.open_sockets() <= sockets + CROWD - CROWD // 2, "half of them gone")
                witness.wait_for(4)
            finally:
                for client in crowd[: CROWD // 2]:
                    client.close()
        scene.gateway.stop()
        for client in crowd[CROWD // 2 :]:
            client.close()
        scene.gateway.start()
        assert scene.log_bytes() < 1 << 20


def test_a_crowd_that_does_nothing_is_closed(tmp_path: Path) -> None:
    settings = {"connections.max.idle.ms": "1000", "socket.listen.backlog.size": "1000"}
    with running(tmp_path / "data", **settings) as scene, scene.witness() as witness:
        sockets = scene.open_sockets()
        with scene.connections(800) as crowd:
            for client in crowd:
                assert is_closed(client)
            eventually(lambda: scene.open_sockets() <= sockets + 1, "all closed for doing nothing")
            witness.wait_for(4)
