"""A thousand clients that begin TLS handshakes, half or whole, over and over: clients that are connected are
served meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.hostile.scene import DEADLINE_S, Scene, eventually, running
from tests.support.certificates import Authority
from tests.support.gateway_process import free_port

CROWD = 1000
HAMMERS = 4
LISTENER = "listener.name.secured."


class Secured:
    """A gateway with a listener for TLS, and its attackers."""

    def __init__(self, scene: Scene, port: int, authority: Authority) -> None:
        self.scene = scene
        self.context = ssl.create_default_context(cadata=authority.pem)
        self._port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE_S)

    def client(self) -> ssl.SSLSocket:
        """Return a client that has finished its handshake."""
        return self.context.wrap_socket(self.connect(), server_hostname="localhost")

    def hello(self) -> bytes:
        """Return the first bytes of a handshake."""
        outgoing = ssl.MemoryBIO()
        half = self.context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            half.do_handshake()
        return outgoing.read()

    @contextlib.contextmanager
    def half_done(self, count: int) -> Iterator[list[socket.socket]]:
        """Return connections that have sent the first bytes of a handshake, and send no more."""
        hello = self.hello()
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(self.connect()) for _ in range(count)]
            for client in crowd:  # all at once, so that they meet in one turn of the event loop
                client.sendall(hello)
            yield crowd

    @contextlib.contextmanager
    def hammered(self) -> Iterator[itertools.count[int]]:
        """Let threads make whole handshakes, as fast as they can, and hang up."""
        stopping = threading.Event()
        made = itertools.count()

        def hammer() -> None:
            while not stopping.is_set():
                with contextlib.suppress(OSError), self.client():
                    next(made)

        threads = [threading.Thread(target=hammer) for _ in range(HAMMERS)]
        for thread in threads:
            thread.start()
        try:
            yield made
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    authority = Authority()
    port = free_port()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SSL",
        f"{LISTENER}ssl.keystore.location": str(authority.listener().write_pem(tmp_path / "own.pem")),
        "socket.listen.backlog.size": "1000",
    }
    with running(tmp_path / "data", also_listen=[f"SECURED://127.0.0.1:{port}"], **settings) as scene:
        yield Secured(scene, port, authority)


def test_a_thousand_half_handshakes_and_whole_ones_hold_up_nobody(secured: Secured) -> None:
    scene = secured.scene
    with scene.witness() as witness:
        witness.wait_for(4)
        sockets = scene.open_sockets()
        with secured.half_done(CROWD) as crowd, secured.hammered() as made:
            eventually(lambda: scene.open_sockets() >= sockets + CROWD, "all of them accepted")
            witness.wait_for(40)
            for client in crowd:
                assert client.recv(1), "the gateway must answer the first bytes"
            witness.wait_for(40)
            with secured.client() as another:
                assert another.version() == "TLSv1.3"
            assert next(made) > 0
        eventually(lambda: scene.open_sockets() <= sockets + 1, "all gone")
        witness.wait_for(4)


def test_half_handshakes_hold_little_memory(secured: Secured) -> None:
    scene = secured.scene
    with secured.half_done(50) as crowd:
        for client in crowd:
            assert client.recv(1)
    memory = scene.resident_bytes()
    with secured.half_done(CROWD) as crowd:
        for client in crowd:
            assert client.recv(1)
        each = (scene.resident_bytes() - memory) // CROWD
    assert each < 128 << 10, f"{each} bytes for each"


def test_clients_that_hang_up_while_their_handshake_waits(secured: Secured) -> None:
    scene = secured.scene
    sockets = scene.open_sockets()
    for _ in range(3):
        with secured.half_done(CROWD):
            pass
    eventually(lambda: scene.open_sockets() <= sockets, "all gone")
    with secured.client() as another:
        assert another.version() == "TLSv1.3"
    assert not scene.log_has("Traceback")
