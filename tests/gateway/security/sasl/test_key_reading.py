"""Reading a JWK set from files and endpoints, friendly and hostile."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seqgate.gateway.security.sasl import oauthbearer
from seqgate.gateway.security.sasl.oauthbearer import MOST_BYTES, KeysUnusable, read_keys, shown_url
from tests.support.certificates import Authority
from tests.support.tokens import Issuer, key_set

DOCUMENT = key_set(Issuer().jwk())
Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def endpoint(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Accept one connection, and let `serve` answer its request; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with contextlib.suppress(OSError):
                accepted, _ = listening.accept()
                with contextlib.closing(
                    context.wrap_socket(accepted, server_side=True) if context else accepted
                ) as peer:
                    peer.recv(65536)
                    serve(peer)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join(30)


def answer(content: bytes, head: str = "200 OK", more: str = "") -> Serve:
    text = f"HTTP/1.1 {head}\r\nContent-Length: {len(content)}\r\n{more}\r\n".encode() + content
    return lambda peer: peer.sendall(text)


def refusal(url: str) -> str:
    with pytest.raises(KeysUnusable) as refused:
        read_keys(url)
    return str(refused.value)


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a key set.json"
    file.write_bytes(DOCUMENT)
    assert len(read_keys(file.as_uri()).keys) == 1
    file.write_bytes(b" " * (MOST_BYTES + 1))
    assert "bytes" in refusal(file.as_uri())
    file.unlink()
    assert refusal(file.as_uri()) == "no such file or directory"
    assert refusal(tmp_path.as_uri()) == "is a directory"


def test_an_endpoint_is_read() -> None:
    with endpoint(answer(DOCUMENT)) as port:
        assert len(read_keys(f"http://127.0.0.1:{port}/keys?tenant=1").keys) == 1


def test_an_endpoint_needs_a_certificate_of_a_known_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.listener().write_pem(tmp_path / "own.pem"))
    with endpoint(answer(DOCUMENT), context) as port:
        assert "certificate" in refusal(f"https://localhost:{port}/keys")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.write(tmp_path / "ca.pem")))
    with endpoint(answer(DOCUMENT), context) as port:
        assert len(read_keys(f"https://localhost:{port}/keys").keys) == 1


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (answer(b"", "404 Not Found"), "status 404"),
        (answer(b"", "302 Found", "Location: file:///etc/passwd\r\n"), "redirects are not followed"),
        (answer(b"<html>"), "not a JWK set"),
        (answer(b" " * (MOST_BYTES + 1)), "bytes"),
        (answer(DOCUMENT[:-5]), "not a JWK set"),
        (lambda peer: peer.sendall(b"nonsense\r\n\r\n"), "nonsense"),
        (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000), "header line"),
        (lambda peer: None, "without response"),
    ],
)
def test_a_bad_answer_is_refused(serve: Serve, reason: str) -> None:
    with endpoint(serve) as port:
        assert reason in refusal(f"http://127.0.0.1:{port}/keys")


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n"]
)
def test_an_endpoint_that_drips_is_given_up(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauthbearer, "LIMIT_S", 0.3)

    def drip(peer: socket.socket) -> None:
        peer.sendall(begin)
        given_up = threading.Event()
        while not given_up.wait(0.05):
            peer.sendall(b"x")

    with endpoint(drip) as port:
        assert refusal(f"http://127.0.0.1:{port}/keys")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert refusal(f"http://127.0.0.1:{port}/keys") == "connection refused"


def test_a_shown_url_has_no_query() -> None:
    assert shown_url("https://idp.example:8443/keys?secret=x#y") == "https://idp.example:8443/keys"
