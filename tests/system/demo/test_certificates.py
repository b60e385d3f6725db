"""The demo's certificates are accepted by clients that check by the letter of RFC 5280, as Python 3.13 does."""

from __future__ import annotations

import ssl
from pathlib import Path

from examples.demo.security import write_certificates


def test_a_strict_client_accepts_the_listener(tmp_path: Path) -> None:
    write_certificates(tmp_path / "trusted.pem", tmp_path / "listener.pem")
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(tmp_path / "listener.pem")
    asking = ssl.create_default_context(cafile=tmp_path / "trusted.pem")
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    to_listener, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_listener, server_hostname="localhost")
    listener = listening.wrap_bio(to_listener, to_client, server_side=True)
    for side in (client, listener, client, listener):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() == "TLSv1.3"
    assert ("DNS", "localhost") in client.getpeercert()["subjectAltName"]
