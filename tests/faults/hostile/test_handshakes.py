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
RSA_BITS = 3072
"""The size of the listener's key: large, so that the handshakes of the crowd take seconds in any case."""
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
        hello, sockets = self.hello(), self.scene.open_sockets()
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(self.connect()) for _ in range(count)]
            eventually(lambda: self.scene.open_sockets() >= sockets + count, "all of them accepted")
            for client in crowd:  # all at once, so that they meet in one turn of the event loop
                client.sendall(hello)
            yield crowd
        eventually(lambda: self.scene.open_sockets() <= sockets, "all of them gone")

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
        f"{LISTENER}ssl.keystore.location": str(
            authority.listener(rsa_bits=RSA_BITS).write_pem(tmp_path / "own.pem")
        ),
        "socket.listen.backlog.size": "1000",
        "seqgate.tls.handshake.timeout.ms": str(int(2000 * DEADLINE_S)),
    }
    with running(tmp_path / "data", also_listen=[f"SECURED://127.0.0.1:{port}"], **settings) as scene:
        yield Secured(scene, port, authority)


def test_a_thousand_half_handshakes_and_whole_ones_hold_up_nobody(secured: Secured) -> None:
    scene = secured.scene
    with scene.witness() as witness:
        witness.wait_for(4)
        with secured.half_done(CROWD) as crowd, secured.hammered() as made:
            before = witness.answers
            for client in crowd:
                assert client.recv(1), "the gateway must answer the first bytes"
            assert witness.answers - before > 40, "the gateway must answer requests between the handshakes"
            with secured.client() as another:
                assert another.version() == "TLSv1.3"
            assert next(made) > 0
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


def test_clients_that_hang_up_while_their_handshake_waits_cost_no_signature(secured: Secured) -> None:
    scene = secured.scene
    with secured.half_done(50) as few:
        before_s = scene.processor_s()
        for client in few:
            assert client.recv(1)
        each_s = (scene.processor_s() - before_s) / len(few)
    before_s = scene.processor_s()
    with secured.half_done(CROWD) as crowd:
        assert crowd[0].recv(1)
    assert scene.processor_s() - before_s < CROWD * each_s / 2
    with secured.client() as another:
        assert another.version() == "TLSv1.3"
    assert not scene.log_has("Traceback")
