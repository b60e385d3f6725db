"""Connections that are opened and closed at once, and connections of other protocols."""

from __future__ import annotations

import contextlib
import random

from tests.faults.hostile.scene import Scene, is_closed

TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(range(150))
STRANGERS = (
    TLS_HELLO,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x00\x00\x00\x08\x04\xd2\x16\x2f",  # how PostgreSQL clients ask for TLS
    b"*1\r\n$4\r\nPING\r\n",
    b"\x05\x01\x00",
    b"\r\n\r\n",
)


def test_who_connects_and_goes_leaves_nothing(scene: Scene) -> None:
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness:
        for _ in range(500):
            scene.connect().close()
        witness.wait_for(10)


def test_other_protocols_are_closed_or_wait_for_more(scene: Scene) -> None:
    logged = scene.log_bytes()
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness:
        for stranger in STRANGERS * 20:
            with scene.connect() as client:
                client.sendall(stranger)
                if len(stranger) >= 4 and int.from_bytes(stranger[:4], "big") > 4_000_000:
                    assert is_closed(client)
        witness.wait_for(10)
    assert scene.log_has("its first bytes are 'GET ', which looks like HTTP")
    assert scene.log_bytes() - logged < 100_000, "the same complaint must be logged only a few times a second"


def test_random_bytes(scene: Scene) -> None:
    chance = random.Random(7)
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness:
        for _ in range(200):
            size = chance.randrange(1, 3000)
            data = chance.randbytes(size)
            if chance.random() < 0.7:
                data = size.to_bytes(4, "big") + data
            with scene.connect() as client, contextlib.suppress(ConnectionError):
                client.sendall(data)
        witness.wait_for(10)
