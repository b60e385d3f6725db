"""Malformed frames: sizes, counts, lengths, versions and keys that do not fit the bytes that follow."""

from __future__ import annotations

import random
import struct
from typing import Final

import pytest

from seqgate.gateway.handlers import APIS
from tests.faults.hostile.scene import Scene, frame, is_closed, receive_exactly
from tests.support.wire import encode, encode_header

INT_MAX: Final = 2**31 - 1
FLEXIBLE_METADATA: Final = 9


@pytest.mark.parametrize("size", [-1, -(2**31), 4_000_001, INT_MAX])
def test_sizes_out_of_bounds_close_the_connection(scene: Scene, size: int) -> None:
    with scene.connect() as client:
        client.sendall(struct.pack(">i", size) + b"\0" * 100)
        assert is_closed(client)


def test_an_empty_frame_is_no_request(scene: Scene) -> None:
    with scene.connect() as client:
        client.sendall(frame(b""))
        assert is_closed(client)


def test_unknown_keys_and_versions(scene: Scene) -> None:
    with scene.witness() as witness:
        for api_key, version in ((18, 99), (999, 0), (-1, 0), (3, 99), (3, -1), (32767, 32767)):
            with scene.connect() as client:
                client.sendall(frame(encode_header(api_key, version, 1, flexible=False, client_id="x")))
                if (api_key, version) == (18, 99):
                    (size,) = struct.unpack(">i", receive_exactly(client, 4))
                    assert struct.unpack_from(">ih", receive_exactly(client, size)) == (1, 35)
                else:
                    assert is_closed(client)
        witness.wait_for(4)


@pytest.mark.parametrize("count", [INT_MAX, 2**31, -2, 1_000_000])
def test_counts_of_what_does_not_follow(scene: Scene, count: int) -> None:
    """Send Metadata with a count of topics that does not fit its bytes: in v1, and in v9 as the count of a
    compact array.
    """
    with scene.bounded(growth_bytes=16 << 20), scene.witness() as witness:
        plain = encode_header(3, 1, 1, flexible=False, client_id="x") + struct.pack(">I", count & 0xFFFFFFFF)
        varint = bytes((count >> shift & 0x7F) | (0x80 if shift < 28 else 0) for shift in (0, 7, 14, 21, 28))
        flexible = encode_header(3, FLEXIBLE_METADATA, 1, flexible=True, client_id="x") + varint
        for payload in (plain, flexible):
            with scene.connect() as client:
                client.sendall(frame(payload))
                if count >= 0 and (payload is flexible or count <= INT_MAX):
                    assert is_closed(client)  # A negative count means null, which asks for all topics.
        witness.wait_for(4)


def test_lengths_beyond_the_end_of_every_api(scene: Scene) -> None:
    """Every API gets, in its newest version, a body of bytes that decode as the greatest lengths."""
    bodies = (
        b"",
        b"\xff" * 4,
        b"\x7f\xff\xff\xff" * 8,
        b"\xff\xff\xff\xff\x0f" * 8,
        b"\x7f\xff" * 8,
        b"\0" * 3,
    )
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness:
        for api in APIS:
            for body in bodies:
                with scene.connect() as client:
                    header = encode_header(api.key, api.versions[1], 1, flexible=True, client_id="x")
                    client.sendall(frame(header + body))
        witness.wait_for(10)


def test_bodies_cut_anywhere(scene: Scene) -> None:
    chance = random.Random(11)
    whole = [
        encode("metadata", 9, {"topics": [{"name": "a" * 100}] * 20}),
        encode("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g" * 50] * 20}),
        encode("describe_configs", 4, {"resources": [{"resource_type": 2, "resource_name": "t" * 30}] * 10}),
    ]
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness:
        for payload in whole * 30:
            with scene.connect() as client:
                client.sendall(frame(payload[: chance.randrange(10, len(payload) - 1)]))
                assert is_closed(client)
        witness.wait_for(4)


def test_a_client_id_can_not_write_the_log(scene: Scene) -> None:
    logged = scene.log_bytes()
    forged = "\n2026-01-01 00:00:00,000 ERROR gateway: the disk is on fire \x1b[31m"
    for client_id in (forged, "x" * 30_000):
        for _ in range(50):
            with scene.connect() as client:
                client.sendall(frame(encode_header(999, 0, 1, flexible=False, client_id=client_id)))
                assert is_closed(client)
    assert not any(line.startswith("2026-01-01") for line in scene.gateway.stderr_text().splitlines())
    assert "\x1b" not in scene.gateway.stderr_text()
    assert scene.log_bytes() - logged < 300_000
