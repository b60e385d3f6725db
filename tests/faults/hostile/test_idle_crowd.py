"""Ten thousand connections that do nothing: what each costs, what others notice, and how they go."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.hostile.scene import eventually, running, versions_frame

CROWD = 10_000
BYTES_EACH = 16 << 10
"""Told in docs/limits.md."""


@pytest.fixture
def may_open_many() -> Iterator[None]:
    """This process needs a file for each connection, too; the gateway takes what the system allows by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 2 * CROWD - 1000, (
        f"the system allows {hard} open files only"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, CROWD + 2000)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("may_open_many")
def test_ten_thousand_idle_connections(tmp_path: Path) -> None:
    settings = {"connections.max.idle.ms": "20000", "socket.listen.backlog.size": "1000"}
    with running(tmp_path / "data", **settings) as scene, scene.witness() as witness:
        witness.wait_for(4)
        files, memory = scene.open_files(), scene.resident_bytes()
        crowd: list[socket.socket] = []
        try:
            for number in range(CROWD):
                client = scene.connect()
                crowd.append(client)
                if number % 10 == 0:
                    client.sendall(versions_frame())
            eventually(lambda: scene.open_files() >= files + CROWD, "all of them accepted")
            witness.wait_for(10)
            each = (scene.resident_bytes() - memory) // CROWD
            assert each < BYTES_EACH, f"{each} bytes for each"
            eventually(lambda: scene.open_files() <= files + 20, "all closed for doing nothing")
            witness.wait_for(4)
        finally:
            for client in crowd:
                client.close()
        assert scene.log_bytes() < 1 << 20


@pytest.mark.usefixtures("may_open_many")
def test_a_crowd_holds_up_no_stop(tmp_path: Path) -> None:
    with running(tmp_path / "data", **{"socket.listen.backlog.size": "1000"}) as scene:
        with scene.connections(3000):
            begun = time.monotonic()
            scene.gateway.stop()
            assert time.monotonic() - begun < 20, "the time that a stop gives those who work"
        scene.gateway.start()
